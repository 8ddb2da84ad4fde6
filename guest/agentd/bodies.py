"""The body of one request, read once and within a limit."""

from __future__ import annotations

from . import heads, wire
from .errors import PeerGoneError, RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedIOBase

_PIECE_BYTES = 65536
_MAX_LINE_BYTES = 4096
_MAX_TRAILER_LINES = 64


class Body:
    """Reads what follows a head on ``stream``.

    Args:
        stream: The connection's buffered reader.
        head: The head, which says how the body ends.
        invite: Called once before the first read if the client waits for ``100 Continue``.
    """

    def __init__(self, stream: BufferedIOBase, head: heads.Head, *, invite: Callable[[], None]) -> None:
        self._stream = stream
        self._head = head
        self._invite = invite
        self.is_consumed = head.length == 0 and not head.chunked

    def read(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            RequestError: 413 above ``limit`` bytes, 400 for malformed chunks.
            PeerGoneError: the client stopped in the middle.
        """
        if self._head.chunked or self.is_consumed:
            return b"".join(self.pieces(limit))
        # In one piece: a body near the limit stands in memory once.
        self._prepare(limit)
        body = self._stream.read(self._head.length)
        if len(body) < self._head.length:
            raise PeerGoneError
        self.is_consumed = True
        return body

    def pieces(self, limit: int) -> Iterator[bytes]:
        """The body piece by piece; raises as ``read``."""
        if self.is_consumed:
            return
        self._prepare(limit)
        if self._head.chunked:
            yield from self._chunks(limit)
        else:
            yield from self._exactly(self._head.length)
        self.is_consumed = True

    def _prepare(self, limit: int) -> None:
        if self._head.length > limit:
            raise _too_large(limit)
        if self._head.expects_continue:
            self._invite()

    def _chunks(self, limit: int) -> Iterator[bytes]:
        total = 0
        while True:
            try:
                size = heads.parse_chunk_size(self._line())
            except heads.HeadError as error:
                raise RequestError(error.status, wire.BAD_REQUEST, str(error)) from None
            total += size
            if total > limit:
                raise _too_large(limit)
            if size == 0:
                break
            yield from self._exactly(size)
            if self._line():
                raise RequestError(400, wire.BAD_REQUEST, "malformed end of a chunk")
        for _ in range(_MAX_TRAILER_LINES):
            if not self._line():
                return
        raise RequestError(431, wire.TOO_LARGE, "too many trailers")

    def _exactly(self, count: int) -> Iterator[bytes]:
        while count:
            piece = self._stream.read(min(count, _PIECE_BYTES))
            if not piece:
                raise PeerGoneError
            count -= len(piece)
            yield piece

    def _line(self) -> bytes:
        line = self._stream.readline(_MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            if len(line) < _MAX_LINE_BYTES:
                raise PeerGoneError
            raise RequestError(400, wire.BAD_REQUEST, "a line of the body's framing is too long")
        return line[:-2] if line.endswith(b"\r\n") else line[:-1]  # a CR before that is one that is refused


def _too_large(limit: int) -> RequestError:
    return RequestError(413, wire.TOO_LARGE, f"the body is larger than {limit} bytes")
