"""The relay as a black box: the agent between servers and clients that others have written, and its end.

Whatever the framing, the pieces and the order, a server finds in a request what its client has said, and the other way
round; both are read by h11.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import http.server
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h11
import pytest
import websockets.exceptions
import websockets.sync.client
import websockets.sync.server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guest.agentd import wire
from tests.support import skips
from tests.support.agent import Agent, running_agent
from tests.support.paths import find_python

SECONDS = 20.0
SOON_SECONDS = 3.0  # of what waits for nothing
UPGRADE = "Connection: Upgrade\r\nUpgrade: echo"


# -- messages of any kind, by h11 --------------------------------------------------------------------------------------

LENGTH, CHUNKED, CLOSE = "length", "chunked", "close"
Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Message:
    """What travels in a request or an answer, and how."""

    framing: str
    body: bytes = b""
    trailers: tuple[tuple[bytes, bytes], ...] = ()
    piece: int = 65536  # bytes written at once
    status: int = 200

    @property
    def fields(self) -> Pairs:
        if self.framing == LENGTH:
            return [(b"Content-Length", b"%d" % len(self.body))]
        return [(b"Transfer-Encoding", b"chunked")] if self.framing == CHUNKED else []


@dataclass
class Seen:
    """What h11 has found in a message."""

    body: bytes = b""
    trailers: tuple[tuple[bytes, bytes], ...] = ()


class Talk:
    """One end of a connection that h11 reads and writes."""

    def __init__(self, sock: socket.socket, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        sock.settimeout(SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._parser = h11.Connection(role)

    def send(self, head: h11.Request | h11.Response, message: Message, *, has_body: bool = True) -> None:
        data = self._parser.send(head) or b""
        if has_body:
            for at in range(0, len(message.body), message.piece):
                data += self._parser.send(h11.Data(data=message.body[at : at + message.piece])) or b""
        trailers = list(message.trailers) if has_body else []
        data += self._parser.send(h11.EndOfMessage(headers=trailers)) or b""
        for at in range(0, len(data), message.piece):
            self._sock.sendall(data[at : at + message.piece])

    def read(self) -> Seen | None:
        """The next message; None at the end of the connection."""
        seen = Seen()
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self._parser.receive_data(self._sock.recv(65536))
            elif isinstance(event, h11.Data):
                seen.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                seen.trailers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
                return seen
            elif isinstance(event, h11.ConnectionClosed):
                return None

    def goes_on(self) -> bool:
        """Get ready for the next message; whether there may be one."""
        if self._parser.our_state is h11.MUST_CLOSE or self._parser.their_state is h11.MUST_CLOSE:
            return False
        self._parser.start_next_cycle()
        return True


@dataclass
class Scripted:
    """A server that gives one answer after the other, whichever connections the requests come on."""

    answers: list[tuple[Message, bool]] = field(default_factory=list)  # and whether it has a body to send
    requests: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Until ``close``."""
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(sock,)).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _converse(self, sock: socket.socket) -> None:
        with sock:
            talk = Talk(sock, h11.SERVER)
            while (seen := talk.read()) is not None:
                self.requests.append(seen)
                message, has_body = self.answers.pop(0)
                fields = [*message.fields, *([(b"Connection", b"close")] if message.framing == CLOSE else [])]
                talk.send(h11.Response(status_code=message.status, headers=fields), message, has_body=has_body)
                if not talk.goes_on():
                    return


@pytest.fixture(scope="module")
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.close()
    thread.join(SECONDS)


bodies = st.one_of(st.binary(max_size=40), st.integers(0, 300_000).map(lambda size: bytes(range(251)) * (size // 251)))
some_trailers = st.lists(st.tuples(st.sampled_from([b"x-sum", b"x-other"]), st.sampled_from([b"", b"1"])), max_size=2)
pieces = st.sampled_from([7, 1000, 65536, 1 << 20])


def messages(*framings: str) -> st.SearchStrategy[Message]:
    return st.builds(
        lambda framing, body, trailers, piece: Message(
            framing, body if piece > 7 else body[:500], tuple(trailers) if framing == CHUNKED else (), piece
        ),
        *(st.sampled_from(framings), bodies, some_trailers, pieces),
    )


exchanges = st.tuples(
    st.sampled_from([b"GET", b"HEAD", b"POST", b"DELETE"]), messages(LENGTH, CHUNKED), messages(LENGTH, CHUNKED, CLOSE)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(exchanges, min_size=1, max_size=5))
def test_whatever_is_said_arrives_on_one_connection(
    shared_agent: Agent, scripted: Scripted, said: list[tuple[bytes, Message, Message]]
) -> None:
    scripted.requests.clear()
    scripted.answers[:] = [(answer, method != b"HEAD") for method, _, answer in said]
    with shared_agent.dial() as sock:
        talk = Talk(sock, h11.CLIENT)
        for number, (method, asked, answer) in enumerate(said):
            fields = [(b"Host", b"x"), (wire.RELAY_PORT_HEADER.encode(), b"%d" % scripted.port), *asked.fields]
            talk.send(h11.Request(method=method, target=b"/", headers=fields), asked)
            has_body = method != b"HEAD"
            wanted = Seen(answer.body, answer.trailers) if has_body else Seen()
            assert talk.read() == wanted
            assert scripted.requests[number] == Seen(asked.body, asked.trailers)
            assert talk.goes_on()


# -- servers and clients of others -------------------------------------------------------------------------------------


@pytest.fixture(params=["HTTP/1.0", "HTTP/1.1"])
def files_port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Python's own server of files, which speaks HTTP/1.0 unless it is told otherwise."""
    (tmp_path / "a b.bin").write_bytes(bytes(range(256)) * 4096)

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = request.param

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(SECONDS)


def test_files_are_served_on_one_connection_of_the_client(shared_agent: Agent, files_port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared_agent.port, timeout=SECONDS)
    with contextlib.closing(connection):
        sockets = set()
        for target, status, size in [("/a%20b.bin", 200, 1 << 20), ("/none", 404, None), ("/a%20b.bin", 200, 1 << 20)]:
            connection.request("GET", target, headers={wire.RELAY_PORT_HEADER: str(files_port)})
            sockets.add(connection.sock)
            response = connection.getresponse()
            body = response.read()
            assert (response.status, response.getheader(wire.RELAY_HEADER)) == (status, wire.RELAY_RELAYED)
            assert size is None or body == bytes(range(256)) * 4096
        assert len(sockets) == 1


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A WebSocket server that takes connections of its own pages only, and greets first."""

    def serve(connection: websockets.sync.server.ServerConnection) -> None:
        connection.send(f"hello at {connection.request.headers['Host'] if connection.request else ''}")
        for message in connection:
            if message == "bye":
                connection.close(4001, "as you wish")
            connection.send(message)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        origins = [websockets.Origin(f"http://localhost:{port}")]
        with websockets.sync.server.serve(
            serve, sock=listener, origins=origins, subprotocols=[websockets.Subprotocol("b")]
        ) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield port
            server.shutdown()
            thread.join(SECONDS)


def open_socket(agent: Agent, port: int, *, origin: str) -> websockets.sync.client.ClientConnection:
    return websockets.sync.client.connect(
        f"ws://127.0.0.1:{agent.port}/",
        additional_headers={wire.RELAY_PORT_HEADER: str(port)},
        origin=websockets.Origin(origin),
        subprotocols=[websockets.Subprotocol("a"), websockets.Subprotocol("b")],
    )


def test_a_websocket_is_one_of_the_servers_own_pages(shared_agent: Agent, echo_port: int) -> None:
    with open_socket(shared_agent, echo_port, origin=f"http://127.0.0.1:{shared_agent.port}") as connection:
        assert connection.subprotocol == "b"
        assert connection.recv(SECONDS) == f"hello at localhost:{echo_port}"
        for message in ("text", b"\0bytes", "x" * 500_000):
            connection.send(message)
            assert connection.recv(SECONDS) == message
        assert connection.ping().wait(SECONDS)
        connection.send("bye")
        with pytest.raises(websockets.exceptions.ConnectionClosedError):
            connection.recv(SECONDS)
        assert (connection.close_code, connection.close_reason) == (4001, "as you wish")


def test_a_websocket_of_another_page_is_refused_by_the_server(shared_agent: Agent, echo_port: int) -> None:
    with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
        open_socket(shared_agent, echo_port, origin="http://evil.example").close()
    assert caught.value.response.status_code == 403


# -- the life of the agent ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def relayed(agent: Agent, *, lines: str = "", answer: bytes = b"") -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a relayed connection whose server has got the request, and answered that."""
    with socket.create_server(("127.0.0.1", 0)) as listener, agent.dial() as client:
        port = listener.getsockname()[1]
        client.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{wire.RELAY_PORT_HEADER}: {port}\r\n{lines}\r\n\r\n".encode())
        listener.settimeout(SECONDS)
        with listener.accept()[0] as server:
            server.settimeout(SECONDS)
            receive_head(server)
            if answer:
                server.sendall(answer)
                receive_head(client)
            yield client, server


def receive_head(sock: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        assert piece, data
        data += piece
    return data


SWITCHED = f"HTTP/1.1 101 Switching Protocols\r\n{UPGRADE}\r\n\r\n".encode()


@pytest.mark.parametrize("hook", ["suspend", "terminate"])
def test_nobody_waits_for_what_is_relayed_when_the_sandbox_sleeps_or_ends(agent: Agent, hook: str) -> None:
    with relayed(agent, lines="X: slow") as (waiting, slow), relayed(agent, lines=UPGRADE, answer=SWITCHED) as tunnel:
        begin = time.monotonic()
        assert agent.hook(hook).status == 200
        assert time.monotonic() - begin < SOON_SECONDS
        assert agent.hook("resume").status == 200
        # What is inside goes on after a resume as if nothing had been.
        slow.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert receive_head(waiting).startswith(b"HTTP/1.1 200 ")
        for sender, receiver in (tunnel, tunnel[::-1]):
            sender.sendall(b"still here")
            assert receiver.recv(100) == b"still here"


def test_the_agents_end_is_that_of_every_connection(agent: Agent) -> None:
    with relayed(agent, lines=UPGRADE, answer=SWITCHED) as (client, server):
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(SOON_SECONDS) == 0
        for each in (client, server):
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_other_pythons_relay_as_well(tmp_path: Path, version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: {version}")
    with running_agent(tmp_path / "agent", python=python) as agent:
        with relayed(agent, lines=UPGRADE, answer=SWITCHED) as (client, server):
            client.sendall(b"to")
            assert server.recv(10) == b"to"
            server.shutdown(socket.SHUT_WR)
            assert client.recv(10) == b""
        assert agent.log() == ""


# -- what only shows with time or shortage -----------------------------------------------------------------------------


def test_a_server_that_takes_no_connection_is_no_free_port(agent: Agent) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(4):  # the backlog is full
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(address)
        reply = agent.request("GET", "/", headers={wire.RELAY_PORT_HEADER: str(address[1])})
    assert (reply.status, reply.headers[wire.RELAY_HEADER]) == (502, wire.RELAY_BROKEN)


def test_too_few_files_are_a_shortage_and_no_free_port(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent(wrapper=["prlimit", "--nofile=40:40"])
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        served = []
        while True:  # until no file is left for one more connection
            client = stack.enter_context(agent.dial())
            client.settimeout(0.5)
            client.sendall(health)
            try:
                receive_head(client)
            except TimeoutError:
                break
            served.append(client)
        served.pop().close()
        client.settimeout(SECONDS)
        receive_head(client)  # its turn has come
        served.pop().close()
        asked = f"GET / HTTP/1.1\r\nHost: x\r\n{wire.RELAY_PORT_HEADER}: {listener.getsockname()[1]}\r\n\r\n"
        with agent.dial() as last:
            last.sendall(asked.encode())
            head = receive_head(last)
    assert head.startswith(b"HTTP/1.1 503 ")
    assert f"{wire.RELAY_HEADER}: {wire.RELAY_FULL}".encode() in head
