"""The frames of a WebSocket in passing (RFC 6455 section 5.2), without I/O: where they begin, not what they hold."""

from __future__ import annotations

from typing import NamedTuple

from . import websocket

__all__ = ["FrameScanner", "encode_ping"]

_FINAL, _KIND, _MASKED, _LENGTH = 0x80, 0x0F, 0x80, 0x7F
_KINDS = frozenset(
    {websocket.CONTINUATION, websocket.TEXT, websocket.BINARY, websocket.CLOSE, websocket.PING, websocket.PONG}
)
_CONTROL = 0x08  # the bit of a kind
_LONGEST_HEAD_BYTES = 14
_MASK_BYTES = 4
_LEAST_BYTES = 4  # of a piece that is looked at as a whole: its length is there, however it is told


class _Head(NamedTuple):
    kind: int
    size: int
    length: int


class _NoFrameError(Exception):
    """What comes is no head of a frame."""


class FrameScanner:
    """Follows one direction of a WebSocket. Extensions do not matter: their frames begin as all others do.

    Args:
        from_client: They are a client's frames, which are masked; a server's are not.

    Attributes:
        unwanted: PONGs of a server with this payload are taken out; none, if it is empty.
        is_lost: What comes is no frames; from there on it passes as it is.
        is_closed: A CLOSE has passed, after which no frame may be sent.
    """

    def __init__(self, *, from_client: bool) -> None:
        self.unwanted = b""
        self.is_lost = False
        self.is_closed = False
        self._is_masked = from_client
        self._head = b""  # of the frame that has begun, as far as it has passed
        self._left = 0  # of its payload
        self._held = b""  # as far as it came, a PONG that is unwanted

    @property
    def is_between_frames(self) -> bool:
        """Another frame may be put in: the last byte was the end of one, or there was none yet."""
        return not (self._head or self._left or self._held or self.is_lost or self.is_closed)

    def feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """The same bytes without PONGs that are unwanted. What begins like one is held back until it is clear."""
        if self._held:
            data, self._held = self._held + data, b""
        if self.is_between_frames and _is_one_message(data, is_masked=self._is_masked):
            return data
        view = memoryview(data)
        kept: list[memoryview] = []
        start = at = 0
        while at < len(view) and not (self.is_lost or self.is_closed):
            if self._left:
                count = min(self._left, len(view) - at)
                self._left -= count
            elif count := self._unwanted_at(view[at:]):
                kept.append(view[start:at])
                start = at + count
            else:
                count = self._read_head(view[at:])
            at += count
        return b"".join((*kept, view[start:])) if kept else data

    def _unwanted_at(self, view: memoryview) -> int:
        """How many bytes there are a PONG that is unwanted, or may become one."""
        if self._head or not self.unwanted:
            return 0
        whole = bytes((_FINAL | websocket.PONG, len(self.unwanted))) + self.unwanted
        found = bytes(view[: len(whole)])
        if not whole.startswith(found):
            return 0
        self._held = found if len(found) < len(whole) else b""
        return len(found)

    def _read_head(self, view: memoryview) -> int:
        """Take bytes of a head; how many."""
        taken = len(self._head)
        begun = self._head + view[: _LONGEST_HEAD_BYTES - taken]
        try:
            head = _parse_head(begun, is_masked=self._is_masked)
        except _NoFrameError:
            self.is_lost = True
            return 0
        if head is None:
            self._head = begun
            return len(begun) - taken
        self._head = b""
        self._left = head.length
        self.is_closed = head.kind == websocket.CLOSE
        return head.size - taken


def _parse_head(data: bytes, *, is_masked: bool) -> _Head | None:
    """The head with which ``data`` begins; None if it is longer."""
    if len(data) < 2:
        return None
    first, second = data[0], data[1]
    kind, length, size = first & _KIND, second & _LENGTH, 2
    is_long = length > websocket.MAX_CONTROL_BYTES
    is_odd_control = kind & _CONTROL and (is_long or not first & _FINAL)
    if kind not in _KINDS or bool(second & _MASKED) != is_masked or is_odd_control:
        raise _NoFrameError
    if is_long:
        size += 2 if length == 126 else 8
        if len(data) < size:
            return None
        length = int.from_bytes(data[2:size], "big")
        if length >= 1 << 63:
            raise _NoFrameError
    size += _MASK_BYTES if is_masked else 0
    return None if len(data) < size else _Head(kind, size, length)


def _is_one_message(data: bytes | memoryview, *, is_masked: bool) -> bool:
    """Whether it is one whole frame, not too long, that is no control: what most pieces are, and quickly seen."""
    size = len(data)
    if size < _LEAST_BYTES:
        return False
    length, head = data[1] & _LENGTH, 2
    if length > websocket.MAX_CONTROL_BYTES:
        if length != 126:
            return False
        length, head = data[2] << 8 | data[3], 4
    if is_masked:
        head += _MASK_BYTES
    return size == head + length and data[0] & _KIND <= websocket.BINARY and (data[1] >= _MASKED) == is_masked


def encode_ping(payload: bytes) -> bytes:
    """A client's PING."""
    return websocket.Sender(is_client=True).encode(websocket.PING, payload)
