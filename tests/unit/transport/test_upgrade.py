"""Connections that leave HTTP, with servers of the ``websockets`` library as peers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest
from websockets.sync.server import Server, ServerConnection, serve

from tests.support.authority import Authority
from tests.support.peers import Answer, HangUp, Raw, Serve, Silence
from vmnest import errors, transport
from vmnest.deadline import Deadline
from vmnest.transport.upgrade import Channel, Upgraded, upgrade
from vmnest.wire import websocket

SECONDS = 20.0


def open_websocket(url: str, *, verify: bool | str = True, seconds: float = SECONDS, **environ: str) -> Upgraded:
    headers = websocket.request_fields(websocket.make_key())
    made = transport.Transport(verify=verify, environ=environ)
    return upgrade(made, url, headers=headers, deadline=Deadline(seconds))


def channel_of(answer: Upgraded) -> Channel:
    assert answer.response.status == 101
    assert answer.channel is not None
    return answer.channel


@contextlib.contextmanager
def serving(handler: Callable[[ServerConnection], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    server: Server = serve(handler, "127.0.0.1", 0, ssl=tls, compression=None, max_size=None)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{server.socket.getsockname()[1]}/shell"
    finally:
        server.shutdown()
        thread.join()


def echo(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(message)


@contextlib.contextmanager
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    near, far = socket.socketpair()
    channel = Channel(near, origin="the peer")
    with far:
        far.settimeout(SECONDS)
        yield channel, far
        channel.close()


def receive_message(channel: Channel, receiver: websocket.Receiver) -> websocket.Message:
    while True:
        data = channel.receive(timeout=SECONDS)
        assert data
        for message in receiver.feed(data):
            return message


@pytest.mark.parametrize("is_secret", [False, True])
def test_large_messages_go_both_ways(authority: Authority, is_secret: bool) -> None:
    data = bytes(range(256)) * 12_000
    with serving(echo, authority.context("127.0.0.1") if is_secret else None) as url:
        channel = channel_of(open_websocket(url, verify=str(authority.bundle)))
        receiver, sender = websocket.Receiver(from_client=False), websocket.Sender(is_client=True)
        for _ in range(2):
            channel.send(sender.encode(websocket.BINARY, data), may_wait=False)
            assert receive_message(channel, receiver).data == data
        channel.close()


def test_a_server_that_speaks_first_is_heard() -> None:
    with serving(lambda connection: connection.send("hello")) as url:
        channel = channel_of(open_websocket(url))
        assert receive_message(channel, websocket.Receiver(from_client=False)).text == "hello"
        channel.close()


def test_what_came_with_the_head_is_not_lost(serve: Serve) -> None:
    peer = serve(Raw([b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nfirst"]))
    channel = channel_of(open_websocket(peer.url))
    assert channel.receive(timeout=SECONDS) == b"first"
    assert channel.receive(timeout=SECONDS) == b""
    channel.close()


def test_a_refusal_is_an_answer_with_its_body(serve: Serve) -> None:
    peer = serve(Answer(403, b"Access to port denied", [("x-aws-proxy-error", "UNAUTHORIZED")]))
    answer = open_websocket(peer.url)
    assert (answer.response.status, answer.body, answer.channel) == (403, b"Access to port denied", None)
    assert answer.headers.get("X-Aws-Proxy-Error") == "UNAUTHORIZED"


def test_a_refusal_without_end_is_read_to_a_limit(serve: Serve) -> None:
    peer = serve(
        Raw([b"HTTP/1.1 502 No\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"1000\r\n" + b"x" * 4096 + b"\r\n"] * 99])
    )
    assert 65536 <= len(open_websocket(peer.url).body) < 400_000


def test_a_refusal_whose_end_is_cut_is_a_refusal(serve: Serve) -> None:
    peer = serve(Raw([b"HTTP/1.1 502 No\r\nContent-Length: 100\r\n\r\nwhy"]))
    assert open_websocket(peer.url).body == b"why"


def test_a_peer_that_hangs_up_or_speaks_something_else_is_an_error(serve: Serve) -> None:
    with pytest.raises(errors.ConnectionLostError):
        open_websocket(serve(HangUp()).url)
    with pytest.raises(errors.TransportError, match="not HTTP"):
        open_websocket(serve(Raw([b"SSH-2.0-server\r\n\r\n"])).url)
    with pytest.raises(errors.TransportError, match="without end"):
        open_websocket(serve(Raw([b"HTTP/1.1 103 Early\r\n\r\n"] * 30)).url)


def test_a_peer_that_is_silent_is_left_at_the_deadline(serve: Serve) -> None:
    with pytest.raises(errors.ReadTimeoutError):
        open_websocket(serve(Silence()).url, seconds=0.2)


def test_nobody_listening_is_a_connect_error(refused_port: int) -> None:
    with pytest.raises(errors.ConnectError):
        open_websocket(f"http://127.0.0.1:{refused_port}/")


def test_a_proxy_that_carries_requests_only_is_refused(serve: Serve) -> None:
    with pytest.raises(errors.ProxyError, match="through this proxy"):
        open_websocket("http://host.example/", HTTP_PROXY=serve().url)


def test_a_header_that_cannot_be_sent_is_refused(serve: Serve) -> None:
    with pytest.raises(errors.UsageError):
        upgrade(transport.Transport(environ={}), serve().url, headers=[("a b", "c")], deadline=Deadline(SECONDS))


def test_bytes_of_another_thread_are_sent_while_we_wait_for_the_peer() -> None:
    with pair() as (channel, far):
        received: list[bytes | None] = []
        thread = threading.Thread(target=lambda: received.append(channel.receive(timeout=SECONDS)))
        thread.start()
        channel.send(b"question")
        assert far.recv(100) == b"question"
        far.sendall(b"answer")
        thread.join()
        assert received == [b"answer"]


def test_nothing_within_the_time_is_none() -> None:
    with pair() as (channel, _):
        assert channel.receive(timeout=0.01) is None


def test_a_sender_waits_while_the_peer_does_not_read_and_goes_on_when_it_does() -> None:
    data = b"x" * 3_000_000
    with pair() as (channel, far):
        done = threading.Event()

        def send() -> None:
            for start in range(0, len(data), 100_000):
                channel.send(data[start : start + 100_000])
            done.set()

        sender = threading.Thread(target=send)
        sender.start()
        assert channel.receive(timeout=0.2) is None
        assert not done.is_set()
        count = 0
        reader = threading.Thread(target=lambda: channel.receive(timeout=SECONDS))
        reader.start()
        while count < len(data):
            count += len(far.recv(1_000_000))
        far.sendall(b"!")
        sender.join()
        reader.join()
        assert count == len(data)


def test_a_sender_that_waits_hears_of_the_end() -> None:
    with pair() as (channel, far):
        failed: list[BaseException] = []

        def send() -> None:
            try:
                for _ in range(100):
                    channel.send(b"x" * 1_000_000)
            except errors.ConnectionLostError as error:
                failed.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        far.close()
        with contextlib.suppress(errors.ConnectionLostError):
            assert channel.receive(timeout=SECONDS) == b""
        sender.join(SECONDS)
        assert len(failed) == 1
        with pytest.raises(errors.ConnectionLostError):
            channel.send(b"x")


def test_what_waits_can_be_sent_before_the_end() -> None:
    with pair() as (channel, far):
        channel.send(b"last words")
        assert channel.flush(timeout=SECONDS)
        channel.close()
        assert far.recv(100) == b"last words"
        assert far.recv(100) == b""


def test_last_words_that_nobody_takes_are_given_up() -> None:
    with pair() as (channel, far):
        channel.send(b"x" * 10_000_000, may_wait=False)
        assert not channel.flush(timeout=0.05)
        far.close()
        assert not channel.flush(timeout=SECONDS)


def test_it_can_be_closed_twice() -> None:
    with pair() as (channel, _):
        channel.close()
        channel.close()
