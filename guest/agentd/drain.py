"""Reads to nowhere what background children still write into the pipes of a command that has ended.

Closing such a pipe would end the child with SIGPIPE at its next line of output. One thread serves all pipes; their
number and the rate at which they are read are bounded, so that a child that writes for ever is slowed down by its full
pipe and costs the agent next to nothing.
"""

from __future__ import annotations

import os
import select
import threading
import time

from . import journal

MAX_PIPES = 1024  # two for each command that left a child behind
_PIECE_BYTES = 65536
_PAUSE_SECONDS = 0.02


class Drain:
    """Takes over the reading ends of pipes. Thread-safe; its thread starts with the first pipe and never ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipes: list[int] = []  # oldest first; guarded by the lock
        self._poller = select.poll()
        self._wake: int | None = None

    def take(self, descriptor: int) -> None:
        """Own ``descriptor`` from here on. Above MAX_PIPES the oldest pipe is closed, and without a thread this one."""
        os.set_blocking(descriptor, False)
        with self._lock:
            if not self._ensure_thread():
                os.close(descriptor)
                return
            self._pipes.append(descriptor)
            self._poller.register(descriptor, select.POLLIN)
            if len(self._pipes) > MAX_PIPES:
                journal.report(f"a background child's output was closed: more than {MAX_PIPES} are read to nowhere")
                self._close(self._pipes[0])
            assert self._wake is not None
            os.write(self._wake, b"+")

    def __len__(self) -> int:
        with self._lock:
            return len(self._pipes)

    def _ensure_thread(self) -> bool:
        if self._wake is not None:
            return True
        reader, writer = os.pipe()
        self._poller.register(reader, select.POLLIN)
        try:
            threading.Thread(target=self._run, args=(reader,), name="agentd-drain", daemon=True).start()
        except RuntimeError as error:  # a command took all the processes that there may be
            self._poller.unregister(reader)
            os.close(reader)
            os.close(writer)
            journal.report(f"a background child's output was closed: {error}")
            return False
        self._wake = writer
        return True

    def _run(self, reader: int) -> None:
        while True:
            for descriptor, _ in self._poller.poll():
                if descriptor == reader:
                    os.read(reader, _PIECE_BYTES)
                else:
                    self._read(descriptor)
            time.sleep(_PAUSE_SECONDS)

    def _read(self, descriptor: int) -> None:
        with self._lock:
            if descriptor not in self._pipes:  # take() closed it meanwhile
                return
            try:
                ended = not os.read(descriptor, _PIECE_BYTES)
            except BlockingIOError:  # closed and taken anew: the number is another pipe by now
                return
            if ended:
                self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        assert self._lock.locked()
        self._pipes.remove(descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
