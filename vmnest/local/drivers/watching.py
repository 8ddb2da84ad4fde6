"""One thread that listens to the supervisors of a driver's machines."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Watcher:
    """Calls a function, in its own thread, whenever its descriptor can be read, until the function returns False.

    The thread starts with the first descriptor and ends with ``close``. ``_lock`` guards the table; no function is
    called under it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._actions: dict[int, Callable[[], bool]] = {}
        self._poll = select.poll()
        self._wake_reader, self._wake_writer = os.pipe()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, descriptor: int, action: Callable[[], bool]) -> None:
        """Watch a descriptor. ``action`` closes it itself, before it returns False."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the watcher is closed")
            self._register(descriptor, action)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            os.write(self._wake_writer, b"x")  # poll() sees a new descriptor only when it is called anew

    def close(self) -> None:
        """End the thread and wait for it; the descriptors stay open. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.write(self._wake_writer, b"x")
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.close(descriptor)

    def _register(self, descriptor: int, action: Callable[[], bool]) -> None:
        self._actions[descriptor] = action
        self._poll.register(descriptor, select.POLLIN)

    def _run(self) -> None:
        while True:
            ready = self._poll.poll()
            if self._closed:
                return
            for descriptor, _ in ready:
                if descriptor == self._wake_reader:
                    os.read(self._wake_reader, 4096)
                else:
                    self._act(descriptor)

    def _act(self, descriptor: int) -> None:
        # Out of the table first: once the action closed the descriptor, its number may already be another's.
        with self._lock:
            action = self._actions.pop(descriptor)
            self._poll.unregister(descriptor)
        try:
            goes_on = action()
        except Exception:  # the last line of the thread: one machine's trouble must not silence the others
            _LOG.exception("watching descriptor %d failed", descriptor)
            return
        if goes_on:
            with self._lock:
                self._register(descriptor, action)
