"""Bodies of HTTP/1.1 messages, without I/O: decoding as the bytes come, and chunks to send (RFC 9112 section 7.1).

The rules are those of ``http1``: what two parties could read in two ways is refused, and every size has a limit.
"""

from __future__ import annotations

import re

from .http1 import (
    CHUNKED,
    LENGTH,
    MAX_FIELDS,
    NONE,
    UNTIL_CLOSE,
    Field,
    Fields,
    Framing,
    MessageError,
    TruncatedError,
    parse_field,
    serialize_fields,
)

__all__ = ["BodyDecoder", "encode_chunk", "encode_last_chunk"]

MAX_CHUNK_LINE_BYTES = 4096
MAX_TRAILER_BYTES = 16384
_MAX_CHUNK_DIGITS = 15

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")

# Fields that must not come in a trailer, since they would change how the message is read (RFC 9110 section 6.5.1).
_NO_TRAILERS = frozenset({"content-length", "transfer-encoding", "host", "connection", "upgrade", "te", "trailer"})


class BodyDecoder:
    """Takes the bytes of a body as they come and gives its payload. It keeps no payload.

    Attributes:
        complete: The body's end was seen.
        rest: What came behind the end (the start of the next message).
        trailers: The fields behind a chunked body.
    """

    def __init__(self, framing: Framing, *, limit: int | None = None) -> None:
        if limit is not None and framing.length > limit:
            raise MessageError(f"the body is larger than {limit} bytes", status=413)
        self.framing = framing
        self.trailers: tuple[Field, ...] = ()
        self.rest = b""
        self.complete = framing.kind == NONE or (framing.kind == LENGTH and framing.length == 0)
        self._budget = limit
        self._left = framing.length  # payload bytes still to come: of the body, or of the chunk
        self._line = bytearray()  # a chunk's line, or the trailer section, as far as it came
        self._step = self._size_line if framing.kind == CHUNKED else self._plain

    def feed(self, data: bytes) -> bytes:
        """The payload in ``data``, which may be empty.

        Raises:
            MessageError: the chunks are malformed, or the body is larger than the limit (413).
        """
        payload: list[bytes] = []
        while data and not self.complete:
            data = self._step(data, payload)
        if data:
            self.rest += data
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def finish(self) -> None:
        """Tell that the connection ended.

        Raises:
            TruncatedError: the body was not complete.
        """
        if self.framing.kind == UNTIL_CLOSE:
            self.complete = True
        if not self.complete:
            raise TruncatedError("the connection ended in the middle of a body")

    def _plain(self, data: bytes, payload: list[bytes]) -> bytes:
        if self.framing.kind == UNTIL_CLOSE:
            self._give(data, payload)
            return b""
        part, data = data[: self._left], data[self._left :]
        self._give(part, payload)
        self._left -= len(part)
        self.complete = self._left == 0
        return data

    def _give(self, part: bytes, payload: list[bytes]) -> None:
        if self._budget is not None:
            self._budget -= len(part)
            if self._budget < 0:
                raise MessageError("the body is larger than its limit", status=413)
        payload.append(part)

    def _size_line(self, data: bytes, payload: list[bytes]) -> bytes:
        line, data = self._take_line(data, limit=MAX_CHUNK_LINE_BYTES)
        if line is None:
            return data
        size = _CHUNK_LINE.fullmatch(line)
        if size is None or len(size[1]) > _MAX_CHUNK_DIGITS:
            raise MessageError("the size of a chunk is malformed")
        self._left = int(size[1], 16)
        self._step = self._chunk if self._left else self._trailer
        return data

    def _chunk(self, data: bytes, payload: list[bytes]) -> bytes:
        part, data = data[: self._left], data[self._left :]
        self._give(part, payload)
        self._left -= len(part)
        if not self._left:
            self._step = self._chunk_end
        return data

    def _chunk_end(self, data: bytes, payload: list[bytes]) -> bytes:
        line, data = self._take_line(data, limit=2)
        if line is None:
            return data
        if line:
            raise MessageError("a chunk is longer than its size")
        self._step = self._size_line
        return data

    def _trailer(self, data: bytes, payload: list[bytes]) -> bytes:
        limit = MAX_TRAILER_BYTES - sum(len(name) + len(value) for name, value in self.trailers)
        line, data = self._take_line(data, limit=limit)
        if line is None:
            return data
        if not line:
            self.complete = True
            return data
        field = parse_field(line)
        if field[0].lower() in _NO_TRAILERS or len(self.trailers) >= MAX_FIELDS:
            raise MessageError("a trailer field that must not be one")
        self.trailers += (field,)
        return data

    def _take_line(self, data: bytes, *, limit: int) -> tuple[bytes | None, bytes]:
        """The next line without its CRLF, or None if it is not complete, and what is left of ``data``."""
        end = data.find(b"\n")
        self._line += data if end < 0 else data[: end + 1]
        data = b"" if end < 0 else data[end + 1 :]
        if len(self._line) > limit:
            raise MessageError("a line of a chunked body is too long")
        if end < 0:
            return None, data
        if not self._line.endswith(b"\r\n"):
            raise MessageError("a line of a chunked body ends with LF alone")
        line = bytes(self._line[:-2])
        self._line.clear()
        return line, data


def encode_chunk(payload: bytes) -> bytes:
    """One chunk; nothing for an empty payload, which would end the body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""


def encode_last_chunk(trailers: Fields = ()) -> bytes:
    """The end of a chunked body."""
    return b"0\r\n%b\r\n" % serialize_fields(trailers)
