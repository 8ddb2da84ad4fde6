"""Deflate in pieces that several threads can make at once, and that make one stream.

Each piece is compressed by itself, with the end of the piece before it as its dictionary, and ends on a whole byte (a
sync flush); the last one ends the stream. That is what pigz does. Where a sample says that a piece will not shrink, it
goes in as it is, in stored blocks. How a file is cut depends on its size alone, never on the number of threads: the
same content makes the same bytes.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple, Protocol

PIECE_BYTES = 1 << 20
DICTIONARY_BYTES = 32 * 1024
LEVEL = 6
_SAMPLE_BYTES = 16 * 1024
_WORTH_IT = 0.95  # of its size, or less
_RAW = -zlib.MAX_WBITS


class _Compressor(Protocol):
    def compress(self, data: bytes | memoryview, /) -> bytes: ...
    def flush(self, mode: int, /) -> bytes: ...


class _Maker(Protocol):
    def __call__(self, dictionary: bytes, /) -> _Compressor: ...


class Codec(NamedTuple):
    """What compresses: zlib, or ISA-L, which makes other bytes of the same content, faster."""

    name: str
    make: _Maker


def choose() -> Codec:
    """ISA-L where it is installed (the extra ``isal``), else zlib."""
    try:
        from isal import isal_zlib
    except ImportError:
        return Codec("zlib", _make_zlib)

    level = isal_zlib.ISAL_DEFAULT_COMPRESSION

    def make(dictionary: bytes) -> _Compressor:
        if dictionary:
            return isal_zlib.compressobj(level=level, wbits=_RAW, zdict=dictionary)
        return isal_zlib.compressobj(level=level, wbits=_RAW)

    return Codec("isal", make)


def _make_zlib(dictionary: bytes) -> _Compressor:
    if dictionary:
        return zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW, zdict=dictionary)
    return zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)


def deflate(codec: Codec, data: bytes, *, dictionary: bytes = b"", is_last: bool = True) -> bytes:
    """A piece of a stream. ``dictionary`` is the end of the piece before."""
    if not is_worth_it(data):
        return _store(data, is_last=is_last)
    compressor = codec.make(dictionary)
    return compressor.compress(data) + compressor.flush(zlib.Z_FINISH if is_last else zlib.Z_SYNC_FLUSH)


def is_worth_it(data: bytes) -> bool:
    """A sample of the data becomes smaller. What is short is tried as a whole."""
    if len(data) <= 4 * _SAMPLE_BYTES:
        return True
    middle = (len(data) - _SAMPLE_BYTES) // 2
    for start in (0, middle, len(data) - _SAMPLE_BYTES):
        sample = memoryview(data)[start : start + _SAMPLE_BYTES]
        if len(zlib.compress(sample, 1)) <= _SAMPLE_BYTES * _WORTH_IT:
            return True
    return False


def _store(data: bytes, *, is_last: bool) -> bytes:
    """Stored blocks of RFC 1951, section 3.2.4. They start on a whole byte, and a piece begins on one."""
    made = []
    for start in range(0, len(data), 0xFFFF):
        block = data[start : start + 0xFFFF]
        is_end = is_last and start + len(block) == len(data)
        size = len(block)
        made.append(bytes((is_end, size & 0xFF, size >> 8, ~size & 0xFF, (~size >> 8) & 0xFF)))
        made.append(block)
    return b"".join(made)
