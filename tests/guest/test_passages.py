"""What follows a 101: bytes are bytes, both ways, until both have ended."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable

import pytest

from guest.agentd import passages
from guest.agentd.bodyends import BodyEnd
from tests.support.agent import Agent
from tests.support.pairs import tcp_pair
from tests.support.relay_peers import OK, SECONDS, Peer, Server, dialled, request

UPGRADE = ("Connection: Upgrade", "Upgrade: echo")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"


def test_after_a_101_bytes_are_bytes_until_both_have_ended(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    seen: list[list[str]] = []

    def script(peer: Peer) -> None:
        seen.append(peer.head())
        peer.send(SWITCHED + b"first")
        assert peer.read(5) == b"early"
        assert peer.rest() == b"\0\r\n\r\nlast"  # the client has ended its side only
        peer.send(b"after that")

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET /ws HTTP/1.1", *UPGRADE, "Sec-WebSocket-Key: x") + b"early")
        assert client.head() == [*SWITCHED.decode().split("\r\n")[:-2], "vmnest-relay: relayed"]
        assert client.read(5) == b"first"
        client.send(b"\0\r\n\r\nlast")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.rest() == b"after that"
    assert seen[0][-3:] == ["X-Forwarded-Proto: https", *UPGRADE]
    assert "Sec-WebSocket-Key: x" in seen[0]


def test_a_server_may_end_its_side_first(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(SWITCHED + b"bye")
        peer.socket.shutdown(socket.SHUT_WR)
        assert peer.rest() == b"still here"

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", *UPGRADE))
        client.head()
        assert client.rest() == b"bye"
        client.send(b"still here")
    server.join()


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_tunnel_ends_when_either_end_is_gone(
    shared_agent: Agent, perform: Callable[..., Server], has_ended: bool
) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(SWITCHED)
        assert peer.read(2) == b"hi"
        if has_ended:
            assert peer.has_ended()
            done.set()
        assert peer.has_ended()

    done = threading.Event()
    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", *UPGRADE))
        client.head()
        client.send(b"hi")
        if has_ended:
            client.socket.shutdown(socket.SHUT_WR)
            assert done.wait(SECONDS)
        client.reset()
        server.join()


def test_the_last_words_of_a_server_that_takes_nothing_more_arrive() -> None:
    (client, ours), (theirs, server) = tcp_pair(), tcp_pair()
    with client, ours, theirs:
        server.sendall(b"x" * 50_000)
        server.close()
        theirs.sendall(b"too late")
        client.sendall(b"too late, too")
        poller = select.poll()
        poller.register(theirs, 0)
        assert poller.poll(SECONDS * 1000)  # it was refused: the next word will fail
        for sock in (ours, theirs):
            sock.setblocking(False)
        ends = [BodyEnd(is_until_close=True) for _ in range(2)]
        passages.carry(passages.Passage(ours, theirs, end=ends[0]), passages.Passage(theirs, ours, end=ends[1]))
        assert Peer(client).rest() == b"x" * 50_000


def test_a_client_that_has_left_and_not_only_ended_its_side_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "_PROBE_SECONDS", 1)
    (client, ours), (theirs, server) = tcp_pair(), tcp_pair()
    with ours, theirs, server:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)  # how long its system remembers it
        client.close()
        for sock in (ours, theirs):
            sock.setblocking(False)
        ends = [BodyEnd(is_until_close=True) for _ in range(2)]
        ways = [passages.Passage(ours, theirs, end=ends[0]), passages.Passage(theirs, ours, end=ends[1])]
        thread = threading.Thread(target=passages.carry, args=ways, daemon=True)
        thread.start()
        assert server.recv(1) == b""  # it goes on waiting for the silent server
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_tunnel_carries_much_both_ways_at_once(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    piece = bytes(range(256)) * 256
    count = 100

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(SWITCHED)
        for _ in range(count):
            peer.send(peer.read(len(piece)))

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", *UPGRADE))
        client.head()
        sender = threading.Thread(target=lambda: [client.send(piece) for _ in range(count)])
        sender.start()
        assert all(client.read(len(piece)) == piece for _ in range(count))
        sender.join(SECONDS)


def test_an_upgrade_that_is_declined_is_an_answer_like_any(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    seen: list[list[str]] = []

    def script(peer: Peer) -> None:
        for _ in range(2):
            seen.append(peer.head())
            peer.send(OK)

    server = perform(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET /1 HTTP/1.1", *UPGRADE) + request(server.port, "GET /2 HTTP/1.1"))
        for _ in range(2):
            client.head()
            assert client.read(2) == b"ok"
    assert [head[0] for head in seen] == ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1"]
