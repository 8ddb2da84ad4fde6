"""Forwarding: the control plane in memory, the agent and its relay real, a real server behind them."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.fake_control import WISH, FakeControl, FakePlace
from tests.support.lifecycle import eventually
from vmnest import errors, registry
from vmnest.deadline import Deadline
from vmnest.sandbox import Sandbox
from vmnest.wire import names

POLL_SECONDS = 0.02


class Server(BaseHTTPRequestHandler):
    """Tells under what name it was asked."""

    def do_GET(self) -> None:
        body = self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def records(tmp_path: Path) -> registry.Registry:
    return registry.Registry(str(tmp_path / "state.json"))


@pytest.fixture
def control(agent: Agent) -> FakeControl:
    return FakeControl(agent.url)


@pytest.fixture
def sandbox(control: FakeControl, records: registry.Registry, agent: Agent) -> Sandbox:
    place: Any = FakePlace(control, environ={"AGENT_SANDBOX_AGENT_PORT": str(agent.port)})
    made = Sandbox._launch(WISH, place=place, records=records, deadline=Deadline(30), verify_tls=None)
    control.microvms.change("microvm-1", state=names.RUNNING)
    return made


def attach(control: FakeControl, records: registry.Registry) -> Sandbox:
    """The same sandbox as another process would see it."""
    place: Any = FakePlace(control)
    return Sandbox(records.require("demo"), place=place, records=records)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_a_server_is_reached_by_the_name_that_it_knows(sandbox: Sandbox, port: int) -> None:
    with sandbox.forward(port, local_port=0) as forwarding:
        assert forwarding.is_open
        assert forwarding.ports == {port: forwarding.local_port}
        assert forwarding.url == f"http://localhost:{forwarding.local_port}"
        assert get(forwarding.url) == f"localhost:{port}"
        assert not forwarding.wait(0)
    assert not forwarding.is_open
    assert forwarding.wait()
    with pytest.raises(OSError, match="refused"):
        get(forwarding.url)


def test_the_token_is_for_the_agents_port_alone_if_it_relays(sandbox: Sandbox, control: FakeControl, port: int) -> None:
    before = len(control.mints)
    with sandbox.forward(port, local_port=0) as forwarding:
        get(forwarding.url)
    assert [ports for _, ports in control.mints[before:]] == []  # that token was there already


def test_directly_the_token_is_for_the_servers_port(sandbox: Sandbox, control: FakeControl, port: int) -> None:
    with sandbox.forward(port, local_port=0, direct=True) as forwarding:
        assert 400 <= status(forwarding.url) < 600  # this endpoint is the agent, and has no such page
    assert control.mints[-1][1] == (port,)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_several_ports_have_a_url_each(sandbox: Sandbox, port: int) -> None:
    with sandbox.forward(f"{port}:0", "8123:0", bind="127.0.0.2") as forwarding:
        assert list(forwarding.urls) == [port, 8123]
        assert forwarding.url == forwarding.urls[port]
        assert forwarding.url.startswith("http://127.0.0.2:")
        assert status(forwarding.urls[8123]) == 502


@pytest.mark.parametrize("ports", [[], [0], [9000], ["8999-9001"], ["x"], [8000, 8000]], ids=repr)
def test_what_cannot_be_forwarded_is_refused(sandbox: Sandbox, ports: list[int | str]) -> None:
    with pytest.raises(errors.UsageError):
        sandbox.forward(*ports)


def test_a_port_that_is_taken_is_an_error_that_says_so(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(errors.ListenError, match=f"port {number}: another program listens there") as caught:
            sandbox.forward(8000, local_port=number)
    assert "-l 0" in str(caught.value.hint)


def test_it_ends_when_the_sandbox_is_stopped_on_purpose(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, port: int
) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=60) as forwarding:
        assert status(forwarding.url) == 200
        attach(control, records).suspend()
        # The next request is the last one, and wakes nothing.
        assert status(forwarding.url) == 503
        with pytest.raises(errors.SandboxSuspendedError):
            forwarding.wait(10)
    assert control.microvms.calls.count("resume") == 0


def test_the_watcher_sees_a_stop_without_a_request(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, port: int
) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS) as forwarding:
        attach(control, records).suspend()
        with pytest.raises(errors.SandboxSuspendedError):
            forwarding.wait(10)


def test_a_sandbox_that_is_suspended_for_idleness_is_waited_for(
    sandbox: Sandbox, control: FakeControl, port: int
) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS) as forwarding:
        control.microvms.change("microvm-1", state=names.SUSPENDED)
        looks = len(control.microvms.calls)
        eventually(lambda: len(control.microvms.calls) > looks + 3)
        assert forwarding.is_open


def test_it_ends_with_its_sandbox(sandbox: Sandbox, control: FakeControl, port: int) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS) as forwarding:
        control.microvms.change("microvm-1", state=names.TERMINATED, state_reason="its time is over")
        with pytest.raises(errors.MicroVMEndedError, match="its time is over"):
            forwarding.wait(10)


def test_a_state_that_cannot_be_seen_is_told_once_and_asked_for_again(
    sandbox: Sandbox, control: FakeControl, port: int
) -> None:
    remarks: list[str] = []
    control.microvms.failures["get"] = [errors.ConnectError("no network") for _ in range(5)]
    with sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS, on_remark=remarks.append) as forwarding:
        eventually(lambda: not control.microvms.failures["get"])
        assert get(forwarding.url) == f"localhost:{port}"
    assert remarks == ["the sandbox's state cannot be seen for now: no network"]


def test_closing_twice_and_closing_what_has_ended_is_fine(sandbox: Sandbox, control: FakeControl, port: int) -> None:
    forwarding = sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS)
    control.microvms.change("microvm-1", state=names.TERMINATED)
    eventually(lambda: not forwarding.is_open)
    forwarding.close()
    forwarding.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vmnest-forward")]
