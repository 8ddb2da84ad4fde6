"""A sink for output of unknown size: in memory while it is small, in an unlinked file beyond that."""

from __future__ import annotations

import errno
import os

from . import journal, wire
from .answers import BLOCK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import BinaryIO


class Spool:
    """Collects bytes; a context manager that gives its file back.

    When the disk is full, or ``limit_bytes`` are kept, the rest is dropped and ``truncated`` is set: the writer is
    never blocked, and what the command did stays known.
    """

    def __init__(self, *, memory_bytes: int = wire.MEMORY_OUTPUT_BYTES, limit_bytes: int | None = None) -> None:
        self._memory_bytes = memory_bytes
        self._limit_bytes = limit_bytes
        self._memory = bytearray()
        self._file: BinaryIO | None = None
        self.size = 0
        self.truncated = False

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give memory and disk back. Idempotent."""
        self._memory = bytearray()
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, data: bytes) -> None:
        """Keep ``data`` behind what is there."""
        if self.truncated:
            return
        if self._limit_bytes is not None and self.size + len(data) > self._limit_bytes:
            data = data[: self._limit_bytes - self.size]
            self.truncated = True
        if self._file is None and self.size + len(data) <= self._memory_bytes:
            self._memory += data
            self.size += len(data)
            return
        try:
            self._write(data)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}:
                raise
            journal.report(f"output beyond {self.size} bytes was dropped: {error.strerror}")
            self.truncated = True

    def pieces(self) -> Iterator[bytes]:
        """What was kept, from the start."""
        if self._file is None:
            yield bytes(self._memory)
            return
        offset = 0
        while offset < self.size:
            piece = os.pread(self._file.fileno(), min(BLOCK_BYTES, self.size - offset), offset)
            if not piece:
                raise OSError(errno.EIO, "a spool file is shorter than what was written to it")
            offset += len(piece)
            yield piece

    def _write(self, data: bytes) -> None:
        if self._file is None:
            file = open_unlinked()
            try:
                _write_all(file, self._memory)
            except OSError:
                file.close()  # what is in memory stays there
                raise
            self._file, self._memory = file, bytearray()
        view = memoryview(data)
        while view:
            # size follows every partial write: after a full disk, pieces() gives exactly what is there.
            count = os.write(self._file.fileno(), view)
            self.size += count
            view = view[count:]


def _write_all(file: BinaryIO, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]


def open_unlinked() -> BinaryIO:
    """A file of no name.

    Raises:
        OSError: there is no place for it.
    """
    import tempfile  # late: most output is small, and this module takes milliseconds to load

    try:
        return tempfile.TemporaryFile(buffering=0, prefix="agentd-")
    except FileNotFoundError as error:
        # What tempfile says when it tried all its folders; on a full disk, for example.
        raise OSError(errno.ENOSPC, "no folder for temporary files can be written to") from error
