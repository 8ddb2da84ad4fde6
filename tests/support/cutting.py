"""A relay on the loopback that cuts connections where a test wants it, and clients of an agent behind it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.clock import FakeClock
from vmnest.agent.client import AgentClient
from vmnest.transport import Transport

BLOCK_BYTES = 65536


class Cutter:
    """Relays to a port. Each cut ends one connection, when so many more bytes have gone one way; then comes the next.

    Attributes:
        url: Where it listens.
        count: How many connections were cut.
    """

    def __init__(self, port: int) -> None:
        self.count = 0
        self._port = port
        self._lock = threading.Lock()
        self._plans: dict[str, list[int]] = {"answers": [], "requests": []}
        self._on_cut: Callable[[], object] = lambda: None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut_answers(self, *after: int, on_cut: Callable[[], object] = lambda: None) -> None:
        """Cut when so many more bytes have come from the server."""
        with self._lock:
            self._plans["answers"] += after
            self._on_cut = on_cut

    def cut_requests(self, *after: int) -> None:
        """Cut when so many more bytes have come from the client."""
        with self._lock:
            self._plans["requests"] += after

    def __enter__(self) -> Cutter:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            _end(sock)
        for thread in list(self._threads):
            thread.join(10)
            assert not thread.is_alive()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="cutter")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    client, _ = self._listener.accept()
                    server = socket.create_connection(("127.0.0.1", self._port))
                except OSError:
                    return
                with self._lock:
                    self._sockets += (client, server)
                self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            back = threading.Thread(target=self._pump, args=(server, client, "answers"), name="cutter")
            back.start()
            self._pump(client, server, "requests")
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BLOCK_BYTES):
                passing, is_cut = self._take(way, data)
                target.sendall(passing)
                if is_cut:
                    break
        _end(source)
        _end(target)

    def _take(self, way: str, data: bytes) -> tuple[bytes, bool]:
        """How much of the data passes, and whether the connection ends then."""
        with self._lock:
            plan = self._plans[way]
            if not plan:
                return data, False
            if len(data) < plan[0]:
                plan[0] -= len(data)
                return data, False
            self.count += 1
            left = plan.pop(0)
            self._on_cut()
            return data[:left], True


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def open_client(url: str, **options: Any) -> Iterator[AgentClient]:
    """A client of what listens there, on a clock that makes no wait last."""
    transport = Transport(environ={})
    try:
        usual: dict[str, Any] = {"headers": lambda _refused: [], "clock": FakeClock()}
        yield AgentClient(url, transport=transport, port=8080, **{**usual, **options})
    finally:
        transport.close()


@pytest.fixture
def agent_client(shared_agent: Agent) -> Iterator[AgentClient]:
    """A client of the module's agent."""
    with open_client(shared_agent.url) as client:
        yield client


@pytest.fixture
def cutter(shared_agent: Agent) -> Iterator[Cutter]:
    """A relay to the module's agent."""
    with Cutter(shared_agent.port) as running:
        yield running


@pytest.fixture
def cut_client(cutter: Cutter) -> Iterator[AgentClient]:
    """A client of the module's agent whose connections are cut where ``cutter`` is told to."""
    with open_client(cutter.url) as client:
        yield client
