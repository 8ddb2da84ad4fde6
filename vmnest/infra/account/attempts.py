"""Calls that are made again above what the service's caller does: for things whose state can be looked at between.

- What can be made twice is (``repeat``), through faults that pass.
- A creation whose answer was lost, or that meets a thing of that name, is settled by looking (``create``): who made it
  is the caller's to judge, by its tags.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from ... import deadline as deadlines
from ... import errors
from ...deadline import Clock, Deadline

MOST_ATTEMPTS = 6
FIRST_DELAY_SECONDS = 0.2
LAST_DELAY_SECONDS = 5.0
_T = TypeVar("_T")


def repeat(call: Callable[[], _T], *, deadline: Deadline, clock: Clock, passing: Collection[str] = ()) -> _T:
    """Make the call until it is answered, while it fails in ways that pass; ``passing`` are names of such errors."""
    for is_last in _attempts(deadline, clock):
        try:
            return call()
        except errors.VmnestError as error:
            if is_last or not (error.retryable or getattr(error, "error_type", None) in passing):
                raise
    raise AssertionError("the last attempt returns or raises")


def create(call: Callable[[], object], find: Callable[[], _T | None], *, deadline: Deadline, clock: Clock) -> _T:
    """Make something, and return what is found then: also if the answer was lost, or somebody was faster.

    Raises:
        errors.VmnestError: it is not there, and making it is refused.
    """
    for is_last in _attempts(deadline, clock):
        failure: errors.VmnestError | None = None
        try:
            call()
        except errors.VmnestError as error:
            if not (error.retryable or _may_exist(error)):
                raise
            failure = error
        found = repeat(find, deadline=deadline, clock=clock)
        if found is not None:
            return found
        if failure is not None and (is_last or not failure.retryable):
            raise failure
        # It was made, and cannot be seen yet: the services are not consistent at once. The next attempt meets it.
        if failure is None and is_last:
            break
    raise errors.WaitTimeoutError("what was made is not seen, though the service has taken the call")


def _may_exist(error: errors.VmnestError) -> bool:
    return isinstance(error, errors.ConflictError) or error.details.get("outcome") == "unknown"


def _attempts(deadline: Deadline, clock: Clock) -> Iterator[bool]:
    """Whether this attempt is the last one; waits between them."""
    delays = deadlines.backoff(first=FIRST_DELAY_SECONDS, last=LAST_DELAY_SECONDS)
    for _ in range(1, MOST_ATTEMPTS):
        delay = next(delays)
        left = deadline.remaining()
        is_last = left is not None and delay >= left
        yield is_last
        if is_last:
            return
        clock.sleep(delay)
    yield True
