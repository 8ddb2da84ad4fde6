"""What one sandbox costs, worked out by hand. A second of 2048 MiB that run is $0.0000350278."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.ops import estimates, moments, prices
from vmnest.ops.estimates import Estimate, Size
from vmnest.ops.prices import Range

NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
SECOND = Decimal("0.0000350278")
KEPT = 16 * Decimal("0.0001111111") / 3600  # a second of 8 GB of memory and 8 GB of disk
GIB = 2**30
KNOWN = Size(2048, loaded=Range(0))
POLICY = {"max_idle_duration_seconds": 900, "suspended_duration_seconds": 3600, "auto_resume_enabled": True}


def at(seconds: float) -> str:
    """So many seconds from now."""
    return moments.to_iso(NOW + timedelta(seconds=seconds))


def view(**members: object) -> dict[str, object]:
    """A sandbox of AWS that began an hour ago and has an hour left."""
    return {
        "name": "web",
        "target": "aws",
        "state": "RUNNING",
        "microvm_id": "microvm-1",
        "region": "us-east-1",
        "started_at": at(-3600),
        "expires_at": at(3600),
        "max_duration_seconds": 7200,
        "idle_policy": POLICY,
        "stopped_at": None,
        "terminated_at": None,
        **members,
    }


def estimate(size: Size = KNOWN, **members: object) -> Estimate:
    return estimates.estimate(view(**members), size, now=NOW)


def close(amount: Range | None) -> tuple[Decimal, Decimal]:
    """Both ends, as far as they matter."""
    assert amount is not None
    return round(amount.low, 12), round(amount.high, 12)


def test_one_that_runs_with_an_idle_policy_may_have_been_suspended_after_its_idle_time() -> None:
    amounts = estimate().amounts
    assert close(amounts["per_hour"]) == close(Range(SECOND * 3600))
    assert close(amounts["so_far"]) == close(Range(SECOND * 900, SECOND * 3600))
    assert close(amounts["until_expiry"]) == close(Range(0, SECOND * 3600))


def test_one_without_an_idle_policy_runs_all_the_time() -> None:
    amounts = estimate(idle_policy=None).amounts
    assert close(amounts["so_far"]) == close(amounts["until_expiry"]) == close(Range(SECOND * 3600))


def test_one_that_is_younger_than_its_idle_time_ran_all_the_time() -> None:
    assert close(estimate(started_at=at(-60)).amounts["so_far"]) == close(Range(SECOND * 60))


def test_one_that_is_suspended_costs_storage_only() -> None:
    amounts = estimate(state="SUSPENDED").amounts
    assert close(amounts["per_hour"]) == close(Range(0, KEPT * 3600))
    assert close(amounts["so_far"]) == close(Range(SECOND * 900, SECOND * 3600))
    assert close(amounts["until_expiry"]) == close(Range(0, SECOND * 3600))
    assert close(estimate(state="SUSPENDED", idle_policy=None).amounts["until_expiry"])[0] == 0


def test_one_that_was_stopped_by_hand_ran_at_most_until_then() -> None:
    so_far = estimate(state="SUSPENDED", stopped_at=at(-2400)).amounts["so_far"]
    assert close(so_far) == close(Range(SECOND * 900, SECOND * 1200 + KEPT * 2400))
    so_far = estimate(state="SUSPENDED", stopped_at=at(-3000)).amounts["so_far"]
    assert close(so_far) == close(Range(SECOND * 600, SECOND * 600 + KEPT * 3000))
    so_far = estimate(state="SUSPENDED", stopped_at=at(-7000)).amounts["so_far"]  # clocks differ
    assert close(so_far) == close(Range(0, KEPT * 3600))
    so_far = estimate(stopped_at=at(-3000)).amounts["so_far"]  # it runs: the record is of a stop that is over
    assert close(so_far) == close(Range(SECOND * 900, SECOND * 3600))


def test_one_that_is_just_being_suspended_may_cost_either() -> None:
    assert close(estimate(state="SUSPENDING").amounts["per_hour"]) == close(Range(0, SECOND * 3600))


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED"])
def test_one_that_has_ended_costs_nothing_more(state: str) -> None:
    amounts = estimate(state=state, terminated_at=at(-1800), expires_at=None, idle_policy=None).amounts
    assert amounts["per_hour"] == amounts["until_expiry"] == Range(0)
    assert close(amounts["so_far"]) == close(Range(SECOND * 1800))


def test_when_one_ended_may_not_be_known() -> None:
    found = estimate(state="TERMINATED", expires_at=None)
    assert found.amounts["so_far"] is None
    assert found.amounts["per_hour"] == Range(0)
    assert found.reasons == ["when it ended is not known"]
    assert close(estimate(state="TERMINATING").amounts["so_far"])[1] == round(SECOND * 3600, 12)


def test_a_start_costs_the_reading_of_its_snapshot() -> None:
    size = Size(2048, loaded=Range(GIB, 2 * GIB))
    so_far = estimate(size, started_at=at(0)).amounts["so_far"]
    assert close(so_far) == (Decimal("0.00155"), Decimal("0.0031"))
    left_out = estimate(Size(2048, reason="nobody tells"))
    assert close(left_out.amounts["so_far"])[0] == round(SECOND * 900, 12)
    assert left_out.reasons == ["what its start cost is left out: nobody tells"]


def test_without_its_size_nothing_is_said_of_what_it_costs() -> None:
    found = estimate(Size(reason="access denied"))
    assert dict(found.amounts) == {"per_hour": None, "so_far": None, "until_expiry": None}
    assert (found.memory_mib, found.reasons) == (None, ["access denied"])
    assert estimate(Size()).reasons == ["the size of its image version is not known"]
    ended = estimate(Size(reason="access denied"), state="TERMINATED")
    assert dict(ended.amounts) == {"per_hour": Range(0), "so_far": None, "until_expiry": Range(0)}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"state": "GONE"}, "its state is GONE"),
        ({"state": "LAUNCHING", "started_at": None}, "its state is LAUNCHING"),
        ({"state": "HIBERNATING"}, "its state is HIBERNATING"),
        ({"state": "UNKNOWN", "error": {"message": "no route"}}, "no route"),
        ({"started_at": None}, "when it started is not known"),
    ],
    ids=["gone", "launching", "a new word", "not asked", "no start"],
)
def test_of_one_that_is_not_known_nothing_is_said(members: dict[str, object], reason: str) -> None:
    found = estimate(**members)
    assert set(found.amounts.values()) == {None}
    assert found.reasons == [reason]


def test_of_one_that_only_a_list_tells_of_the_bounds_are_wide() -> None:
    amounts = estimate(max_duration_seconds=None, expires_at=None, idle_policy=None).amounts
    assert close(amounts["so_far"]) == close(Range(0, SECOND * 3600))
    assert close(amounts["until_expiry"]) == close(Range(0, SECOND * 7 * 3600))  # none lives longer than 8 hours


def test_a_clock_that_is_wrong_makes_no_impossible_amounts() -> None:
    assert close(estimate(started_at=at(600)).amounts["so_far"]) == (0, 0)
    ahead = estimate(started_at=at(-9000), expires_at=at(-1800), idle_policy=None)
    assert close(ahead.amounts["so_far"]) == close(Range(SECOND * 7200))
    assert close(ahead.amounts["until_expiry"]) == (0, 0)


def test_one_on_this_machine_costs_nothing_whatever_is_known_of_it() -> None:
    for members in ({}, {"state": "GONE", "started_at": None}):
        found = estimate(Size(), target="local", **members)
        assert set(found.amounts.values()) == {Range(0)}
        assert (found.memory_mib, list(found.reasons)) == (None, [])


def test_json_has_the_sandbox_and_its_amounts() -> None:
    found = estimate(idle_policy=None).to_json()
    assert (found["name"], found["memory"], found["reasons"]) == ("web", 2048, [])
    assert found["per_hour"] == {"low": 0.12610008, "high": 0.12610008}
    assert estimate(state="GONE").to_json()["per_hour"] is None


def test_a_total_leaves_out_what_is_not_known() -> None:
    known, unknown = estimate(idle_policy=None), estimate(state="GONE")
    total = estimates.total([known, known, unknown])
    assert total["per_hour"] == {"low": 0.25220016, "high": 0.25220016}
    assert total["left_out"] == {"per_hour": 1, "so_far": 1, "until_expiry": 1}
    assert estimates.total([unknown])["per_hour"] is None
    assert estimates.total([])["per_hour"] == {"low": 0.0, "high": 0.0}


@given(
    state=st.sampled_from(["PENDING", "RUNNING", "SUSPENDING", "SUSPENDED", "TERMINATING"]),
    started=st.integers(-100_000, 1000),
    stopped=st.none() | st.integers(-100_000, 1000),
    left=st.none() | st.integers(-1000, 28_800),
    idle=st.none() | st.integers(60, 28_800),
    memory=st.sampled_from([512, 1024, 2048, 4096, 8192]),
)
def test_the_least_is_never_above_the_most_and_the_most_is_running_all_the_time(
    state: str, started: int, stopped: int | None, left: int | None, idle: int | None, memory: int
) -> None:
    members = view(
        state=state,
        started_at=at(started),
        stopped_at=None if stopped is None else at(stopped),
        expires_at=None if left is None else at(left),
        idle_policy=None if idle is None else {**POLICY, "max_idle_duration_seconds": idle},
        max_duration_seconds=28_800,
    )
    found = estimates.estimate(members, Size(memory, loaded=Range(0)), now=NOW)
    for amount in found.amounts.values():
        assert amount is not None
        assert 0 <= amount.low <= amount.high <= prices.running_second(memory) * 28_800
