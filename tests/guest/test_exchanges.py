"""Relayed requests and answers: bodies, interim and early answers, and ends that must not look whole."""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable

import pytest

from tests.support.agent import Agent
from tests.support.relay_peers import OK, SECONDS, Peer, Server, answering, dialled, refusal, request


@pytest.mark.parametrize(
    ("method", "sent"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n"),
    ],
)
def test_an_answer_without_a_body_ends_with_its_head(
    shared_agent: Agent, perform: Callable[..., Server], method: str, sent: bytes
) -> None:
    def script(peer: Peer) -> None:
        for _ in range(2):
            peer.head()
            peer.send(sent)

    server = perform(script)
    with dialled(shared_agent) as client:
        for _ in range(2):
            client.send(request(server.port, f"{method} / HTTP/1.1"))
            assert client.head() == [*sent.decode().split("\r\n")[:-2], "vmnest-relay: relayed"]
    assert server.connections == 1


def test_chunks_and_trailers_pass_both_ways_as_they_are(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    body = b"3;a=b\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX-Sum: 1\r\nx-sum:2\r\n\r\n"
    heads_seen: list[list[str]] = []

    def script(peer: Peer) -> None:
        heads_seen.append(peer.head())
        assert peer.until(b"x-sum:2\r\n\r\n") == body
        peer.send(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(len(body)):
            peer.send(body[at : at + 1])

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Trailer: X-Sum", "Transfer-Encoding: chunked"))
        for at in range(len(body)):
            client.send(body[at : at + 1])
        assert "Transfer-Encoding: chunked" in client.head()
        assert client.until(b"x-sum:2\r\n\r\n") == body
    assert {"Trailer: X-Sum", "Transfer-Encoding: chunked"} <= set(heads_seen[0])


def test_an_answer_that_ends_with_its_connection_gets_an_end_that_can_be_told(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    server = perform(answering(b"HTTP/1.0 200 OK\r\nX: 1\r\n\r\nhello"), answering(OK))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert client.head() == ["HTTP/1.1 200 OK", "X: 1", "vmnest-relay: relayed", "Transfer-Encoding: chunked"]
        assert client.until(b"0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"
        client.send(request(server.port))
        client.head()
        assert client.read(2) == b"ok"


def test_an_old_client_reads_to_the_end_of_its_connection(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    seen: list[list[str]] = []
    server = perform(answering(b"HTTP/1.1 200 OK\r\n\r\nhello", seen=seen))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.0"))
        assert client.head() == ["HTTP/1.1 200 OK", "vmnest-relay: relayed", "Connection: close"]
        assert client.rest() == b"hello"
    assert seen[0][0] == "GET / HTTP/1.0"


def test_large_bodies_pass_both_ways_at_once(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    piece = bytes(range(256)) * 256
    count = 200

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * count))
        for _ in range(count):  # an echo: neither way may wait for the other
            peer.send(peer.read(len(piece)))

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {len(piece) * count}"))
        sender = threading.Thread(target=lambda: [client.send(piece) for _ in range(count)])
        sender.start()
        client.head()
        assert all(client.read(len(piece)) == piece for _ in range(count))
        sender.join(SECONDS)


# -- interim and early answers


def test_an_invitation_is_the_servers_own(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    asked = threading.Event()

    def script(peer: Peer) -> None:
        assert "Expect: 100-continue" in peer.head()
        assert asked.wait(SECONDS)
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        assert peer.read(5) == b"hello"
        peer.send(OK)

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Content-Length: 5", "Expect: 100-continue"))
        assert not select.select([client.socket], [], [], 0.1)[0]  # the agent does not invite
        asked.set()
        assert client.head() == ["HTTP/1.1 103 Early Hints", "Link: </a>"]
        assert client.head() == ["HTTP/1.1 100 Continue"]
        client.send(b"hello")
        assert client.head()[0] == "HTTP/1.1 200 OK"
        assert client.read(2) == b"ok"


def test_an_old_client_gets_no_interim_answer(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    server = perform(answering(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.0"))
        assert client.head()[0] == "HTTP/1.1 200 OK"


def test_any_number_of_interim_answers_passes_as_one_of_ours(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    server = perform(answering(b"HTTP/1.0 102 Processing\r\n\r\n" * 5000 + OK))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert all(client.head() == ["HTTP/1.1 102 Processing"] for _ in range(5000))
        assert client.head()[0] == "HTTP/1.1 200 OK"


def test_a_server_that_ends_after_interim_answers_has_given_none(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    server = perform(answering(b"HTTP/1.1 102 Processing\r\n\r\n"))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert client.head() == ["HTTP/1.1 102 Processing"]
        assert refusal(client) == (502, "broken", "broken")


def test_chunks_are_no_answer_to_an_old_client(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    server = perform(answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.0"))
        assert refusal(client) == (502, "broken", "broken")


def test_an_early_answer_to_a_large_upload_arrives_whole(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    answered = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        assert answered.wait(SECONDS)  # it reads nothing of the body

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {1 << 30}"))
        with contextlib.suppress(ConnectionError):
            while not select.select([client.socket], [], [], 0)[0]:
                client.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.socket.send(b"x" * 65536)
        client.socket.settimeout(SECONDS)
        assert client.head() == [
            "HTTP/1.1 413 Too Large",
            "Content-Length: 3",
            "vmnest-relay: relayed",
            "Connection: close",
        ]
        assert client.rest() == b"big"
        answered.set()


def test_a_server_that_answers_and_resets_the_upload_is_heard(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    server = perform(answering(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {1 << 20}") + b"x" * 1000)
        assert client.head()[0] == "HTTP/1.1 413 Too Large"
        assert client.rest() == b"big"


# -- ends


@pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked", "X: until-close"])
@pytest.mark.parametrize("resets", [False, True])
def test_an_answer_that_is_cut_never_looks_whole(
    shared_agent: Agent, perform: Callable[..., Server], length: str, resets: bool
) -> None:
    received = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n3\r\nabc\r\n".encode())
        assert received.wait(SECONDS)
        if resets:
            peer.reset()

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", "Connection: close"))
        head = client.head()
        client.until(b"abc\r\n")
        received.set()
        rest = client.rest()
    if length.startswith("X") and not resets:
        assert rest == b"\r\n0\r\n\r\n"  # that was whole
    else:
        assert rest in {b"", b"\r\n"}
    assert ("Transfer-Encoding: chunked" in head) is not length.startswith("Content-Length")


def test_an_old_client_can_tell_a_cut_from_an_end(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    received = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nabc")
        assert received.wait(SECONDS)
        peer.reset()

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.0"))
        client.until(b"abc")
        received.set()
        with pytest.raises(ConnectionResetError):
            client.socket.recv(1)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * 300_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_told(shared_agent: Agent, perform: Callable[..., Server], sent: bytes) -> None:
    server = perform(answering(sent))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert refusal(client) == (502, "broken", "broken")


def test_malformed_chunks_of_an_answer_end_the_connection(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    server = perform(answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        client.head()
        assert b"0\r\n\r\n" not in client.rest()


def test_malformed_chunks_of_a_request_are_refused(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    server = perform(lambda peer: peer.rest())
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Transfer-Encoding: chunked") + b"3\r\nabcd\r\n")
        assert refusal(client) == (400, "bad_request", "bad_request")


def test_malformed_chunks_after_the_answer_began_are_no_second_answer(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        peer.rest()

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Transfer-Encoding: chunked"))
        client.head()
        client.send(b"3\r\nabcd\r\n")
        assert client.rest() == b""


@pytest.mark.parametrize("phase", ["upload", "unread", "silence", "answer", "stuck"])
def test_a_client_that_leaves_ends_the_servers_connection(
    shared_agent: Agent, perform: Callable[..., Server], phase: str
) -> None:
    left, begun = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        if phase in {"answer", "stuck"}:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
        if phase == "stuck":  # the client reads nothing, and nothing more can be sent to it
            peer.socket.setblocking(False)
            while select.select([], [peer.socket], [], 0.3)[1]:
                peer.socket.send(b"x" * 65536)
            peer.socket.settimeout(SECONDS)
        begun.set()
        assert left.wait(SECONDS)
        peer.rest()  # ends only when the agent has left

    server = perform(script)
    with dialled(shared_agent) as client:
        has_body = phase in {"upload", "unread"}
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {(1 << 40) * has_body}"))
        assert begun.wait(SECONDS)
        if phase == "unread":
            client.socket.setblocking(False)
            while select.select([], [client.socket], [], 0.3)[1]:
                client.socket.send(b"x" * 65536)
        if phase == "answer":
            client.head()
    left.set()
    server.join()


def test_a_kept_connection_to_a_server_ends_with_its_client(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(OK)
        assert peer.has_ended()

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        client.head()
    server.join()
