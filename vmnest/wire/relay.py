"""A byte pump between two sockets, both ways at once, in the calling thread.

Strategy: each way is in one of two moods: it waits for its source to be readable, or, while it holds bytes, for its
sink to be writable. So memory is bounded, a slow reader slows its writer down, and the thread sleeps in the kernel
whenever neither side can go on; then a way that holds nothing has no buffer either. The end of a source is passed on as
the end of writing (half-close), and the other way goes on for as long as there is somebody at its end; a reset ends
both.

To stop a pump from another thread, shut both of its sockets down: that wakes it as an end of file.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

from . import buffers, probing

__all__ = ["pump"]

LAST_WORDS_SECONDS = 10.0  # how long one that has gone is still listened to, while nobody takes what it said
_TURNS = 16  # transfers that one way may make before the other gets its turn
_GONE: int = getattr(select, "POLLERR", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLNVAL", 0)


def pump(
    left: socket.socket,
    right: socket.socket,
    *,
    from_left: bytes = b"",
    from_right: bytes = b"",
    on_bytes: Callable[[int], None] | None = None,
    probe_seconds: int = probing.PROBE_SECONDS,
    idle_seconds: float | None = None,
) -> None:
    """Carry bytes between the sockets until both ways ended. The caller closes them.

    Args:
        left: One socket; it becomes non-blocking.
        right: The other.
        from_left: What was read from ``left`` already, to be sent to ``right`` first.
        from_right: The same the other way.
        on_bytes: Called with the number of bytes of each transfer.
        probe_seconds: How often one that has ended its side is asked whether it is still there.
        idle_seconds: It ends when neither could go on for so long; None: they may be silent as long as they like.
    """
    out = _Way(left, right, from_left, on_bytes, probe_seconds=probe_seconds)
    back = _Way(right, left, from_right, on_bytes, probe_seconds=probe_seconds)
    left.setblocking(False)
    right.setblocking(False)
    # A reset by either peer leaves nobody to carry bytes to; who it was does not matter to the caller.
    with contextlib.suppress(ConnectionError, TimeoutError):
        while True:
            out.advance()
            back.advance()
            if (out.done and back.done) or not _wait(out, back, idle_seconds=idle_seconds):
                return


class _Way:
    """One direction: source → buffer → sink."""

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        ahead: bytes,
        on_bytes: Callable[[int], None] | None,
        *,
        probe_seconds: int,
    ) -> None:
        self.source = source
        self.sink = sink
        self.done = False
        self.is_cut = False
        self._on_bytes = on_bytes
        self._probe_seconds = probe_seconds
        self._buffer: memoryview | None = None
        self._pending = memoryview(ahead)
        self._source_ended = False

    @property
    def reads(self) -> bool:
        """It waits for its source."""
        return not self.done and not self._pending

    @property
    def writes(self) -> bool:
        """It waits for its sink."""
        return not self.done and bool(self._pending)

    def cut(self) -> None:
        """There is nobody at its end."""
        self.done = self.is_cut = True

    def advance(self) -> None:
        """Transfer until one end would block, a few turns at most."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_TURNS):
                if self.done:
                    break
                self._turn()
        if self._buffer is not None and not self._pending:
            buffers.give_back(self._buffer)
            self._buffer = None

    def _turn(self) -> None:
        while self._pending:
            sent = self.sink.send(self._pending)
            self._pending = self._pending[sent:]
            if self._on_bytes is not None:
                self._on_bytes(sent)
        if self._source_ended:
            self.done = True
            # The peer may have gone in the meantime: then there is nobody left to tell.
            with contextlib.suppress(OSError):
                self.sink.shutdown(socket.SHUT_WR)
            return
        if self._buffer is None:
            self._buffer = buffers.borrow()
        count = self.source.recv_into(self._buffer)
        self._pending = self._buffer[:count]
        if count == 0:
            self._source_ended = True
            probing.probe(self.source, seconds=self._probe_seconds)


def _wait(out: _Way, back: _Way, *, idle_seconds: float | None) -> bool:
    """Sleep until one of them can go on; False: what is left waits in vain.

    Whoever has gone altogether takes nothing any more; what came from there before is still carried, but not for ever.
    """
    poller = select.poll()
    unasked: dict[int, _Way] = {}
    for reader, writer in ((out, back), (back, out)):
        events = (select.POLLIN if reader.reads else 0) | (select.POLLOUT if writer.writes else 0)
        if events:
            poller.register(reader.source, events)
        elif not writer.done:  # an error is told without being asked for
            poller.register(reader.source, 0)
            unasked[reader.source.fileno()] = writer
    seconds = LAST_WORDS_SECONDS if out.is_cut or back.is_cut else idle_seconds
    ready = poller.poll(None if seconds is None else seconds * 1000)
    for number, found in ready:
        if found & _GONE and number in unasked:
            unasked[number].cut()
    return bool(ready)
