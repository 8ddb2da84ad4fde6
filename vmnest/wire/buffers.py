"""Buffers that are lent: whoever carries bytes borrows one for as long as it holds some, and nobody idle holds any."""

from __future__ import annotations

from collections import deque

__all__ = ["BUFFER_BYTES", "borrow", "give_back"]

BUFFER_BYTES = 262144
_MOST_KEPT = 16

# Appending to a deque and popping from it are atomic.
_free: deque[memoryview] = deque(maxlen=_MOST_KEPT)


def borrow() -> memoryview:
    """A buffer of ``BUFFER_BYTES`` with anything in it, to be given back."""
    try:
        return _free.pop()
    except IndexError:
        return memoryview(bytearray(BUFFER_BYTES))


def give_back(buffer: memoryview) -> None:
    """Let others have it. It must be the whole buffer that was borrowed, and nobody may look at it any more."""
    _free.append(buffer)
