"""Where the body of a message ends, seen from outside while its bytes pass by (RFC 9112 sections 6 and 7)."""

from __future__ import annotations

from . import heads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 65536
_MAX_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 16384


class BodyEnd:
    """Follows one body: of a length, in chunks, until the connection ends, or none at all.

    What passes is read by somebody else, too, and must mean the same to both: chunks are held to the letter.

    Attributes:
        is_passed: The end was seen. Of a body until the connection ends, only its owner can tell.
    """

    def __init__(self, *, length: int = 0, is_chunked: bool = False, is_until_close: bool = False) -> None:
        self.is_chunked = is_chunked
        self.is_until_close = is_until_close
        self.is_passed = not (length or is_chunked or is_until_close)
        self._left = length  # of the body, or of the chunk
        self._line = b""  # between two chunks, as far as it came
        self._expects: Callable[[bytes], None] | None = self._size if is_chunked else None
        self._trailer_bytes = 0

    @property
    def wanted(self) -> int:
        """How many bytes to read next. Only of chunks, some of them may lie behind the end."""
        if self.is_passed:
            return 0
        return PIECE_BYTES if self.is_chunked or self.is_until_close else min(self._left, PIECE_BYTES)

    def see(self, data: bytes) -> int:
        """Follow these bytes; how many of them belong to the body.

        Raises:
            HeadError: the chunks are malformed.
        """
        if self.is_until_close:
            return len(data)
        at = 0
        while at < len(data) and not self.is_passed:
            if self._expects is not None:
                at = self._take_line(data, at, self._expects)
                continue
            count = min(self._left, len(data) - at)
            self._left -= count
            at += count
            if not self._left:
                self.is_passed = not self.is_chunked
                self._expects = self._chunk_end
        return at

    def _take_line(self, data: bytes, at: int, expects: Callable[[bytes], None]) -> int:
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end + 1
        self._line += data[at:stop]
        if len(self._line) > _MAX_LINE_BYTES:
            raise heads.HeadError("a line of the body's framing is too long")
        if end >= 0:
            line, self._line = self._line, b""
            if not line.endswith(b"\r\n"):
                raise heads.HeadError("a line of the body's framing ends without CR")
            expects(line[:-2])
        return stop

    def _size(self, line: bytes) -> None:
        self._left = heads.parse_chunk_size(line)
        self._expects = None if self._left else self._trailer

    def _chunk_end(self, line: bytes) -> None:
        if line:
            raise heads.HeadError("a chunk is longer than its size")
        self._expects = self._size

    def _trailer(self, line: bytes) -> None:
        if not line:
            self.is_passed = True
            return
        heads.parse_fields([line])
        self._trailer_bytes += len(line)
        if self._trailer_bytes > _MAX_TRAILER_BYTES:
            raise heads.HeadError("too many trailers", status=431)
