"""Ending sandboxes and forgetting their names."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support import notes
from tests.support.control import vm
from tests.support.fleet import REGION, Fleet, Recording
from tests.support.peers import Answer, Request, Serve, json_answer
from vmnest import errors, registry, rendezvous
from vmnest.ops import removal
from vmnest.registry import Record


@pytest.mark.parametrize("was_there", [True, False])
def test_a_removed_sandbox_is_ended_by_id_and_forgotten(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry, was_there: bool
) -> None:
    record_as("web")
    if was_there:
        fleet.add("microvm-web")
    removed = removal.remove_sandbox(name="web")
    assert removed == {"name": "web", "microvm_id": "microvm-web", "removed": True, "was_there": was_there}
    assert fleet.asked == ({"get": 1, "end": 1} if was_there else {"get": 1})
    assert aws_records.all() == []


def test_what_had_ended_before_was_not_there(fleet: Fleet, record_as: Recording) -> None:
    for state in ("TERMINATED", "TERMINATING", "SUSPENDED"):
        record_as(state)
        fleet.add(f"microvm-{state}", state=state)
    removed = removal.remove_sandboxes(everything=True)["removed"]
    assert isinstance(removed, list)
    assert {each["name"]: each["was_there"] for each in removed} == {
        "TERMINATED": False,
        "TERMINATING": True,
        "SUSPENDED": True,
    }


def test_who_may_not_look_may_still_end(fleet: Fleet, record_as: Recording) -> None:
    record_as("web")
    fleet.add("microvm-web")
    fleet.refused["get"] = 403
    assert removal.remove_sandbox(name="web")["was_there"] is True


@pytest.mark.usefixtures("no_daemon")
def test_to_forget_what_ended_on_this_machine_starts_no_local_cloud(
    record_as: Recording, aws_records: registry.Registry
) -> None:
    folder = rendezvous.folder(prepare=True)
    notes.leave_note(folder, "microvm-here")
    record_as("here", target="local")
    record_as("lost", target="local")
    removed = removal.remove_sandboxes(everything=True, local=True)["removed"]
    assert isinstance(removed, list)
    assert [(each["name"], each["was_there"]) for each in removed] == [("here", False), ("lost", False)]
    assert aws_records.all() == []


def test_a_sandbox_that_may_run_on_keeps_its_name(record_as: Recording, aws_records: registry.Registry) -> None:
    record_as("web")
    with pytest.raises(errors.ConnectError):
        removal.remove_sandbox(name="web", timeout=1)
    assert [each.name for each in aws_records.all()] == ["web"]


@pytest.mark.parametrize("created_at", [None, 1.0])
def test_a_name_whose_microvm_cannot_be_reached_is_told_how_it_goes(
    created_at: float | None, record_as: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("a", "b"):
        record_as(name, created_at=created_at)
    with pytest.raises(errors.CredentialsNotFoundError) as caught:
        removal.remove_sandboxes(names=["a", "b"], force=True)
    hint = str(caught.value.hint)
    assert hint.startswith("Run `aws configure`")
    assert hint.count("vmnest prune forgets its name also") == (created_at is not None)


def test_what_another_region_does_not_know_keeps_its_name(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry
) -> None:
    record_as("web")
    with pytest.raises(errors.MicroVMNotFoundError, match="recorded in us-east-1"):
        removal.remove_sandbox(name="web", region="eu-west-1")
    assert aws_records.get("web") is not None
    assert removal.remove_sandbox(name="web", region=REGION)["was_there"] is False


def test_a_record_of_an_older_version_under_an_odd_name_is_removed(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry
) -> None:
    fleet.add("m-1")
    record_as("[red]x y", microvm_id="m-1", endpoint="host")
    assert removal.remove_sandbox(name="[red]x y")["removed"] is True
    assert aws_records.all() == []


def test_a_launch_that_was_cut_off_is_forgotten_if_it_cannot_be_repeated(
    record_as: Recording, aws_records: registry.Registry
) -> None:
    record_as("web", microvm_id=None, created_at=time.time() - 10**6)
    assert removal.remove_sandbox(name="web")["was_there"] is False
    assert aws_records.all() == []


def test_what_a_launch_that_was_cut_off_may_have_left_is_named(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry
) -> None:
    fleet.add("microvm-left", startedAt=time.time())
    fleet.add("microvm-ended", startedAt=time.time(), state="TERMINATED")
    record_as("web", microvm_id=None, launch=None, created_at=time.time())
    assert removal.remove_sandbox(name="web")["may_still_run"] == ["microvm-left"]
    assert aws_records.all() == []


def test_a_name_that_is_not_recorded_is_an_error_unless_that_is_fine(record_as: Recording) -> None:
    with pytest.raises(errors.SandboxNotFoundError):
        removal.remove_sandbox(name="nobody")
    expected = {"name": "nobody", "microvm_id": None, "removed": False, "was_there": False}
    assert removal.remove_sandbox(name="nobody", force=True) == expected
    record_as("there")
    with pytest.raises(errors.SandboxNotFoundError, match="that one is on AWS"):
        removal.remove_sandbox(name="there", force=True, local=True)


# -- several -----------------------------------------------------------------------------------------------------------


def test_several_are_ended_at_a_time_and_told_in_the_order_of_their_names(
    serve: Serve, record_as: Recording, aws_records: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(4, timeout=20)

    def answer(request: Request) -> Answer:
        together.wait()
        return json_answer(200, vm())

    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(*[answer] * 8).url)
    for name in "abcd":
        record_as(name)
    removed = removal.remove_sandboxes(names=["d", "a", "c", "b", "a"])["removed"]
    assert isinstance(removed, list)
    assert [each["name"] for each in removed] == ["d", "a", "c", "b"]
    assert aws_records.all() == []


def test_what_fails_for_one_keeps_no_other_and_the_report_is_complete(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry
) -> None:
    for name in ("one", "two", "three"):
        record_as(name)
    fleet.add("microvm-one", "microvm-three")
    record_as("far", target="moon")
    with pytest.raises(errors.SandboxNotFoundError, match="nobody") as caught:
        removal.remove_sandboxes(names=["one", "nobody", "far", "two", "three"])
    details = caught.value.details
    assert details["removed"] == ["one", "two", "three"]
    assert isinstance(details["report"], list)
    told = [(each["name"], each["removed"], each.get("was_there")) for each in details["report"]]
    assert told == [
        *(("one", True, True), ("nobody", False, None), ("far", False, None), ("two", True, False)),
        ("three", True, True),
    ]
    assert [each["error"]["code"] for each in details["report"] if "error" in each] == [
        *("sandbox_not_found", "unsupported"),
    ]
    assert [each.name for each in aws_records.all()] == ["far"]


def test_an_error_names_none_of_those_that_were_just_removed(fleet: Fleet, record_as: Recording) -> None:
    for name in ("a", "b", "c"):
        record_as(name)
        fleet.add(f"microvm-{name}")
    with pytest.raises(errors.SandboxNotFoundError) as caught:
        removal.remove_sandboxes(names=["a", "b", "nosuch"])
    assert caught.value.hint == "Recorded are: c"


def test_all_of_a_target_are_those_that_are_recorded(fleet: Fleet, record_as: Recording) -> None:
    record_as("here", target="local", microvm_id=None, created_at=0.0)
    record_as("there")
    fleet.add("microvm-there", "microvm-of-others")
    assert removal.recorded_names() == ["here", "there"]
    assert removal.recorded_names(local=True) == ["here"]
    removed = removal.remove_sandboxes(everything=True, local=False)["removed"]
    assert isinstance(removed, list)
    assert [each["name"] for each in removed] == ["there"]
    assert fleet.asked == {"get": 1, "end": 1}


def test_an_error_in_the_middle_of_the_registry_is_one_of_the_report(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_as("web")
    fleet.add("microvm-web")

    def fail(*_: object, **__: object) -> bool:
        raise errors.StateFileError("full")

    monkeypatch.setattr(registry.Registry, "remove", fail)
    with pytest.raises(errors.StateFileError, match=r"^it has ended, but keeps its name: full$") as caught:
        removal.remove_sandboxes(names=["web"])
    assert caught.value.details["removed"] == []
    assert aws_records.get("web") == Record("web", microvm_id="microvm-web", region=REGION)
