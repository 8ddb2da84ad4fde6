"""The standard input of a process: written by whoever brings it, each byte once, however often it is brought.

The offset says which byte of all that one writer brings a body begins with. So a request that is repeated after a cut
writes only what its first attempt did not, whatever others have written meanwhile. The thread of a request writes, and
nothing waits in between: what a request reports as taken is in the pipe or the terminal, and what is not taken is still
the client's. Only the end of a terminal's input is typed later, when it will be understood (``endings``).
"""

from __future__ import annotations

import functools
import os
import select
import threading
import time

from . import endings, terminals, wire
from .errors import PeerGoneError, RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .loop import Loop

MAX_WRITERS = 64  # whose bytes are counted; beyond it the one that was quiet for longest is forgotten
_LOOK_SECONDS = 0.2  # between two looks whether the process has ended


class Input:
    """Our end of a pipe or terminal, which it owns. Thread-safe.

    Args:
        descriptor: Non-blocking.
        loop: What looks after the end of a terminal's input, which is a character; None if it is a pipe.
    """

    def __init__(self, descriptor: int, *, loop: Loop | None) -> None:
        self._descriptor: int | None = descriptor  # whoever holds the lock writes or closes it
        self._loop = loop
        self._lock = threading.Lock()
        self._is_over = False
        self._last = b""
        self._written = 0
        self._ended_at = -1  # where a terminal's input has its end
        self._ending: endings.Ending | None = None  # of it
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
        if self.taken(writer) < end and not self._settle_ending(poller, deadline=deadline, hangup=hangup):
            return
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
            self._finish()

    def _wait(self, poller: select.poll, *, deadline: float, hangup: int) -> bool:
        """Wait until there may be room; False when the time is up."""
        left = min(deadline - time.monotonic(), _LOOK_SECONDS)
        if left <= 0:
            return False
        if any(descriptor == hangup for descriptor, _ in poller.poll(int(left * 1000) + 1)):
            raise PeerGoneError
        return True

    def _finish(self) -> None:
        """Let the reader see the end of its input, once for each place in it."""
        if self._loop is None:
            self._close()
        elif self._ended_at != self._written:
            self._ended_at = self._written
            self._ending = endings.Ending()
            self._loop.post(functools.partial(self._look, self._ending))

    def _settle_ending(self, poller: select.poll, *, deadline: float, hangup: int) -> bool:
        """Have the end typed before what comes behind it; False when the time is up."""
        if self._ending is not None and not self._ending.is_typed:
            while not self._type_end():
                if self._is_over or not self._wait(poller, deadline=deadline, hangup=hangup):
                    return False
        self._ending = None
        return True

    def _look(self, ending: endings.Ending) -> None:
        """Called by the loop: type the end if it is time, or look again later."""
        assert self._loop is not None
        if self._lock.acquire(blocking=False):
            try:
                if ending is not self._ending or self.is_closed:
                    return
                assert self._descriptor is not None
                look = terminals.look(self._descriptor)
                if ending.want_typing(look) and self._type_end():
                    ending.tell_typed(look)
                if ending.is_over:
                    self._ending = None
                    return
            finally:
                self._lock.release()
                if self._is_over:
                    self.end()
        self._loop.call_later(ending.pause, functools.partial(self._look, ending))

    def _type_end(self) -> bool:
        """Type what the reader sees as the end; False if there is no room for all of it now."""
        assert self._descriptor is not None
        is_again = self._ending is not None and self._ending.is_typed
        end = terminals.build_end(self._descriptor, last=self._last, is_again=is_again)
        count = terminals.write(self._descriptor, end) if end else 0
        if count:
            self._last = b""
        return count == len(end)

    def _close(self) -> None:
        assert self._lock.locked()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
