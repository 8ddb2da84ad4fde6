"""Making a sandbox: the control plane in memory, the agent real."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.fake_control import WISH, FakeControl, FakePlace, cut_off, make_sandbox
from tests.support.scripted import SILENT, ScriptedServer, answer, json_answer
from vmnest import errors, registry
from vmnest.control.microvms import IdlePolicy
from vmnest.deadline import Deadline
from vmnest.sandbox import Sandbox, making

HEALTHY = json_answer(200, {"status": "ok", "version": "1", "features": []})
NOT_REACHED = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])


@pytest.fixture
def records(tmp_path: Path) -> registry.Registry:
    return registry.Registry(str(tmp_path / "state.json"))


@pytest.fixture
def control(shared_agent: Agent) -> FakeControl:
    return FakeControl(shared_agent.url)


@pytest.fixture
def sandbox(control: FakeControl, records: registry.Registry) -> Sandbox:
    return make_sandbox(control, records)


def test_a_created_sandbox_is_recorded_and_answers(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    assert (sandbox.name, sandbox.microvm_id, sandbox.state) == ("demo", "microvm-1", "RUNNING")
    assert sandbox.record == records.require("demo")
    assert sandbox.exec("echo", ["hi"]).stdout == b"hi\n"
    assert control.microvms.calls == ["run"]
    assert len(control.mints) == 1


def test_creation_waits_for_the_agent_and_outlasts_502s(records: registry.Registry) -> None:
    with ScriptedServer(NOT_REACHED, NOT_REACHED, HEALTHY) as server:
        assert make_sandbox(FakeControl(server.url), records).state == "RUNNING"


@pytest.mark.parametrize(
    ("reason", "role", "hint"),
    [
        ("Run lifecycle hook returned HTTP status 500.", None, None),
        (
            "Container Stopped with Exit Code: 0",
            None,
            "Its main process (the image's CMD, with the agent in it) has to go on running.",
        ),
        (
            "Container Stopped with Exit Code: 0",
            "arn:role",
            "Its main process (the image's CMD, with the agent in it) has to go on running. "
            "What it printed: vmnest logs microvm-1",
        ),
    ],
    ids=["hook", "exit", "exit with a log"],
)
def test_a_microvm_that_ends_while_it_is_waited_for_is_an_error_and_leaves_nothing(
    records: registry.Registry, reason: str, role: str | None, hint: str | None
) -> None:
    with ScriptedServer(NOT_REACHED) as server:
        control = FakeControl(server.url)
        original = control.microvms.run

        def run(spec: Any, **options: Any) -> Any:
            microvm = original(spec, **options)
            control.microvms.change(
                microvm.microvm_id, state="TERMINATED", state_reason=reason, execution_role_arn=role
            )
            return microvm

        control.microvms.run = run  # type: ignore[method-assign]
        with pytest.raises(errors.MicroVMEndedError, match=reason.rstrip(".")) as caught:
            make_sandbox(control, records)
    assert caught.value.hint == hint
    assert records.all() == []


def test_an_agent_that_never_answers_leaves_no_microvm_and_no_record(records: registry.Registry) -> None:
    with ScriptedServer(SILENT, repeat_last=True) as server:
        control = FakeControl(server.url)
        with pytest.raises(errors.WaitTimeoutError) as caught:
            make_sandbox(control, records, timeout=0.3)
    assert list(caught.value.details["seconds"]) == ["reach", "plan", "run", "agent"]  # type: ignore[call-overload]
    assert "waiting for its agent 0." in (caught.value.hint or "")
    assert "Its MicroVM was last seen PENDING" in (caught.value.hint or "")
    assert "vmnest's agent must listen on port 8080" in (caught.value.hint or "")
    assert str(caught.value.hint).endswith("MicroVM microvm-1 was ended.")
    assert "vmnest logs" not in str(caught.value.hint)  # without a role it leaves none
    assert caught.value.details["microvm_id"] == "microvm-1"
    assert control.microvms.alive == []
    assert control.microvms.calls[-1] == "terminate"
    assert records.all() == []


def test_of_an_agent_that_never_answers_there_may_be_a_log(records: registry.Registry) -> None:
    with ScriptedServer(NOT_REACHED, repeat_last=True) as server:
        control = FakeControl(server.url)
        original = control.microvms.run

        def run(spec: Any, **options: Any) -> Any:
            microvm = original(spec, **options)
            control.microvms.change(microvm.microvm_id, state="RUNNING", execution_role_arn="arn:aws:iam::1:role/r")
            return microvm

        control.microvms.run = run  # type: ignore[method-assign]
        with pytest.raises(errors.WaitTimeoutError) as caught:
            make_sandbox(control, records, timeout=0.3)
    assert "What it printed: vmnest logs microvm-1" in str(caught.value.hint)


def test_another_program_on_the_agents_port_leaves_nothing_either(records: registry.Registry) -> None:
    with ScriptedServer(answer(200, "<html>")) as server:
        control = FakeControl(server.url)
        with pytest.raises(errors.AgentAnswerError):
            make_sandbox(control, records)
    assert control.microvms.alive == []
    assert records.all() == []


@pytest.mark.parametrize(
    "wish",
    [{"run_payload": "x" * 4097}, {"idle_policy": IdlePolicy(1)}, {"ingress": ["NO_INGRESS"]}, {"egress": ["a", "b"]}],
    ids=lambda wish: next(iter(wish)),
)
def test_what_cannot_be_had_is_refused_before_anything_is_recorded_ended_or_started(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, wish: dict[str, Any]
) -> None:
    before, calls = records.all(), list(control.microvms.calls)
    with pytest.raises(errors.UsageError):
        make_sandbox(control, records, replace=True, **wish)
    assert records.all() == before
    assert control.microvms.calls == calls


def test_a_setting_that_is_none_is_told_before_anything_is_started(
    control: FakeControl, records: registry.Registry
) -> None:
    with pytest.raises(errors.SettingError, match="VERIFY_TLS"):
        make_sandbox(control, records, environ={"AGENT_SANDBOX_VERIFY_TLS": "maybe"})
    assert control.microvms.calls == []
    assert records.all() == []


def test_the_log_group_goes_to_the_service_and_into_the_record(
    control: FakeControl, records: registry.Registry
) -> None:
    make_sandbox(control, records, log_group="/aws/demo")
    assert control.microvms.specs[0].log_group == records.require("demo").log_group == "/aws/demo"


def test_a_name_in_use_is_told_before_anybody_is_asked(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    place: Any = FakePlace(control)
    with pytest.raises(errors.NameInUseError):
        making.make(WISH, place=place, records=records, deadline=Deadline(5))
    assert place.made == 0


def test_of_many_creations_of_one_name_one_wins(control: FakeControl, records: registry.Registry) -> None:
    outcomes: list[object] = []

    def attempt(_number: int) -> None:
        try:
            outcomes.append(make_sandbox(control, records).microvm_id)
        except errors.NameInUseError as error:
            outcomes.append(error.code)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attempt, range(8)))
    assert sorted(map(str, outcomes)) == ["microvm-1", *["name_in_use"] * 7]
    assert control.microvms.alive == ["microvm-1"]
    assert control.microvms.calls == ["run"]


# -- replacing ---------------------------------------------------------------------------------------------------------


def test_a_sandbox_takes_the_place_of_another(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    successor = make_sandbox(control, records, replace=True)
    assert control.microvms.calls == ["run", "terminate", "run"]
    assert control.microvms.alive == [successor.microvm_id] == ["microvm-2"]
    assert records.all() == [successor.record]


def test_what_is_replaced_may_be_gone_or_may_never_have_been(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    control.microvms.known.clear()
    assert make_sandbox(control, records, replace=True).exec("true").success
    records.remove("demo")
    assert make_sandbox(control, records, replace=True).exec("true").success


def test_a_cut_off_launch_that_is_replaced_leaves_no_microvm(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    cut_off(sandbox, control, records)
    make_sandbox(control, records, replace=True)
    assert control.microvms.alive == ["microvm-2"]


def test_what_cannot_be_ended_is_not_replaced(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    control.microvms.failures["terminate"] = [errors.ConnectError("no network")]
    with pytest.raises(errors.ConnectError):
        make_sandbox(control, records, replace=True)
    assert records.all() == [sandbox.record]
    assert control.microvms.calls == ["run", "terminate"]


def test_a_name_that_changes_hands_during_a_replacement_is_in_use(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    other = registry.Record("demo", microvm_id="microvm-9", client_token="u")
    original = control.microvms.terminate

    def terminate(microvm_id: str, **options: Any) -> bool:
        records.put(other, replace=True)
        return original(microvm_id, **options)

    control.microvms.terminate = terminate  # type: ignore[method-assign]
    with pytest.raises(errors.NameInUseError):
        make_sandbox(control, records, replace=True)
    assert records.all() == [other]
    assert control.microvms.calls == ["run", "terminate"]
