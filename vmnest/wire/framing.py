"""The frames of a WebSocket in passing (RFC 6455 section 5.2), without I/O: where they begin, not what they hold."""

from __future__ import annotations

from . import websocket

__all__ = ["FrameScanner", "encode_ping"]

_KIND, _RESERVED_KINDS, _MASKED, _LENGTH = 0x0F, frozenset({3, 4, 5, 6, 7, 11, 12, 13, 14, 15}), 0x80, 0x7F
_MAX_HEAD_BYTES = 14
_MASK_BYTES = 4


class FrameScanner:
    """Follows one direction of a WebSocket. Extensions do not matter: their frames begin as all others do.

    Attributes:
        is_lost: What comes is no frames; it is passed on as it is from there on.
        unwanted: The payload of a PONG that is taken out, once; None: nothing is.
    """

    def __init__(self) -> None:
        self.is_lost = False
        self.unwanted: bytes | None = None
        self._head = bytearray()  # as far as it came
        self._left = 0  # of the frame's payload

    @property
    def is_between_frames(self) -> bool:
        """The last byte was the end of a frame, or there was none yet."""
        return not (self._head or self._left or self.is_lost)

    def feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """The same bytes, without a PONG that is unwanted. The head of a frame is held back until it is whole."""
        if self.is_lost:
            return data
        rest = memoryview(data)
        if not self._head and len(rest) <= self._left:  # all of it is payload
            self._left -= len(rest)
            return data
        out = bytearray()
        while rest:
            rest = self._take(rest, out)
        return bytes(out)

    def _take(self, rest: memoryview, out: bytearray) -> memoryview:
        if self.is_lost:
            out += rest
            return rest[:0]
        if self._left:
            count = min(self._left, len(rest))
            self._left -= count
            out += rest[:count]
            return rest[count:]
        self._head += rest[:1]
        if self._is_unwanted_so_far():
            if len(self._head) == 2 + len(self.unwanted or b""):
                self.unwanted = None
                self._head.clear()
            return rest[1:]
        length = self._length()
        if length is not None:
            out += self._head
            self._left = length
            self._head.clear()
        return rest[1:]

    def _is_unwanted_so_far(self) -> bool:
        if self.unwanted is None:
            return False
        whole = bytes((0x80 | websocket.PONG, len(self.unwanted))) + self.unwanted
        return whole.startswith(self._head)

    def _length(self) -> int | None:
        """Length of the payload, once the head is whole. What was held back as a PONG may hold some payload already."""
        head = self._head
        if len(head) < 2:
            self.is_lost = (head[0] & _KIND) in _RESERVED_KINDS
            return 0 if self.is_lost else None
        length, start = head[1] & _LENGTH, 2
        if length >= 126:
            start += 2 if length == 126 else 8
            if len(head) < start:
                return None
            length = int.from_bytes(head[2:start], "big")
        if length >= 1 << 63:
            self.is_lost = True
            return 0
        start += _MASK_BYTES if head[1] & _MASKED else 0
        return None if len(head) < start else length - (len(head) - start)


def encode_ping(payload: bytes) -> bytes:
    """A client's PING."""
    return websocket.Sender(is_client=True).encode(websocket.PING, payload)
