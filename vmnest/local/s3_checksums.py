"""S3's checksums of objects (``x-amz-checksum-…``), computed as bytes come. Pure.

The standard library has no CRC32C and no CRC64NVME, and in Python they take 0.1 s a MiB, which others have to wait for:
beyond SLOW_BYTES they are not computed, and what the client said stands. The bytes are held to the SHA-256 of its
signature all the same.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

SLOW_BYTES = 4 << 20
PREFIX = "x-amz-checksum-"
# Fields of that prefix that say something else.
OTHER_FIELDS = frozenset({"algorithm", "mode", "type"})


class Digest(Protocol):
    """A checksum that grows."""

    def update(self, data: bytes, /) -> None:
        """Take these bytes."""

    def digest(self) -> bytes | None:
        """The checksum, as bytes; None: it was too much to compute."""


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


class _Reflected:
    """Any CRC whose bits come in reverse, by a table of what each byte does."""

    def __init__(self, polynomial: int, *, width: int) -> None:
        self._table = _table(polynomial)
        self._width = width
        self._mask = (1 << width) - 1
        self._value = self._mask
        self._size = 0

    def update(self, data: bytes, /) -> None:
        self._size += len(data)
        if self._size > SLOW_BYTES:
            return
        value, table = self._value, self._table
        for byte in data:
            value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
        self._value = value

    def digest(self) -> bytes | None:
        return None if self._size > SLOW_BYTES else (self._value ^ self._mask).to_bytes(self._width // 8, "big")


@functools.cache
def _table(polynomial: int) -> Sequence[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        table.append(value)
    return table


ALGORITHMS: Mapping[str, Callable[[], Digest]] = {
    "crc32": _Crc32,
    "crc32c": lambda: _Reflected(0x82F63B78, width=32),
    "crc64nvme": lambda: _Reflected(0x9A6C9329AC4BC9B5, width=64),
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "md5": lambda: hashlib.md5(usedforsecurity=False),
}
# Those of which S3 makes one of the whole object out of its parts, if asked to; crc64nvme has no other kind.
OF_WHOLE_OBJECTS = frozenset({"crc32", "crc32c", "crc64nvme"})


def encode(digest: bytes) -> str:
    """As it travels."""
    return base64.b64encode(digest).decode()


def decode(text: str, *, size: int | None = None) -> bytes | None:
    """The bytes that travelled as ``text``; None if it is no base64, or not of that many bytes."""
    try:
        found = base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        return None
    return found if size is None or len(found) == size else None


def of_parts(algorithm: str, checksums: Sequence[str]) -> str | None:
    """The COMPOSITE checksum of an object of which these are the parts'; None if one of them makes no sense."""
    whole = ALGORITHMS[algorithm]()
    for each in checksums:
        part = decode(each)
        if part is None:
            return None
        whole.update(part)
    digest = whole.digest()
    return None if digest is None else f"{encode(digest)}-{len(checksums)}"


def etag_of_parts(etags: Sequence[str]) -> str:
    """The ETag of an object of parts: MD5 of their MD5s, and how many."""
    joined = b"".join(bytes.fromhex(etag) for etag in etags)
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"
