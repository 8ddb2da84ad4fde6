"""The relay: what a server on the sandbox's own loopback gets, and what its clients get back, byte by byte."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from guest.agentd import heads, relay, wire
from tests.support.agent import Agent

SECONDS = 20.0
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
def serve() -> Iterator[Callable[..., Server]]:
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
    """Status, code and relay header of an answer of the agent's own, after which it closes."""
    head = peer.head()
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    assert fields["connection"] == "close"
    return int(head[0].split()[1]), json.loads(peer.rest())["code"], fields[wire.RELAY_HEADER]


# -- heads


def test_a_request_arrives_as_one_for_localhost(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    seen: list[list[str]] = []
    server = serve(answering(OK, seen=seen))
    fields = ["b-Field: 1", "A: 2", "B-field:  3 ", "Connection: X-Own, close", "X-Own: 1", "X-aws-proxy-auth: secret"]
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET //a/%2F?q=%zz HTTP/1.1", *fields))
        client.rest()
    assert seen[0] == [
        "GET //a/%2F?q=%zz HTTP/1.1",
        f"Host: localhost:{server.port}",
        "b-Field: 1",
        "A: 2",
        "B-field: 3",
        "X-Forwarded-Host: endpoint.example",
        "X-Forwarded-Proto: https",
    ]


def test_an_answer_arrives_as_it_was_sent(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    sent = (
        b"HTTP/1.1 299 Very \xe9\r\nset-Cookie: a=1\r\nX:  y \r\nVMNEST-relay: mine\r\nSet-Cookie: b=2\r\n"
        b"Connection: X-Own\r\nX-Own: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"
    )
    server = serve(answering(sent))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert client.head() == [
            "HTTP/1.1 299 Very \xe9",
            "set-Cookie: a=1",
            "X:  y ",
            "Set-Cookie: b=2",
            "Content-Length: 0",
            "vmnest-relay: relayed",
        ]


@pytest.mark.parametrize(
    ("fields", "origin"),
    [
        (["Origin: https://endpoint.example"], "http://localhost:7"),
        (["Origin: https://ENDPOINT.example"], "http://localhost:7"),
        (["Origin: https://evil.example"], "https://evil.example"),
        (["Origin: null"], "null"),
        (["X-Forwarded-Host: localhost:8000", "Origin: http://localhost:8000"], "http://localhost:7"),
        (["X-Forwarded-Host: localhost:8000", "Origin: https://endpoint.example"], "https://endpoint.example"),
        (["X-Forwarded-Host: localhost:8000", "Origin: http://localhost:80"], "http://localhost:80"),
    ],
)
def test_only_an_origin_of_the_same_host_becomes_local(fields: list[str], origin: str) -> None:
    lines = relay.build_request(parse(request(7, "GET / HTTP/1.1", *fields)), 7).split(b"\r\n")
    assert [line for line in lines if line.startswith(b"Origin")] == [b"Origin: " + origin.encode()]


def test_an_opaque_origin_is_nobodys_even_without_a_host() -> None:
    head = parse(b"GET / HTTP/1.0\r\nOrigin: null\r\n\r\n")
    assert b"\r\nOrigin: null\r\n" in relay.build_request(head, 7)


def test_what_the_forwarder_says_of_the_client_is_left_alone() -> None:
    fields = ["X-Forwarded-Host: a:1", "X-Forwarded-Proto: http", "X-Forwarded-For: 1.2.3.4"]
    built = relay.build_request(parse(request(7, "GET / HTTP/1.1", *fields)), 7).decode().split("\r\n")
    assert [line for line in built if line.startswith("X-Forwarded")] == fields


@pytest.mark.parametrize("field", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_no_client_can_have_the_framing_taken_out(field: str) -> None:
    head = parse(request(7, "POST / HTTP/1.1", field, f"Connection: {field.partition(':')[0]}"))
    assert f"\r\n{field}\r\n".encode() in relay.build_request(head, 7)


def test_no_server_can_have_the_framing_taken_out() -> None:
    response = heads.parse_response([b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Connection: content-length"])
    assert b"\r\nContent-Length: 5\r\n" in relay.build_response(response, keep=True)


def parse(data: bytes) -> heads.Head:
    return heads.parse(data.split(b"\r\n")[:-2])


def test_a_large_head_passes_and_a_larger_one_does_not(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    seen: list[list[str]] = []
    server = serve(answering(b"HTTP/1.1 200 OK\r\nB: " + b"b" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n", seen=seen))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", "A: " + "a" * 70_000))
        assert "B: " + "b" * 70_000 in client.head()
    assert "A: " + "a" * 70_000 in seen[0]
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", "A: " + "a" * 100_000))
        assert client.head()[0].split()[1] == "431"
