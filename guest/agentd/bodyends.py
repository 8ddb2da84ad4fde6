"""Where the body of a message ends, seen from outside while its bytes pass by (RFC 9112 sections 6 and 7)."""

from __future__ import annotations

import re

from .heads import HeadError

_MAX_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 16384
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_FIELD_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n")
_PIECE_BYTES = 65536


class BodyEnd:
    """Follows one body.

    Attributes:
        is_passed: The end was seen.
        is_chunked: What follows the body may arrive with it.
        is_until_close: It ends with its connection.
    """

    def __init__(self, *, length: int = 0, is_chunked: bool = False, is_until_close: bool = False) -> None:
        self.is_passed = not (length or is_chunked or is_until_close)
        self.is_until_close = is_until_close
        self._left = length  # of the body, or of the chunk
        self.is_chunked = is_chunked
        self._line = b""  # of the chunked coding, as far as it came
        self._expects = self._size if is_chunked else None
        self._trailer_bytes = 0

    @property
    def wanted(self) -> int:
        """How many bytes may be read of the stream now. A chunked body may be left behind by what was read."""
        if self.is_passed:
            return 0
        return _PIECE_BYTES if self.is_chunked or self.is_until_close else min(self._left, _PIECE_BYTES)

    def see(self, data: bytes) -> int:
        """How many of these bytes belong to the body.

        Raises:
            HeadError: the chunks are malformed.
        """
        if self.is_until_close:
            return len(data)
        if not self.is_chunked:
            self._left -= len(data)
            self.is_passed = not self._left
            return len(data)
        at = 0
        while at < len(data) and not self.is_passed:
            if self._left and self._expects is None:
                count = min(self._left, len(data) - at)
                self._left -= count
                at += count
                if not self._left:
                    self._expects = self._chunk_end
            else:
                at = self._take_line(data, at)
        return at

    def _take_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end + 1
        self._line += data[at:stop]
        if len(self._line) > _MAX_LINE_BYTES:
            raise HeadError("a line of the chunked body is too long")
        if end >= 0:
            line, self._line = self._line, b""
            assert self._expects is not None
            self._expects(line)
        return stop

    def _size(self, line: bytes) -> None:
        found = _SIZE_LINE.fullmatch(line)
        if found is None:
            raise HeadError("malformed size of a chunk")
        self._left = int(found[1], 16)
        self._expects = None if self._left else self._trailer

    def _chunk_end(self, line: bytes) -> None:
        if line != b"\r\n":
            raise HeadError("a chunk is longer than its size")
        self._expects = self._size

    def _trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line)
        if line == b"\r\n":
            self.is_passed = True
        elif not _FIELD_LINE.fullmatch(line) or self._trailer_bytes > _MAX_TRAILER_BYTES:
            raise HeadError("malformed trailer")
