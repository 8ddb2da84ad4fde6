"""What is sent as a file: bytes that can be had again when the way there was cut, as far as that is possible.

Data in memory and files that can be sought in are read from their beginning for each attempt. Of anything else (a pipe,
an iterator) the first megabyte is kept: once more than that is on its way, there is no second attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Protocol, cast

from .. import errors

__all__ = ["PIECE_BYTES", "BinaryFile", "Data", "Source", "from_data"]

PIECE_BYTES = 256 * 1024
KEPT_BYTES = 1024 * 1024  # of what can be read only once


class BinaryFile(Protocol):
    """The least that is asked of a file whose content is sent."""

    def read(self, size: int, /) -> bytes | None:
        """Up to so many bytes; none at the end."""


Data = bytes | bytearray | memoryview | str | Iterable[bytes] | BinaryFile


class Source:
    """Bytes to send.

    Attributes:
        pieces: Gives them from their beginning, each time it is called.
        size: How many they are, if that is known before they are read.
    """

    def __init__(self, pieces: Callable[[], Iterator[bytes]], *, size: int | None = None) -> None:
        self.pieces = pieces
        self.size = size

    @property
    def is_spent(self) -> bool:
        """They cannot be had from their beginning any more."""
        return False


class _OneTimeSource(Source):
    """Bytes that come only once."""

    def __init__(self, source: Iterator[bytes]) -> None:
        super().__init__(self._read)
        self._source = source
        self._kept: list[bytes] = []
        self._count = 0
        self._is_broken = False

    @property
    def is_spent(self) -> bool:
        return self._is_broken or self._count > KEPT_BYTES

    def _read(self) -> Iterator[bytes]:
        if self.is_spent:
            raise errors.RemoteFileError(
                "the upload was cut, and what it is made of can be read only once",
                hint="A file, or bytes, would have been sent again.",
            )
        yield from tuple(self._kept)
        while (piece := self._next()) is not None:
            self._count += len(piece)
            if self._count > KEPT_BYTES:
                self._kept.clear()
            else:
                self._kept.append(piece)
            yield piece

    def _next(self) -> bytes | None:
        try:
            return next(self._source, None)
        except BaseException:
            self._is_broken = True  # an iterator that failed once looks as if it had ended
            raise


def from_data(data: object) -> Source:
    """The source that a caller's data are.

    Raises:
        errors.UsageError: they are neither bytes, nor text, nor a file in binary mode, nor many bytes.
    """
    if isinstance(data, str):
        data = data.encode("utf-8")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _from_bytes(memoryview(data).cast("B"))
    if hasattr(data, "read"):
        return _from_file(cast("BinaryFile", data))
    if isinstance(data, Iterable):
        return _OneTimeSource(_checked(data))
    raise errors.UsageError(f"a file is made of bytes, not of {type(data).__name__}")


def _from_bytes(view: memoryview) -> Source:
    def pieces() -> Iterator[bytes]:
        for at in range(0, len(view), PIECE_BYTES):
            yield bytes(view[at : at + PIECE_BYTES])

    return Source(pieces, size=len(view))


def _from_file(file: BinaryFile) -> Source:
    start = _position(file)
    if start is None:
        return _OneTimeSource(_checked(_read_all(file)))

    def pieces() -> Iterator[bytes]:
        cast("IO[bytes]", file).seek(start)
        yield from _checked(_read_all(file))

    return Source(pieces)


def _position(file: BinaryFile) -> int | None:
    """Where a file stands that can be brought back there; None if it cannot."""
    try:
        seekable = cast("IO[bytes]", file).seekable()
        return cast("IO[bytes]", file).tell() if seekable else None
    except (AttributeError, OSError):
        return None


def _read_all(file: BinaryFile) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece
    if piece is None:
        raise errors.UsageError("what is sent must be read with patience: this file is non-blocking")


def _checked(pieces: Iterable[object]) -> Iterator[bytes]:
    for piece in pieces:
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise errors.UsageError(
                f"a file is made of bytes, not of {type(piece).__name__}", hint="Open files in binary mode."
            )
        data = bytes(piece)
        for at in range(0, len(data), PIECE_BYTES):
            yield data[at : at + PIECE_BYTES]
