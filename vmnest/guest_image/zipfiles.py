"""A zip as it is written: headers around data that was compressed elsewhere.

The same entries make the same bytes: there is one date for everything (the earliest that the format has), and no field
tells of this machine. Source: PKWARE's APPNOTE 6.3.10, sections 4.3 to 4.5; the upper half of the external attributes
is the Unix mode, as Info-ZIP writes it.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, NamedTuple

STORED = 0
DEFLATED = 8

_UNIX = 3 << 8
_VERSION = 20
_VERSION_ZIP64 = 45
_UTF8_NAMES = 0x800
_DOS_DIRECTORY = 0x10
_DATE, _TIME = (1 << 5) | 1, 0  # 1980-01-01
_LIMIT = 0xFFFFFFFF
_MANY = 0xFFFF

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<IIQI")
_END = struct.Struct("<IHHHHIIH")


class Record(NamedTuple):
    """What the headers say of an entry. ``name`` of a directory ends with a slash."""

    name: bytes
    mode: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int

    @property
    def flags(self) -> int:
        """Names beyond ASCII say so."""
        return 0 if self.name.isascii() else _UTF8_NAMES


class Writer:
    """Writes entries one after the other to a seekable binary file, from where it stands."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._records: list[Record] = []
        self._at = 0

    def begin(self, name: str, *, mode: int, is_large: bool) -> Open:
        """Begin an entry whose data follows in pieces. ``is_large``: it may take 4 GiB or more."""
        encoded = name.encode()
        self._write(_local(Record(encoded, mode, DEFLATED, 0, 0, 0, self._at), is_large=is_large))
        return Open(encoded, mode, self._at - len(encoded) - _LOCAL.size - _extra_size(is_large), is_large)

    def write(self, data: bytes) -> None:
        """Append data of the entry that was begun."""
        self._write(data)

    def end(self, entry: Open, *, method: int, crc: int, size: int) -> None:
        """The entry is whole: what its header has to say is known now."""
        start = entry.offset + _LOCAL.size + len(entry.name) + _extra_size(entry.is_large)
        record = Record(entry.name, entry.mode, method, crc, self._at - start, size, entry.offset)
        if not entry.is_large and max(record.packed, record.size) >= _LIMIT:
            raise ValueError(f"{entry.name!r} grew beyond what its header has room for")
        self._file.seek(entry.offset)
        self._file.write(_local(record, is_large=entry.is_large))
        self._file.seek(self._at)
        self._records.append(record)

    def add(self, name: str, *, mode: int, method: int, crc: int, size: int, data: bytes) -> None:
        """Write an entry whose data is there."""
        record = Record(name.encode(), mode, method, crc, len(data), size, self._at)
        self._write(_local(record, is_large=False))
        self._write(data)
        self._records.append(record)

    def close(self) -> int:
        """Write the directory of the zip; the bytes that were written in all."""
        start = self._at
        for record in self._records:
            self._write(_central(record))
        self._write(_end(count=len(self._records), size=self._at - start, offset=start))
        return self._at

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._at += len(data)


class Open(NamedTuple):
    """An entry that was begun."""

    name: bytes
    mode: int
    offset: int
    is_large: bool


def _extra_size(is_large: bool) -> int:
    return 20 if is_large else 0


def _local(record: Record, *, is_large: bool) -> bytes:
    extra = struct.pack("<HHQQ", 1, 16, record.size, record.packed) if is_large else b""
    sizes = (_LIMIT, _LIMIT) if is_large else (record.packed, record.size)
    version = _VERSION_ZIP64 if is_large else _VERSION
    head = _LOCAL.pack(
        *(0x04034B50, version, record.flags, record.method, _TIME, _DATE, record.crc, *sizes),
        *(len(record.name), len(extra)),
    )
    return head + record.name + extra


def _central(record: Record) -> bytes:
    shown = [min(value, _LIMIT) for value in (record.packed, record.size, record.offset)]
    large = [value for value in (record.size, record.packed, record.offset) if value >= _LIMIT]
    extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    version = _VERSION_ZIP64 if large else _VERSION
    attributes = (record.mode & 0xFFFF) << 16 | (_DOS_DIRECTORY if record.name.endswith(b"/") else 0)
    head = _CENTRAL.pack(
        *(0x02014B50, _UNIX | version, version, record.flags, record.method, _TIME, _DATE, record.crc),
        *(shown[0], shown[1], len(record.name), len(extra), 0, 0, 0, attributes, shown[2]),
    )
    return head + record.name + extra


def _end(*, count: int, size: int, offset: int) -> bytes:
    made = b""
    if count >= _MANY or size >= _LIMIT or offset >= _LIMIT:
        version = _UNIX | _VERSION_ZIP64
        made += _END64.pack(0x06064B50, _END64.size - 12, version, _VERSION_ZIP64, 0, 0, count, count, size, offset)
        made += _LOCATOR64.pack(0x07064B50, 0, offset + size, 1)
    shown = min(count, _MANY)
    return made + _END.pack(0x06054B50, 0, 0, shown, shown, min(size, _LIMIT), min(offset, _LIMIT), 0)
