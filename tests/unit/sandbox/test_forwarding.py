"""Forwarding: the control plane in memory, the agent and its relay real, a real server behind them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.clock import FakeClock
from tests.support.fake_control import ARN, FakeControl, FakePlace, make_sandbox
from tests.support.lifecycle import eventually
from tests.support.scripted import Answer, ScriptedServer, json_answer
from vmnest import errors, registry
from vmnest.control.microvms import RunSpec
from vmnest.deadline import NEVER, Deadline
from vmnest.sandbox import Sandbox
from vmnest.sandbox.forwarding import LinkGate
from vmnest.sandbox.link import Link
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
    made = make_sandbox(control, records, environ={"AGENT_SANDBOX_AGENT_PORT": str(agent.port)})
    control.microvms.change("microvm-1", state=names.RUNNING)
    return made


def attach(control: FakeControl, records: registry.Registry) -> Sandbox:
    """The same sandbox as another process would see it."""
    place: Any = FakePlace(control)
    return Sandbox(Link(records.require("demo"), place=place, records=records))


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


@pytest.mark.parametrize("is_direct", [False, True], ids=["relayed", "direct"])
def test_what_gets_no_first_token_does_not_begin(
    sandbox: Sandbox,
    control: FakeControl,
    records: registry.Registry,
    port: int,
    is_direct: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh = attach(control, records)

    def refuse(*words: object, **options: object) -> None:
        raise errors.CredentialsNotFoundError("no AWS credentials")

    with monkeypatch.context() as patch:
        patch.setattr(control, "mint_token", refuse)
        with pytest.raises(errors.CredentialsNotFoundError):
            fresh.forward(port, local_port=0, direct=is_direct)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vmnest-forward")]
    with fresh.forward(port, local_port=0, direct=is_direct) as forwarding:
        assert control.mints[-1][1] == (port if is_direct else sandbox._link.agent_port,)
        monkeypatch.setattr(control, "mint_token", refuse)  # from here on it has what it takes
        assert is_direct or get(forwarding.url) == f"localhost:{port}"


def test_the_first_token_wakes_nothing(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, port: int
) -> None:
    control.microvms.change("microvm-1", state=names.SUSPENDED)
    with attach(control, records).forward(port, local_port=0, poll_interval=60) as forwarding:
        assert forwarding.is_open
        assert "resume" not in control.microvms.calls
        assert get(forwarding.url) == f"localhost:{port}"


def test_a_sandbox_that_the_service_does_not_know_is_not_forwarded(
    control: FakeControl, sandbox: Sandbox, records: registry.Registry, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: object, **options: object) -> None:
        raise errors.MicroVMNotFoundError("MicroVM not found: microvm-1")

    monkeypatch.setattr(control, "mint_token", refuse)
    with pytest.raises(errors.SandboxNotFoundError, match="sandbox demo is gone: MicroVM not found"):
        attach(control, records).forward(port, local_port=0)


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


@pytest.mark.parametrize(
    ("bind", "shown"), [("0.0.0.0", "localhost"), ("::", "[::1]"), ("::1", "[::1]"), ("127.0.0.1", "localhost")]
)
def test_the_url_is_one_that_can_be_opened(sandbox: Sandbox, port: int, bind: str, shown: str) -> None:
    with sandbox.forward(port, local_port=0, bind=bind) as forwarding:
        assert forwarding.url == f"http://{shown}:{forwarding.local_port}"
        assert status(forwarding.url) == 200


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "5"], ids=repr)
def test_what_is_no_time_between_two_looks_is_refused(sandbox: Sandbox, seconds: Any) -> None:
    with pytest.raises(errors.UsageError, match="poll_interval"):
        sandbox.forward(8000, local_port=0, poll_interval=seconds)


@pytest.mark.parametrize("bind", ["", None, 0], ids=repr)
def test_what_is_no_address_is_refused(sandbox: Sandbox, bind: Any) -> None:
    with pytest.raises(errors.UsageError, match="bind must be an address"):
        sandbox.forward(8000, local_port=0, bind=bind)


@pytest.mark.parametrize("ports", [[], [0], [9000], ["8999-9001"], ["x"], [8000, 8000]], ids=repr)
def test_what_cannot_be_forwarded_is_refused(sandbox: Sandbox, ports: list[int | str]) -> None:
    with pytest.raises(errors.UsageError):
        sandbox.forward(*ports)


@pytest.mark.parametrize("name", ["http://devbox.example", "devbox.example:80", ""])
def test_what_is_no_name_of_this_machine_is_refused(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(errors.UsageError, match="not a name of this machine"):
        sandbox.forward(8000, local_port=0, allow_hosts=[name])


def test_a_port_that_is_taken_is_an_error_that_says_so(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(errors.ListenError, match=f"port {number}: another program listens there") as caught:
            sandbox.forward(8000, local_port=number)
    assert "-l 0" in str(caught.value.hint)


def test_a_port_that_is_taken_leaves_nothing_open(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        sandbox._link.endpoint  # noqa: B018 - whatever else it opens is open now
        before = os.listdir("/proc/self/fd")
        for _ in range(5):
            with pytest.raises(errors.ListenError):
                sandbox.forward("8000:0", f"8001:{number}")
        assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_a_stop_is_known_before_the_next_request_and_wakes_nothing(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, port: int
) -> None:
    gate = LinkGate(sandbox._link)
    gate.check()
    attach(control, records).suspend()
    calls = len(control.microvms.calls)
    with pytest.raises(errors.SandboxSuspendedError, match="sandbox demo was stopped") as caught:
        gate.check()
    assert "vmnest start demo" in str(caught.value.hint)
    with pytest.raises(errors.SandboxSuspendedError, match="was stopped"):
        gate.has_relay()  # an agent that is asked wakes up, too
    assert len(control.microvms.calls) == calls
    with pytest.raises(errors.SandboxSuspendedError, match="was stopped"):
        gate.recover(Deadline(10))  # a request that was on its way already
    assert "resume" not in control.microvms.calls


def test_a_request_after_a_stop_ends_it(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, port: int
) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=60) as forwarding:
        assert status(forwarding.url) == 200
        attach(control, records).suspend()
        with contextlib.suppress(OSError):  # it may have ended already
            assert status(forwarding.url) == 503
        with pytest.raises(errors.SandboxSuspendedError):
            forwarding.wait(10)
    assert control.microvms.calls.count("resume") == 0


def test_a_stop_by_another_process_is_seen_long_before_the_next_look(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, port: int
) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=600) as forwarding:
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


def test_the_mark_of_a_stop_that_was_cut_off_is_taken_away(
    sandbox: Sandbox, records: registry.Registry, port: int
) -> None:
    records.update("demo", stopped_at=5.0)
    with sandbox.forward(port, local_port=0) as forwarding:
        assert status(forwarding.url) == 200
        assert records.require("demo").stopped_at is None


def test_it_ends_with_its_sandbox(sandbox: Sandbox, control: FakeControl, port: int) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS) as forwarding:
        control.microvms.change("microvm-1", state=names.TERMINATED, state_reason="its time is over")
        with pytest.raises(errors.MicroVMEndedError, match="its time is over"):
            forwarding.wait(10)


def test_it_ends_when_the_service_knows_its_sandbox_no_more(sandbox: Sandbox, control: FakeControl, port: int) -> None:
    with sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS) as forwarding:
        control.microvms.known.clear()
        with pytest.raises(errors.SandboxNotFoundError, match="sandbox demo is gone"):
            forwarding.wait(10)
    with pytest.raises(errors.SandboxNotFoundError, match="sandbox demo is gone"):
        LinkGate(sandbox._link).recover(Deadline(10))


def test_a_sandbox_that_no_use_may_resume_ends_it_when_it_sleeps(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, port: int
) -> None:
    place = sandbox._link.place
    sleepy = Sandbox(Link(records.require("demo"), place=place, records=records, auto_resume=False))
    with sleepy.forward(port, local_port=0, poll_interval=600) as forwarding:
        assert status(forwarding.url) == 200
        control.microvms.change("microvm-1", state=names.SUSPENDED)
        eventually(lambda: status(forwarding.url) == 503)
        with pytest.raises(errors.SandboxSuspendedError):
            forwarding.wait(10)
    assert control.microvms.calls.count("resume") == 0


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


def test_the_end_does_not_wait_for_a_service_that_is_silent(sandbox: Sandbox, control: FakeControl, port: int) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()
    get_microvm = control.microvms.get

    def hang(*words: Any, **options: Any) -> Any:
        is_asked.set()
        may_answer.wait(30)
        return get_microvm(*words, **options)

    control.microvms.get = hang  # type: ignore[method-assign]
    try:
        with sandbox.forward(port, local_port=0, poll_interval=POLL_SECONDS):
            assert is_asked.wait(10)
            begin = time.monotonic()
        assert time.monotonic() - begin < 5
    finally:
        may_answer.set()
    eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("vmnest-forward")])


def test_a_forked_child_that_leaves_ends_nothing_of_its_parents(sandbox: Sandbox, port: int) -> None:
    with sandbox.forward(port, local_port=0) as forwarding:
        with urllib.request.urlopen(forwarding.url, timeout=10) as answer:
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    forwarding.__exit__(None, None, None)
                    os._exit(7 if not forwarding.is_open else 1)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            assert answer.read().decode() == f"localhost:{port}"
        assert get(forwarding.url) == f"localhost:{port}"
        assert forwarding.is_open


# -- the relay ---------------------------------------------------------------------------------------------------------


def health(*features: str) -> Answer:
    return json_answer(200, {"status": "ok", "version": "1", "features": list(features)})


@pytest.fixture
def gate_to(records: registry.Registry, fake_clock: FakeClock) -> Callable[[ScriptedServer], LinkGate]:
    """Makes gates to agents that say what a test says, in time that only the test moves."""

    def make(server: ScriptedServer) -> LinkGate:
        control = FakeControl(server.url)
        microvm = control.microvms.run(RunSpec(ARN, "t"), deadline=NEVER)
        control.microvms.change(microvm.microvm_id, state=names.RUNNING)
        record = registry.Record(
            "demo", microvm_id=microvm.microvm_id, endpoint=server.url, client_token="t", created_at=1.0
        )
        place: Any = FakePlace(control)
        return LinkGate(Link(record, place=place, records=records, verify_tls=None, clock=fake_clock))

    return make


GateTo = Callable[[ScriptedServer], LinkGate]


def test_whether_it_relays_is_asked_once(gate_to: GateTo) -> None:
    with ScriptedServer(health("relay")) as server, ThreadPoolExecutor(8) as pool:
        gate = gate_to(server)
        assert list(pool.map(lambda _: gate.has_relay(), range(8))) == [True] * 8


def test_it_is_asked_again_when_that_turns_out_to_be_wrong_but_once_for_all(
    gate_to: GateTo, fake_clock: FakeClock
) -> None:
    with ScriptedServer(health("relay"), health()) as server:
        gate = gate_to(server)
        assert gate.has_relay()
        fake_clock.advance(5)
        assert [gate.has_relay(again=True) for _ in range(3)] == [False] * 3
        fake_clock.advance(3600)
        assert not gate.has_relay()


def test_an_agent_that_does_not_say_is_asked_again_after_a_while(gate_to: GateTo, fake_clock: FakeClock) -> None:
    with ScriptedServer(json_answer(500, {"detail": "not now"}), health("relay")) as server:
        gate = gate_to(server)
        assert not gate.has_relay()
        assert not gate.has_relay()
        assert len(server.requests) == 1
        fake_clock.advance(61)
        assert gate.has_relay()
