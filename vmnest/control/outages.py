"""Asking again and again for what takes minutes: a fault of the service that passes must not end the wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .. import deadline as deadlines
from .. import errors
from ..deadline import Clock, Deadline

FIRST_DELAY_SECONDS = 0.2
LAST_DELAY_SECONDS = 5.0
OUTAGE_SECONDS = 60.0
_T = TypeVar("_T")


def outlast(ask: Callable[[], _T], *, deadline: Deadline, clock: Clock) -> _T:
    """What ``ask`` returns, asked again for a while if the service fails in a way that may pass.

    Raises:
        errors.VmnestError: it does not pass, or the deadline leaves no time to see.
    """
    began = clock.monotonic()
    for delay in deadlines.backoff(first=FIRST_DELAY_SECONDS, last=LAST_DELAY_SECONDS):
        try:
            return ask()
        except errors.VmnestError as error:
            left = deadline.remaining()
            is_over = clock.monotonic() - began > OUTAGE_SECONDS or (left is not None and delay >= left)
            if not error.retryable or is_over:
                raise
        clock.sleep(delay)
    raise AssertionError("the schedule of delays has no end")
