"""Calls at a later time: one thread for all of them."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from .. import deadline

_LOG = logging.getLogger(__name__)

Action = Callable[[], None]


class Timer:
    """A call that was put off. ``cancel`` is idempotent, and harmless after the call."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self.action: Action | None = action

    def cancel(self) -> None:
        """Do not call."""
        self.action = None


class Timers:
    """Makes calls when their time has come, in its own thread; they must be short. Thread-safe."""

    def __init__(self, *, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._condition = threading.Condition()  # guards all below
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="timers")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def after(self, seconds: float, action: Action) -> Timer:
        """Call ``action`` that much later."""
        timer = Timer(self._clock.monotonic() + seconds, action)
        with self._condition:
            heapq.heappush(self._heap, (timer.at, next(self._order), timer))
            self._condition.notify()
        return timer

    def close(self) -> None:
        """Forget all calls and end the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:  # the last line of a timed call: those behind it are still made
                _LOG.exception("a timed call failed")

    def _next(self) -> Action | None:
        """Wait for the next call that is due; None once closed."""
        with self._condition:
            while not self._closed:
                self._drop_cancelled()
                wait = self._heap[0][0] - self._clock.monotonic() if self._heap else None
                if wait is None or wait > 0:
                    self._condition.wait(wait)
                    continue
                action = heapq.heappop(self._heap)[2].action
                if action is not None:
                    return action
        return None

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
