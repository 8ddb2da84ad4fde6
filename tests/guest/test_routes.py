"""Which handler gets a request."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable

import pytest

from guest.agentd import answers, bodies, heads, routes, server
from guest.agentd.errors import RequestError


def say(word: str) -> Callable[[server.Request], answers.Answer]:
    """A handler that tells who it is and what it got."""
    return lambda request: answers.Answer(200, blocks=[f"{word} {request.parameter}".strip().encode()])


TABLE = routes.Table(
    [
        {"/things": {"GET": say("list"), "POST": say("make")}},
        {"/things/{id}": {"GET": say("tell"), "DELETE": say("end")}, "/things/{id}/part": {"POST": say("part")}},
        {"/things/all": {"GET": say("all")}},
    ]
)


def ask(method: str, path: str) -> answers.Answer:
    head = heads.parse([f"{method} {path} HTTP/1.1".encode()])
    with socket.socket() as connection:
        body = bodies.Body(io.BytesIO(), head, invite=lambda: None)
        return TABLE.respond(server.Request(head, body=body, connection=connection))


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/things", b"list"),
        ("HEAD", "/things?x=/things/1", b"list"),
        ("POST", "/things", b"make"),
        ("GET", "/things/1", b"tell 1"),
        ("DELETE", "/things/a%2Fb", b"end a%2Fb"),
        ("POST", "/things/1/part", b"part 1"),
        ("GET", "/things/all", b"all"),
    ],
)
def test_path_and_method_choose_the_handler(method: str, path: str, words: bytes) -> None:
    answer = ask(method, path)
    assert (answer.status, list(answer.blocks)) == (200, [words])


@pytest.mark.parametrize(
    "path", ["/", "/thing", "/things/", "/things//part", "/things/1/2", "/things/1/2/part", "/things/1/parts", "/part"]
)
def test_what_is_no_route_is_a_404(path: str) -> None:
    with pytest.raises(RequestError) as caught:
        ask("GET", path)
    assert (caught.value.status, caught.value.code) == (404, "no_such_route")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/things", "GET, POST, HEAD"),
        ("POST", "/things/1", "DELETE, GET, HEAD"),
        ("GET", "/things/1/part", "POST"),
        ("HEAD", "/things/1/part", "POST"),
    ],
)
def test_another_method_is_a_405_that_names_the_right_ones(method: str, path: str, allowed: str) -> None:
    answer = ask(method, path)
    assert answer.status == 405
    assert dict(answer.headers)["Allow"] == allowed
