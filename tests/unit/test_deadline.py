"""Deadlines and the backoff schedule."""

from __future__ import annotations

import itertools
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from vmnest import errors
from vmnest.deadline import NEVER, SYSTEM_CLOCK, Deadline, backoff, check_seconds


def test_what_is_left_shrinks_to_nothing_and_not_below(fake_clock: FakeClock) -> None:
    deadline = Deadline(5, clock=fake_clock)
    fake_clock.advance(3)
    assert deadline.remaining() == 2
    assert not deadline.expired
    fake_clock.advance(3)
    assert deadline.remaining() == 0
    assert deadline.expired


def test_a_wait_is_cut_to_what_is_left(fake_clock: FakeClock) -> None:
    deadline = Deadline(5, clock=fake_clock)
    assert deadline.clamp(1) == 1
    assert deadline.clamp(10) == 5


def test_a_deadline_shows_what_it_is(fake_clock: FakeClock) -> None:
    assert repr(NEVER) == "NEVER"
    deadline = Deadline(2.5, clock=fake_clock)
    fake_clock.advance(1)
    assert repr(deadline) == "Deadline(2.5)"
    assert repr(Deadline(None)) == "Deadline(None)"


def test_never_leaves_every_wait_alone() -> None:
    assert NEVER.remaining() is None
    assert not NEVER.expired
    assert NEVER.clamp(1e9) == 1e9
    NEVER.check("doomsday")


def test_an_expired_deadline_says_what_was_waited_for(fake_clock: FakeClock) -> None:
    deadline = Deadline(1.5, clock=fake_clock)
    deadline.check("MicroVM m-1")
    fake_clock.advance(2)
    with pytest.raises(errors.WaitTimeoutError, match=r"MicroVM m-1: not within 1\.5 s"):
        deadline.check("MicroVM m-1")


@pytest.mark.parametrize("value", [-1, 1e10, float("inf"), float("nan"), True, "5", None])
def test_what_is_no_number_of_seconds_is_refused(value: object) -> None:
    with pytest.raises(errors.UsageError, match="wait_timeout must be a number of seconds"):
        check_seconds(value, name="wait_timeout")  # type: ignore[arg-type]


@given(seed=st.integers(), count=st.integers(min_value=1, max_value=50))
def test_delays_grow_to_the_last_each_in_its_upper_half(seed: int, count: int) -> None:
    delays = list(itertools.islice(backoff(first=1, last=8, growth=2, chance=random.Random(seed)), count))
    for delay, bound in zip(delays, itertools.chain([1, 2, 4], itertools.repeat(8)), strict=False):
        assert bound / 2 <= delay <= bound


def test_two_clients_do_not_come_back_together() -> None:
    assert next(backoff()) != next(backoff())


def test_the_systems_clock_wakes_a_wait_at_the_event() -> None:
    event = threading.Event()
    assert not SYSTEM_CLOCK.wait(event, 0)
    event.set()
    assert SYSTEM_CLOCK.wait(event, None)
    before = SYSTEM_CLOCK.monotonic()
    SYSTEM_CLOCK.sleep(0.001)
    assert SYSTEM_CLOCK.monotonic() - before >= 0.001
    assert SYSTEM_CLOCK.time() > 1_700_000_000
