"""What follows a 101, between real sockets: both ways, half-close, silence, and who has gone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator

import pytest
import websockets.sync.client
import websockets.sync.server
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from tests.support.authority import Authority
from tests.support.pairs import VERSIONS, secured, tcp_pair
from vmnest.forward import tunnels
from vmnest.wire import http1, websocket
from vmnest.wire.pipes import Pipe

SECONDS = 20.0
SOON = 0.05


class Line:
    """A client and a server, and a tunnel between them in a thread."""

    def __init__(self, *, upstream: tuple[socket.socket, socket.socket], **options: object) -> None:
        self.client, near = tcp_pair()
        far, self.server = upstream
        for each in (self.client, self.server):
            each.settimeout(SECONDS)
        self.pipes = Pipe(near), Pipe(far)
        options = {"is_websocket": False, **options}
        self.thread = threading.Thread(target=self._carry, kwargs=options, daemon=True)

    def _carry(self, **options: object) -> None:
        tunnels.carry(*self.pipes, **options)  # type: ignore[arg-type]
        for each in self.pipes:
            each.close()

    def join(self) -> None:
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        for each in self.pipes:
            each.interrupt()
        self.join()


@pytest.fixture(params=["plain", *VERSIONS])
def upstream(request: pytest.FixtureRequest, authority: Authority) -> tuple[socket.socket, socket.socket]:
    """A connection to a server, plain or with TLS."""
    pair = tcp_pair()
    return pair if request.param == "plain" else secured(*pair, authority, VERSIONS[request.param])


@contextlib.contextmanager
def tunnel(upstream: tuple[socket.socket, socket.socket] | None = None, **options: object) -> Iterator[Line]:
    line = Line(upstream=upstream or tcp_pair(), **options)
    line.thread.start()
    try:
        yield line
    finally:
        line.close()


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := sock.recv(size - len(data))):
        data += piece
    return data


def read_all(sock: socket.socket) -> bytes:
    data = bytearray()
    while piece := receive(sock):
        data += piece
    return bytes(data)


def receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except ssl.SSLZeroReturnError:  # a clean end that follows ours
        return b""


def end_side(sock: socket.socket) -> None:
    pipe = Pipe(sock)
    while not pipe.end_sending():
        select.select([], [pipe], [], SECONDS)
    sock.settimeout(SECONDS)


def test_either_side_may_speak_first(upstream: tuple[socket.socket, socket.socket]) -> None:
    with tunnel(upstream) as line:
        line.server.sendall(b"who is there?")
        assert read(line.client, 13) == b"who is there?"
        line.client.sendall(b"me")
        assert read(line.server, 2) == b"me"


class Counted(Pipe):
    """Counts how often something was to be received."""

    reads = 0

    def receive_into(self, buffer: memoryview) -> int | None:
        self.reads += 1
        return super().receive_into(buffer)


def test_a_small_message_costs_one_read_of_where_it_comes_from() -> None:
    line = Line(upstream=tcp_pair())
    near, far = line.pipes = tuple(Counted(pipe.socket) for pipe in line.pipes)
    line.thread.start()
    for _ in range(10):
        line.client.sendall(b"ping")
        assert read(line.server, 4) == b"ping"
        line.server.sendall(b"pong")
        assert read(line.client, 4) == b"pong"
    assert max(near.reads, far.reads) <= 11  # and one at the beginning, when nothing may be there
    line.close()


def test_what_was_read_ahead_of_the_tunnel_goes_first() -> None:
    line = Line(upstream=tcp_pair())
    line.pipes[0].ahead, line.pipes[1].ahead = b"hel", b"wor"
    line.thread.start()
    line.client.sendall(b"lo")
    line.server.sendall(b"ld")
    assert (read(line.server, 5), read(line.client, 5)) == (b"hello", b"world")
    line.close()


def test_the_client_ends_its_side_and_hears_the_rest(upstream: tuple[socket.socket, socket.socket]) -> None:
    answer = os.urandom(3_000_000)
    with tunnel(upstream) as line:
        line.client.sendall(b"question")
        line.client.shutdown(socket.SHUT_WR)
        assert read_all(line.server) == b"question"
        line.server.sendall(answer)
        end_side(line.server)
        assert read_all(line.client) == answer
        line.join()


def test_the_server_ends_its_side_and_hears_the_rest(upstream: tuple[socket.socket, socket.socket]) -> None:
    question = os.urandom(3_000_000)
    with tunnel(upstream) as line:
        end_side(line.server)
        assert line.client.recv(1) == b""
        line.client.sendall(question)
        line.client.shutdown(socket.SHUT_WR)
        assert read_all(line.server) == question
        line.join()


def test_the_client_ends_its_side_while_the_server_sends(upstream: tuple[socket.socket, socket.socket]) -> None:
    answer = bytes(range(256)) * 40_000
    with tunnel(upstream) as line:
        sender = threading.Thread(target=line.server.sendall, args=(answer,))
        sender.start()
        got = read(line.client, 1_000_000)
        line.client.shutdown(socket.SHUT_WR)
        got += read(line.client, len(answer) - len(got))
        sender.join(SECONDS)
        assert got == answer
        assert receive(line.server) == b""


def test_much_passes_both_ways_at_once(upstream: tuple[socket.socket, socket.socket]) -> None:
    # The test drives the server's end with one thread, too: TLS is not for two.
    data = os.urandom(1 << 20) * 8
    digest = hashlib.sha256(data).digest()
    with tunnel(upstream) as line:
        sender = threading.Thread(target=line.client.sendall, args=(data,))
        sender.start()
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.append(read(line.client, len(data))))
        reader.start()
        for at in range(0, len(data), 65536):
            line.server.sendall(data[at : at + 65536])
            received_here = read(line.server, 65536)
            assert received_here == data[at : at + 65536]
        for thread in (sender, reader):
            thread.join(SECONDS)
        assert hashlib.sha256(received[0]).digest() == digest


def test_a_client_that_resets_ends_the_tunnel_of_a_silent_server() -> None:
    with tunnel() as line:
        reset(line.client)
        line.join()


def test_a_server_that_resets_ends_the_tunnel_of_a_silent_client() -> None:
    with tunnel() as line:
        reset(line.server)
        line.join()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_client_that_has_left_does_not_keep_the_tunnel_of_a_silent_server() -> None:
    with tunnel(probe_seconds=1) as line:
        line.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
        line.client.close()
        assert line.server.recv(1) == b""
        line.join()


def test_what_a_client_said_before_it_left_still_arrives() -> None:
    said = bytes(2_000_000)
    with tunnel() as line:
        line.client.sendall(said)  # more than the server has room for: some of it is in the tunnel
        line.server.sendall(b"you will not read this")
        assert line.client.recv(1, socket.MSG_PEEK)
        line.client.close()  # with something unread, that is a reset
        assert read_all(line.server) == said
        line.join()


def test_a_client_that_has_left_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "LAST_WORDS_SECONDS", 0.1)
    with tunnel() as line:
        fill(line.client)
        reset(line.client)
        line.join()


def test_an_interruption_of_both_ends_the_tunnel_even_of_peers_that_do_not_read() -> None:
    with tunnel() as line:
        for each in (line.client, line.server):
            fill(each)
        for pipe in line.pipes:
            pipe.interrupt()
        line.join()


def fill(sock: socket.socket) -> None:
    """Send until nobody takes more for a while."""
    sock.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while True:
            sock.sendall(bytes(65536))


# -- WebSockets --------------------------------------------------------------------------------------------------------

FROM_CLIENT = websocket.Sender(is_client=True)
FROM_SERVER = websocket.Sender(is_client=False)


def next_message(sock: socket.socket, receiver: websocket.Receiver) -> websocket.Message:
    while True:
        for message in receiver.feed(sock.recv(1)):
            return message


def test_a_silent_websocket_is_pinged_and_the_client_hears_nothing_of_it(
    upstream: tuple[socket.socket, socket.socket],
) -> None:
    with tunnel(upstream, is_websocket=True, keep_alive_seconds=SOON) as line:
        receiver = websocket.Receiver(from_client=True)
        for _ in range(3):
            ping = next_message(line.server, receiver)
            assert ping.kind == websocket.PING
            line.server.sendall(FROM_SERVER.encode(websocket.PONG, ping.data))
        line.server.sendall(FROM_SERVER.encode(websocket.TEXT, b"hello"))
        assert line.client.recv(100) == FROM_SERVER.encode(websocket.TEXT, b"hello")


def test_the_application_s_own_pings_and_pongs_pass() -> None:
    with tunnel(is_websocket=True, keep_alive_seconds=SOON) as line:
        receiver = websocket.Receiver(from_client=True)
        assert next_message(line.server, receiver).kind == websocket.PING
        line.client.sendall(FROM_CLIENT.encode(websocket.PING, b"mine"))
        while (message := next_message(line.server, receiver)).data != b"mine":
            line.server.sendall(FROM_SERVER.encode(websocket.PONG, message.data))
        line.server.sendall(FROM_SERVER.encode(websocket.PONG, b"mine"))
        line.server.sendall(FROM_SERVER.encode(websocket.PONG, b"unasked"))
        expected = FROM_SERVER.encode(websocket.PONG, b"mine") + FROM_SERVER.encode(websocket.PONG, b"unasked")
        assert read(line.client, len(expected)) == expected


def test_nothing_is_put_into_the_middle_of_a_frame() -> None:
    with tunnel(is_websocket=True, keep_alive_seconds=SOON) as line:
        frame = FROM_CLIENT.encode(websocket.BINARY, bytes(1000))
        line.client.sendall(frame[:500])
        assert read(line.server, 500) == frame[:500]
        line.server.settimeout(5 * SOON)
        with pytest.raises(TimeoutError):
            line.server.recv(1)
        line.server.settimeout(SECONDS)
        line.client.sendall(frame[500:])
        assert read(line.server, len(frame) - 500) == frame[500:]
        assert next_message(line.server, websocket.Receiver(from_client=True)).kind == websocket.PING


@pytest.mark.parametrize(
    ("is_websocket", "said", "heard"),
    [
        (False, b"", b""),
        (True, b"no frames", b""),
        (True, FROM_CLIENT.encode_close(1000), b""),
        (True, b"", b"no frames"),
        (True, b"", FROM_SERVER.encode_close(1000)),
    ],
    ids=["other-protocol", "no-frames", "after-close", "answers-no-frames", "after-answered-close"],
)
def test_nothing_is_put_into_what_can_take_no_ping(is_websocket: bool, said: bytes, heard: bytes) -> None:
    line = Line(upstream=tcp_pair(), is_websocket=is_websocket, keep_alive_seconds=SOON)
    line.client.sendall(said)
    line.server.sendall(heard)
    line.thread.start()
    assert read(line.server, len(said)) == said
    assert read(line.client, len(heard)) == heard
    line.server.settimeout(5 * SOON)
    with pytest.raises(TimeoutError):
        line.server.recv(1)
    line.close()


def test_a_client_that_talks_is_not_interrupted_by_pings() -> None:
    with tunnel(is_websocket=True, keep_alive_seconds=SECONDS) as line:
        said = FROM_CLIENT.encode(websocket.TEXT, b"and on and on") * 50
        line.client.sendall(said)
        line.client.shutdown(socket.SHUT_WR)
        assert read_all(line.server) == said


def test_a_silent_client_is_spoken_for_even_while_the_server_talks() -> None:
    with tunnel(is_websocket=True, keep_alive_seconds=SOON) as line:
        stop = threading.Event()

        def talk() -> None:
            while not stop.wait(SOON / 5):
                line.server.sendall(FROM_SERVER.encode(websocket.TEXT, b"news"))

        talker = threading.Thread(target=talk)
        talker.start()
        try:
            assert next_message(line.server, websocket.Receiver(from_client=True)).kind == websocket.PING
        finally:
            stop.set()
            talker.join(SECONDS)


class Hallway:
    """Passes a handshake on as it is, and has the rest carried."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"ws://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._port))
        heads = []
        for source, sink in ((client, server), (server, client)):
            buffer = http1.HeadBuffer()
            head = None
            while head is None:
                head = buffer.feed(source.recv(65536))
            sink.sendall(head + b"\r\n\r\n")
            heads.append(buffer.rest)
        left, right = Pipe(client, ahead=heads[0]), Pipe(server, ahead=heads[1])
        with contextlib.closing(left), contextlib.closing(right):
            tunnels.carry(left, right, is_websocket=True, keep_alive_seconds=SOON)

    def close(self) -> None:
        self._listener.close()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def test_a_library_s_client_and_server_talk_through_pings_of_ours_and_close_as_they_like() -> None:
    def answer(connection: websockets.sync.server.ServerConnection) -> None:
        for message in connection:
            if message == "leave":
                connection.close(4321, "as you wish")
            connection.send(message)

    with websockets.sync.server.serve(answer, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        hallway = Hallway(server.socket.getsockname()[1])
        try:
            with websockets.sync.client.connect(hallway.url) as client:
                for text in ("a", "b" * 100_000):
                    client.send(text)
                    assert client.recv(SECONDS) == text
                    with pytest.raises(TimeoutError):
                        client.recv(4 * SOON)
                assert client.ping().wait(SECONDS)
                client.send("leave")
                with pytest.raises(ConnectionClosedError) as closed:
                    client.recv(SECONDS)
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as you wish")
        finally:
            hallway.close()
            server.shutdown()
            thread.join(SECONDS)


def test_the_client_s_close_code_reaches_the_server() -> None:
    codes: list[int] = []

    def answer(connection: websockets.sync.server.ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosedOK, ConnectionClosedError):
            connection.recv()
        assert connection.close_code is not None
        codes.append(connection.close_code)

    with websockets.sync.server.serve(answer, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        hallway = Hallway(server.socket.getsockname()[1])
        with websockets.sync.client.connect(hallway.url) as client:
            client.close(3210, "enough")
        hallway.close()
        server.shutdown()
        thread.join(SECONDS)
    assert codes == [3210]
