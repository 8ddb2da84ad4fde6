"""Where the output of all processes goes that is too much for memory: one unlinked file, in slots of one size.

A slot that is free is the first to be used again, and the file shrinks when its last ones are free. So a hundred
processes cost one descriptor, and a process that writes for ever costs what may be kept of it.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import threading

from . import spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

SLOT_BYTES = 65536 + 4096  # one helping of a pipe, and a page for what is to be known of it


class Slots:
    """Keeps pieces of at most SLOT_BYTES. Thread-safe; the file is made with the first piece."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._end = 0  # slots that the file has
        self._free: set[int] = set()  # those below the end that nobody uses
        self._lowest: list[int] = []  # a heap of the free ones; some entries are void

    def __len__(self) -> int:
        """How many slots are in use."""
        with self._lock:
            return self._end - len(self._free)

    def close(self) -> None:
        """Give the file back, with all that is in it. Idempotent."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def put(self, parts: Sequence[bytes | bytearray]) -> int:
        """Keep the parts, joined; the number of their slot.

        Raises:
            OSError: it cannot be written; then nothing was kept.
        """
        with self._lock:
            file = self._file = self._file or spool.open_unlinked()
            slot = self._allocate()
        try:
            _write(file.fileno(), parts, slot * SLOT_BYTES)
        except BaseException:
            self.free(slot)
            raise
        return slot

    def get(self, slot: int, size: int) -> bytes:
        """The first ``size`` bytes of a slot that is in use.

        Raises:
            OSError: it cannot be read.
        """
        assert self._file is not None
        pieces, offset = [], 0
        while offset < size:
            piece = os.pread(self._file.fileno(), size - offset, slot * SLOT_BYTES + offset)
            if not piece:
                raise OSError(errno.EIO, "the file of kept output is shorter than what was written to it")
            pieces.append(piece)
            offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def free(self, slot: int) -> None:
        """Give a slot back."""
        with self._lock:
            self._free.add(slot)
            heapq.heappush(self._lowest, slot)
            if slot < self._end - 1:
                return
            while self._end - 1 in self._free:
                self._end -= 1
                self._free.discard(self._end)
            if not self._end:
                self._lowest.clear()
            assert self._file is not None
            with contextlib.suppress(OSError):  # the space is used again in any case
                os.ftruncate(self._file.fileno(), self._end * SLOT_BYTES)

    def _allocate(self) -> int:
        assert self._lock.locked()
        while self._lowest:
            slot = heapq.heappop(self._lowest)
            if slot in self._free:
                self._free.discard(slot)
                return slot
        self._end += 1
        return self._end - 1


def _write(descriptor: int, parts: Sequence[bytes | bytearray], offset: int) -> None:
    views = [memoryview(part) for part in parts if part]
    while views:
        count = os.pwritev(descriptor, views, offset)
        offset += count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if views:
            views[0] = views[0][count:]
