"""The relay: what a server on the sandbox's own loopback gets, and what its clients get back, byte by byte."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from guest.agentd import heads, relay_heads, wire
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
    """Status, code and relay header of an answer of the agent's own."""
    head = peer.head()
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    document = json.loads(peer.read(int(fields["content-length"])))
    return int(head[0].split()[1]), document["code"], fields[wire.RELAY_HEADER]


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
    lines = relay_heads.build_request(parse(request(7, "GET / HTTP/1.1", *fields)), port=7).split(b"\r\n")
    assert [line for line in lines if line.startswith(b"Origin")] == [b"Origin: " + origin.encode()]


def test_an_opaque_origin_is_nobodys_even_without_a_host() -> None:
    head = parse(b"GET / HTTP/1.0\r\nOrigin: null\r\n\r\n")
    assert b"\r\nOrigin: null\r\n" in relay_heads.build_request(head, port=7)


def test_what_the_forwarder_says_of_the_client_is_left_alone() -> None:
    fields = ["X-Forwarded-Host: a:1", "X-Forwarded-Proto: http", "X-Forwarded-For: 1.2.3.4"]
    built = relay_heads.build_request(parse(request(7, "GET / HTTP/1.1", *fields)), port=7).decode().split("\r\n")
    assert [line for line in built if line.startswith("X-Forwarded")] == fields


@pytest.mark.parametrize("field", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_no_client_can_have_the_framing_taken_out(field: str) -> None:
    head = parse(request(7, "POST / HTTP/1.1", field, f"Connection: {field.partition(':')[0]}"))
    assert f"\r\n{field}\r\n".encode() in relay_heads.build_request(head, port=7)


def test_no_server_can_have_the_framing_taken_out() -> None:
    response = heads.parse_response([b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Connection: content-length"])
    assert b"\r\nContent-Length: 5\r\n" in relay_heads.build_response(response, keep=True, in_chunks=False)


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


# -- bodies


@pytest.mark.parametrize(
    ("method", "sent"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n"),
    ],
)
def test_an_answer_without_a_body_ends_with_its_head(
    shared_agent: Agent, serve: Callable[..., Server], method: str, sent: bytes
) -> None:
    def script(peer: Peer) -> None:
        for _ in range(2):
            peer.head()
            peer.send(sent)

    server = serve(script)
    with dialled(shared_agent) as client:
        for _ in range(2):
            client.send(request(server.port, f"{method} / HTTP/1.1"))
            assert client.head() == [*sent.decode().split("\r\n")[:-2], "vmnest-relay: relayed"]
    assert server.connections == 1


def test_chunks_and_trailers_pass_both_ways_as_they_are(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    body = b"3;a=b\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX-Sum: 1\r\nx-sum:2\r\n\r\n"
    heads_seen: list[list[str]] = []

    def script(peer: Peer) -> None:
        heads_seen.append(peer.head())
        assert peer.until(b"x-sum:2\r\n\r\n") == body
        peer.send(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(len(body)):
            peer.send(body[at : at + 1])

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Trailer: X-Sum", "Transfer-Encoding: chunked"))
        for at in range(len(body)):
            client.send(body[at : at + 1])
        assert "Transfer-Encoding: chunked" in client.head()
        assert client.until(b"x-sum:2\r\n\r\n") == body
    assert {"Trailer: X-Sum", "Transfer-Encoding: chunked"} <= set(heads_seen[0])


def test_an_answer_that_ends_with_its_connection_gets_an_end_that_can_be_told(
    shared_agent: Agent, serve: Callable[..., Server]
) -> None:
    server = serve(answering(b"HTTP/1.0 200 OK\r\nX: 1\r\n\r\nhello"), answering(OK))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert client.head() == ["HTTP/1.1 200 OK", "X: 1", "vmnest-relay: relayed", "Transfer-Encoding: chunked"]
        assert client.until(b"0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"
        client.send(request(server.port))
        client.head()
        assert client.read(2) == b"ok"


def test_an_old_client_reads_to_the_end_of_its_connection(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    seen: list[list[str]] = []
    server = serve(answering(b"HTTP/1.1 200 OK\r\n\r\nhello", seen=seen))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.0"))
        assert client.head() == ["HTTP/1.1 200 OK", "vmnest-relay: relayed", "Connection: close"]
        assert client.rest() == b"hello"
    assert seen[0][0] == "GET / HTTP/1.0"


def test_large_bodies_pass_both_ways_at_once(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    piece = bytes(range(256)) * 256
    count = 200

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * count))
        for _ in range(count):  # an echo: neither way may wait for the other
            peer.send(peer.read(len(piece)))

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {len(piece) * count}"))
        sender = threading.Thread(target=lambda: [client.send(piece) for _ in range(count)])
        sender.start()
        client.head()
        assert all(client.read(len(piece)) == piece for _ in range(count))
        sender.join(SECONDS)


# -- interim and early answers


def test_an_invitation_is_the_servers_own(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    asked = threading.Event()

    def script(peer: Peer) -> None:
        assert "Expect: 100-continue" in peer.head()
        assert asked.wait(SECONDS)
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        assert peer.read(5) == b"hello"
        peer.send(OK)

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Content-Length: 5", "Expect: 100-continue"))
        assert not select.select([client.socket], [], [], 0.1)[0]  # the agent does not invite
        asked.set()
        assert client.head() == ["HTTP/1.1 103 Early Hints", "Link: </a>"]
        assert client.head() == ["HTTP/1.1 100 Continue"]
        client.send(b"hello")
        assert client.head()[0] == "HTTP/1.1 200 OK"
        assert client.read(2) == b"ok"


def test_an_old_client_gets_no_interim_answer(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    server = serve(answering(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.0"))
        assert client.head()[0] == "HTTP/1.1 200 OK"


def test_interim_answers_without_end_are_no_answer(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    server = serve(answering(b"HTTP/1.1 102 Processing\r\n\r\n" * 40))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        while (head := client.head()) == ["HTTP/1.1 102 Processing"]:
            pass
        assert head[0].split()[1] == "502"


def test_an_early_answer_to_a_large_upload_arrives_whole(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    answered = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        assert answered.wait(SECONDS)  # it reads nothing of the body

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {1 << 30}"))
        with contextlib.suppress(ConnectionError):
            while not select.select([client.socket], [], [], 0)[0]:
                client.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.socket.send(b"x" * 65536)
        client.socket.settimeout(SECONDS)
        assert client.head() == [
            "HTTP/1.1 413 Too Large",
            "Content-Length: 3",
            "vmnest-relay: relayed",
            "Connection: close",
        ]
        assert client.rest() == b"big"
        answered.set()


def test_a_server_that_answers_and_resets_the_upload_is_heard(
    shared_agent: Agent, serve: Callable[..., Server]
) -> None:
    server = serve(answering(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"))
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {1 << 20}") + b"x" * 1000)
        assert client.head()[0] == "HTTP/1.1 413 Too Large"
        assert client.rest() == b"big"


# -- ends


@pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked", "X: until-close"])
@pytest.mark.parametrize("resets", [False, True])
def test_an_answer_that_is_cut_never_looks_whole(
    shared_agent: Agent, serve: Callable[..., Server], length: str, resets: bool
) -> None:
    received = threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n3\r\nabc\r\n".encode())
        assert received.wait(SECONDS)
        if resets:
            peer.reset()

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", "Connection: close"))
        head = client.head()
        client.until(b"abc\r\n")
        received.set()
        rest = client.rest()
    if length.startswith("X") and not resets:
        assert rest == b"\r\n0\r\n\r\n"  # that was whole
    else:
        assert rest in {b"", b"\r\n"}
    assert ("Transfer-Encoding: chunked" in head) is not length.startswith("Content-Length")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * 300_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_told(shared_agent: Agent, serve: Callable[..., Server], sent: bytes) -> None:
    server = serve(answering(sent))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert refusal(client) == (502, "broken", "broken")


def test_malformed_chunks_of_an_answer_end_the_connection(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    server = serve(answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        client.head()
        assert b"0\r\n\r\n" not in client.rest()


def test_malformed_chunks_of_a_request_are_refused(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    server = serve(lambda peer: peer.rest())
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Transfer-Encoding: chunked") + b"3\r\nabcd\r\n")
        assert refusal(client) == (400, "bad_request", "bad_request")


def test_malformed_chunks_after_the_answer_began_are_no_second_answer(
    shared_agent: Agent, serve: Callable[..., Server]
) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        peer.rest()

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "POST / HTTP/1.1", "Transfer-Encoding: chunked"))
        client.head()
        client.send(b"3\r\nabcd\r\n")
        assert client.rest() == b""


@pytest.mark.parametrize("phase", ["upload", "unread", "silence", "answer", "stuck"])
def test_a_client_that_leaves_ends_the_servers_connection(
    shared_agent: Agent, serve: Callable[..., Server], phase: str
) -> None:
    left, begun = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.head()
        if phase in {"answer", "stuck"}:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40))
        if phase == "stuck":  # the client reads nothing, and nothing more can be sent to it
            peer.socket.setblocking(False)
            while select.select([], [peer.socket], [], 0.3)[1]:
                peer.socket.send(b"x" * 65536)
            peer.socket.settimeout(SECONDS)
        begun.set()
        assert left.wait(SECONDS)
        peer.rest()  # ends only when the agent has left

    server = serve(script)
    with dialled(shared_agent) as client:
        has_body = phase in {"upload", "unread"}
        client.send(request(server.port, "POST / HTTP/1.1", f"Content-Length: {(1 << 40) * has_body}"))
        assert begun.wait(SECONDS)
        if phase == "unread":
            client.socket.setblocking(False)
            while select.select([], [client.socket], [], 0.3)[1]:
                client.socket.send(b"x" * 65536)
        if phase == "answer":
            client.head()
    left.set()
    server.join()


def test_a_kept_connection_to_a_server_ends_with_its_client(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(OK)
        assert peer.has_ended()

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        client.head()
    server.join()


# -- other protocols

UPGRADE = ("Connection: Upgrade", "Upgrade: echo")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"


def test_after_a_101_bytes_are_bytes_until_both_have_ended(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    seen: list[list[str]] = []

    def script(peer: Peer) -> None:
        seen.append(peer.head())
        peer.send(SWITCHED + b"first")
        assert peer.read(5) == b"early"
        assert peer.rest() == b"\0\r\n\r\nlast"  # the client has ended its side only
        peer.send(b"after that")

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET /ws HTTP/1.1", *UPGRADE, "Sec-WebSocket-Key: x") + b"early")
        assert client.head() == [*SWITCHED.decode().split("\r\n")[:-2], "vmnest-relay: relayed"]
        assert client.read(5) == b"first"
        client.send(b"\0\r\n\r\nlast")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.rest() == b"after that"
    assert seen[0][-3:] == ["X-Forwarded-Proto: https", *UPGRADE]
    assert "Sec-WebSocket-Key: x" in seen[0]


def test_a_server_may_end_its_side_first(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(SWITCHED + b"bye")
        peer.socket.shutdown(socket.SHUT_WR)
        assert peer.rest() == b"still here"

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", *UPGRADE))
        client.head()
        assert client.rest() == b"bye"
        client.send(b"still here")
    server.join()


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_tunnel_ends_when_either_end_is_gone(
    shared_agent: Agent, serve: Callable[..., Server], has_ended: bool
) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(SWITCHED)
        assert peer.read(2) == b"hi"
        if has_ended:
            assert peer.has_ended()
            done.set()
        assert peer.has_ended()

    done = threading.Event()
    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", *UPGRADE))
        client.head()
        client.send(b"hi")
        if has_ended:
            client.socket.shutdown(socket.SHUT_WR)
            assert done.wait(SECONDS)
        client.reset()
        server.join()


def test_a_tunnel_carries_much_both_ways_at_once(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    piece = bytes(range(256)) * 256
    count = 100

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(SWITCHED)
        for _ in range(count):
            peer.send(peer.read(len(piece)))

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET / HTTP/1.1", *UPGRADE))
        client.head()
        sender = threading.Thread(target=lambda: [client.send(piece) for _ in range(count)])
        sender.start()
        assert all(client.read(len(piece)) == piece for _ in range(count))
        sender.join(SECONDS)


def test_an_upgrade_that_is_declined_is_an_answer_like_any(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    seen: list[list[str]] = []

    def script(peer: Peer) -> None:
        for _ in range(2):
            seen.append(peer.head())
            peer.send(OK)

    server = serve(script)
    with dialled(shared_agent) as client:
        client.send(request(server.port, "GET /1 HTTP/1.1", *UPGRADE) + request(server.port, "GET /2 HTTP/1.1"))
        for _ in range(2):
            client.head()
            assert client.read(2) == b"ok"
    assert [head[0] for head in seen] == ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1"]


# -- ports


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_on_ipv6_only_is_found(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    server = serve(answering(OK), family=socket.AF_INET6, host="::1")
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert client.head()[0] == "HTTP/1.1 200 OK"


def test_a_port_on_which_nothing_listens_is_told(shared_agent: Agent) -> None:
    with dialled(shared_agent) as client:
        client.send(request(free_port()))
        assert refusal(client) == (502, "not_listening", "not_listening")


def test_the_agents_own_ports_are_not_passed_on_to(shared_agent: Agent) -> None:
    for port in (shared_agent.port, shared_agent.hook_port):
        with dialled(shared_agent) as client:
            client.send(request(port, "POST / HTTP/1.1", "Content-Length: 5") + b"hello")
            assert refusal(client) == (403, "port_refused", "port_refused")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "+1", "1_0", "080000", "8000, 8001", "x", "\xb2", "9\xb2"])
def test_a_bad_port_is_refused(shared_agent: Agent, port: str) -> None:
    with dialled(shared_agent) as client:
        client.send(request(port))
        assert refusal(client) == (400, "bad_request", "bad_request")


def test_two_ports_are_refused(shared_agent: Agent) -> None:
    with dialled(shared_agent) as client:
        client.send(request(8000, "GET / HTTP/1.1", f"{wire.RELAY_PORT_HEADER}: 8000"))
        assert refusal(client) == (400, "bad_request", "bad_request")


def test_the_hook_port_passes_nothing_on(shared_agent: Agent) -> None:
    reply = shared_agent.request("GET", "/", headers={wire.RELAY_PORT_HEADER: "1"}, port=shared_agent.hook_port)
    assert (reply.status, reply.headers.get(wire.RELAY_HEADER)) == (404, None)


# -- connections


def test_both_connections_are_used_again(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    def script(peer: Peer) -> None:
        for number in range(3):
            assert peer.head()[0] == f"GET /{number} HTTP/1.1"
            peer.send(OK)

    server = serve(script)
    with dialled(shared_agent) as client:
        for number in range(3):
            client.send(request(server.port, f"GET /{number} HTTP/1.1"))
            assert "Connection: close" not in client.head()
            assert client.read(2) == b"ok"
        client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")  # and for the agent itself
        assert client.head()[0] == "HTTP/1.1 200 OK"
    assert server.connections == 1


def test_a_request_that_meets_a_stale_connection_is_sent_again(
    shared_agent: Agent, serve: Callable[..., Server]
) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(OK)
        peer.head()  # and ends without a word

    server = serve(script, answering(OK))
    with dialled(shared_agent) as client:
        for _ in range(2):
            client.send(request(server.port))
            assert client.head()[0] == "HTTP/1.1 200 OK"
            assert client.read(2) == b"ok"
    assert server.connections == 2


def test_a_request_that_must_not_run_twice_has_a_connection_of_its_own(
    shared_agent: Agent, serve: Callable[..., Server]
) -> None:
    server = serve(answering(OK), answering(b""))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        client.head()
        client.read(2)
        client.send(request(server.port, "POST / HTTP/1.1", "Content-Length: 2") + b"hi")
        assert refusal(client) == (502, "broken", "broken")
    assert server.connections == 2


def test_a_request_for_another_port_goes_there(shared_agent: Agent, serve: Callable[..., Server]) -> None:
    servers = [serve(answering(OK.replace(b"ok", name))) for name in (b"s0", b"s1")]
    with dialled(shared_agent) as client:
        for server, name in zip(servers, (b"s0", b"s1"), strict=True):
            client.send(request(server.port))
            client.head()
            assert client.read(2) == name


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ([], b""),
        (["Content-Length: 5"], b"hello"),
        (["Transfer-Encoding: chunked"], b"5\r\nhello\r\n0\r\nX: 1\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_requests_that_come_together_are_neither_lost_nor_mixed(
    shared_agent: Agent, serve: Callable[..., Server], fields: list[str], body: bytes, piece: int
) -> None:
    def script(peer: Peer) -> None:
        name = peer.head()[0].split()[1][1:].encode()
        assert peer.read(len(body)) == body
        peer.send(OK.replace(b"ok", name))

    server = serve(*[script] * 3)
    data = b"".join(request(server.port, f"POST /r{number} HTTP/1.1", *fields) + body for number in range(3))
    with dialled(shared_agent) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), piece):
            client.send(data[at : at + piece])
        for number in range(3):
            assert client.head()[0] == "HTTP/1.1 200 OK"
            assert client.read(2) == b"r%d" % number
