"""A closed loop of HTTP requests on many connections, in one thread.

Each connection sends the same request, waits for the whole answer and sends again, until the total is reached. One
selector drives them all, so that the generator costs some 25 us a request and client threads do not hide the server on
a small machine. It reads just the answers that agents give: Content-Length or chunked, kept alive.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import time
from dataclasses import dataclass, field

Address = tuple[str, int]


def exec_request(command: str, *arguments: str) -> bytes:
    """The bytes of a ``POST /v1/exec``."""
    body = json.dumps({"command": command, "args": list(arguments)}).encode()
    head = b"POST /v1/exec HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


class Answer:
    """One answer as its bytes arrive. Keeps only what it needs to see the end."""

    def __init__(self) -> None:
        self.received = 0
        self._head = b""
        self._tail = b""
        self._wanted: int | None = None
        self._chunked = False

    def feed(self, data: bytes) -> bool:
        """Take bytes in; True when the answer is whole."""
        self.received += len(data)
        self._tail = (self._tail + data)[-5:]
        if not self._head:
            self._begin(data)
        if self._chunked:
            return self._tail == b"0\r\n\r\n"
        return self._wanted is not None and self.received >= self._wanted

    def _begin(self, data: bytes) -> None:
        # An agent's head is short and comes in one piece; the status is judged here, once.
        head, end, _ = data.partition(b"\r\n\r\n")
        if not end or not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the agent answered {data[:200]!r}")
        self._head = head.lower()
        self._chunked = b"transfer-encoding: chunked" in self._head
        if not self._chunked:
            length = self._head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]
            self._wanted = len(head) + 4 + int(length)


@dataclass
class Loop:
    """``total`` requests on ``connections`` connections.

    Attributes:
        latencies: Milliseconds of each request.
        beginnings: Milliseconds of each until its answer began.
        milliseconds: What all of them took.
    """

    address: Address
    request: bytes
    total: int
    connections: int
    latencies: list[float] = field(default_factory=list)
    beginnings: list[float] = field(default_factory=list)
    milliseconds: float = 0.0

    def run(self) -> float:
        """Drive the loop to its end; returns the median latency in milliseconds."""
        started = time.perf_counter()
        with selectors.DefaultSelector() as selector:
            begun = 0
            for _ in range(min(self.connections, self.total)):
                sock = socket.create_connection(self.address, timeout=60)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(sock, selectors.EVENT_READ, self._send(sock))
                begun += 1
            while len(self.latencies) < self.total:
                for key, _ in selector.select(timeout=60) or self._give_up():
                    ready = key.fileobj
                    assert isinstance(ready, socket.socket)
                    if not self._receive(ready, key.data):
                        continue
                    if begun < self.total:
                        selector.modify(ready, selectors.EVENT_READ, self._send(ready))
                        begun += 1
                    else:
                        selector.unregister(ready)
                        ready.close()
        self.milliseconds = (time.perf_counter() - started) * 1e3
        return statistics.median(self.latencies)

    def _send(self, sock: socket.socket) -> tuple[float, Answer]:
        start = time.perf_counter()
        sock.sendall(self.request)
        return start, Answer()

    def _receive(self, sock: socket.socket, state: tuple[float, Answer]) -> bool:
        start, answer = state
        data = sock.recv(2**20)
        if not data:
            raise SystemExit("the agent closed a connection in the middle of an answer")
        if not answer.received:
            self.beginnings.append((time.perf_counter() - start) * 1e3)
        if not answer.feed(data):
            return False
        self.latencies.append((time.perf_counter() - start) * 1e3)
        return True

    def _give_up(self) -> list[tuple[selectors.SelectorKey, int]]:
        raise SystemExit("the agent did not answer for a minute")
