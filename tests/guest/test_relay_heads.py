"""Heads on their way through the relay: what is changed, and all that is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from guest.agentd import heads, relay_heads
from tests.support.agent import Agent
from tests.support.relay_peers import OK, Server, answering, dialled, request


def test_a_request_arrives_as_one_for_localhost(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    seen: list[list[str]] = []
    server = perform(answering(OK, seen=seen))
    fields = ["b-Field: 1", "A: 2", "B-field:  3 ", "Connection: X-Own, close", "X-Own: 1", "X-aws-proxy-auth: secret"]
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET //a/%2F?q=%zz HTTP/1.1", *fields))
        client.rest()
    assert seen[0] == [
        "GET //a/%2F?q=%zz HTTP/1.1",
        f"Host: localhost:{server.port}",
        "b-Field: 1",
        "A: 2",
        "B-field: 3",
        "X-Forwarded-Host: endpoint.example",
        "X-Forwarded-Proto: https",
    ]


def test_an_answer_arrives_as_it_was_sent(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    sent = (
        b"HTTP/1.1 299 Very \xe9\r\nset-Cookie: a=1\r\nX:  y \r\nVMNEST-relay: mine\r\nSet-Cookie: b=2\r\n"
        b"Connection: X-Own\r\nX-Own: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"
    )
    server = perform(answering(sent))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert client.head() == [
            "HTTP/1.1 299 Very \xe9",
            "set-Cookie: a=1",
            "X:  y ",
            "Set-Cookie: b=2",
            "Content-Length: 0",
            "vmnest-relay: relayed",
        ]


@pytest.mark.parametrize(
    ("fields", "origin"),
    [
        (["Origin: https://endpoint.example"], "http://localhost:7"),
        (["Origin: https://ENDPOINT.example"], "http://localhost:7"),
        (["Origin: https://evil.example"], "https://evil.example"),
        (["Origin: null"], "null"),
        (["X-Forwarded-Host: localhost:8000", "Origin: http://localhost:8000"], "http://localhost:7"),
        (["X-Forwarded-Host: localhost:8000", "Origin: https://endpoint.example"], "https://endpoint.example"),
        (["X-Forwarded-Host: localhost:8000", "Origin: http://localhost:80"], "http://localhost:80"),
    ],
)
def test_only_an_origin_of_the_same_host_becomes_local(fields: list[str], origin: str) -> None:
    lines = relay_heads.build_request(parse(request(7, "GET / HTTP/1.1", *fields)), port=7).split(b"\r\n")
    assert [line for line in lines if line.startswith(b"Origin")] == [b"Origin: " + origin.encode()]


def test_an_opaque_origin_is_nobodys_even_without_a_host() -> None:
    head = parse(b"GET / HTTP/1.0\r\nOrigin: null\r\n\r\n")
    assert b"\r\nOrigin: null\r\n" in relay_heads.build_request(head, port=7)


def test_what_the_forwarder_says_of_the_client_is_left_alone() -> None:
    fields = ["X-Forwarded-Host: a:1", "X-Forwarded-Proto: http", "X-Forwarded-For: 1.2.3.4"]
    built = relay_heads.build_request(parse(request(7, "GET / HTTP/1.1", *fields)), port=7).decode().split("\r\n")
    assert [line for line in built if line.startswith("X-Forwarded")] == fields


@pytest.mark.parametrize("told", ["X-Forwarded-Host: a:1", "X-Forwarded-Proto: http", "X-Forwarded-For: 1.2.3.4"])
def test_what_a_client_leaves_out_is_told_of_the_endpoint(told: str) -> None:
    built = relay_heads.build_request(parse(request(7, "GET / HTTP/1.1", told)), port=7).decode().split("\r\n")
    ours = {"X-Forwarded-Host": "endpoint.example", "X-Forwarded-Proto": "https"}
    ours.update([tuple(told.split(": "))])
    assert {line for line in built if line.startswith("X-Forwarded")} == {f"{name}: {ours[name]}" for name in ours}


@pytest.mark.parametrize(
    ("line", "local"),
    [
        ("GET /a//b?q=http://x/ HTTP/1.1", "GET /a//b?q=http://x/ HTTP/1.1"),
        ("GET http://endpoint.example/a?b HTTP/1.1", "GET /a?b HTTP/1.1"),
        ("GET HTTPS://endpoint.example?b HTTP/1.1", "GET /?b HTTP/1.1"),
        ("GET http://endpoint.example HTTP/1.0", "GET / HTTP/1.0"),
        ("OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"),
    ],
)
def test_a_target_names_no_host_but_the_local_one(line: str, local: str) -> None:
    built = relay_heads.build_request(parse(request(7, line)), port=7)
    assert built.startswith(f"{local}\r\nHost: localhost:7\r\n".encode())


@pytest.mark.parametrize(
    "line", ["CONNECT a:1 HTTP/1.1", "CONNECT http://a/ HTTP/1.1", "GET a HTTP/1.1", "GET * HTTP/1.1"]
)
def test_a_request_to_a_proxy_is_refused(line: str) -> None:
    with pytest.raises(heads.HeadError):
        relay_heads.build_request(parse(request(7, line)), port=7)


def test_what_an_old_client_cannot_want_is_taken_out() -> None:
    fields = ["Connection: upgrade", "Upgrade: websocket", "Expect: 100-continue", "X: 1"]
    built = relay_heads.build_request(parse(request(7, "GET / HTTP/1.0", *fields)), port=7)
    assert built.split(b"\r\n")[2] == b"X: 1"
    assert b"pgrade" not in built


def test_all_the_protocols_that_a_client_offers_are_passed_on() -> None:
    fields = ["Upgrade: a", "Connection: keep-alive, Upgrade", "Upgrade: b/2"]
    built = relay_heads.build_request(parse(request(7, "GET / HTTP/1.1", *fields)), port=7)
    assert built.endswith(b"\r\nConnection: Upgrade\r\nUpgrade: a, b/2\r\n\r\n")
    assert built.count(b"pgrade: ") == 1


@pytest.mark.parametrize("field", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_no_client_can_have_the_framing_taken_out(field: str) -> None:
    head = parse(request(7, "POST / HTTP/1.1", field, f"Connection: {field.partition(':')[0]}"))
    assert f"\r\n{field}\r\n".encode() in relay_heads.build_request(head, port=7)


def test_no_server_can_have_the_framing_taken_out() -> None:
    response = heads.parse_response([b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Connection: content-length"])
    assert b"\r\nContent-Length: 5\r\n" in relay_heads.build_response(response, keep=True, in_chunks=False)


def parse(data: bytes) -> heads.Head:
    return heads.parse(data.split(b"\r\n")[:-2])


def test_a_large_head_passes_and_a_larger_one_does_not(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    seen: list[list[str]] = []
    server = perform(answering(b"HTTP/1.1 200 OK\r\nB: " + b"b" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n", seen=seen))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", "A: " + "a" * 70_000))
        assert "B: " + "b" * 70_000 in client.head()
    assert "A: " + "a" * 70_000 in seen[0]
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", "A: " + "a" * 100_000))
        assert client.head()[0].split()[1] == "431"
