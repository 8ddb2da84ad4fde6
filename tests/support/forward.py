"""A forwarder in front of a scripted endpoint, and a client that says exactly what a test says."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import h11
import pytest

from tests.support import endpoints
from tests.support.agent import running_agent
from tests.support.authority import Authority
from tests.support.forward_endpoint import App, Endpoint
from vmnest.forward.forwarder import Forwarder
from vmnest.forward.ports import Route
from vmnest.wire import names

if TYPE_CHECKING:
    from vmnest.deadline import Deadline
    from vmnest.errors import VmnestError

AGENT_PORT = 8080
APP_PORT = 3000
CLIENT_SECONDS = 20.0
LARGEST_HEAD = 1 << 20


# -- what the forwarder knows of the sandbox ---------------------------------------------------------------------------


class Place(Protocol):
    """An endpoint, real or scripted."""

    @property
    def authority(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def url(self) -> str: ...


class FakeGate:
    """A gate to an endpoint. ``mints`` are the ports of each token.

    Attributes:
        relays: Whether the agent says that it has the relay.
        stopped: What ``check`` and ``recover`` raise.
        is_suspended: It is, for the next ``recover``.
        recoveries: How often the forwarder asked what is the matter.
    """

    agent_port = AGENT_PORT

    def __init__(self, place: Place, *, context: ssl.SSLContext | None = None, relays: bool = False) -> None:
        self._place = place
        self.relays = relays
        self.stopped: VmnestError | None = None
        self.mints: list[int] = []
        self.recoveries = 0
        self.is_suspended = False
        self._context = context
        self._session: ssl.SSLSession | None = None
        self._tokens: dict[int, str] = {}
        self._lock = threading.Lock()

    @property
    def authority(self) -> str:
        return self._place.authority

    def headers(self, port: int, *, refused: Sequence[tuple[str, str]] | None = None) -> list[tuple[str, str]]:
        with self._lock:
            token = self._tokens.get(port)
            if token is None or (refused is not None and (names.PROXY_AUTH_HEADER, token) in refused):
                self.mints.append(port)
                token = self._tokens[port] = self.make_token(port)
            return [(names.PROXY_AUTH_HEADER, token)]

    def make_token(self, port: int) -> str:
        return f"token-{len(self.mints)}"

    def open(self, deadline: Deadline) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._place.port), timeout=CLIENT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return sock
        return self._context.wrap_socket(sock, server_hostname="localhost")

    def has_relay(self, *, again: bool = False) -> bool:
        return self.relays

    def recover(self, deadline: Deadline) -> bool:
        self.recoveries += 1
        self.check()
        was_suspended, self.is_suspended = self.is_suspended, False
        return was_suspended

    def check(self) -> None:
        if self.stopped is not None:
            raise self.stopped


# -- a client ----------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """An answer as h11 understood it. ``fields`` keep the case of their names, ``interim`` are 1xx before it."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    is_whole: bool = True

    def get_all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.get_all(name)), None)

    @property
    def is_applications(self) -> bool:
        """It is the application's own, not the forwarder's or the platform's."""
        return self.get("x-app") == "yes"


class Client:
    """A bare connection to the forwarder."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", receive_buffer: int | None = None) -> None:
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.sock.settimeout(CLIENT_SECONDS)
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.sock.connect((host, port))
        except OSError:
            self.sock.close()
            raise
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = port
        self._ahead = b""

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def end_sending(self) -> None:
        """Tell that nothing follows."""
        self.sock.shutdown(socket.SHUT_WR)

    def ask(self, method: str, target: str, *lines: str, body: bytes = b"") -> None:
        """Send a request with a Host and, for a body, its length."""
        length = [f"Content-Length: {len(body)}"] if body or method in {"POST", "PUT"} else []
        head = "".join(f"{line}\r\n" for line in (f"Host: localhost:{self._port}", *length, *lines))
        self.send(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    def get(self, target: str = "/", *lines: str, method: str = "GET", body: bytes = b"") -> Answer:
        """A request and its answer."""
        self.ask(method, target, *lines, body=body)
        return self.read(method=method)

    def receive(self) -> bytes:
        """Some bytes; none at the end."""
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        return self.sock.recv(65536)

    def receive_exactly(self, count: int) -> bytes:
        """That many bytes, or fewer at the end."""
        data = b""
        while len(data) < count and (piece := self.receive()):
            data += piece
        data, self._ahead = data[:count], data[count:] + self._ahead
        return data

    def receive_all(self) -> bytes:
        """All bytes up to the end; a reset is one too."""
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := self.receive():
                data += piece
        return data

    def read(self, *, method: str = "GET") -> Answer:
        """The next answer, whole (or, by ``is_whole``, cut short)."""
        answer = Answer(0, [], is_whole=False)
        for event in self._events(method):
            if isinstance(event, h11.InformationalResponse):
                answer.interim.append(event.status_code)
            if isinstance(event, h11.Response | h11.InformationalResponse):
                answer.status = event.status_code
                answer.fields = [(name.decode(), value.decode("latin-1")) for name, value in event.headers.raw_items()]
            elif isinstance(event, h11.Data):
                answer.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                answer.trailers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
                answer.is_whole = True
        return answer

    def stream(self) -> Iterator[bytes]:
        """The payload of the next answer, a piece as it comes."""
        for event in self._events("GET"):
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    def _events(self, method: str) -> Iterator[object]:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
        asks = [("Host", "localhost"), ("Connection", "upgrade"), ("Upgrade", "websocket")]
        parser.send(h11.Request(method=method, target="/", headers=asks))
        parser.send(h11.EndOfMessage())
        while True:
            try:
                event = parser.next_event()
            except h11.RemoteProtocolError:
                return
            if event is h11.NEED_DATA:
                with contextlib.suppress(ConnectionError):
                    parser.receive_data(self.receive())
                    continue
                return
            if isinstance(event, h11.ConnectionClosed):
                return
            if isinstance(event, h11.EndOfMessage) or getattr(event, "status_code", 0) == 101:
                self._ahead = bytes(parser.trailing_data[0])
                yield event
                return
            yield event

    def close(self) -> None:
        """End the connection."""
        self.sock.close()


# -- the whole ---------------------------------------------------------------------------------------------------------


class Forwarded:
    """A forwarder that listens, its endpoint and its gate.

    Attributes:
        remarks: What it has told its user.
        ends: The errors that it ended with.
    """

    def __init__(self, gate: FakeGate, endpoint: Endpoint, stack: ExitStack) -> None:
        self.forwarder: Forwarder
        self.gate = gate
        self.endpoint = endpoint
        self.remarks: list[str] = []
        self.ends: list[BaseException] = []
        self.has_ended = threading.Event()
        self._stack = stack

    def open(self, routes: Sequence[tuple[int, int]], **options: Any) -> None:
        """Listen; it is closed with the stack."""
        self.forwarder = Forwarder(
            self.gate, [Route(*route) for route in routes], report=self.remarks.append, on_end=self._end, **options
        )
        self._stack.callback(self.forwarder.close)
        self.forwarder.open()

    def _end(self, error: BaseException) -> None:
        self.ends.append(error)
        self.has_ended.set()

    @property
    def port(self) -> int:
        """The local port of the first route."""
        return self.forwarder.routes[0].local

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def client(self, *, receive_buffer: int | None = None, route: int = 0) -> Client:
        """A new connection; it ends with the test."""
        client = Client(self.forwarder.routes[route].local, receive_buffer=receive_buffer)
        self._stack.callback(client.close)
        return client

    def get(self, target: str = "/", *lines: str, method: str = "GET", body: bytes = b"") -> Answer:
        """A request on a connection of its own."""
        client = self.client()
        try:
            return client.get(target, *lines, method=method, body=body)
        finally:
            client.close()


Forward = Callable[..., Forwarded]


@contextlib.contextmanager
def forwarding(
    app: App | None = None,
    *,
    apps: dict[int, App] | None = None,
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | None = None,
    relays: bool = False,
    routes: Sequence[tuple[int, int]] = ((APP_PORT, 0),),
    **options: Any,
) -> Iterator[Forwarded]:
    """A forwarder to ``app`` on the first route's port (or to ``apps``, by port), until the block ends."""
    with ExitStack() as stack:
        behind = apps if apps is not None else {} if app is None else {routes[0][0]: app}
        endpoint = stack.enter_context(Endpoint(behind, tls=tls).serving())
        forwarded = Forwarded(FakeGate(endpoint, context=trust, relays=relays), endpoint, stack)
        forwarded.open(routes, **options)
        yield forwarded


class _ProxyPlace(NamedTuple):
    authority: str
    port: int
    url: str


class _ProxyGate(FakeGate):
    """A gate to the local cloud's own proxy."""

    def __init__(self, endpoint: endpoints.Endpoint) -> None:
        super().__init__(_ProxyPlace(f"{endpoint.host}:{endpoint.port}", endpoint.port, endpoint.url), relays=True)
        self._endpoint = endpoint

    def make_token(self, port: int) -> str:
        return self._endpoint.token(port)


@contextlib.contextmanager
def forwarding_by_relay(app: App, *, folder: Path) -> Iterator[Forwarded]:
    """A forwarder to ``app`` through the local cloud's proxy and an agent's relay: all between is real."""
    with ExitStack() as stack:
        server = stack.enter_context(Endpoint({0: app}, is_bare=True).serving())
        agent = stack.enter_context(running_agent(folder))
        proxy = stack.enter_context(endpoints.open_endpoint({AGENT_PORT: agent.port}))
        forwarded = Forwarded(_ProxyGate(proxy), server, stack)
        forwarded.open([(server.port, 0)])
        yield forwarded


@pytest.fixture(params=["http", "https"])
def forward(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Forward]:
    """Makes forwarders whose endpoint speaks HTTP, or TLS that is verified; takes what ``forwarding`` takes."""
    with ExitStack() as stack:

        def start(app: App | None = None, **options: Any) -> Forwarded:
            if request.param == "https":
                trust = ssl.create_default_context(cafile=str(authority.bundle))
                options |= {"tls": authority.context("localhost"), "trust": trust}
            return stack.enter_context(forwarding(app, **options))

        yield start


@pytest.fixture
def forward_plain() -> Iterator[Forward]:
    """The same where TLS makes no difference."""
    with ExitStack() as stack:

        def start(app: App | None = None, **options: Any) -> Forwarded:
            return stack.enter_context(forwarding(app, **options))

        yield start
