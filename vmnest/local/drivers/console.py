"""The main process's output, on its way to a file that cannot grow without end.

What is too old is given back as a hole at the front of the file, so that nothing moves under who reads it meanwhile,
and a place in the file stays a place in the output. Where the filesystem makes no holes the file begins anew.

Stand-alone (see ``runtime``).
"""

from __future__ import annotations

import contextlib
import os

from . import kernel

MAX_BYTES = 4 * 1024 * 1024
_HOLE_BYTES = 256 * 1024  # a multiple of every filesystem's blocks
_KEPT_BYTES = 256 * 1024  # where there are no holes
_BYTES_PER_SECOND = 8 * 1024 * 1024
_CHUNK_BYTES = 65536


class Console:
    """The main process's output: read at a bounded rate, the last part of it kept in a bounded file."""

    __slots__ = ("_begin", "_file", "_size", "_window_bytes", "_window_start", "source")

    def __init__(self, source: int, file: int) -> None:
        self.source = source
        self._file = file
        self._begin = 0
        self._size = 0
        self._window_start = 0.0
        self._window_bytes = 0

    def wants_more(self, now: float) -> bool:
        """Whether this second's share is not used up."""
        if now - self._window_start >= 1:
            self._window_start = now
            self._window_bytes = 0
        return self._window_bytes < _BYTES_PER_SECOND

    def take(self) -> bool:
        """Move what is there to the file; False at the end of the output."""
        data = os.read(self.source, _CHUNK_BYTES)
        self._window_bytes += len(data)
        # On a full disk output is lost; the VM goes on.
        with contextlib.suppress(OSError):
            if self._size - self._begin + len(data) > MAX_BYTES:
                self._drop_head()
            self._size += os.pwrite(self._file, data, self._size)
        return bool(data)

    def _drop_head(self) -> None:
        try:
            kernel.punch(self._file, start=self._begin, length=_HOLE_BYTES)
            self._begin += _HOLE_BYTES
        except OSError:
            self._begin_anew()

    def _begin_anew(self) -> None:
        kept = os.pread(self._file, _KEPT_BYTES, max(0, self._size - _KEPT_BYTES))
        os.ftruncate(self._file, 0)
        self._begin = self._size = 0
        self._size = os.pwrite(self._file, b"[vmnest: earlier output dropped]\n" + kept, 0)
