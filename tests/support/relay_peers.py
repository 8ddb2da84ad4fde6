"""Both ends of a relay: servers that run a script for each connection, and clients that say what a test wants.

``perform`` starts the servers; an error in a script is one of the test.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from guest.agentd import wire
from tests.support.agent import Agent

SECONDS = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Script = Callable[["Peer"], None]


class Peer:
    """One end of a connection that says and reads exactly what a test wants."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        self.socket = connection
        self._held = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until(self, mark: bytes) -> bytes:
        """What comes up to the mark, with it."""
        while mark not in self._held:
            data = self.socket.recv(65536)
            assert data, f"ended after {self._held!r}"
            self._held += data
        found, _, self._held = self._held.partition(mark)
        return found + mark

    def head(self) -> list[str]:
        return self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]

    def read(self, count: int) -> bytes:
        while len(self._held) < count:
            data = self.socket.recv(65536)
            assert data, f"ended after {self._held[:100]!r}"
            self._held += data
        found, self._held = self._held[:count], self._held[count:]
        return found

    def rest(self) -> bytes:
        """Everything until the connection ends, cleanly or not."""
        found, self._held = self._held, b""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(65536):
                found += data
        return found

    def reset(self) -> None:
        """Leave without a word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def has_ended(self) -> bool:
        """Wait until the other end has left."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True


class Server:
    """Runs a script for each connection, one after the other; what a script raises fails the test."""

    def __init__(self, scripts: list[Script], *, family: int, host: str) -> None:
        self._scripts = scripts
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((host, 0))
        self._listener.listen(64)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._listener.settimeout(SECONDS)
            for script in self._scripts:
                connection, _ = self._listener.accept()
                self.connections += 1
                with connection:
                    script(Peer(connection))
        except BaseException as error:  # the test's own thread raises it again
            self._error = error
        finally:
            self._listener.close()

    def join(self) -> None:
        """Wait until every script has ended."""
        self._thread.join(SECONDS * 2)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


@pytest.fixture
def perform() -> Iterator[Callable[..., Server]]:
    """Starts servers of scripts."""
    servers: list[Server] = []

    def start(*scripts: Script, family: int = socket.AF_INET, host: str = "127.0.0.1") -> Server:
        servers.append(Server(list(scripts), family=family, host=host))
        return servers[-1]

    yield start
    for server in servers:
        server.join()


@contextlib.contextmanager
def dialled(agent: Agent) -> Iterator[Peer]:
    with agent.dial() as connection:
        yield Peer(connection)


def request(port: int | str, line: str = "GET / HTTP/1.1", *fields: str) -> bytes:
    own = [f"{wire.RELAY_PORT_HEADER}: {port}"] if port else []
    return ("\r\n".join([line, "Host: endpoint.example", *own, *fields]) + "\r\n\r\n").encode("latin-1")


def answering(data: bytes, *, seen: list[list[str]] | None = None) -> Script:
    """Reads a head, answers and ends."""

    def script(peer: Peer) -> None:
        head = peer.head()
        if seen is not None:
            seen.append(head)
        peer.send(data)

    return script


def refusal(peer: Peer) -> tuple[int, str, str]:
    """Status, code and relay header of an answer of the agent's own."""
    head = peer.head()
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    document = json.loads(peer.read(int(fields["content-length"])))
    return int(head[0].split()[1]), document["code"], fields[wire.RELAY_HEADER]
