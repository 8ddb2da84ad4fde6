"""Applications behind a scripted endpoint: plain ones, slow ones, and those that break off or break the rules."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.forward_endpoint import App, Call

WAIT_SECONDS = 20.0
BLOCK = bytes(range(256)) * 4096  # 1 MiB


def echo(call: Call) -> None:
    """The request's body."""
    call.answer(200, call.read())


def says(body: bytes, *lines: str, status: int = 200) -> App:
    """Always this answer."""

    def app(call: Call) -> None:
        call.read()
        call.answer(status, body, *lines)

    return app


def raw(*pieces: bytes, closes: bool = True) -> App:
    """These bytes, whatever they are."""

    def app(call: Call) -> bool:
        call.read()
        for piece in pieces:
            call.send(piece)
        return not closes

    return app


def hangs_up(call: Call) -> bool:
    """Reads a request and ends without a word."""
    call.read()
    return False


def closes_behind(call: Call) -> bool:
    """Answers, and ends the connection without having said so."""
    call.answer(200, call.read())
    return False


def refuses_early(call: Call) -> bool:
    """Answers without having read the body, and ends."""
    call.answer(413, b"too much", "Connection: close")
    return False


@dataclass
class Steps:
    """Sends one piece after the other, each when the test says so."""

    pieces: list[bytes]
    head: bytes = (
        b"HTTP/1.1 200 OK\r\nx-app: yes\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __call__(self, call: Call) -> None:
        call.read()
        call.send(self.head)
        for piece in self.pieces:
            assert self.go.acquire(timeout=WAIT_SECONDS)
            call.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        call.send(b"0\r\n\r\n")


@dataclass
class Blocks:
    """Sends a large body; ``sent`` is how much of it the forwarder has taken."""

    count: int
    sent: int = 0
    is_done: threading.Event = field(default_factory=threading.Event)

    def __call__(self, call: Call) -> None:
        call.read()
        call.send(f"HTTP/1.1 200 OK\r\nx-app: yes\r\nContent-Length: {self.count * len(BLOCK)}\r\n\r\n".encode())
        for _ in range(self.count):
            call.send(BLOCK)
            self.sent += len(BLOCK)
        self.is_done.set()


@dataclass
class Reads:
    """Reads a body a piece at a time and tells of each; ``holds`` keeps it from reading until it is set."""

    holds: threading.Event = field(default_factory=threading.Event)
    arrived: list[bytes] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    total: int = 0

    def __call__(self, call: Call) -> None:
        assert self.holds.wait(WAIT_SECONDS)
        for piece in call.body():
            with self.changed:
                self.total += len(piece)
                if self.total < len(BLOCK):
                    self.arrived.append(piece)
                self.changed.notify_all()
        call.answer(200, str(self.total).encode())

    def wait_for(self, data: bytes) -> bool:
        """Wait until this is what has come."""
        with self.changed:
            return self.changed.wait_for(lambda: b"".join(self.arrived) == data, WAIT_SECONDS)


def tunnel_to(port: int) -> App:
    """A real server on a port of its own: one request of each connection, and all bytes from then on."""

    def app(call: Call) -> bool:
        lines = [f"{call.method} {call.target} HTTP/1.1", *(f"{name}: {value}" for name, value in call.fields)]
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as server:
            server.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1"))
            _carry(call, server)
        return False

    return app


def _carry(call: Call, server: socket.socket) -> None:
    ends = {call.sock: call.receive, server: lambda: server.recv(65536)}
    other = {call.sock: server, server: call.sock}
    while ends:
        is_pending = isinstance(call.sock, ssl.SSLSocket) and call.sock.pending()
        ready = [call.sock] if is_pending and call.sock in ends else select.select(list(ends), [], [], 60)[0]
        for one in ready:
            data = ends[one]()
            if data:
                other[one].sendall(data)
                continue
            del ends[one]
            if isinstance(other[one], ssl.SSLSocket):
                return  # half of it cannot end with TLS here
            other[one].shutdown(socket.SHUT_WR)


def switches(talk: Callable[[Call], object], *lines: str) -> App:
    """Changes the protocol to whatever ``talk`` does with the connection."""

    def app(call: Call) -> bool:
        head = "".join(f"{line}\r\n" for line in ("Upgrade: websocket", "Connection: Upgrade", *lines))
        call.send(f"HTTP/1.1 101 Switching Protocols\r\n{head}\r\n".encode())
        talk(call)
        return False

    return app
