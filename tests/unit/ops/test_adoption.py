"""A name for a MicroVM that has none here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import notes
from tests.support.fleet import REGION, Fleet, Recording
from vmnest import errors, registry, rendezvous
from vmnest.ops import adoption, inventory

ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"
WIRE_POLICY = {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 0, "autoResumeEnabled": True}


def test_what_the_service_says_is_recorded(fleet: Fleet, aws_records: registry.Registry) -> None:
    fleet.add("microvm-x", idlePolicy=WIRE_POLICY, startedAt=5.0, maximumDurationInSeconds=3600)
    view = adoption.adopt_sandbox(microvm_id="microvm-x", name="web", labels={"a": "1"}, agent_port=81)
    assert (view["name"], view["state"], view["microvm_id"]) == ("web", "RUNNING", "microvm-x")
    assert aws_records.require("web") == registry.Record(
        "web",
        microvm_id="microvm-x",
        endpoint="https://0000.lambda-microvm.us-east-1.on.aws",
        image_arn=ARN,
        region=REGION,
        created_at=5.0,
        agent_port=81,
        labels={"a": "1"},
        max_duration=3600,
        idle_policy={"max_idle_duration_seconds": 60, "suspended_duration_seconds": 0, "auto_resume_enabled": True},
    )
    assert fleet.asked == {"get": 1}
    assert inventory.list_sandboxes(unnamed=True)["sandboxes"] != []


@pytest.mark.parametrize("policy", [None, {**WIRE_POLICY, "autoResumeEnabled": False}], ids=["none", "no resume"])
def test_what_may_not_resume_by_itself_is_looked_at_before_it_is_used(
    policy: object, fleet: Fleet, aws_records: registry.Registry
) -> None:
    fleet.add("microvm-x", idlePolicy=policy)
    adoption.adopt_sandbox(microvm_id="microvm-x", name="web")
    record = aws_records.require("web")
    assert (record.auto_resume, record.agent_port) == (False, 8080)


def test_one_that_sleeps_is_adopted_and_sleeps_on(fleet: Fleet, aws_records: registry.Registry) -> None:
    fleet.add("microvm-x", state="SUSPENDED")
    assert adoption.adopt_sandbox(microvm_id="microvm-x", name="web")["state"] == "SUSPENDED"
    assert fleet.asked == {"get": 1}


def test_one_that_has_a_name_gets_no_second(fleet: Fleet, record_as: Recording, aws_records: registry.Registry) -> None:
    fleet.add("microvm-web")
    record_as("web", labels={"kept": "1"})
    with pytest.raises(errors.NameInUseError, match="recorded already: as web"):
        adoption.adopt_sandbox(microvm_id="microvm-web", name="other")
    assert adoption.adopt_sandbox(microvm_id="microvm-web", name="web")["labels"] == {"kept": "1"}
    assert [record.name for record in aws_records.all()] == ["web"]


def test_a_name_in_use_is_refused_before_anybody_is_asked(fleet: Fleet, record_as: Recording) -> None:
    record_as("web")
    with pytest.raises(errors.NameInUseError, match="exists already"):
        adoption.adopt_sandbox(microvm_id="microvm-x", name="web")
    assert not fleet.asked


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED"])
def test_what_has_ended_is_not_adopted(state: str, fleet: Fleet, aws_records: registry.Registry) -> None:
    fleet.add("microvm-x", state=state, stateReason="Success.")
    with pytest.raises(errors.MicroVMEndedError, match=rf"has ended: {state} \(Success\.\)"):
        adoption.adopt_sandbox(microvm_id="microvm-x", name="web")
    assert not Path(aws_records.path).exists()


def test_what_there_is_none_of_is_not_found(fleet: Fleet, aws_records: registry.Registry) -> None:
    with pytest.raises(errors.MicroVMNotFoundError, match=f"AWS, {REGION}, knows no MicroVM microvm-x") as caught:
        adoption.adopt_sandbox(microvm_id="microvm-x", name="web")
    assert "vmnest ls --all" in str(caught.value.hint)
    assert "vmnest rm" not in str(caught.value.hint)
    assert not Path(aws_records.path).exists()


@pytest.mark.parametrize(("microvm_id", "name"), [("web", "microvm-x"), ("", "web"), ("microvm-x", "../x")], ids=str)
def test_what_cannot_be_meant_is_refused(microvm_id: str, name: str, fleet: Fleet) -> None:
    with pytest.raises(errors.UsageError):
        adoption.adopt_sandbox(microvm_id=microvm_id, name=name)
    assert not fleet.asked


@pytest.mark.usefixtures("no_daemon")
def test_what_is_known_on_this_machine_is_looked_for_here(aws_records: registry.Registry) -> None:
    notes.leave_note(rendezvous.folder(prepare=True), "microvm-x")
    with pytest.raises(errors.MicroVMEndedError, match="exit status 1"):
        adoption.adopt_sandbox(microvm_id="microvm-x", name="web")
    with pytest.raises(errors.MicroVMNotFoundError, match="the local cloud of this machine knows no"):
        adoption.adopt_sandbox(microvm_id="microvm-y", name="web", local=True)
