"""The standard input of a process: written by whoever brings it, each byte once, however often it is brought.

The offset says which byte of all that one writer brings a body begins with. So a request that is repeated after a cut
writes only what its first attempt did not, whatever others have written meanwhile. The thread of a request writes, and
nothing waits in between: what a request reports as taken is in the pipe or the terminal, and what is not taken is still
the client's.
"""

from __future__ import annotations

import os
import select
import threading
import time

from . import terminals, wire
from .errors import PeerGoneError, RequestError

MAX_WRITERS = 64  # whose bytes are counted; beyond it the one that was quiet for longest is forgotten
_LOOK_SECONDS = 0.2  # between two looks whether the process has ended


class Input:
    """Our end of a pipe or terminal, which it owns. Thread-safe.

    Args:
        descriptor: Non-blocking.
        is_terminal: It is a terminal, where the end of input is a character.
    """

    def __init__(self, descriptor: int, *, is_terminal: bool) -> None:
        self._descriptor: int | None = descriptor  # whoever holds the lock writes or closes it
        self._is_terminal = is_terminal
        self._lock = threading.Lock()
        self._is_over = False
        self._last = b""
        self._written = 0
        self._ended_at = -1  # where the end of a terminal's input was typed
        self._taken: dict[str, int] = {}  # of each writer, the last one to write at the end

    @property
    def is_closed(self) -> bool:
        """Nothing more can be written."""
        return self._is_over or self._descriptor is None

    def taken(self, writer: str = "") -> int:
        """How many bytes of this writer's were taken in all."""
        return self._taken.get(writer, 0)

    def feed(self, body: bytes, *, offset: int, is_last: bool, seconds: float, hangup: int, writer: str = "") -> None:
        """Write what of ``body`` was not taken before, for at most ``seconds``.

        Args:
            body: The bytes of the writer's input from ``offset`` on.
            offset: How many bytes of the writer's come before them.
            is_last: The input ends with them.
            seconds: How long to wait for the process to take them.
            hangup: The client's connection: when it ends, nobody waits.
            writer: Who brings them. Several may: each counts its own bytes.

        Raises:
            RequestError: ``stdin_gap``: bytes before the offset are missing.
            PeerGoneError: the client is gone.
        """
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            return
        try:
            if self.is_closed:
                return
            taken = self.taken(writer)
            if offset > taken:
                detail = f"{taken} bytes of input have arrived, and these are to follow after {offset}"
                raise RequestError(409, wire.STDIN_GAP, detail)
            self._remember(writer)
            self._feed(body, writer, offset=offset, is_last=is_last, deadline=deadline, hangup=hangup)
        except BrokenPipeError:
            self._close()
        finally:
            self._lock.release()
            if self._is_over:  # and whoever ended it could not close it
                self.end()

    def end(self) -> None:
        """The process has ended: nobody reads any more. Idempotent, and never waits."""
        self._is_over = True
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _remember(self, writer: str) -> None:
        counts = dict(self._taken)
        counts[writer] = counts.pop(writer, 0)
        if len(counts) > MAX_WRITERS:
            del counts[next(iter(counts))]
        self._taken = counts  # in one step: others look at it without the lock

    def _feed(self, body: bytes, writer: str, *, offset: int, is_last: bool, deadline: float, hangup: int) -> None:
        assert self._descriptor is not None
        end = offset + len(body)
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        poller.register(hangup, select.POLLRDHUP)
        view = memoryview(body)
        while self.taken(writer) < end and not self._is_over:
            piece = view[self.taken(writer) - offset :]
            count = terminals.write(self._descriptor, piece)
            self._taken[writer] += count
            self._written += count
            if count:
                self._last = bytes(piece[count - 1 : count])
            elif not self._wait(poller, deadline=deadline, hangup=hangup):
                return
        if is_last and self.taken(writer) == end:
            self._finish(poller, deadline=deadline, hangup=hangup)

    def _wait(self, poller: select.poll, *, deadline: float, hangup: int) -> bool:
        """Wait until there may be room; False when the time is up."""
        left = min(deadline - time.monotonic(), _LOOK_SECONDS)
        if left <= 0:
            return False
        if any(descriptor == hangup for descriptor, _ in poller.poll(int(left * 1000) + 1)):
            raise PeerGoneError
        return True

    def _finish(self, poller: select.poll, *, deadline: float, hangup: int) -> None:
        """Let the reader see the end of its input, once for each place in it."""
        assert self._descriptor is not None
        if not self._is_terminal:
            self._close()
            return
        if self._ended_at == self._written:
            return
        end = terminals.build_end(self._descriptor, last=self._last)
        while end and not self._is_over:
            end = end[terminals.write(self._descriptor, end) :]
            if end and not self._wait(poller, deadline=deadline, hangup=hangup):
                return
        self._ended_at = self._written
        self._last = b""

    def _close(self) -> None:
        assert self._lock.locked()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
