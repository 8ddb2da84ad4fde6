"""How a sandbox reaches its MicroVM: lazily, once, and again after things moved."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.fake_control import ARN, FakeControl, FakePlace
from tests.support.scripted import CUT, Answer, Received, ScriptedServer, Step, answer, json_answer, text_answer
from vmnest import errors, registry
from vmnest.control.microvms import RunSpec
from vmnest.deadline import NEVER, Deadline
from vmnest.sandbox.link import ForkSafeLock, Link

OK = json_answer(200, {"exit_code": 0, "encoding": "base64", "stdout": "b2s=", "stderr": ""})
REFUSED = text_answer(403, "Token authentication failed")
NOT_REACHED = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])


def plain_agent(*steps: Step, **options: Any) -> ScriptedServer:
    """A scripted agent of the base contract."""
    return ScriptedServer(*steps, missing="/v1/processes", **options)


@pytest.fixture
def records(tmp_path: Path) -> registry.Registry:
    return registry.Registry(str(tmp_path / "state.json"))


@pytest.fixture
def closed_url() -> str:
    """An address on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def link_to(
    endpoint: str | None, control: FakeControl, records: registry.Registry, *, auto_resume: bool = True, **members: Any
) -> Link:
    """A link to a MicroVM that runs and is recorded with that endpoint."""
    microvm = control.microvms.run(RunSpec(ARN, "t"), deadline=NEVER)
    control.microvms.change(microvm.microvm_id, state="RUNNING")
    control.microvms.calls.clear()
    record = registry.Record("demo", microvm_id=microvm.microvm_id, endpoint=endpoint, client_token="t", **members)
    records.put(record)
    place: Any = FakePlace(control, kind=record.target)
    return Link(record, place=place, records=records, verify_tls=None, auto_resume=auto_resume)


def test_nothing_is_asked_before_it_is_needed(records: registry.Registry) -> None:
    with plain_agent() as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records)
        assert (link.endpoint, link.microvm_id, link.state) == (server.url, "microvm-1", "UNKNOWN")
        link.agent()
    assert control.microvms.calls == []
    assert control.mints == []


def test_a_command_costs_one_mint_and_no_look(records: registry.Registry) -> None:
    with plain_agent(OK, OK) as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records, agent_port=9999)
        assert [link.agent().exec("x").stdout for _ in range(2)] == [b"ok", b"ok"]
    assert control.microvms.calls == []
    assert control.mints == [("microvm-1", (9999,))]
    assert server.requests[0].headers["x-aws-proxy-port"] == "9999"


def test_on_this_machine_the_recorded_port_may_be_another_programs_by_now(records: registry.Registry) -> None:
    with plain_agent(OK) as server, plain_agent() as stranger:
        control = FakeControl(server.url)
        link = link_to(stranger.url, control, records, target="local")
        assert link.agent().exec("x").stdout == b"ok"
        assert stranger.requests == []
    assert control.microvms.calls == ["get"]


def test_twenty_threads_share_one_connection_of_each_kind(records: registry.Registry, agent: Agent) -> None:
    control = FakeControl(agent.url)
    link = link_to(agent.url, control, records)
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda number: link.agent().exec("echo", [str(number)]).stdout, range(20)))
    assert results == [b"%d\n" % number for number in range(20)]
    assert len(control.mints) == 1


def test_twenty_commands_whose_token_was_refused_cause_one_mint(records: registry.Registry) -> None:
    def check(request: Received) -> Answer:
        return OK if request.headers["x-aws-proxy-auth"] == "token-2" else REFUSED

    with plain_agent(check, repeat_last=True) as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records)
        with ThreadPoolExecutor(20) as pool:
            results = list(pool.map(lambda _number: link.agent().exec("x").stdout, range(20)))
    assert results == [b"ok"] * 20
    assert len(control.mints) == 2


@pytest.mark.parametrize(
    ("recorded", "expected"), [("vm.example", "https://vm.example"), ("http://127.0.0.1:1", "http://127.0.0.1:1")]
)
def test_an_endpoint_without_a_scheme_is_https(records: registry.Registry, recorded: str, expected: str) -> None:
    assert link_to(recorded, FakeControl("https://other"), records).endpoint == expected


def test_an_endpoint_that_no_record_has_is_asked_for(records: registry.Registry) -> None:
    control = FakeControl("https://vm.example")
    assert link_to(None, control, records).endpoint == "https://vm.example"
    assert control.microvms.calls == ["get"]


def test_a_launch_that_was_cut_off_and_cannot_be_repeated_has_no_microvm(records: registry.Registry) -> None:
    place: Any = FakePlace(FakeControl("https://x"))
    link = Link(registry.Record("demo"), place=place, records=records, verify_tls=None)
    for ask in (lambda: link.microvm_id, lambda: link.endpoint, link.look):
        with pytest.raises(errors.MicroVMNotFoundError, match="cut off") as caught:
            ask()
        assert "vmnest rm demo" in (caught.value.hint or "")


def test_an_endpoint_that_moved_is_found_and_recorded(records: registry.Registry, closed_url: str) -> None:
    with plain_agent(OK) as server:
        control = FakeControl(server.url)
        link = link_to(closed_url, control, records)
        assert link.agent().exec("x").stdout == b"ok"
    assert control.microvms.calls == ["get"]
    assert records.require("demo").endpoint == server.url


def test_a_suspended_microvm_that_is_not_reached_is_resumed(records: registry.Registry) -> None:
    with plain_agent(NOT_REACHED, OK) as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records)
        control.microvms.change("microvm-1", state="SUSPENDED")
        assert link.agent().exec("x").stdout == b"ok"
    assert control.microvms.calls == ["get", "resume"]


def test_what_somebody_stops_while_it_is_used_is_not_woken_by_that_use(records: registry.Registry) -> None:
    control = FakeControl("")

    def stop(_request: Received) -> Answer:
        control.microvms.change("microvm-1", state="SUSPENDED")
        records.update("demo", stopped_at=5.0, state_hint="SUSPENDED")
        return NOT_REACHED

    with plain_agent(stop) as server:
        control.microvms.endpoint = server.url
        link = link_to(server.url, control, records)
        with pytest.raises(errors.SandboxSuspendedError, match="demo"):
            link.agent().exec("x")
    assert "resume" not in control.microvms.calls


def test_many_requests_that_find_it_suspended_resume_it_once(records: registry.Registry) -> None:
    control = FakeControl("")

    def serve(_request: Received) -> Answer:
        return OK if control.microvms.known["microvm-1"].state == "RUNNING" else NOT_REACHED

    with plain_agent(serve, repeat_last=True) as server:
        control.microvms.endpoint = server.url
        link = link_to(server.url, control, records)
        control.microvms.change("microvm-1", state="SUSPENDED")
        with ThreadPoolExecutor(20) as pool:
            results = list(pool.map(lambda _number: link.agent().exec("x").stdout, range(20)))
    assert results == [b"ok"] * 20
    assert control.microvms.calls.count("resume") == 1


def test_a_conflict_with_a_passing_state_is_gone_at_the_next_attempt(
    records: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmnest.sandbox.link.RESUME_AGAIN_SECONDS", 0.0)
    with plain_agent(NOT_REACHED, NOT_REACHED, OK) as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records)
        control.microvms.change("microvm-1", state="SUSPENDED")
        control.microvms.failures["resume"] = [errors.ConflictError("not now", operation="X", status=409)]
        assert link.agent().exec("x").stdout == b"ok"
    assert control.microvms.calls == ["get", "resume", "get", "resume"]


@pytest.mark.parametrize("state", ["SUSPENDING", "SUSPENDED"])
def test_a_suspended_microvm_is_left_alone_by_a_link_that_must_not_resume_it(
    records: registry.Registry, state: str
) -> None:
    with plain_agent(NOT_REACHED) as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records, auto_resume=False)
        control.microvms.change("microvm-1", state=state)
        with pytest.raises(errors.SandboxSuspendedError, match="demo") as caught:
            link.agent().exec("x")
    assert isinstance(caught.value.__cause__, errors.EndpointUnavailableError)
    assert control.microvms.calls == ["get"]


def test_a_hint_that_cannot_be_kept_is_only_logged(
    records: registry.Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control = FakeControl("https://vm.example")
    link = link_to("https://vm.example", control, records)
    (tmp_path / "state.json").write_text("{damaged")
    link.note(state_hint="SUSPENDED")
    link.catch_up()
    assert link.record.state_hint == "SUSPENDED"
    assert "damaged" in caplog.text
    with pytest.raises(errors.StateFileError):
        link.note(state_hint="SUSPENDED", must_be_kept=True)


def test_catching_up_takes_over_what_others_did_to_this_sandbox_only(records: registry.Registry) -> None:
    control = FakeControl("https://vm.example")
    link = link_to("https://vm.example", control, records)
    records.update("demo", stopped_at=5.0, state_hint="SUSPENDED")
    link.catch_up()
    assert (link.state, link.record.stopped_at) == ("SUSPENDED", 5.0)
    records.put(registry.Record("demo", microvm_id="microvm-9", client_token="u"), replace=True)
    link.catch_up()
    records.remove("demo")
    link.catch_up()
    assert (link.state, link.record.stopped_at, link.microvm_id) == ("SUSPENDED", 5.0, "microvm-1")


def test_a_lock_that_is_held_is_waited_for_until_the_deadline() -> None:
    lock = ForkSafeLock()
    with lock.held(), pytest.raises(errors.WaitTimeoutError), lock.held(Deadline(0.01)):
        pass
    with lock.held(Deadline(0)):
        pass


def test_a_microvm_that_ended_is_an_error_with_its_reason_at_once(records: registry.Registry) -> None:
    with plain_agent(NOT_REACHED) as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records)
        control.microvms.change("microvm-1", state="TERMINATED", state_reason="MicroVM exceeded maximum lifetime.")
        with pytest.raises(errors.MicroVMEndedError, match="maximum lifetime") as caught:
            link.agent().exec("x")
    assert isinstance(caught.value.__cause__, errors.EndpointUnavailableError)
    assert link.state == "TERMINATED"


def test_an_answer_that_was_overtaken_does_not_bring_it_back(records: registry.Registry) -> None:
    control = FakeControl("http://127.0.0.1:9")
    link = link_to("http://127.0.0.1:9", control, records)
    seen = []
    for state in ("RUNNING", "TERMINATING", "RUNNING", "TERMINATED", "TERMINATING", "SUSPENDED"):
        control.microvms.change("microvm-1", state=state)
        link.look()
        seen.append(link.state)
    assert seen == ["RUNNING", "TERMINATING", "TERMINATING", "TERMINATED", "TERMINATED", "TERMINATED"]


def test_one_that_is_ending_is_told_of_as_it_ends(records: registry.Registry) -> None:
    control = FakeControl("http://127.0.0.1:9")
    link = link_to("http://127.0.0.1:9", control, records)
    control.microvms.upcoming = ["TERMINATING", "TERMINATING", "TERMINATED"]
    assert link.ended(link.look()).details["state"] == "TERMINATED"


def test_the_name_of_one_that_ended_is_to_be_forgotten_only_while_it_is_known(records: registry.Registry) -> None:
    control = FakeControl("http://127.0.0.1:9")
    link = link_to("http://127.0.0.1:9", control, records)
    control.microvms.change("microvm-1", state="TERMINATED")
    assert (link.ended(link.look()).hint or "").endswith("vmnest rm demo")
    records.remove("demo")
    assert link.ended(link.look()).hint == "Make a new sandbox."


def test_a_microvm_that_is_unknown_by_now_is_not_found(records: registry.Registry, closed_url: str) -> None:
    control = FakeControl(closed_url)
    link = link_to(closed_url, control, records)
    control.microvms.known.clear()
    with pytest.raises(errors.MicroVMNotFoundError):
        link.agent().exec("x")


def test_when_an_answer_is_lost_the_microvm_is_looked_at_and_not_woken(records: registry.Registry) -> None:
    with plain_agent(CUT) as server:
        control = FakeControl(server.url)
        link = link_to(server.url, control, records)
        control.microvms.change("microvm-1", state="SUSPENDED")
        with pytest.raises(errors.AgentUnreachableError) as caught:
            link.agent().exec("x")
    assert caught.value.details == {"outcome": "unknown", "state": "SUSPENDED"}
    assert control.microvms.calls == ["get"]
    assert link.state == "SUSPENDED"  # the next use knows


def test_looking_writes_no_record(records: registry.Registry, tmp_path: Path) -> None:
    control = FakeControl("https://moved.example")
    link = link_to("https://old.example", control, records)
    before = (tmp_path / "state.json").read_bytes()
    assert link.look().endpoint == link.endpoint == "https://moved.example"
    assert (tmp_path / "state.json").read_bytes() == before


def test_nothing_is_noted_under_a_name_that_is_another_sandboxs_by_now(records: registry.Registry) -> None:
    control = FakeControl("https://vm.example")
    link = link_to("https://vm.example", control, records)
    other = registry.Record("demo", microvm_id="microvm-9", endpoint="https://other", client_token="u")
    records.put(other, replace=True)
    link.note(state_hint="SUSPENDED")
    assert records.require("demo") == other
    records.remove("demo")
    link.note(state_hint="RUNNING")
    assert records.all() == []
    assert link.record.state_hint == "RUNNING"


@pytest.mark.parametrize("port", [0, 65_536, 9000, True])
def test_no_token_is_asked_for_a_port_that_is_none_or_the_hooks(records: registry.Registry, port: Any) -> None:
    control = FakeControl("https://vm.example")
    link = link_to("https://vm.example", control, records, agent_port=port)
    with pytest.raises(errors.UsageError, match="port"):
        link.agent()
    assert control.mints == []
