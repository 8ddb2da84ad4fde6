"""Threads for work that waits: named, owned, joined."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Workers:
    """Runs each piece of work in a thread of its own. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the threads
        self._threads: set[threading.Thread] = set()

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        """Begin to do ``work``. What it raises is logged.

        Raises:
            RuntimeError: no thread is to be had.
        """

        def run() -> None:
            try:
                work()
            except Exception:  # the last line of a thread
                _LOG.exception("%s failed", name)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=name)
        # Started under the lock: who joins the threads that it finds must not find one that was not started.
        with self._lock:
            thread.start()
            self._threads.add(thread)

    def join(self) -> None:
        """Wait until nothing is being done, what was begun meanwhile included."""
        while True:
            with self._lock:
                threads = list(self._threads)
            if not threads:
                return
            for thread in threads:
                thread.join()
