"""Output that was received and is not handed out yet: in pieces, or line by line.

Each byte is handed out once, in the one form or in the other, in whatever order they are asked for. So lines are looked
for in the bytes, which can still be had as they came while a line has no end; their text is made when they are taken.
"""

from __future__ import annotations

import codecs
import threading
from collections import deque
from typing import NamedTuple

from .. import errors
from .outputs import GAP, Chunk

__all__ = ["Line", "Unread", "check_encoding"]

MAX_LINE_BYTES = 1024 * 1024


class Line(NamedTuple):
    """A line of output.

    Attributes:
        stream: ``stdout``, ``stderr``, or ``gap`` for a line that tells of output that is lost.
        text: The line without its end.
    """

    stream: str
    text: str


def check_encoding(encoding: str) -> None:
    """Refuse an encoding in which a line's end is not the byte 10.

    Raises:
        errors.UsageError: it is such a one, or none at all.
    """
    try:
        has_plain_ends = b"\n".decode(encoding, "replace") == "\n"
    except LookupError:
        raise errors.UsageError(f"there is no encoding {encoding!r:.100}") from None
    if not has_plain_ends:
        raise errors.UsageError(f"lines cannot be told apart in {encoding}", hint="Decode what chunks() gives.")


class Unread:
    """What there is of the output behind that which was handed out. One thread takes; any may ask for the offset."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, _Begun] = {}  # of each stream: a line without an end so far
        self._rest: deque[Chunk] = deque()  # behind them; no line was looked for in it
        self._at = 0  # so much of the first of the rest was taken
        self._decoders: dict[tuple[str, str, str], codecs.IncrementalDecoder] = {}

    @property
    def offset(self) -> int | None:
        """Where the first byte stands that can be taken; None if there is none."""
        with self._lock:
            if self._begun:
                return self._first_begun().chunks[0].offset
            at = self._at
            return next((chunk.offset + at for chunk in self._rest if not chunk.missing), None)

    def put(self, chunk: Chunk) -> None:
        """What was received next."""
        if chunk.data or chunk.missing:
            with self._lock:
                self._rest.append(chunk)

    def drop(self, *, offset: int, count: int) -> None:
        """What was received next is not kept: a gap stands for it."""
        with self._lock:
            last = self._rest[-1] if self._rest else None
            if last is not None and last.missing and last.offset + last.missing == offset:
                self._rest[-1] = last._replace(missing=last.missing + count)
            elif count:
                self._rest.append(Chunk(GAP, b"", offset, count))

    def take(self) -> Chunk | None:
        """The next piece; None if there is none."""
        with self._lock:
            if self._begun:
                begun = self._first_begun()
                chunk = begun.pop()
                if not begun.chunks:
                    del self._begun[chunk.stream]
                return chunk
            return self._cut(len(self._rest[0].data)) if self._rest else None

    def take_line(self, *, encoding: str, handling: str, is_last: bool = False) -> Line | None:
        """The next line; None if more must be received for one. ``is_last``: nothing more will be."""
        with self._lock:
            return self._take_line(encoding, handling, is_last=is_last)

    def _take_line(self, encoding: str, handling: str, *, is_last: bool) -> Line | None:
        while self._rest:
            first = self._rest[0]
            if first.missing:
                if self._begun:
                    return self._take_begun(self._first_begun(), encoding, handling, is_whole=True)
                self._rest.popleft()
                return Line(GAP, f"[... {first.missing} bytes are missing here ...]")
            end = first.data.find(b"\n", self._at) + 1
            piece = self._cut(end or len(first.data))
            begun = self._begun.setdefault(piece.stream, _Begun())
            begun.push(piece)
            if end or begun.size > MAX_LINE_BYTES:
                return self._take_begun(begun, encoding, handling)
        if is_last and self._begun:
            return self._take_begun(self._first_begun(), encoding, handling, is_whole=True)
        return None

    def _first_begun(self) -> _Begun:
        return min(self._begun.values(), key=lambda begun: begun.chunks[0].offset)

    def _cut(self, end: int) -> Chunk:
        """Take the first of the rest up to there."""
        first, at = self._rest[0], self._at
        if end == len(first.data):
            self._rest.popleft()
            self._at = 0
        else:
            self._at = end
        return first if end - at == len(first.data) else Chunk(first.stream, first.data[at:end], first.offset + at)

    def _take_begun(self, begun: _Begun, encoding: str, handling: str, *, is_whole: bool = False) -> Line:
        """What there is of a line; ``is_whole``: the stream does not go on behind it, or goes on elsewhere."""
        stream = begun.chunks[0].stream
        del self._begun[stream]
        # A line that comes in pieces may be cut in the middle of a character.
        decoder = self._decoders.get((stream, encoding, handling))
        if decoder is None:
            decoder = codecs.getincrementaldecoder(encoding)(handling)
            self._decoders[stream, encoding, handling] = decoder
        text = decoder.decode(b"".join(chunk.data for chunk in begun.chunks), is_whole)
        if is_whole:
            decoder.reset()
        return Line(stream, text[:-1].removesuffix("\r") if text.endswith("\n") else text)


class _Begun:
    """Pieces of one stream, and the bytes in them."""

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        self.size = 0

    def push(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.size += len(chunk.data)

    def pop(self) -> Chunk:
        chunk = self.chunks.popleft()
        self.size -= len(chunk.data)
        return chunk
