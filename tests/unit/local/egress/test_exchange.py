"""Requests in the clear: what of them reaches the server, and what of the answer the client."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.egress import OTHER, PUBLIC, Way, World, open_way, read_answer
from tests.support.machines import read_request, scripted_server
from vmnest.local.egress import conversation
from vmnest.wire import http1, streams

NAME = "a.example"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of these, and writes down what it got."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers) or [ANSWER]
        self.seen: list[tuple[http1.Request, bytes]] = []
        self.connections = 0

    def __call__(self, stream: streams.Stream) -> None:
        self.connections += 1
        while (got := read_request(stream)) is not None:
            self.seen.append(got)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            stream.send(answer)
            if b"close" in answer or b"\r\n\r\n" not in answer or b"Content-Length" not in answer:
                return


@contextlib.contextmanager
def way_to(script: Callable[[streams.Stream], None], *allowed: str, **options: object) -> Iterator[Way]:
    with scripted_server(script) as port:
        world = World(
            {NAME: [[PUBLIC]], "b.example": [[OTHER]]}, {(PUBLIC, 80): port, (PUBLIC, 8080): port, (OTHER, 80): port}
        )
        with open_way(*(allowed or (NAME, "a.example:8080")), world=world, **options) as way:  # type: ignore[arg-type]
            yield way


def get(url: str, *fields: str, method: str = "GET", host: str = NAME, version: str = "1.1") -> bytes:
    lines = (f"{method} {url} HTTP/{version}", f"Host: {host}", *fields, "")
    return "".join(f"{line}\r\n" for line in lines).encode()


def answer(stream: streams.Stream) -> tuple[int, bytes]:
    """One answer with a length."""
    head = stream.read_head()
    assert head is not None
    response = http1.parse_response(head)
    length, body = int(http1.first(response.fields, "content-length") or 0), b""
    while len(body) < length:
        body += stream.receive()
    return response.status, body


# -- to the server -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://a.example", "/"),
        ("http://A.EXAMPLE.:80/x//y?a=b&c", "/x//y?a=b&c"),
        ("HTTP://a.example?q", "/?q"),
        ("http://a.example/%2e%2e/%0d%0a", "/%2e%2e/%0d%0a"),
    ],
)
def test_the_server_gets_the_path_and_the_host_that_were_judged(url: str, target: str) -> None:
    server = Server()
    with way_to(server) as way:
        assert way.ask(get(url, "Connection: close", host="A.example")) == (200, b"ok")
    ((request, _),) = server.seen
    assert (request.target, http1.values(request.fields, "host")) == (target, [NAME])


def test_another_port_stays_in_host() -> None:
    server = Server()
    with way_to(server) as way:
        assert way.ask(get("http://a.example:8080/", "Connection: close", host="a.example:8080"))[0] == 200
    assert http1.first(server.seen[0][0].fields, "host") == "a.example:8080"


def test_what_is_between_client_and_proxy_stays_there() -> None:
    server = Server()
    private = (
        "Proxy-Authorization: Basic x",
        "Proxy-Connection: keep-alive",
        "Keep-Alive: 5",
        "TE: trailers",
        "X-Hop: 1",
    )
    with way_to(server) as way:
        way.ask(get("http://a.example/", *private, "Connection: close, X-Hop", "Upgrade: h2c", "X-Own: 1"))
    names = {name.lower() for name, _ in server.seen[0][0].fields}
    assert names == {"host", "x-own"}


@pytest.mark.parametrize("hidden", ["Content-Length", "Transfer-Encoding", "Host"])
def test_connection_cannot_take_away_what_delimits_a_request(hidden: str) -> None:
    server = Server()
    with way_to(server) as way:
        way.ask(get("http://a.example/", "Content-Length: 3", f"Connection: close, {hidden}", method="POST") + b"abc")
    ((request, body),) = server.seen
    assert (body, http1.first(request.fields, "host")) == (b"abc", NAME)


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (("Content-Length: 5",), b"hello"),
        (("Transfer-Encoding: chunked",), b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"),
        (("Content-Length: 5", "Expect: 100-continue"), b"hello"),
    ],
)
def test_bodies_are_carried(fields: tuple[str, ...], body: bytes) -> None:
    server = Server()
    with way_to(server) as way:
        stream = way.dial()
        with stream.socket:
            stream.send(get("http://a.example/", *fields, method="POST"))
            if "Expect: 100-continue" in fields:
                assert (stream.read_head() or b"").startswith(b"HTTP/1.1 100")
            stream.send(body)
            assert answer(stream) == (200, b"ok")
    assert server.seen[0][1] == b"hello"


def test_no_second_request_can_be_hidden_in_a_body() -> None:
    server = Server()
    hidden = get("http://b.example/hidden", host="b.example")
    with way_to(server) as way:
        stream = way.dial()
        with stream.socket:
            stream.send(get("http://a.example/", f"Content-Length: {len(hidden)}", method="POST") + hidden)
            assert answer(stream) == (200, b"ok")
            stream.send(hidden)
            assert answer(stream)[0] == 403
    assert [body for _, body in server.seen] == [hidden]


# -- several requests --------------------------------------------------------------------------------------------------


def test_a_connection_is_used_again_on_both_sides() -> None:
    server = Server()
    with way_to(server) as way:
        stream = way.dial()
        with stream.socket:
            stream.send(get("http://a.example/1") + get("http://a.example/2"))
            assert (answer(stream), answer(stream)) == ((200, b"ok"), (200, b"ok"))
    assert (server.connections, len(server.seen)) == (1, 2)


def test_each_request_of_a_connection_is_judged() -> None:
    server = Server()
    with way_to(server, NAME, "b.example:80") as way:
        stream = way.dial()
        with stream.socket:
            for url, host, status in (
                ("http://a.example/", NAME, 200),
                ("http://c.example/", "c.example", 403),
                ("http://b.example/", "b.example", 200),
                ("http://127.0.0.1/", "127.0.0.1", 403),
                ("http://a.example/", NAME, 200),
            ):
                stream.send(get(url, host=host))
                assert answer(stream)[0] == status, url
    assert [http1.first(request.fields, "host") for request, _ in server.seen] == [NAME, "b.example", NAME]


def test_a_redirect_is_the_clients_to_follow_and_judged_then() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n"
    with way_to(Server(moved), "internet") as way:
        stream = way.dial()
        with stream.socket:
            stream.send(get("http://a.example/"))
            assert answer(stream)[0] == 302
            stream.send(get("http://169.254.169.254/latest/", host="169.254.169.254"))
            assert answer(stream)[0] == 403


def test_a_request_that_met_a_closed_connection_is_sent_again_if_nothing_is_changed_by_that() -> None:
    def serve(stream: streams.Stream) -> None:
        if read_request(stream) is not None:
            stream.send(ANSWER)
            read_request(stream)  # and closes

    with way_to(serve) as way:
        stream = way.dial()
        with stream.socket:
            stream.send(get("http://a.example/"))
            assert answer(stream)[0] == 200
            stream.send(get("http://a.example/"))
            assert answer(stream)[0] == 200
            stream.send(get("http://a.example/", "Content-Length: 1", method="POST") + b"x")
            assert answer(stream)[0] == 502


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    with way_to(Server(b"HTTP/1.0 200 OK\r\n\r\neverything")) as way:
        assert way.ask(get("http://a.example/", "Connection: close"))[1] == b"a\r\neverything\r\n0\r\n\r\n"
        assert way.ask(get("http://a.example/", version="1.0"))[1] == b"everything"


def test_an_answer_that_breaks_off_breaks_off() -> None:
    with way_to(Server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf")) as way:
        assert way.ask(get("http://a.example/"))[1] == b"half"


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * 40,
    ],
)
def test_a_server_that_gives_no_answer_is_told_as_that(reply: bytes) -> None:
    def serve(stream: streams.Stream) -> None:
        read_request(stream)
        stream.send(reply)

    with way_to(serve) as way:
        status, rest = way.ask(get("http://a.example/", "Connection: close"))
        while status == 102:
            start = streams.Stream(None, ahead=rest)  # type: ignore[arg-type]
            head = start.read_head()
            assert head is not None
            status, rest = http1.parse_response(head).status, start.ahead
        assert (status, b"gave no answer" in rest) == (502, True)


def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    over = threading.Event()

    def serve(stream: streams.Stream) -> None:
        over.wait(20)

    with way_to(serve, patience=conversation.Patience(silence=0.2)) as way:
        assert way.ask(get("http://a.example/", "Connection: close"))[0] == 504
        over.set()


def test_an_answer_may_come_before_the_request_was_read() -> None:
    def serve(stream: streams.Stream) -> None:
        stream.read_head()
        stream.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        stream.receive()

    with way_to(serve) as way:
        stream = way.dial()
        with stream.socket:
            stream.send(get("http://a.example/", "Content-Length: 9000000", method="POST") + b"x" * 100)
            assert read_answer(stream) == (413, b"no")


def test_a_client_that_leaves_ends_its_request() -> None:
    gone = threading.Event()

    def serve(stream: streams.Stream) -> None:
        read_request(stream)
        if stream.receive() == b"":
            gone.set()

    with way_to(serve) as way:
        stream = way.dial()
        stream.send(get("http://a.example/"))
        stream.close()
        assert gone.wait(20)


def test_a_head_request_has_no_body() -> None:
    with way_to(Server(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")) as way:
        stream = way.dial()
        with stream.socket:
            for _ in range(2):
                stream.send(get("http://a.example/", method="HEAD"))
                assert b"Content-Length: 1000" in (stream.read_head() or b"")


# -- upgrades ----------------------------------------------------------------------------------------------------------


def test_a_web_socket_is_let_through() -> None:
    def serve(stream: streams.Stream) -> None:
        got = read_request(stream)
        assert got is not None
        assert http1.first(got[0].fields, "upgrade") == "websocket"
        stream.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
        stream.send(stream.receive().upper())

    with way_to(serve) as way:
        stream = way.dial()
        with stream.socket:
            stream.send(get("http://a.example/ws", "Connection: Upgrade", "Upgrade: WebSocket"))
            assert b"Upgrade: websocket" in (stream.read_head() or b"")
            assert stream.receive() == b"first"
            stream.send(b"frames")
            assert stream.receive() == b"FRAMES"


# -- through this machine's proxy --------------------------------------------------------------------------------------


def test_the_proxy_of_this_machine_gets_the_whole_url_and_its_login() -> None:
    server = Server()
    with scripted_server(server) as port:
        world = World({NAME: [[PUBLIC]], "proxy.example": [["10.0.0.9"]]}, {("10.0.0.9", 3128): port})
        world.environ = {"http_proxy": "http://u:p@proxy.example:3128"}
        with open_way("internet", world=world) as way:
            url = "http://a.example/x?y"
            assert way.ask(get(url, "Proxy-Authorization: Basic own", "Connection: close")) == (200, b"ok")
            assert way.ask(get("http://10.0.0.1/", "Connection: close", host="10.0.0.1"))[0] == 403
    ((request, _),) = server.seen
    assert request.target == url
    assert http1.values(request.fields, "proxy-authorization") == ["Basic dTpw"]
