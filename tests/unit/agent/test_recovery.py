"""How to go on after a cut: looks before anything is sent, sleeps that are waited for, failures that end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agent_client import States
from tests.support.clock import FakeClock
from tests.support.scripted import ScriptedServer
from vmnest import errors
from vmnest.agent.recovery import Recovery
from vmnest.deadline import NEVER, Deadline

CUT = errors.ConnectionLostError("cut")


@pytest.fixture
def recover(connect_agent: Any) -> Any:
    """Makes recoveries in which the MicroVM is seen in these states."""

    def recover(*states: str, deadline: Deadline = NEVER, **options: Any) -> Recovery:
        seen = States(*states) if states else None
        with ScriptedServer() as server:
            return Recovery(connect_agent(server, states=seen, **options), deadline=deadline)

    return recover


def fail_on(recovery: Recovery) -> None:
    for _ in range(100):
        recovery.after_failure(CUT)


def test_failures_one_after_the_other_end_with_the_last_one(recover: Any, fake_clock: FakeClock) -> None:
    recovery = recover("RUNNING", grace=5.0)
    with pytest.raises(errors.ConnectionLostError, match="cut"):
        fail_on(recovery)
    assert 5 < fake_clock.monotonic() < 8


def test_a_success_between_failures_begins_anew(recover: Any, fake_clock: FakeClock) -> None:
    recovery = recover("RUNNING", grace=5.0)
    for _ in range(50):
        recovery.after_failure(CUT)
        fake_clock.advance(4)
        recovery.note_success()


def test_waits_grow_and_begin_small_again(recover: Any, fake_clock: FakeClock) -> None:
    recovery = recover("RUNNING", grace=100.0)
    for _ in range(12):
        recovery.after_failure(CUT)
    assert fake_clock.sleeps[0] < 0.1 < 1 <= fake_clock.sleeps[-1] <= 2
    recovery.note_success()
    recovery.after_failure(CUT)
    assert fake_clock.sleeps[-1] < 0.1


def test_sleep_is_told_once_a_state_and_its_end(recover: Any) -> None:
    recovery = recover("SUSPENDING", "SUSPENDING", "SUSPENDED", "SUSPENDED", "RUNNING")
    told: list[str | None] = []
    recovery.on_pause = told.append
    assert recovery.await_awake()
    assert told == ["SUSPENDING", "SUSPENDED", None]
    assert not recovery.await_awake()
    assert len(told) == 3


def test_a_state_that_cannot_be_seen_is_no_sleep_but_does_not_end_one(recover: Any, fake_clock: FakeClock) -> None:
    assert not recover().await_awake()
    states = States("SUSPENDED", "SUSPENDED", "SUSPENDED", "RUNNING")

    def look() -> str:
        state = states()
        if states.looks == 2:
            raise errors.ConnectError("no network")
        return state

    assert recover(look=look).await_awake()
    assert states.looks == 4


@pytest.mark.parametrize("wakes", [True, False])
def test_a_microvm_that_has_ended_is_an_error_with_its_reason(recover: Any, wakes: bool) -> None:
    with pytest.raises(errors.MicroVMEndedError, match="told to") as caught:
        recover("TERMINATED").after_failure(CUT, wakes=wakes)
    assert caught.value.__cause__ is CUT


def test_an_attempt_that_may_wake_does_not_wait_for_a_sleeper(recover: Any, fake_clock: FakeClock) -> None:
    recover("SUSPENDED").after_failure(CUT, wakes=True)
    assert fake_clock.monotonic() < 1


def test_the_deadline_ends_waits_of_either_kind(recover: Any, fake_clock: FakeClock) -> None:
    asleep = recover("SUSPENDED", deadline=Deadline(30, clock=fake_clock))
    with pytest.raises(errors.WaitTimeoutError):
        asleep.await_awake()
    assert fake_clock.monotonic() == pytest.approx(30)
    failing = recover("RUNNING", deadline=Deadline(3, clock=fake_clock))
    with pytest.raises(errors.WaitTimeoutError) as caught:
        fail_on(failing)
    assert caught.value.__cause__ is CUT
    assert fake_clock.monotonic() == pytest.approx(33)


def test_looks_at_a_sleeper_become_rare_but_never_rarer_than_seconds(recover: Any, fake_clock: FakeClock) -> None:
    recover(*["SUSPENDED"] * 40, "RUNNING").await_awake()
    assert max(fake_clock.sleeps) <= 3
    assert fake_clock.sleeps[0] <= 0.2


def test_who_stirs_it_is_not_waited_for(recover: Any, fake_clock: FakeClock) -> None:
    recovery = recover("SUSPENDED", "RUNNING")
    recovery.on_pause = lambda state: recovery.stir() if state else None
    recovery.await_awake()
    assert fake_clock.monotonic() == 0
