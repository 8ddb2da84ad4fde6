"""The service's own shell: against the local cloud's, and against services that misbehave."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from tests.support.agent import Agent
from tests.support.clock import FakeClock
from tests.support.endpoints import Endpoint, open_endpoint
from tests.support.fake_control import ARN, FakeControl, FakePlace
from tests.support.lifecycle import eventually
from tests.support.peers import Answer, Raw, Serve
from vmnest import errors, registry
from vmnest.aws.credentials import Secret
from vmnest.control.microvms import RunSpec
from vmnest.control.tokens import Token
from vmnest.deadline import NEVER, Deadline
from vmnest.local import connectors
from vmnest.sandbox import native
from vmnest.sandbox.link import Link
from vmnest.transport.upgrade import Channel
from vmnest.wire import names

SECONDS = 20.0
INGRESS = (connectors.managed(names.HTTP_INGRESS), connectors.managed(names.SHELL_INGRESS))
NOBODY = Answer(502, headers=[("x-aws-proxy-error", "APP_CONNECT_FAILED")])


class ShellControl(FakeControl):
    """A control plane that makes tokens for shells, too."""

    def __init__(self, endpoint: str, make: Callable[[], str] = lambda: "t0ken") -> None:
        super().__init__(endpoint)
        self._make = make
        self.failure: errors.VmnestError | None = None

    def mint_shell_token(self, microvm_id: str, *, deadline: Deadline) -> Token:
        if self.failure is not None:
            raise self.failure
        secret = Secret(self._make())
        return Token(secret, (), 4e9, ((names.PROXY_AUTH_HEADER, secret),))


def link_to(control: ShellControl, home: Path, **options: Any) -> Link:
    """A link to a MicroVM that runs."""
    microvm = control.microvms.run(RunSpec(ARN, "t"), deadline=NEVER)
    control.microvms.change(microvm.microvm_id, state="RUNNING")
    control.microvms.calls.clear()
    record = registry.Record("demo", microvm_id=microvm.microvm_id, client_token="t", created_at=1.0)
    records = registry.Registry(str(home / "state.json"))
    records.put(record)
    place: Any = FakePlace(control)
    return Link(record, place=place, records=records, verify_tls=None, **options)


def open_shell(link: Link, *, timeout: float = SECONDS) -> native.NativeShell:
    return native.open_shell(link, timeout=timeout)


@pytest.fixture
def endpoint(agent: Agent) -> Iterator[Endpoint]:
    with open_endpoint({8080: agent.port}, ingress=INGRESS) as made:
        yield made


@contextlib.contextmanager
def scripted(handler: Callable[[ServerConnection], None], home: Path) -> Iterator[Link]:
    """A link to a service whose shells are all served by ``handler``."""

    def select(connection: ServerConnection, offered: list[Any]) -> Any:
        return names.SUBPROTOCOL_MARKER

    with serve(handler, "127.0.0.1", 0, compression=None, select_subprotocol=select, ping_interval=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield link_to(ShellControl(f"http://127.0.0.1:{server.socket.getsockname()[1]}"), home)
        finally:
            server.shutdown()
            thread.join()


def read_until(shell: native.NativeShell, text: bytes, *, seen: bytes = b"") -> bytes:
    for chunk in shell.chunks():
        seen += chunk.data
        if text in seen:
            return seen
    raise AssertionError(seen)


def test_a_session_with_the_local_clouds_shell(endpoint: Endpoint, tmp_path: Path) -> None:
    link = link_to(ShellControl(endpoint.url, lambda: endpoint.token(for_shell=True)), tmp_path)
    with open_shell(link) as shell:
        assert shell.is_pty
        shell.resize(111, 33)
        assert shell.write(b"stty size; echo ok''ay\r") == 23
        seen = read_until(shell, b"okay\r\n")
        assert b"33 111\r\n" in seen
        assert b"session_init" not in seen
        shell.write(b"x" * 70_000 + b"\x15")  # more than one message, and away with it
        shell.close_stdin()
        assert shell.wait() == 0
        assert shell.wait() == 0
    assert link.control().microvms.calls == ["get", "get"]


def test_leaving_hangs_up(agent: Agent, endpoint: Endpoint, tmp_path: Path) -> None:
    link = link_to(ShellControl(endpoint.url, lambda: endpoint.token(for_shell=True)), tmp_path)
    with open_shell(link) as shell:
        shell.write(b"echo ok''ay\r")
        read_until(shell, b"okay")
        pid = agent.request("GET", "/v1/processes").json()["processes"][0]["pid"]
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    shell.close()


def test_the_token_and_the_port_go_as_subprotocols(serve: Serve, tmp_path: Path) -> None:
    peer = serve(Answer(403, b"Token authentication failed"))
    with pytest.raises(errors.TokenRefusedError):
        open_shell(link_to(ShellControl(peer.url), tmp_path))
    (request,) = peer.requests
    assert request.target == "/shell"
    assert request.get("sec-websocket-protocol") == (
        "lambda-microvms.authentication.t0ken, lambda-microvms, lambda-microvms.port.8022"
    )


def test_an_endpoint_that_is_not_there_yet_is_asked_again(serve: Serve, tmp_path: Path, fake_clock: FakeClock) -> None:
    peer = serve(NOBODY, NOBODY, Answer(500))
    with pytest.raises(errors.EndpointError, match="500"):
        open_shell(link_to(ShellControl(peer.url), tmp_path, clock=fake_clock))
    assert len(peer.requests) == 3
    assert len(fake_clock.sleeps) == 2


def test_an_endpoint_that_never_comes_is_given_up(serve: Serve, tmp_path: Path, fake_clock: FakeClock) -> None:
    peer = serve(*[NOBODY] * 50)
    with pytest.raises(errors.EndpointUnavailableError):
        open_shell(link_to(ShellControl(peer.url), tmp_path, clock=fake_clock), timeout=5)
    assert sum(fake_clock.sleeps) <= 5


def test_a_suspended_sandbox_is_resumed_first(serve: Serve, tmp_path: Path) -> None:
    peer = serve(Answer(500))
    control = ShellControl(peer.url)
    link = link_to(control, tmp_path)
    control.microvms.change(link.microvm_id, state="SUSPENDED")
    with pytest.raises(errors.EndpointError, match="500"):
        open_shell(link)
    assert control.microvms.calls == ["get", "resume", "get"]


def test_or_not_if_that_is_not_wanted(serve: Serve, tmp_path: Path) -> None:
    peer = serve()
    control = ShellControl(peer.url)
    link = link_to(control, tmp_path, auto_resume=False)
    control.microvms.change(link.microvm_id, state="SUSPENDED")
    with pytest.raises(errors.SandboxSuspendedError):
        open_shell(link)
    assert peer.requests == []


def test_one_that_has_ended_has_no_shell(serve: Serve, tmp_path: Path) -> None:
    control = ShellControl(serve().url)
    link = link_to(control, tmp_path)
    control.microvms.change(link.microvm_id, state="TERMINATED")
    with pytest.raises(errors.MicroVMEndedError):
        open_shell(link)


def test_a_refused_token_stays_what_it_is(serve: Serve, tmp_path: Path) -> None:
    control = ShellControl(serve().url)
    control.failure = errors.UnsupportedError("without SHELL_INGRESS")
    with pytest.raises(errors.UnsupportedError):
        open_shell(link_to(control, tmp_path))


def test_a_server_that_changes_to_something_else_is_refused(serve: Serve, tmp_path: Path) -> None:
    peer = serve(Raw([b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"]))
    with pytest.raises(errors.TransportError, match="another handshake"):
        open_shell(link_to(ShellControl(peer.url), tmp_path))


def test_what_is_no_word_of_the_service_is_shown(tmp_path: Path) -> None:
    def talk(connection: ServerConnection) -> None:
        connection.send(json.dumps({"type": "session_init", "session_id": "1"}))
        connection.send("motd\n")
        connection.send(b"$ ")

    with scripted(talk, tmp_path) as link, open_shell(link) as shell:
        assert b"".join(chunk.data for chunk in shell.chunks()) == b"motd\n$ "
        assert shell.wait() == 0


def test_pings_go_out_while_nothing_comes_and_are_answered(tmp_path: Path) -> None:
    seen: list[str] = []

    def wait_for_pong(connection: ServerConnection) -> None:
        connection.recv()
        connection.ping(b"there?").wait(SECONDS)
        seen.append("pong")

    with scripted(wait_for_pong, tmp_path) as link, open_shell(link) as opened:
        shell = native.NativeShell(opened._channel, link=link, ping_seconds=0.25)
        timer = threading.Timer(1.2, lambda: shell.write(b"go"))  # more than three silences, each with its pong
        timer.start()
        assert list(shell.chunks()) == []
        timer.join()
    assert seen == ["pong"]


def test_a_peer_that_answers_no_ping_is_dead(tmp_path: Path) -> None:
    link = link_to(ShellControl("https://endpoint.example"), tmp_path)
    near, far = socket.socketpair()
    with (
        far,
        native.NativeShell(Channel(near, origin="the peer"), link=link, ping_seconds=0.01) as shell,
        pytest.raises(errors.ConnectionLostError, match="no ping is answered"),
    ):
        list(shell.chunks())


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ("RUNNING", errors.ConnectionLostError, "without a word"),
        ("SUSPENDED", errors.ConnectionLostError, "suspended, which cuts"),
        ("TERMINATED", errors.MicroVMEndedError, "TERMINATED"),
    ],
)
def test_a_cut_is_told_with_its_reason(tmp_path: Path, state: str, error: type[errors.VmnestError], text: str) -> None:
    with scripted(lambda connection: connection.socket.close(), tmp_path) as link, open_shell(link) as shell:
        link.control().microvms.change(link.microvm_id, state=state)  # type: ignore[attr-defined]
        with pytest.raises(error, match=text):
            list(shell.chunks())
        assert shell.write(b"x") == 0


def test_a_close_with_another_code_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with (
        scripted(lambda connection: connection.close(1011, "no pty"), tmp_path) as link,
        open_shell(link) as shell,
        pytest.raises(errors.ConnectionLostError, match=r"1011.*no pty"),
    ):
        list(shell.chunks())


def test_a_service_that_speaks_nonsense_is_an_error(tmp_path: Path) -> None:
    with (
        scripted(lambda connection: connection.socket.sendall(b"\xff\xff"), tmp_path) as link,
        open_shell(link) as shell,
        pytest.raises(errors.TransportError, match="no WebSocket"),
    ):
        list(shell.chunks())
