"""Connections of the agent: limits, keep-alive, and whatever bytes a client may send."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import answers, server, wire
from guest.agentd.errors import PeerGoneError, RequestError
from tests.support.agent import Agent

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"
TRUE = b'{"command":"true"}'


def exchange(agent: Agent, data: bytes, *, half_close: bool = True, port: int | None = None) -> bytes:
    """Everything that the agent answers to these bytes until it closes."""
    with agent.dial(port) as connection:
        try:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it may answer and close before it has read all
        return receive_all(connection)


def receive_all(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer from a connection that stays open."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    while len(body) < int(fields.get("content-length", "0")):
        body += connection.recv(65536)
    return int(lines[0].split()[1]), fields, body


def assert_lives(agent: Agent) -> None:
    assert agent.request("GET", "/healthz").status == 200


def refusal(answer: bytes) -> tuple[int, str]:
    """Status and code of an answer that refuses and closes."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head, answer
    assert b"\r\nContent-Type: application/json" in head
    document = json.loads(body)
    assert sorted(document) == ["code", "detail"]
    return int(head.split()[1]), document["code"]


# -- keep-alive


def test_one_connection_carries_many_requests(shared_agent: Agent) -> None:
    with shared_agent.dial() as connection:
        for _ in range(3):
            connection.sendall(HEALTH)
            assert read_answer(connection)[0] == 200
            connection.sendall(b"POST /v1/exec HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(TRUE), TRUE))
            assert read_answer(connection)[0] == 200


def test_requests_that_come_together_are_answered_in_order(shared_agent: Agent) -> None:
    answer = exchange(shared_agent, HEALTH + b"GET /nothing HTTP/1.1\r\n\r\n" + HEALTH)
    assert [part.split()[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


def test_a_refused_document_does_not_end_the_connection(shared_agent: Agent) -> None:
    with shared_agent.dial() as connection:
        connection.sendall(b"POST /v1/exec HTTP/1.1\r\nContent-Length: 1\r\n\r\n{")
        assert read_answer(connection)[0] == 400
        connection.sendall(HEALTH)
        assert read_answer(connection)[0] == 200


@pytest.mark.parametrize(
    "request_head",
    [b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET /healthz HTTP/1.0\r\n\r\n"],
    ids=["asked", "1.0"],
)
def test_the_connection_ends_when_the_client_wishes(shared_agent: Agent, request_head: bytes) -> None:
    answer = exchange(shared_agent, request_head + HEALTH, half_close=False)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in answer


def test_an_http_1_0_client_may_keep_the_connection(shared_agent: Agent) -> None:
    with shared_agent.dial() as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert read_answer(connection)[1]["connection"] == "keep-alive"


def test_kept_alive_requests_are_not_delayed(shared_agent: Agent) -> None:
    # Without TCP_NODELAY and buffered writes each exchange waits 40 ms for a delayed acknowledgement.
    with shared_agent.dial() as connection:
        begin = time.monotonic()
        for _ in range(50):
            connection.sendall(HEALTH)
            read_answer(connection)
        assert time.monotonic() - begin < 1.0


def test_head_is_answered_without_a_body(shared_agent: Agent) -> None:
    answer = exchange(shared_agent, b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: 0" not in answer


def test_empty_lines_before_a_request_are_skipped(shared_agent: Agent) -> None:
    assert exchange(shared_agent, b"\r\n\r\n" + HEALTH).startswith(b"HTTP/1.1 200 ")


def test_lines_may_end_with_a_bare_line_feed(shared_agent: Agent) -> None:
    assert exchange(shared_agent, b"GET /healthz HTTP/1.1\nHost: x\n\n").startswith(b"HTTP/1.1 200 ")


# -- bodies


def test_a_chunked_body_is_read(shared_agent: Agent) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in TRUE)
    data = b"POST /v1/exec HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n" + LAST
    assert exchange(shared_agent, data, half_close=False).count(b"HTTP/1.1 200 ") == 2


def test_a_client_that_waits_is_invited_to_send(shared_agent: Agent) -> None:
    with shared_agent.dial() as connection:
        connection.sendall(b"POST /v1/exec HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(TRUE))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(TRUE)
        assert read_answer(connection)[0] == 200


def test_too_large_a_body_is_refused_before_it_is_sent(shared_agent: Agent) -> None:
    size = wire.MAX_JSON_BODY_BYTES + 1
    data = b"POST /v1/exec HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size
    assert refusal(exchange(shared_agent, data)) == (413, "too_large")


def test_too_large_a_body_is_refused_while_it_is_sent(shared_agent: Agent) -> None:
    with shared_agent.dial() as connection:
        # No error before it is all sent: the agent reads on for a moment after its answer.
        connection.sendall(b"POST /v1/exec HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n" + bytes(30_000_000))
        connection.shutdown(socket.SHUT_WR)
        assert refusal(receive_all(connection)) == (413, "too_large")


def test_a_body_nobody_asked_for_ends_the_connection_after_the_answer(shared_agent: Agent) -> None:
    answer = exchange(shared_agent, b"POST /nothing HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello" + HEALTH)
    assert refusal(answer) == (404, "no_such_route")


# -- heads that are refused


def test_a_head_above_the_limit_is_a_431(shared_agent: Agent) -> None:
    big = b"GET /healthz HTTP/1.1\r\nCookie: " + b"x" * wire.MAX_HEAD_BYTES + b"\r\n\r\n"
    assert refusal(exchange(shared_agent, big))[0] == 431
    many = b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n"
    assert refusal(exchange(shared_agent, many))[0] == 431
    endless = b"GET /" + b"x" * (wire.MAX_HEAD_BYTES + 10)
    assert refusal(exchange(shared_agent, endless, half_close=False))[0] == 431
    assert_lives(shared_agent)


def test_a_head_within_the_limit_is_taken(shared_agent: Agent) -> None:
    head = b"GET /healthz HTTP/1.1\r\nCookie: " + b"x" * (wire.MAX_HEAD_BYTES - 100) + b"\r\n\r\n"
    assert exchange(shared_agent, head).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nX : y\r\n\r\n", 400),
        (b"POST /v1/exec HTTP/1.1\r\nContent-Length: nine\r\n\r\n", 400),
        (b"POST /v1/exec HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /v1/exec HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
    ids=["tls", "word", "0.9", "2.0", "h2", "space", "length", "coding", "chunk"],
)
def test_a_bad_request_is_answered_at_once_and_closed(shared_agent: Agent, data: bytes, status: int) -> None:
    begin = time.monotonic()
    assert refusal(exchange(shared_agent, data, half_close=False))[0] == status
    assert time.monotonic() - begin < 5
    assert_lives(shared_agent)


@settings(max_examples=150, deadline=None)
@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_get_an_answer_or_an_end(shared_agent: Agent, data: bytes) -> None:
    answer = exchange(shared_agent, data)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([b"GET ", b"POST ", b"HEAD ", b"", b"G\x00"]),
    st.sampled_from([b"/healthz", b"/v1/exec", b"/v1/fs/read", b"http://a/healthz", b"/\xff", b""]),
    st.sampled_from([b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"\r\n", b" HTTP/9.9\n"]),
    st.lists(
        st.sampled_from(
            [
                b"Content-Length: 3",
                b"Content-Length: -1",
                b"Transfer-Encoding: chunked",
                b"Expect: 100-continue",
                b"\t",
                b":",
            ]
        ),
        max_size=3,
    ),
    st.binary(max_size=30),
)
def test_almost_requests_get_an_answer_or_an_end(
    shared_agent: Agent, method: bytes, target: bytes, version: bytes, fields: list[bytes], rest: bytes
) -> None:
    head = method + target + version + b"".join(field + b"\r\n" for field in fields) + b"\r\n"
    answer = exchange(shared_agent, head + rest)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 ")


def test_after_all_that_the_agent_has_written_no_traceback(agent: Agent) -> None:
    cut = b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"
    for data in (b"\x00" * 10, cut, b"POST /v1/exec HTTP/1.1\r\n\r\n", HEALTH):
        exchange(agent, data)
        with agent.dial() as connection:
            connection.sendall(data)
    assert_lives(agent)
    assert agent.log() == ""


# -- a listener of our own


@contextlib.contextmanager
def listening(respond: object) -> Iterator[tuple[str, int]]:
    """A listener in this process."""
    assert callable(respond)
    listener = server.Listener(("127.0.0.1", 0), respond)
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield "127.0.0.1", listener.server_port
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def ask(address: tuple[str, int], data: bytes = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n") -> bytes:
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(data)
        return receive_all(connection)


def test_a_bug_in_a_route_is_a_500_with_its_reason_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    def respond(request: server.Request) -> answers.Answer:
        raise ZeroDivisionError("a bug")

    with listening(respond) as address:
        answer = ask(address)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "internal"
    assert b"a bug" not in answer
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [RuntimeError("the disk is gone"), OSError(5, "the disk is gone")], ids=["bug", "disk"]
)
def test_an_answer_that_breaks_in_the_middle_is_cut_and_not_completed(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = threading.Event()

    def blocks() -> Iterator[bytes]:
        yield b"half"
        raise error

    def respond(request: server.Request) -> answers.Answer:
        answer = answers.Answer(200, length=8, blocks=blocks())
        answer.close = closed.set
        return answer

    with listening(respond) as address:
        answer = ask(address)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert not answer.endswith(b"halfhalf")
    assert closed.is_set()
    assert "the disk is gone" in capsys.readouterr().err


def test_an_answer_is_closed_when_its_client_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = threading.Event()
    gone = threading.Event()
    over = threading.Event()
    shutdown_request = server.Listener.shutdown_request

    def end(self: server.Listener, request: socket.socket) -> None:
        shutdown_request(self, request)
        over.set()

    monkeypatch.setattr(server.Listener, "shutdown_request", end)

    def blocks() -> Iterator[bytes]:
        assert gone.wait(10)
        for _ in range(1000):
            yield bytes(65536)

    def respond(request: server.Request) -> answers.Answer:
        answer = answers.Answer(200, length=65536 * 1000, blocks=blocks())
        answer.close = closed.set
        return answer

    with listening(respond) as address:
        with socket.create_connection(address) as connection:
            connection.sendall(HEALTH)
        gone.set()
        assert closed.wait(10)
        assert over.wait(10)
    assert capsys.readouterr().err == "", "a client that goes away is no error"


def test_a_route_may_find_its_client_gone() -> None:
    def respond(request: server.Request) -> answers.Answer:
        raise PeerGoneError

    with listening(respond) as address:
        assert ask(address) == b""


def test_connections_beyond_the_limit_are_refused_and_slots_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)

    def respond(request: server.Request) -> answers.Answer:
        raise RequestError(400, "x", "x")

    with listening(respond) as address:
        first, second = socket.create_connection(address), socket.create_connection(address)
        for connection in (first, second):
            connection.sendall(HEALTH)
            assert connection.recv(20).startswith(b"HTTP/1.1 400")
        refusal = ask(address)
        assert refusal.startswith(b"HTTP/1.1 503 ")
        assert json.loads(refusal.partition(b"\r\n\r\n")[2])["code"] == wire.OVERLOADED
        first.close()
        deadline = time.monotonic() + 10
        while not ask(address).startswith(b"HTTP/1.1 400 "):
            assert time.monotonic() < deadline
        second.close()


def test_a_refused_client_that_still_sends_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 0)
    with listening(lambda request: answers.Answer(200)) as address:
        for _ in range(100):  # more than are kept open at once
            with socket.create_connection(address, timeout=20) as connection:
                connection.sendall(b"PUT / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n")
                assert connection.recv(12) == b"HTTP/1.1 503"
                connection.sendall(b"x" * 70_000)
                assert receive_all(connection).endswith(b"}")


# -- streams


def stream(blocks: Iterable[bytes]) -> Callable[[server.Request], answers.Answer]:
    """A route whose answer is a stream."""
    return lambda request: answers.Answer(200, length=None, blocks=blocks)


def test_a_stream_travels_in_chunks_and_the_connection_lives_on() -> None:
    with listening(stream([b"one", b"", b"two" * 7])) as address, socket.create_connection(address) as connection:
        for _ in range(2):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += connection.recv(4096)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"Transfer-Encoding: chunked" in head
            assert b"Content-Length" not in head
            assert body == b"3\r\none\r\n15\r\n" + b"two" * 7 + b"\r\n0\r\n\r\n"


def test_an_old_client_reads_a_stream_to_the_end_of_the_connection() -> None:
    with listening(stream([b"one", b"two"])) as address:
        answer = ask(address, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert b"Connection: close" in head
    assert body == b"onetwo"


def test_a_stream_has_no_body_for_a_head_request() -> None:
    with listening(stream([b"one"])) as address:
        answer = ask(address, b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")
    assert b"one" not in answer


def test_each_block_of_a_stream_is_sent_when_it_is_made() -> None:
    go_on = threading.Event()

    def blocks() -> Iterator[bytes]:
        yield b"early"
        assert go_on.wait(20)
        yield b"late"

    with listening(stream(blocks())) as address, socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while b"early" not in answer:
            answer += connection.recv(4096)
        go_on.set()
        assert receive_all(connection) == b"4\r\nlate\r\n0\r\n\r\n"


@pytest.mark.parametrize("error", [OSError("a bad disk"), RuntimeError("a bug")], ids=["disk", "bug"])
def test_a_stream_that_breaks_ends_without_its_last_chunk(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    closed: list[bool] = []

    def blocks() -> Iterator[bytes]:
        yield b"one"
        raise error

    def respond(request: server.Request) -> answers.Answer:
        answer = answers.Answer(200, length=None, blocks=blocks())
        answer.close = lambda: closed.append(True)
        return answer

    with listening(respond) as address:
        answer = ask(address)
    assert answer.endswith(b"3\r\none\r\n")
    assert closed == [True]
    assert str(error) in capsys.readouterr().err


def test_a_malformed_query_is_refused_by_the_routes_that_read_it() -> None:
    def respond(request: server.Request) -> answers.Answer:
        return answers.build_json(200, sorted(request.head.query))

    with listening(respond) as address:
        assert ask(address, b"GET /?%61=1 HTTP/1.1\r\nConnection: close\r\n\r\n").endswith(b'["a"]')
        assert ask(address, b"GET /?a=%6 HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_small_writes_are_not_held_back_by_the_system() -> None:
    options: list[int] = []

    def respond(request: server.Request) -> answers.Answer:
        options.append(request.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return answers.Answer(200)

    with listening(respond) as address:
        ask(address)
    assert options[0] != 0


def test_threads_are_used_again() -> None:
    names: set[int] = set()

    def respond(request: server.Request) -> answers.Answer:
        names.add(threading.get_ident())
        return answers.Answer(200)

    with listening(respond) as address:
        for _ in range(20):
            assert ask(address).startswith(b"HTTP/1.1 200 ")
    assert len(names) <= 3


def test_an_open_connection_holds_little_memory() -> None:
    with listening(lambda request: answers.Answer(200)) as address, contextlib.ExitStack() as stack:
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        for _ in range(20):
            connection = stack.enter_context(socket.create_connection(address, timeout=20))
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert tracemalloc.get_traced_memory()[0] < 20 * 32 * 1024


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.Connection, "timeout", 0.1)
    with (
        listening(lambda request: answers.Answer(200)) as address,
        socket.create_connection(address, timeout=20) as silent,
        socket.create_connection(address, timeout=20) as slow,
    ):
        slow.sendall(b"GET / HT")
        assert silent.recv(10) == b""
        assert slow.recv(10) == b""


def test_an_address_in_use_is_explained() -> None:
    with (
        listening(lambda request: answers.Answer(200)) as address,
        pytest.raises(OSError, match="in use") as caught,
    ):
        server.Listener(address, lambda request: answers.Answer(200))
    assert server.explain_bind(caught.value) == "another program listens there"
