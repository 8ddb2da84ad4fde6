"""Deadlines, the backoff schedule, and the seam to the clock.

A deadline travels, a timeout does not: a public call takes ``timeout=`` in seconds, makes one Deadline, and every wait
below it asks what is left.
"""

from __future__ import annotations

import time

from . import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import random
    import threading
    from collections.abc import Iterator

__all__ = ["LONGEST_SECONDS", "NEVER", "SYSTEM_CLOCK", "Clock", "Deadline", "backoff", "check_seconds"]

FIRST_DELAY_SECONDS = 0.05
LAST_DELAY_SECONDS = 5.0
GROWTH = 1.6
# What the system's calls take differs (some end at 2**31 milliseconds); a longer wait is a mistake in any case.
LONGEST_SECONDS = 1e6


class Clock:
    """The system's clock. Tests hand in one of their own (``tests/support/clock.py``)."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch (UTC)."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait for the event at most that long; True if it is set."""
        return event.wait(seconds)


SYSTEM_CLOCK = Clock()


class Deadline:
    """A point in time that all waits of one call share; ``seconds=None`` is never.

    Raises:
        errors.UsageError: ``seconds`` is negative, beyond ``LONGEST_SECONDS`` or not a number.
    """

    __slots__ = ("_at", "_clock", "seconds")

    def __init__(self, seconds: float | None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.seconds = None if seconds is None else check_seconds(seconds)
        self._at = None if self.seconds is None else clock.monotonic() + self.seconds

    def __repr__(self) -> str:
        # It stands in the signatures that help() shows.
        return "NEVER" if self is NEVER else f"Deadline({self.seconds})"

    def remaining(self) -> float | None:
        """Seconds left, never below 0; None for never."""
        return None if self._at is None else max(0.0, self._at - self._clock.monotonic())

    def clamp(self, seconds: float) -> float:
        """``seconds``, or what is left if that is less."""
        left = self.remaining()
        return seconds if left is None else min(seconds, left)

    @property
    def expired(self) -> bool:
        """Nothing is left."""
        return self.remaining() == 0.0

    def expire(self) -> None:
        """Let nothing be left, for whoever waits in any thread."""
        assert self is not NEVER
        self.seconds = self.seconds or 0.0
        self._at = self._clock.monotonic()

    def check(self, what: str) -> None:
        """Raise WaitTimeoutError if nothing is left; ``what`` names what was waited for."""
        if self.expired:
            raise errors.WaitTimeoutError(f"{what}: not within {self.seconds:g} s")


NEVER = Deadline(None)


def check_seconds(value: float, *, name: str = "timeout", zero: bool = True) -> float:
    """Return ``value`` as a float, or raise UsageError if it is no usable number of seconds; ``zero``: 0 is one."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= LONGEST_SECONDS or not (value or zero):
        least = "0" if zero else "above 0 and up"
        raise errors.UsageError(f"{name} must be a number of seconds, {least} to {LONGEST_SECONDS:.0f}: {value!r}")
    return float(value)


def backoff(
    *,
    first: float = FIRST_DELAY_SECONDS,
    last: float = LAST_DELAY_SECONDS,
    growth: float = GROWTH,
    chance: random.Random | None = None,
) -> Iterator[float]:
    """Delays in seconds without end: growing from ``first`` to ``last``, each spread over its upper half.

    The spread keeps many clients that failed together from coming back together.
    """
    if chance is None:
        import random  # here, since every command loads this module and few wait

        chance = random.Random()  # noqa: S311 - a spread of waits is no secret
    delay = first
    while True:
        yield delay * (0.5 + chance.random() / 2)
        delay = min(last, delay * growth)
