"""Files of a sandbox as streams: one that is fetched while it is read, one that is sent when it is closed."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from ..agent.minimal import MinimalReading
    from ..agent.reading import Reading

__all__ = ["Writer", "open_reader"]

BUFFER_BYTES = 256 * 1024
MEMORY_BYTES = 1024 * 1024  # of what is written; beyond it waits in a file


def open_reader(reading: Reading | MinimalReading) -> BinaryIO:
    """The stream of what is read; closing it ends the reading."""
    return io.BufferedReader(_RawReader(reading), BUFFER_BYTES)


class _RawReader(io.RawIOBase):
    def __init__(self, reading: Reading | MinimalReading) -> None:
        self._reading = reading
        self._pieces = reading.pieces()
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)  # an empty one would pass for the end
        room = memoryview(buffer).cast("B")
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._reading.close()
            super().close()


class Writer(io.BufferedIOBase):
    """What is written to it becomes the file as a whole, when it is closed; never, if its block ends with an exception.

    It also counts as closed when that fails. One that is dropped without being closed becomes nothing.
    """

    def __init__(self, commit: Callable[[BinaryIO], object]) -> None:
        import tempfile

        self._commit = commit
        self._content = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115 - close() and give_up()

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Take bytes; the number of them."""
        if self.closed:
            raise ValueError("write to a file that was closed")
        return self._content.write(memoryview(data).cast("B"))

    def close(self) -> None:
        """Send what was written, and put it into its place. Idempotent."""
        if not self.closed:
            super().close()
            with self._content:
                self._content.seek(0)
                self._commit(self._content)  # type: ignore[arg-type] # it is one from Python 3.11 on

    def give_up(self) -> None:
        """Close it without writing the file."""
        super().close()
        self._content.close()

    def __del__(self) -> None:
        self.give_up()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.give_up()
