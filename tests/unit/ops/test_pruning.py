"""Forgetting what has ended, and ending what is old."""

from __future__ import annotations

import time

import pytest

from tests.support.fleet import Fleet, Recording
from vmnest import errors, registry
from vmnest.ops import pruning

HOUR = 3600.0


def actions(planned: dict[str, object], member: str = "sandboxes") -> dict[object, object]:
    """What is to be done with each, or was done, by its name or id."""
    found = planned[member]
    assert isinstance(found, list)
    return {each.get("name") or each.get("microvm_id"): each.get("action") for each in found}


@pytest.fixture
def mixed(fleet: Fleet, record_as: Recording) -> Fleet:
    """One of each kind."""
    now = time.time()
    record_as("young")
    fleet.add("microvm-young", startedAt=now - HOUR)
    record_as("old")
    fleet.add("microvm-old", startedAt=now - 3 * HOUR)
    record_as("asleep")
    fleet.add("microvm-asleep", startedAt=now - 3 * HOUR, state="SUSPENDED")
    record_as("over")
    fleet.add("microvm-over", startedAt=now - 3 * HOUR, state="TERMINATED")
    record_as("lost", created_at=now - 3 * HOUR)
    record_as("long-lost", created_at=now - 10 * HOUR)
    record_as("launching", microvm_id=None, client_token="t", created_at=now)
    record_as("cut-off", microvm_id=None, client_token="t", created_at=now - 10 * HOUR)
    fleet.add("microvm-nobodys", startedAt=now - 3 * HOUR)
    fleet.add("microvm-nobodys-young", startedAt=now - HOUR)
    fleet.add("microvm-nobodys-over", startedAt=now - 3 * HOUR, state="TERMINATED")
    return fleet


FORGOTTEN = {"over": "forget", "long-lost": "forget", "cut-off": "forget"}
KEPT = ["young", "old", "asleep", "lost", "launching"]


def test_only_names_are_forgotten_and_only_of_what_has_ended(mixed: Fleet, aws_records: registry.Registry) -> None:
    planned = pruning.plan_prune()
    assert actions(planned) == FORGOTTEN
    assert len(aws_records.all()) == 8
    assert actions(pruning.prune_sandboxes()) == FORGOTTEN
    assert [record.name for record in aws_records.all()] == KEPT
    assert "end" not in mixed.asked


def test_what_aws_does_not_know_but_may_live_elsewhere_is_doubtful(mixed: Fleet) -> None:
    assert actions(pruning.plan_prune(), "doubtful") == {"lost": None}


def test_what_the_local_cloud_does_not_know_has_ended(record_as: Recording) -> None:
    view = {"name": "x", "state": "GONE", "target": "local", "started_at": None, "created_at": None}
    assert pruning._action(view, older_than=None, now=0.0) == pruning.FORGET
    assert pruning._action({**view, "target": "aws"}, older_than=None, now=0.0) is None


def test_what_is_older_is_ended(mixed: Fleet, aws_records: registry.Registry) -> None:
    ended = {**FORGOTTEN, "old": "end", "asleep": "end"}
    assert actions(pruning.plan_prune(older_than=2 * HOUR)) == ended
    assert actions(pruning.prune_sandboxes(older_than=2 * HOUR)) == ended
    assert mixed.asked["end"] == 2
    assert mixed.members["microvm-nobodys"].get("state") is None
    assert [record.name for record in aws_records.all()] == ["young", "lost", "launching"]


def test_of_what_is_older_what_has_no_name_is_ended_on_demand(mixed: Fleet) -> None:
    ended = {**FORGOTTEN, "old": "end", "asleep": "end", "microvm-nobodys": "end"}
    assert actions(pruning.prune_sandboxes(older_than=2 * HOUR, unnamed=True)) == ended
    assert mixed.members["microvm-nobodys"]["state"] == "TERMINATED"
    assert "state" not in mixed.members["microvm-nobodys-young"]


def test_what_has_no_name_is_ended_though_no_name_can_be_forgotten(
    fleet: Fleet, aws_records: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add("microvm-nobodys", startedAt=time.time() - 3 * HOUR)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", "/proc/state.json")  # where nothing can be written
    done = pruning.prune_sandboxes(older_than=HOUR, unnamed=True)
    assert (actions(done), done["failed"]) == ({"microvm-nobodys": "end"}, [])


def test_only_what_was_agreed_to_is_done(mixed: Fleet, aws_records: registry.Registry) -> None:
    planned = pruning.plan_prune(older_than=2 * HOUR)["sandboxes"]
    assert isinstance(planned, list)
    only = [each for each in planned if each["name"] in ("over", "old")]
    done = pruning.prune_sandboxes(older_than=2 * HOUR, only=only)
    assert actions(done) == {"over": "forget", "old": "end"}
    assert aws_records.get("asleep") is not None
    # Meanwhile one that was to be ended has ended by itself, and one that was not to be touched, too.
    mixed.members["microvm-asleep"]["state"] = mixed.members["microvm-young"]["state"] = "TERMINATED"
    only = [each for each in planned if each["name"] == "asleep"]
    assert actions(pruning.prune_sandboxes(older_than=2 * HOUR, only=only)) == {"asleep": "forget"}
    assert aws_records.get("young") is not None


def test_a_name_that_is_taken_meanwhile_is_not_forgotten(
    mixed: Fleet, aws_records: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = pruning.plan_prune

    def plan_and_be_overtaken(**options: object) -> dict[str, object]:
        planned = plan(**options)  # type: ignore[arg-type]
        aws_records.put(registry.Record("over", microvm_id="microvm-new"), replace=True)
        return planned

    monkeypatch.setattr(pruning, "plan_prune", plan_and_be_overtaken)
    assert "over" not in actions(pruning.prune_sandboxes())
    assert aws_records.require("over").microvm_id == "microvm-new"


def test_what_cannot_be_asked_is_told_and_kept(fleet: Fleet, record_as: Recording) -> None:
    fleet.refused["get"] = 403
    record_as("web")
    data = pruning.prune_sandboxes(older_than=0.0)
    assert data["sandboxes"] == []
    assert isinstance(data["failed"], list)
    assert [(each["name"], each["error"]["code"]) for each in data["failed"]] == [("web", "access_denied")]


@pytest.mark.parametrize("status", [400, 403])
def test_what_cannot_live_any_more_is_forgotten_though_aws_cannot_be_asked(
    status: int, fleet: Fleet, record_as: Recording
) -> None:
    now = time.time()
    fleet.refused["get"] = status
    record_as("over", created_at=now - 10 * HOUR)
    record_as("young", created_at=now - 7 * HOUR)
    record_as("undated")
    record_as("far", target="moon", created_at=now - 10 * HOUR)
    data = pruning.prune_sandboxes()
    assert actions(data) == {"over": "forget"}
    assert actions(data, "failed") == {"young": None, "undated": None, "far": None}


def test_what_cannot_be_ended_is_told_and_keeps_its_name(mixed: Fleet, aws_records: registry.Registry) -> None:
    mixed.refused["end"] = 403
    data = pruning.prune_sandboxes(older_than=2 * HOUR)
    assert actions(data) == FORGOTTEN
    assert actions(data, "failed") == {"old": "end", "asleep": "end"}
    assert [record.name for record in aws_records.all()] == KEPT


def test_a_place_that_cannot_be_asked_is_told(fleet: Fleet, record_as: Recording) -> None:
    fleet.refused["list"] = 403
    record_as("web", microvm_id=None, created_at=time.time())
    failed = pruning.plan_prune(older_than=1.0, unnamed=True)["failed"]
    assert isinstance(failed, list)
    assert [each["error"]["code"] for each in failed] == ["access_denied"]


def test_a_clock_that_is_behind_ends_nothing_too_early(fleet: Fleet, record_as: Recording) -> None:
    record_as("web")
    fleet.add("microvm-web", startedAt=time.time() + 600)
    assert actions(pruning.plan_prune(older_than=1.0)) == {}


def test_what_has_no_name_has_none_to_be_forgotten(fleet: Fleet) -> None:
    with pytest.raises(errors.UsageError):
        pruning.plan_prune(unnamed=True)
    assert not fleet.asked
