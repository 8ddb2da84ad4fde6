"""AWS's proxy before a MicroVM, as far as a client can tell, and applications behind it that do as a test says.

Written without the library's own parsers: what it understands of a request is a second opinion. It takes the endpoint's
own Host only, wants a token and a port, strips what is the platform's, and hands the rest to the application of that
port. What came on every connection is kept.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

Fields = list[tuple[str, str]]

PEER_SECONDS = 30.0
RECEIVE_BYTES = 262144
KEPT_BYTES = 1 << 20


class PeerGoneError(Exception):
    """The forwarder ended the connection."""


@dataclass
class Connection:
    """A connection that the forwarder has made; ``raw`` is what came on it (of a lot, the beginning)."""

    raw: bytearray = field(default_factory=bytearray)
    is_resumed: bool = False  # TLS: no full handshake
    requests: int = 0
    has_ended: threading.Event = field(default_factory=threading.Event)

    def keep(self, data: bytes) -> bytes:
        """Note what came; returns it."""
        self.raw += data[: max(0, KEPT_BYTES - len(self.raw))]
        return data


@dataclass
class Call:
    """A request that has reached its application. ``fields`` are without the platform's."""

    method: str
    target: str
    fields: Fields
    port: int
    connection: Connection
    token: str
    sock: socket.socket
    _ahead: bytearray
    is_body_read: bool = False
    trailers: Fields = field(default_factory=list)

    def get_all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.get_all(name)), None)

    def send(self, data: bytes) -> None:
        """Write to the forwarder."""
        self.sock.sendall(data)

    def answer(self, status: int = 200, body: bytes = b"", *lines: str) -> None:
        """A whole answer; ``lines`` are further header lines. ``x-app`` tells that the application made it."""
        head = "".join(f"{line}\r\n" for line in ("x-app: yes", f"Content-Length: {len(body)}", *lines))
        self.send(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode("latin-1") + (b"" if self.method == "HEAD" else body))

    def receive(self) -> bytes:
        """Some bytes of the connection; none at its end."""
        if self._ahead:
            data = bytes(self._ahead)
            self._ahead.clear()
            return data
        return self.connection.keep(self.sock.recv(RECEIVE_BYTES))

    def body(self) -> Iterator[bytes]:
        """The payload as it comes."""
        self.is_body_read = True
        if (self.get("transfer-encoding") or "").lower() == "chunked":
            while size := int(self._line().split(b";")[0], 16):
                yield from self._exactly(size)
                self._line()
            while line := self._line():
                name, _, value = line.decode("latin-1").partition(":")
                self.trailers.append((name, value.strip()))
        else:
            yield from self._exactly(int(self.get("content-length") or 0))

    def read(self) -> bytes:
        """The whole payload."""
        return b"".join(self.body())

    def _exactly(self, count: int) -> Iterator[bytes]:
        while count:
            data = self.receive()
            if not data:
                raise PeerGoneError
            piece, rest = data[:count], data[count:]
            self._ahead += rest
            count -= len(piece)
            yield piece

    def _line(self) -> bytes:
        while b"\n" not in self._ahead:
            data = self.connection.keep(self.sock.recv(RECEIVE_BYTES))
            if not data:
                raise PeerGoneError
            self._ahead += data
        line, _, rest = bytes(self._ahead).partition(b"\n")
        self._ahead[:] = rest
        return line.rstrip(b"\r")


# What an application returns: whether the connection goes on (None: yes, if the body was read).
App = Callable[[Call], "bool | None"]


class Endpoint:
    """The endpoint of a MicroVM whose ports are ``apps``; or just an application, if it ``is_bare``.

    Attributes:
        tokens: The tokens that pass; None: all do.
        connections: Those that the forwarder has made, in order.
        calls: The requests that reached an application.
        refusals: What the platform itself has answered: status and reason.
        upcoming: Whole answers of the platform to the next requests, in the place of the applications'.
        errors: What went wrong in an application.
    """

    def __init__(self, apps: Mapping[int, App], *, tls: ssl.SSLContext | None = None, is_bare: bool = False) -> None:
        self.apps = dict(apps)
        self._is_bare = is_bare
        self.tokens: set[str] | None = None
        self.connections: list[Connection] = []
        self.calls: list[Call] = []
        self.refusals: list[tuple[int, str]] = []
        self.upcoming: list[bytes] = []
        self.errors: list[BaseException] = []
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def authority(self) -> str:
        return f"localhost:{self.port}"

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{self.authority}"

    @property
    def raw(self) -> list[bytes]:
        """What came on each connection."""
        return [bytes(connection.raw) for connection in self.connections]

    @contextmanager
    def serving(self) -> Iterator[Endpoint]:
        """Serve until the block ends."""
        acceptor = threading.Thread(target=self._accept, name="endpoint")
        acceptor.start()
        try:
            yield self
        finally:
            _shut(self._listener)
            acceptor.join(PEER_SECONDS)
            self.cut()
            for thread in self._threads:
                thread.join(PEER_SECONDS)
                assert not thread.is_alive(), "an application does not end"
            self._listener.close()
        assert self.errors == []

    def cut(self) -> None:
        """End all connections, in the middle of whatever they carry."""
        for sock in list(self._sockets):
            _shut(sock)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            thread = threading.Thread(target=self._converse, args=(sock,), name="endpoint-connection")
            self._threads.append(thread)
            thread.start()

    def _converse(self, raw: socket.socket) -> None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection()
        sock = raw
        try:
            with raw, contextlib.suppress(OSError, PeerGoneError):
                if self._tls is not None:
                    sock = self._tls.wrap_socket(raw, server_side=True)
                    connection.is_resumed = bool(sock.session_reused)
                    self._sockets.append(sock)
                with self._lock:
                    self.connections.append(connection)
                with sock:
                    ahead = bytearray()
                    while self._serve(sock, connection, ahead):
                        pass
        except Exception as error:  # the test tells
            self.errors.append(error)
        finally:
            connection.has_ended.set()

    def _serve(self, sock: socket.socket, connection: Connection, ahead: bytearray) -> bool:
        while b"\r\n\r\n" not in ahead:
            data = sock.recv(RECEIVE_BYTES)
            if not data:
                return False
            ahead += connection.keep(data)
        head, _, rest = bytes(ahead).partition(b"\r\n\r\n")
        ahead[:] = rest
        connection.requests += 1
        return self._dispatch(sock, connection, head.decode("latin-1"), ahead)

    def _dispatch(self, sock: socket.socket, connection: Connection, head: str, ahead: bytearray) -> bool:
        line, *lines = head.split("\r\n")
        method, target, _ = line.split(" ", 2)
        fields = [(name, value.strip()) for name, _, value in (each.partition(":") for each in lines)]
        names = {name.lower(): value for name, value in fields}
        token, port = names.get("x-aws-proxy-auth", ""), names.get("x-aws-proxy-port", "8080")
        kept = [(name, value) for name, value in fields if not name.lower().startswith("x-aws-proxy-")]
        with self._lock:
            scripted = self.upcoming.pop(0) if self.upcoming else None
        if scripted is not None:
            sock.sendall(scripted)
            return False
        if self._is_bare:
            (app,) = self.apps.values()
            return self._run(app, Call(method, target, fields, self.port, connection, token, sock, ahead))
        if names.get("host") != self.authority:
            return self._refuse(sock, 403, "Token authentication failed")
        if not token:
            return self._refuse(sock, 403, "Request missing authentication")
        if self.tokens is not None and token not in self.tokens:
            return self._refuse(sock, 403, "Token authentication failed")
        if len([name for name, _ in fields if name.lower() == "x-aws-proxy-port"]) > 1 or not port.isdigit():
            return self._refuse(sock, 400, "")
        app = self.apps.get(int(port))
        if app is None:
            return self._refuse(sock, 502, "", error="APP_CONNECT_FAILED")
        return self._run(app, Call(method, target, kept, int(port), connection, token, sock, ahead))

    def _run(self, app: App, call: Call) -> bool:
        with self._lock:
            self.calls.append(call)
        goes_on = app(call)
        if goes_on is None:
            if not call.is_body_read:
                call.read()
            return True
        return goes_on

    def _refuse(self, sock: socket.socket, status: int, text: str, *, error: str = "") -> bool:
        self.refusals.append((status, error or text))
        # It cannot tell where an unread body ends: the connection goes with the answer.
        sock.sendall(platform_answer(status, text, error=error))
        return False


def platform_answer(status: int, text: str = "", *, error: str = "") -> bytes:
    """An answer that the platform makes itself."""
    named = f"x-aws-proxy-error: {error}\r\n" if error else ""
    kind = "content-type: text/plain\r\n" if text else ""
    return (
        f"HTTP/1.1 {status} Platform\r\n{kind}cache-control: private, no-store\r\n"
        f"x-amzn-requestid: 0\r\n{named}content-length: {len(text)}\r\nconnection: close\r\n\r\n{text}"
    ).encode()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
