"""One thread that waits for everything that processes do: descriptors, times, and what other threads hand in.

Rules:

- ``watch`` and ``unwatch`` may be called by any thread, timers are set by the loop's own; ``post`` leads there.
- Events are told again as long as they last, so one callback takes one helping and the others get their turn.
- An event may be stale: its descriptor was closed meanwhile, and the number is another one's. Callbacks look for
  themselves, and never block.
- Time for which the VM was suspended does not count (``stopwatch``).
"""

from __future__ import annotations

import collections
import contextlib
import heapq
import itertools
import os
import select
import threading
import time

from . import journal, stopwatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READABLE = select.EPOLLIN
_MAX_EVENTS = 256
_FEW_TIMERS = 64
_FAILURE_PAUSE_SECONDS = 0.1


class Timer:
    """A call that is to come. ``cancel`` belongs to the loop's thread."""

    __slots__ = ("_callback", "_loop")

    def __init__(self, loop: Loop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Not to be called any more. What the callback holds is given back at once. Idempotent."""
        if self._callback is not None:
            self._callback = None
            self._loop.note_cancelled()

    @property
    def is_void(self) -> bool:
        """It was cancelled, or has been called."""
        return self._callback is None

    def take(self) -> Callable[[], object] | None:
        """The callback, once; None if the timer was cancelled."""
        callback, self._callback = self._callback, None
        return callback


class Loop:
    """Calls back from its own thread, from ``start`` to the end of the process.

    Args:
        start_watch: Starts a watch that counts while the VM runs.
    """

    def __init__(self, *, start_watch: Callable[[], stopwatch.Stopwatch] = stopwatch.Stopwatch) -> None:
        self._watch = start_watch()
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._posted: collections.deque[Callable[[], object]] = collections.deque()
        self._is_woken = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._timers: list[tuple[float, int, Timer]] = []
        self._cancelled = 0  # of the timers in the heap
        self._order = itertools.count()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to call back."""
        self._epoll.register(self._wake_reader, READABLE)
        self._callbacks[self._wake_reader] = self._run_posted
        self._thread = threading.Thread(target=self._run, name="agentd-loop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and with it all calls. What is watched stays its owner's."""
        self._is_stopping = True
        self.post(lambda: None)
        if self._thread is not None:
            self._thread.join()
        self._epoll.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def watch(self, descriptor: int, callback: Callable[[], object], *, events: int = READABLE) -> None:
        """Call back for each event, until ``unwatch``. That must come before the descriptor is closed.

        Raises:
            OSError: the system can watch no more.
        """
        self._callbacks[descriptor] = callback
        try:
            self._epoll.register(descriptor, events)
        except OSError:
            del self._callbacks[descriptor]
            raise

    def unwatch(self, descriptor: int) -> None:
        """Forget a watched descriptor. Idempotent."""
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def post(self, callback: Callable[[], object]) -> None:
        """Call once, soon, from the loop's thread."""
        self._posted.append(callback)
        if not self._is_woken:  # if it is, the loop has yet to look: it finds this one too
            self._is_woken = True
            os.write(self._wake_writer, b"+")

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call once, after ``seconds`` in which the VM runs."""
        timer = Timer(self, callback)
        heapq.heappush(self._timers, (self._watch.read() + seconds, next(self._order), timer))
        return timer

    def note_cancelled(self) -> None:
        """One timer of the heap is void. When most are, they are thrown out: each may have had hours to go."""
        self._cancelled += 1
        if self._cancelled > _FEW_TIMERS and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].is_void]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._turn()
            except Exception:  # the last line of this thread, without which no process would ever end
                journal.report_exception("the loop failed")
                time.sleep(_FAILURE_PAUSE_SECONDS)

    def _turn(self) -> None:
        """Wait for the next events, and do what is due."""
        for descriptor, _ in self._epoll.poll(self._patience(), _MAX_EVENTS):
            callback = self._callbacks.get(descriptor)
            if callback is None or self._call(callback):
                continue
            # The callback may have closed it before it failed, and the number may be another one's by now.
            if self._callbacks.get(descriptor) is callback:
                with contextlib.suppress(OSError):
                    self.unwatch(descriptor)
        now = self._watch.read()
        while self._timers and self._timers[0][0] <= now:
            due = heapq.heappop(self._timers)[2].take()
            if due is None:
                self._cancelled -= 1
            else:
                self._call(due)

    def _patience(self) -> float:
        if not self._timers:
            return -1
        return max(0.0, min(self._timers[0][0] - self._watch.read(), stopwatch.TICK_SECONDS))

    def _run_posted(self) -> None:
        os.read(self._wake_reader, 1)
        self._is_woken = False
        for _ in range(len(self._posted)):
            self._call(self._posted.popleft())

    def _call(self, callback: Callable[[], object]) -> bool:
        try:
            callback()
        except Exception:  # the last line of a callback: the loop serves all the others
            journal.report_exception("a callback of the loop failed")
            return False
        return True
