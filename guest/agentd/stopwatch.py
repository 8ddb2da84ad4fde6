"""Time that passes while the VM runs, as far as the system tells.

All clocks of a VM jump at a resume by the time for which it was suspended, CLOCK_MONOTONIC among them (AWS), and so do
those of processes that were frozen (the local cloud). Nothing in the system says how far, and a wait whose time is up
by the jump ends before the platform can call the resume hook. So whoever measures with a stopwatch reads it at least
every ``TICK_SECONDS``: a step that is far longer than that is no time in which the VM ran. (Or the VM was starved of
its processors. Then nothing in it got any time, and it is as right not to count it.)
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECONDS = 0.5
_JUMP_SECONDS = 2.0  # a step above this is a suspension, of which one tick is counted: it began within one


class Stopwatch:
    """Counts from its making on. Used by one thread."""

    __slots__ = ("_last", "_monotonic", "_seconds")

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last = monotonic()
        self._seconds = 0.0

    def read(self) -> float:
        """The seconds for which the VM ran; exact if it is read every tick."""
        now = self._monotonic()
        step = now - self._last
        self._last = now
        # Never nothing: where every step is long, time must pass all the same.
        self._seconds += step if step <= _JUMP_SECONDS else TICK_SECONDS
        return self._seconds
