"""Before something is made again it is looked for, so that a lost answer makes nothing twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clock import FakeClock
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra.account import attempts

PASSING = errors.ConnectError("refused")
LASTING = errors.UsageError("no")
TAKEN = errors.ConflictError("taken", operation="Create", status=409)


def lost() -> errors.VmnestError:
    error = errors.ValidationError("half done", operation="Create", status=400)
    error.details["outcome"] = "unknown"
    return error


def script(*results: object) -> Callable[[], object]:
    """Each call has the next result, raised if it is an error; the last one stays."""
    left = list(results)

    def call() -> object:
        result = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(result, BaseException):
            raise result
        return result

    return call


def make(call: Callable[[], object], find: Callable[[], object], clock: FakeClock, seconds: float = 600) -> object:
    return attempts.create(call, find, deadline=Deadline(seconds, clock=clock), clock=clock)


def test_a_fault_that_passes_is_outlasted(fake_clock: FakeClock) -> None:
    call = script(PASSING, PASSING, "done")
    assert attempts.repeat(call, deadline=Deadline(60, clock=fake_clock), clock=fake_clock) == "done"
    assert len(fake_clock.sleeps) == 2


def test_a_fault_that_lasts_is_told_at_once(fake_clock: FakeClock) -> None:
    with pytest.raises(errors.UsageError):
        attempts.repeat(script(LASTING), deadline=Deadline(60, clock=fake_clock), clock=fake_clock)
    assert fake_clock.sleeps == []


def test_a_fault_that_does_not_pass_is_told_in_the_end(fake_clock: FakeClock) -> None:
    with pytest.raises(errors.ConnectError):
        attempts.repeat(script(PASSING), deadline=Deadline(600, clock=fake_clock), clock=fake_clock)
    assert len(fake_clock.sleeps) == attempts.MOST_ATTEMPTS - 1


def test_no_attempt_goes_beyond_the_deadline(fake_clock: FakeClock) -> None:
    with pytest.raises(errors.ConnectError):
        attempts.repeat(script(PASSING), deadline=Deadline(0.05, clock=fake_clock), clock=fake_clock)
    assert fake_clock.sleeps == []


def test_what_was_made_is_returned_as_it_is_found(fake_clock: FakeClock) -> None:
    assert make(script("answer"), script("thing"), fake_clock) == "thing"


@pytest.mark.parametrize("error", [PASSING, TAKEN, lost()], ids=["passing", "taken", "lost"])
def test_what_is_found_after_a_failure_was_made(fake_clock: FakeClock, error: errors.VmnestError) -> None:
    assert make(script(error), script("thing"), fake_clock) == "thing"
    assert fake_clock.sleeps == []


def test_what_is_not_found_after_a_failure_that_passes_is_made_again(fake_clock: FakeClock) -> None:
    assert make(script(PASSING, "answer"), script(None, "thing"), fake_clock) == "thing"


def test_what_is_made_and_not_seen_yet_is_looked_for_again(fake_clock: FakeClock) -> None:
    assert make(script("answer", TAKEN), script(None, "thing"), fake_clock) == "thing"


@pytest.mark.parametrize("error", [LASTING, TAKEN], ids=["refused", "taken, and yet not there"])
def test_what_is_refused_is_told(fake_clock: FakeClock, error: errors.VmnestError) -> None:
    with pytest.raises(type(error)):
        make(script(error), script(None), fake_clock)


def test_what_is_never_seen_is_an_error(fake_clock: FakeClock) -> None:
    with pytest.raises(errors.WaitTimeoutError, match="not seen"):
        make(script("answer"), script(None), fake_clock)
