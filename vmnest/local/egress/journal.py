"""What a sandbox was allowed and refused, for the log and for whoever asks: bounded, whatever the sandbox does.

A sandbox decides how often it asks. So what is told again within a minute is left out, and so is what exceeds so many
lines in one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ... import deadline

__all__ = ["MAX_LINES", "MAX_REFUSALS", "WINDOW_SECONDS", "Journal"]

MAX_LINES = 60
MAX_REFUSALS = 20
WINDOW_SECONDS = 60.0


class Journal:
    """The decisions of one gate. Thread-safe."""

    def __init__(self, log: Callable[[str], None], *, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._window_ends_at = float("-inf")
        self._told: set[str] = set()
        self._left_out = 0
        self._refusals: dict[str, None] = {}  # in order, the latest last

    @property
    def refusals(self) -> tuple[str, ...]:
        """What was refused of late, each once, the latest last."""
        with self._lock:
            return tuple(self._refusals)

    def allow(self, what: str) -> None:
        """A connection to ``what`` was made."""
        self._tell(f"egress to {what}: allowed")

    def refuse(self, what: str, why: str) -> None:
        """A connection to ``what`` was refused, for that reason."""
        with self._lock:
            self._refusals.pop(what, None)
            self._refusals[what] = None
            if len(self._refusals) > MAX_REFUSALS:
                del self._refusals[next(iter(self._refusals))]
        self._tell(f"egress to {what}: refused, {why}")

    def fail(self, what: str, why: str) -> None:
        """A connection to ``what`` would have been allowed, and could not be made."""
        self._tell(f"egress to {what}: failed, {why}")

    def _tell(self, line: str) -> None:
        lines = []
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._window_ends_at:
                if self._left_out:
                    lines.append(f"egress: {self._left_out} more decisions were not told")
                self._window_ends_at, self._told, self._left_out = now + WINDOW_SECONDS, set(), 0
            if line in self._told:
                pass
            elif len(self._told) < MAX_LINES:
                self._told.add(line)
                lines.append(line)
            else:
                self._left_out += 1
        for each in lines:
            self._log(each)
