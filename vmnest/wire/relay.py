"""A byte pump between two sockets, both ways at once, in the calling thread.

Strategy: each way owns one buffer and is in one of two moods: it waits for its source to be readable, or, while bytes
are in the buffer, for its sink to be writable. So memory is bounded, a slow reader slows its writer down, and the
thread sleeps in the kernel whenever neither side can go on. The end of a source is passed on as the end of writing
(half-close), and the other way goes on; a reset ends both.

To stop a pump from another thread, shut one of its sockets down: that wakes it as an end of file.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable

BUFFER_BYTES = 262144
_TURNS = 16  # transfers that one way may make before the other gets its turn


def pump(
    left: socket.socket,
    right: socket.socket,
    *,
    from_left: bytes = b"",
    from_right: bytes = b"",
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Carry bytes between the sockets until both ways ended. The caller closes them.

    Args:
        left: One socket; it becomes non-blocking.
        right: The other.
        from_left: What was read from ``left`` already, to be sent to ``right`` first.
        from_right: The same the other way.
        on_bytes: Called with the number of bytes of each transfer.
    """
    left.setblocking(False)
    right.setblocking(False)
    ways = (_Way(left, right, from_left, on_bytes), _Way(right, left, from_right, on_bytes))
    # A reset by either peer leaves nobody to carry bytes to; who it was does not matter to the caller.
    with selectors.DefaultSelector() as selector, contextlib.suppress(ConnectionError, TimeoutError):
        while True:
            for way in ways:
                way.advance()
            interest = _interest(ways)
            if not interest:
                return
            _register(selector, interest)
            selector.select()


class _Way:
    """One direction: source → buffer → sink."""

    def __init__(
        self, source: socket.socket, sink: socket.socket, ahead: bytes, on_bytes: Callable[[int], None] | None
    ) -> None:
        self.source = source
        self.sink = sink
        self.done = False
        self._on_bytes = on_bytes
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._pending = memoryview(ahead)
        self._source_ended = False

    @property
    def waits_to_write(self) -> bool:
        return bool(self._pending)

    def advance(self) -> None:
        """Transfer until one end would block, a few turns at most."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_TURNS):
                if self.done:
                    return
                self._turn()

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
        count = self.source.recv_into(self._buffer)
        self._source_ended = count == 0
        self._pending = self._buffer[:count]


def _interest(ways: tuple[_Way, ...]) -> dict[socket.socket, int]:
    wanted: dict[socket.socket, int] = {}
    for way in ways:
        if way.done:
            continue
        one, event = (way.sink, selectors.EVENT_WRITE) if way.waits_to_write else (way.source, selectors.EVENT_READ)
        wanted[one] = wanted.get(one, 0) | event
    return wanted


def _register(selector: selectors.BaseSelector, wanted: dict[socket.socket, int]) -> None:
    present = {key.fileobj: key.events for key in selector.get_map().values()}
    for one in present:
        if one not in wanted:
            selector.unregister(one)
    for one, events in wanted.items():
        if one not in present:
            selector.register(one, events)
        elif present[one] != events:
            selector.modify(one, events)
