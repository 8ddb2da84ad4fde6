"""WebSockets, and other protocols behind a 101, through the forwarder: spoken by the websockets library and by hand."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.forward import Client, Forward, Forwarded
from tests.support.forward_endpoint import Call
from tests.support.odd_servers import hangs_up, switches, tunnel_to
from vmnest.forward import tunnels

WAIT_SECONDS = 20.0
SOCKETS = 200
MOST_KIB_EACH = 60
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version: 13",
)


@contextmanager
def serving(handler: Callable[[ServerConnection], None], **options: object) -> Iterator[int]:
    """A server of the websockets library; gives its port."""
    server: Server
    with serve(handler, "127.0.0.1", 0, **options) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join()


Serving = Callable[..., int]


@pytest.fixture
def server() -> Iterator[Serving]:
    """Starts servers, takes what ``serving`` takes; they end with the test."""
    with ExitStack() as stack:
        yield lambda handler, **options: stack.enter_context(serving(handler, **options))


def echo(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(message)


def address(forwarded: Forwarded) -> str:
    return f"ws://localhost:{forwarded.port}/socket?x=1"


# -- messages ----------------------------------------------------------------------------------------------------------


def test_the_client_may_speak_first(forward: Forward, server: Serving) -> None:
    forwarded = forward(tunnel_to(server(echo)))
    with connect(address(forwarded), proxy=None) as socket_:
        for message in ("hello", b"\x00\xff", "x" * 70_000, b""):
            socket_.send(message)
            assert socket_.recv(WAIT_SECONDS) == message


def test_the_server_may_speak_first(forward: Forward, server: Serving) -> None:
    def greet(connection: ServerConnection) -> None:
        connection.send("welcome")
        assert connection.recv(WAIT_SECONDS) == "thanks"

    forwarded = forward(tunnel_to(server(greet)))
    with connect(address(forwarded), proxy=None) as socket_:
        assert socket_.recv(WAIT_SECONDS) == "welcome"
        socket_.send("thanks")


def test_what_the_server_says_with_its_101_is_not_lost(forward: Forward) -> None:
    def app(call: Call) -> bool:
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        call.send(head + b"\x81\x05hello")
        call.receive()
        return False

    client = forward(app).client()
    assert client.get("/", *UPGRADE).status == 101
    assert client.receive_exactly(7) == b"\x81\x05hello"


def test_what_the_client_says_with_its_request_is_not_lost(forward: Forward) -> None:
    frame = Frame(Opcode.TEXT, b"early").serialize(mask=True)
    got: list[bytes] = []
    is_here = threading.Event()

    def talk(call: Call) -> None:
        got.append(call.receive())
        is_here.set()

    client = forward(switches(talk)).client()
    head = "".join(f"{line}\r\n" for line in ("GET / HTTP/1.1", "Host: localhost", *UPGRADE))
    client.send(head.encode() + b"\r\n" + frame)
    assert is_here.wait(WAIT_SECONDS)
    assert got == [frame]


def test_a_large_message_passes_both_ways_at_once(forward: Forward, server: Serving) -> None:
    forwarded = forward(tunnel_to(server(echo, max_size=None)))
    message = bytes(range(256)) * (4 << 12)
    with connect(address(forwarded), proxy=None, max_size=None) as socket_:
        sender = threading.Thread(target=lambda: [socket_.send(message) for _ in range(4)])
        sender.start()
        assert [socket_.recv(WAIT_SECONDS) == message for _ in range(4)] == [True] * 4
        sender.join()


def test_pings_and_pongs_of_the_application_pass(forward: Forward, server: Serving) -> None:
    forwarded = forward(tunnel_to(server(echo)))
    with connect(address(forwarded), proxy=None, ping_interval=None) as socket_:
        assert socket_.ping(b"mine").wait(WAIT_SECONDS)


# -- the handshake -----------------------------------------------------------------------------------------------------


def test_the_applications_subprotocol_is_negotiated(forward: Forward, server: Serving) -> None:
    offered = [Subprotocol("app.v2"), Subprotocol("app.v1")]
    forwarded = forward(tunnel_to(server(echo, subprotocols=[Subprotocol("app.v1")])))
    with connect(address(forwarded), proxy=None, subprotocols=offered) as socket_:
        assert socket_.subprotocol == "app.v1"
    (call,) = forwarded.endpoint.calls
    assert call.get_all("sec-websocket-protocol") == ["app.v2, app.v1"]
    assert call.target == "/socket?x=1"


def test_the_platforms_subprotocols_are_neither_taken_nor_shown(forward_plain: Forward) -> None:
    forwarded = forward_plain(switches(lambda call: None, "Sec-WebSocket-Protocol: lambda-microvms"))
    offered = "lambda-microvms, lambda-microvms.port.22, app.v1, lambda-microvms.authentication.x"
    answer = forwarded.client().get("/", *UPGRADE, f"Sec-WebSocket-Protocol: {offered}")
    (call,) = forwarded.endpoint.calls
    assert call.get_all("sec-websocket-protocol") == ["app.v1"]
    assert (answer.status, answer.get_all("sec-websocket-protocol")) == (101, [])


def test_a_refused_handshake_is_an_answer_like_others(forward: Forward) -> None:
    forwarded = forward(lambda call: call.answer(401, b"who?", "WWW-Authenticate: Basic"))
    client = forwarded.client()
    for _ in range(2):
        answer = client.get("/", *UPGRADE)
        assert (answer.status, answer.body, answer.get("www-authenticate")) == (401, b"who?", "Basic")


def test_a_server_that_is_gone_is_a_bad_gateway_for_a_handshake_too(forward_plain: Forward) -> None:
    assert forward_plain(hangs_up).client().get("/", *UPGRADE).status == 502
    assert forward_plain().client().get("/", *UPGRADE).status == 502


def test_another_protocol_is_carried_as_bytes(forward: Forward) -> None:
    def app(call: Call) -> bool:
        call.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: mine/1\r\nConnection: Upgrade\r\n\r\n")
        while data := call.receive():
            call.send(data[::-1])
        return False

    client = forward(app).client()
    answer = client.get("/", "Connection: Upgrade", "Upgrade: mine/1")
    assert (answer.status, answer.get("upgrade")) == (101, "mine/1")
    client.send(b"\x00abc")
    assert client.receive_exactly(4) == b"cba\x00"


# -- the end -----------------------------------------------------------------------------------------------------------


def test_close_codes_pass_both_ways(forward: Forward, server: Serving) -> None:
    seen: list[tuple[int | None, str | None]] = []
    is_closed = threading.Event()

    def wait_for_close(connection: ServerConnection) -> None:
        if connection.recv(WAIT_SECONDS) == "you first":
            connection.close(4001, "server's")
            return
        with pytest.raises(ConnectionClosed):
            connection.recv(WAIT_SECONDS)
        seen.append((connection.close_code, connection.close_reason))
        is_closed.set()

    forwarded = forward(tunnel_to(server(wait_for_close)))
    with connect(address(forwarded), proxy=None) as socket_:
        socket_.send("you first")
        with pytest.raises(ConnectionClosed) as closed:
            socket_.recv(WAIT_SECONDS)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "server's")
    with connect(address(forwarded), proxy=None) as socket_:
        socket_.send("me")
        socket_.close(4002, "client's")
    assert is_closed.wait(WAIT_SECONDS)
    assert seen == [(4002, "client's")]


def test_a_client_that_has_said_all_still_hears_the_server(forward_plain: Forward) -> None:
    def talk(call: Call) -> None:
        said = b"".join(iter(call.receive, b""))
        call.send(b"you said " + said)

    client = forward_plain(switches(talk)).client()
    client.get("/", *UPGRADE)
    client.send(b"all")
    client.end_sending()
    assert client.receive_all() == b"you said all"


def test_a_server_that_has_said_all_still_hears_the_client(forward_plain: Forward) -> None:
    got: list[bytes] = []
    is_over = threading.Event()

    def talk(call: Call) -> None:
        call.send(b"last words")
        call.sock.shutdown(socket.SHUT_WR)
        got.append(b"".join(iter(call.receive, b"")))
        is_over.set()

    client = forward_plain(switches(talk)).client()
    client.get("/", *UPGRADE)
    assert client.receive_all() == b"last words"
    client.send(b"heard")
    client.end_sending()
    assert is_over.wait(WAIT_SECONDS)
    assert got == [b"heard"]


def test_a_client_that_is_gone_ends_the_servers_connection(forward: Forward) -> None:
    forwarded = forward(switches(lambda call: call.receive()))
    client = forwarded.client()
    client.get("/", *UPGRADE)
    client.close()
    assert forwarded.endpoint.connections[0].has_ended.wait(WAIT_SECONDS)


def test_a_server_that_is_gone_ends_the_clients_connection(forward: Forward) -> None:
    forwarded = forward(switches(lambda call: call.receive()))
    client = forwarded.client()
    client.get("/", *UPGRADE)
    forwarded.endpoint.cut()
    assert client.receive_all() == b""


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> float:
    """What is a long silence for the forwarder."""
    monkeypatch.setitem(tunnels.carry.__kwdefaults__, "keep_alive_seconds", 0.1)
    return 0.1


def test_silence_is_broken_towards_the_server_without_either_end_hearing_of_it(
    forward: Forward, server: Serving, short_silence: float
) -> None:
    heard: list[object] = []
    forwarded = forward(tunnel_to(server(lambda connection: heard.extend(connection), ping_interval=None)))
    with connect(address(forwarded), proxy=None, ping_interval=None) as socket_:
        (call,) = forwarded.endpoint.calls
        size = len(call.connection.raw)
        wait_until(lambda: len(call.connection.raw) >= size + 3 * 14)
        pings = bytes(call.connection.raw[size : size + 14])
        assert pings[:2] == b"\x89\x88"  # whole, a ping, masked, of eight bytes
        socket_.send("still here")
        with pytest.raises(TimeoutError):
            socket_.recv(0.3)
    wait_until(lambda: heard == ["still here"])


def test_a_server_that_talks_to_a_silent_client_hears_from_it(forward_plain: Forward, short_silence: float) -> None:
    heard = threading.Event()

    def talk(call: Call) -> None:
        reader = threading.Thread(target=lambda: call.receive() and heard.set())
        reader.start()
        while not heard.wait(short_silence / 4):
            call.send(b"\x81\x04tick")
        reader.join()

    client = forward_plain(switches(talk)).client()
    client.get("/", *UPGRADE)
    assert heard.wait(WAIT_SECONDS)


def test_a_silent_stream_of_another_protocol_is_left_alone(forward_plain: Forward, short_silence: float) -> None:
    def app(call: Call) -> bool:
        call.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: mine/1\r\nConnection: Upgrade\r\n\r\n")
        assert call.receive() == b"now"
        call.send(b"only this")
        return False

    client = forward_plain(app).client()
    client.get("/", "Connection: Upgrade", "Upgrade: mine/1")
    assert not threading.Event().wait(short_silence * 4)
    client.send(b"now")
    assert client.receive_all() == b"only this"


def test_a_half_sent_frame_is_not_broken_into(forward_plain: Forward, short_silence: float) -> None:
    frame = Frame(Opcode.BINARY, b"x" * 300).serialize(mask=True)
    got: list[bytes] = []
    is_whole = threading.Event()

    def talk(call: Call) -> None:
        data = b""
        while len(data) < len(frame):
            data += call.receive()
        got.append(data[: len(frame)])
        is_whole.set()

    client = forward_plain(switches(talk)).client()
    client.get("/", *UPGRADE)
    client.send(frame[:100])
    assert not is_whole.wait(short_silence * 4)
    client.send(frame[100:])
    assert is_whole.wait(WAIT_SECONDS)
    assert got == [frame]


def test_many_idle_sockets_cost_little(forward_plain: Forward) -> None:
    forwarded = forward_plain(switches(lambda call: [*iter(call.receive, b"")]))
    clients: list[Client] = []
    for _ in range(20):
        clients.append(open_socket(forwarded))
    before = rss_kib()
    for _ in range(SOCKETS):
        clients.append(open_socket(forwarded))
    # The endpoint's side and the client's are in there, too.
    assert (rss_kib() - before) / SOCKETS < MOST_KIB_EACH * 2


def open_socket(forwarded: Forwarded) -> Client:
    client = forwarded.client()
    assert client.get("/", *UPGRADE).status == 101
    client.send(Frame(Opcode.TEXT, b"x" * 100).serialize(mask=True))
    return client


def rss_kib() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
