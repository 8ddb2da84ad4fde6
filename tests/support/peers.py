"""Servers and sockets that answer from a script.

``serve`` starts a peer on a free loopback port. For every request that it reads, on whichever connection, it takes the
next step of its script; what it read is kept in ``requests``, byte for byte. Without a step left it answers 200.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import pytest

JOIN_SECONDS = 10.0


@dataclass(frozen=True)
class Request:
    """A request as it came in; header names keep their case. ``connection`` counts from 0."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def get_all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.get_all(name)), None)


@dataclass(frozen=True)
class Answer:
    """A step: an HTTP answer with a length. ``then_close`` ends the connection after it without saying so before."""

    status: int = 200
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()
    then_close: bool = False

    def wire(self) -> bytes:
        head = f"HTTP/1.1 {self.status} Scripted\r\nContent-Length: {len(self.body)}\r\n"
        return (head + "".join(f"{k}: {v}\r\n" for k, v in self.headers) + "\r\n").encode("latin-1") + self.body


def json_answer(status: int, content: object, *, headers: Mapping[str, str] | None = None) -> Answer:
    """A step: an answer with a JSON body."""
    fields = [("Content-Type", "application/json"), *(headers or {}).items()]
    return Answer(status, json.dumps(content).encode(), fields)


@dataclass(frozen=True)
class Raw:
    """A step: these bytes, ``pause`` seconds between them; then the connection stays open or ends."""

    pieces: Iterable[bytes]
    then_close: bool = True
    pause: float = 0.0


@dataclass(frozen=True)
class HangUp:
    """A step: no answer, the connection ends; with ``reset`` it ends in a RST."""

    reset: bool = False


@dataclass(frozen=True)
class Silence:
    """A step: no answer, the connection stays open until the client or the test ends it."""


Step = Answer | Raw | HangUp | Silence | Callable[[Request], Answer]


@dataclass
class Peer:
    """A running server. ``connections`` counts those that were accepted."""

    port: int
    scheme: str = "http"
    host: str = "127.0.0.1"
    script: list[Step] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def next_step(self, request: Request) -> Step:
        with self.lock:
            self.requests.append(request)
            return self.script.pop(0) if self.script else Answer()


@contextmanager
def serving(*script: Step, tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    """A peer with that script, until the block ends."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        peer = Peer(listener.getsockname()[1], scheme="http" if tls is None else "https", script=list(script))
        open_sockets: list[socket.socket] = []
        threads: list[threading.Thread] = []
        acceptor = threading.Thread(target=_accept, args=(listener, peer, tls, open_sockets, threads), name="peer")
        acceptor.start()
        try:
            yield peer
        finally:
            peer.stopping.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            for sock in open_sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in (acceptor, *threads):
                thread.join(JOIN_SECONDS)
                assert not thread.is_alive(), "a scripted peer does not end"


def _accept(
    listener: socket.socket,
    peer: Peer,
    tls: ssl.SSLContext | None,
    open_sockets: list[socket.socket],
    threads: list[threading.Thread],
) -> None:
    while not peer.stopping.is_set():
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        open_sockets.append(sock)
        number = peer.connections
        peer.connections += 1
        thread = threading.Thread(target=_converse, args=(sock, number, peer, tls), name=f"peer-{number}")
        threads.append(thread)
        thread.start()


def _converse(sock: socket.socket, number: int, peer: Peer, tls: ssl.SSLContext | None) -> None:
    # The client ends connections as it likes, that is what is tested.
    with suppress(OSError), sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conversation = sock if tls is None else tls.wrap_socket(sock, server_side=True)
        with conversation, conversation.makefile("rb") as stream:
            while (request := read_request(stream, number)) is not None:
                if not _perform(peer.next_step(request), request, conversation, peer):
                    return


def _perform(step: Step, request: Request, sock: socket.socket, peer: Peer) -> bool:
    """Do one step; True if the connection goes on."""
    if callable(step):
        step = step(request)
    if isinstance(step, Answer):
        wire = step.wire()
        sock.sendall(wire[: wire.index(b"\r\n\r\n") + 4] if request.method == "HEAD" else wire)
        return not step.then_close
    if isinstance(step, Raw):
        for piece in step.pieces:
            sock.sendall(piece)
            if peer.stopping.wait(step.pause):
                return False
        return not step.then_close
    if isinstance(step, Silence):
        sock.recv(1)  # until the client gives up
    elif step.reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    return False


def read_request(stream: object, number: int = 0) -> Request | None:
    """One request from a binary file, its body included; None at the end of the stream."""
    readline: Callable[[], bytes] = stream.readline  # type: ignore[attr-defined]
    read: Callable[[int], bytes] = stream.read  # type: ignore[attr-defined]
    line = readline()
    if not line.endswith(b"\r\n"):
        return None
    method, target, _ = line.decode("latin-1").rstrip("\r\n").split(" ", 2)
    headers: list[tuple[str, str]] = []
    while (line := readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    request = Request(method, target, headers, b"", number)
    if (request.get("transfer-encoding") or "").lower() == "chunked":
        return Request(method, target, headers, _read_chunks(readline, read), number)
    return Request(method, target, headers, read(int(request.get("content-length") or 0)), number)


def _read_chunks(readline: Callable[[], bytes], read: Callable[[int], bytes]) -> bytes:
    body = b""
    while size := int(readline(), 16):
        body += read(size)
        readline()
    readline()
    return body


Serve = Callable[..., Peer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts peers, takes what ``serving`` takes; they end with the test."""
    with ExitStack() as stack:

        def start(*script: Step, tls: ssl.SSLContext | None = None) -> Peer:
            return stack.enter_context(serving(*script, tls=tls))

        yield start


@pytest.fixture
def refused_port() -> Iterator[int]:
    """A port on which nobody listens, and which nobody else gets: bound, but not listening."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
