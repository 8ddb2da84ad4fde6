"""The relay: who is reached, on which connections, and by how many at a time."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest.agentd import relay, wire
from tests.support.agent import Agent
from tests.support.relay_peers import OK, SECONDS, Peer, Server, answering, dialled, refusal, request

# -- ports


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_on_ipv6_only_is_found(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    server = perform(answering(OK), family=socket.AF_INET6, host="::1")
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        assert client.head()[0] == "HTTP/1.1 200 OK"


def test_a_port_on_which_nothing_listens_is_told(shared_agent: Agent) -> None:
    with dialled(shared_agent) as client:
        client.send(request(free_port()))
        assert refusal(client) == (502, "not_listening", "not_listening")


def test_a_refusal_of_a_request_without_a_body_leaves_its_connection(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    server = perform(answering(OK))
    with dialled(shared_agent) as client:
        for port in (free_port(), shared_agent.port):
            client.send(request(port, "HEAD / HTTP/1.1"))
            assert "Connection: close" not in client.head()
        client.send(request(server.port))
        assert client.head()[0] == "HTTP/1.1 200 OK"


def test_a_connection_that_met_itself_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()

    def meet_itself(address: tuple[str, int], timeout: float) -> socket.socket:
        # What may happen by chance on a port that nobody listens on: it is the connection's own.
        alone = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        alone.bind(address)
        alone.connect(address)
        return alone

    monkeypatch.setattr(socket, "create_connection", meet_itself)
    with pytest.raises(relay.RelayError) as caught:
        relay.connect(port)
    assert caught.value.reason == wire.RELAY_NOT_LISTENING


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


def test_both_connections_are_used_again(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    def script(peer: Peer) -> None:
        for number in range(3):
            assert peer.head()[0] == f"GET /{number} HTTP/1.1"
            peer.send(OK)

    server = perform(script)
    with dialled(shared_agent) as client:
        for number in range(3):
            client.send(request(server.port, f"GET /{number} HTTP/1.1"))
            assert "Connection: close" not in client.head()
            assert client.read(2) == b"ok"
        client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")  # and for the agent itself
        assert client.head()[0] == "HTTP/1.1 200 OK"
    assert server.connections == 1


def test_a_request_that_meets_a_stale_connection_is_sent_again(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    def script(peer: Peer) -> None:
        peer.head()
        peer.send(OK)
        peer.head()  # and ends without a word

    server = perform(script, answering(OK))
    with dialled(shared_agent) as client:
        for _ in range(2):
            client.send(request(server.port))
            assert client.head()[0] == "HTTP/1.1 200 OK"
            assert client.read(2) == b"ok"
    assert server.connections == 2


def test_a_request_that_must_not_run_twice_has_a_connection_of_its_own(
    shared_agent: Agent, perform: Callable[..., Server]
) -> None:
    server = perform(answering(OK), answering(b""))
    with dialled(shared_agent) as client:
        client.send(request(server.port))
        client.head()
        client.read(2)
        client.send(request(server.port, "POST / HTTP/1.1", "Content-Length: 2") + b"hi")
        assert refusal(client) == (502, "broken", "broken")
    assert server.connections == 2


def test_a_request_for_another_port_goes_there(shared_agent: Agent, perform: Callable[..., Server]) -> None:
    servers = [perform(answering(OK.replace(b"ok", name))) for name in (b"s0", b"s1")]
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
    shared_agent: Agent, perform: Callable[..., Server], fields: list[str], body: bytes, piece: int
) -> None:
    def script(peer: Peer) -> None:
        name = peer.head()[0].split()[1][1:].encode()
        assert peer.read(len(body)) == body
        peer.send(OK.replace(b"ok", name))

    server = perform(*[script] * 3)
    data = b"".join(request(server.port, f"POST /r{number} HTTP/1.1", *fields) + body for number in range(3))
    with dialled(shared_agent) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), piece):
            client.send(data[at : at + piece])
        for number in range(3):
            assert client.head()[0] == "HTTP/1.1 200 OK"
            assert client.read(2) == b"r%d" % number


# -- many at a time

MANY = 1024
MAX_GROWTH_KIB = 60 * 1024


def rss_kib(agent: Agent) -> int:
    lines = Path(f"/proc/{agent.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for both ends of every tunnel in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, limits[1]), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_agent_is_well_under_as_many_idle_tunnels_as_may_be(many_files: None, agent: Agent) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: echo")
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        listener.settimeout(SECONDS)
        asked = request(listener.getsockname()[1], "GET / HTTP/1.1", *upgrade)
        assert agent.request("GET", "/healthz").status == 200
        before = rss_kib(agent)
        clients = []
        for _ in range(MANY):
            client = stack.enter_context(dialled(agent))
            client.send(asked)
            server = Peer(stack.enter_context(listener.accept()[0]))
            server.head()
            server.send(switched + b"hello")
            client.head()
            assert client.read(5) == b"hello"
            clients.append((client, server))
        assert rss_kib(agent) - before < MAX_GROWTH_KIB
        with dialled(agent) as one_more:
            one_more.send(asked)
            assert refusal(one_more) == (503, "overloaded", "full")
        assert agent.request("GET", "/healthz").status == 200
        assert agent.shell("echo works").stdout == b"works\n"
        for peer in clients[0]:
            peer.socket.close()
        with dialled(agent) as one_more:  # a place is free as soon as the agent has seen that they left
            end = time.monotonic() + SECONDS
            while True:
                one_more.send(request(1))
                if refusal(one_more)[2] != "full":
                    break
                assert time.monotonic() < end
