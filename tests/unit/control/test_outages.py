"""Waits outlast a fault that passes, for a minute and within the deadline; a refusal ends them at once."""

from collections.abc import Callable

import pytest

from tests.support.clock import FakeClock
from vmnest import errors
from vmnest.control import outages
from vmnest.deadline import Deadline


def failing(times: int, error: errors.VmnestError) -> Callable[[], str]:
    left = [error] * times

    def ask() -> str:
        if left:
            raise left.pop()
        return "answer"

    return ask


FAULT = errors.ServiceFaultError("oops", operation="Get", status=500)
REFUSAL = errors.ValidationError("no", operation="Get", status=400)


def test_an_answer_is_returned_at_once(fake_clock: FakeClock):
    assert outages.outlast(failing(0, FAULT), deadline=Deadline(1, clock=fake_clock), clock=fake_clock) == "answer"
    assert fake_clock.sleeps == []


def test_a_fault_that_passes_is_outlasted(fake_clock: FakeClock):
    found = outages.outlast(failing(10, FAULT), deadline=Deadline(None, clock=fake_clock), clock=fake_clock)
    assert found == "answer"
    assert len(fake_clock.sleeps) == 10


def test_a_fault_that_stays_is_the_answer_after_a_minute(fake_clock: FakeClock):
    with pytest.raises(errors.ServiceFaultError):
        outages.outlast(failing(1000, FAULT), deadline=Deadline(None, clock=fake_clock), clock=fake_clock)
    assert 55 <= fake_clock.monotonic() <= 70


def test_a_refusal_is_the_answer_at_once(fake_clock: FakeClock):
    with pytest.raises(errors.ValidationError):
        outages.outlast(failing(1, REFUSAL), deadline=Deadline(9, clock=fake_clock), clock=fake_clock)
    assert fake_clock.sleeps == []


def test_the_deadline_ends_it(fake_clock: FakeClock):
    with pytest.raises(errors.ServiceFaultError):
        outages.outlast(failing(1000, FAULT), deadline=Deadline(3, clock=fake_clock), clock=fake_clock)
    assert fake_clock.monotonic() <= 3
