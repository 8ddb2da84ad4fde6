"""Frames: how the output of a process travels, in arrival order, so that a reader can go on from any byte of it.

A frame is one byte of kind, four bytes of length (big endian) and the payload. A stream begins with one PROCESS frame.
An offset counts the payload bytes of all STDOUT and STDERR frames since the process was started; a GAP stands for bytes
that are not kept any more, and moves the offset by as many. EXIT is the last frame of a process that has ended. A
stream that ends without one is to be asked for again, at the offset that was reached.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "EXIT",
    "GAP",
    "OUTPUT_KINDS",
    "PROCESS",
    "STDERR",
    "STDOUT",
    "Decoder",
    "FrameError",
    "encode",
    "encode_gap",
    "encode_head",
    "parse_gap",
]

PROCESS = 1  # a JSON object: what is known of the process
STDOUT = 2
STDERR = 3
GAP = 4  # eight bytes, big endian: how many bytes are left out here
EXIT = 5  # a JSON object: exit_code, signal, timed_out, and offset, where the output ends

OUTPUT_KINDS = frozenset({STDOUT, STDERR})
HEAD_BYTES = 5
MAX_PAYLOAD_BYTES = 1024 * 1024
_HEAD = struct.Struct(">BI")
_COUNT = struct.Struct(">Q")


class FrameError(ValueError):
    """These bytes are no frames."""


def encode(kind: int, payload: bytes) -> bytes:
    """One frame."""
    return encode_head(kind, len(payload)) + payload


def encode_head(kind: int, size: int) -> bytes:
    """What comes before a payload of ``size`` bytes."""
    if size > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a frame holds at most {MAX_PAYLOAD_BYTES} bytes")
    return _HEAD.pack(kind, size)


def encode_gap(count: int) -> bytes:
    """The frame for ``count`` bytes that are not kept any more."""
    return encode(GAP, _COUNT.pack(count))


def parse_gap(payload: bytes) -> int:
    """The number of bytes that a GAP stands for.

    Raises:
        FrameError: it is no such payload.
    """
    if len(payload) != _COUNT.size:
        raise FrameError("malformed gap")
    return int(_COUNT.unpack(payload)[0])


class Decoder:
    """Bytes in, frames out. Output comes in pieces as it arrives; the payload of every other frame comes whole.

    Frames of unknown kinds are passed over: a newer peer may have more of them.
    """

    def __init__(self) -> None:
        self._held = bytearray()  # a head, or the payload of a frame that comes whole; not complete yet
        self._kind = 0
        self._left: int | None = None  # bytes of the payload that are still to come; None while a head is read

    @property
    def is_between_frames(self) -> bool:
        """Nothing is left over: a stream may end here."""
        return self._left is None and not self._held

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames, or the pieces of output, that ``data`` completes.

        Raises:
            FrameError: a frame is larger than any may be.
        """
        view = memoryview(data)
        while view or self._left == 0:
            if self._left is None:
                view = self._take_head(view)
            elif self._kind in OUTPUT_KINDS:
                piece, view = view[: self._left], view[self._left :]
                self._left = self._left - len(piece) or None
                if piece:
                    yield self._kind, bytes(piece)
            else:
                view = self._take_payload(view)
                if self._left == 0:
                    payload, self._held, self._left = bytes(self._held), bytearray(), None
                    if self._kind in (PROCESS, GAP, EXIT):
                        yield self._kind, payload

    def _take_head(self, view: memoryview) -> memoryview:
        missing = HEAD_BYTES - len(self._held)
        self._held += view[:missing]
        if len(self._held) == HEAD_BYTES:
            self._kind, self._left = _HEAD.unpack(self._held)
            self._held = bytearray()
            if self._left > MAX_PAYLOAD_BYTES:
                raise FrameError(f"a frame of {self._left} bytes")
        return view[missing:]

    def _take_payload(self, view: memoryview) -> memoryview:
        assert self._left is not None
        piece = view[: self._left]
        self._held += piece
        self._left -= len(piece)
        return view[len(piece) :]
