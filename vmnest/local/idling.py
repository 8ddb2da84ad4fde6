"""When a VM was idle for long enough: no byte passed through its endpoint, either way.

Whoever carries bytes stores the time in the record, and nothing else: that costs nothing. A timer looks at that time
when the VM would be idle for long enough if nothing came meanwhile; if something did, it looks again later.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import deadline
from ..wire import names
from . import records, timers


class IdleWatch:
    """Watches VMs that have an idle policy. Thread-safe.

    Args:
        timing: Makes the looks.
        clock: The clock of ``Record.touched_at``.
        on_idle: Called with a VM that was idle for long enough, from the timers' thread.
    """

    def __init__(
        self, timing: timers.Timers, *, clock: deadline.Clock, on_idle: Callable[[records.Record], None]
    ) -> None:
        self._timing = timing
        self._clock = clock
        self._on_idle = on_idle

    def watch(self, record: records.Record) -> None:
        """Watch a VM that is RUNNING from now on, until it is that no more. ``record.changed`` is held."""
        if record.spec.max_idle_seconds is None:
            return
        record.touched_at = self._clock.monotonic()
        if record.idle is not None:
            record.idle.cancel()
        self._look_later(record, record.spec.max_idle_seconds)

    def is_idle(self, record: records.Record) -> bool:
        """Whether it is idle for long enough by now. ``record.changed`` is held."""
        return self._left(record) <= 0

    def _left(self, record: records.Record) -> float:
        assert record.spec.max_idle_seconds is not None
        return record.touched_at + record.spec.max_idle_seconds - self._clock.monotonic()

    def _look_later(self, record: records.Record, seconds: float) -> None:
        record.idle = self._timing.after(seconds, lambda: self._look(record))

    def _look(self, record: records.Record) -> None:
        with record.changed:
            if record.state != names.RUNNING or self._is_looked_at_later(record):
                return
            if not self.is_idle(record):
                self._look_later(record, self._left(record))
                return
        self._on_idle(record)

    def _is_looked_at_later(self, record: records.Record) -> bool:
        """A resume has begun a new watch just when the old one's look was due."""
        return record.idle is not None and record.idle.at > self._clock.monotonic()
