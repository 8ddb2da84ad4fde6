"""A reader of a process's output: one answer, from an offset on, that follows the output while it comes."""

from __future__ import annotations

import json
import select
import socket

from . import frames, wire
from .errors import PeerGoneError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .loop import Loop
    from .running import Process

_BLOCK_BYTES = 64 * 1024  # of output; each client that is slow to take its block holds one in memory


class Reader:
    """Owed to a process from ``__init__`` to ``close``.

    Args:
        process: Whose output.
        offset: Where to begin; everything before it has arrived.
        loop: Watches the connection.
        connection: Of the client: that it is gone is noticed at once, and not that it is slow.

    Raises:
        RequestError: the output has no such offset yet.
    """

    def __init__(self, process: Process, offset: int, *, loop: Loop, connection: socket.socket) -> None:
        self._process = process
        self._loop = loop
        self._connection = connection
        self._descriptor = connection.fileno()
        self._is_gone = False
        self._is_closed = False  # guarded by the process's lock, as is the one above
        self._cursor = process.attach(offset)
        try:
            loop.watch(self._descriptor, self._on_hangup, events=select.EPOLLRDHUP)
        except BaseException:
            process.detach()
            raise
        # A client that is slow is waited for, as the process is: only its going away ends the answer.
        connection.settimeout(None)

    def close(self) -> None:
        """The process need not wait for this reader."""
        with self._process.changed:
            self._is_closed = True
        self._loop.unwatch(self._descriptor)
        self._connection.settimeout(wire.CONNECTION_IDLE_SECONDS)
        self._process.detach()

    def blocks(self, *, wait: float, limit: int | None = None) -> Iterator[bytes]:
        """Frames in blocks, each as soon as there is something to tell.

        Args:
            wait: The answer ends when nothing has come for so many seconds.
            limit: It ends after so many bytes of output, if not before. With 0 it only tells that the process is read.

        Raises:
            PeerGoneError: the client is gone.
        """
        document = json.dumps(self._process.document(), separators=(",", ":")).encode("ascii")
        head = frames.encode(frames.PROCESS, document)
        left = wire.MAX_STREAM_BYTES if limit is None else min(limit, wire.MAX_STREAM_BYTES)
        while left > 0 or head:
            begin = self._cursor.offset
            block = self._process.read(self._cursor, min(_BLOCK_BYTES, left))
            left -= self._cursor.offset - begin
            is_end = self._is_at_end()
            if is_end:
                block += frames.encode(frames.EXIT, json.dumps(self._process.end_document()).encode("ascii"))
            if head or block:
                yield head + block
                head = b""
            if is_end:
                self._process.is_told = True
                return
            if not block and not self._await(wait):
                return

    def _is_at_end(self) -> bool:
        with self._process.changed:
            return self._process.has_ended and self._cursor.offset == self._process.output.size

    def _await(self, seconds: float) -> bool:
        """Wait for output or the end; False if nothing came, or can come before this reader asks again."""
        process = self._process

        def has_news() -> bool:
            return process.has_ended or process.output.size > self._cursor.offset or self._is_gone

        with process.changed:
            if process.is_paused and not process.has_ended and process.output.size == self._cursor.offset:
                return False  # the process waits for what was read to be confirmed
            came = process.changed.wait_for(has_news, timeout=seconds)
        if self._is_gone:
            raise PeerGoneError
        return came

    def _on_hangup(self) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLRDHUP)
        with self._process.changed:
            # Of a reader that was closed meanwhile the descriptor may be somebody else's by now.
            if self._is_closed or not poller.poll(0):
                return
            self._loop.unwatch(self._descriptor)
            self._is_gone = True
            self._process.changed.notify_all()
            try:
                # A thread that waits for the client to take more is woken by this.
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return
