"""The tar format, without I/O: members to bytes, and bytes to members (POSIX.1-2001 "PAX", on top of ustar).

What is written: a ustar header, and before it an extended header for what does not fit in: long or non-ASCII names,
fractions of a second, sizes from 8 GiB on. Names are bytes throughout; where they are no UTF-8, ``hdrcharset=BINARY``
says so. A remark of the packer (something was left out, or changed) is a global extended header with two records of
our own where it happened: other readers pass over it, and no list has to be held to the end.

What is read is more: old ustar, GNU's long names and binary numbers. Rules for what a stranger may send: every header
has its checksum, sizes and lengths are bounded before anything is read, and an archive without its end is an error.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import NoReturn

__all__ = [
    "DIRECTORY",
    "END",
    "FILE",
    "HARD_LINK",
    "SYMBOLIC_LINK",
    "ArchiveError",
    "Member",
    "Note",
    "Reader",
    "encode_member",
    "encode_note",
    "padding",
]

BLOCK_BYTES = 512
END = bytes(2 * BLOCK_BYTES)
_EMPTY = bytes(BLOCK_BYTES)

FILE = "file"
DIRECTORY = "directory"
SYMBOLIC_LINK = "symbolic link"
HARD_LINK = "hard link"

MAX_NAME_BYTES = 16384  # four times what Linux takes in one path
MAX_EXTENSION_BYTES = 1024 * 1024  # one extended header; extended attributes of a foreign archive are in there
_MAX_SIZE = 1 << 60
_MAX_SECONDS = 1 << 40
_NANOSECONDS = 1_000_000_000

_TYPES = {FILE: b"0", HARD_LINK: b"1", SYMBOLIC_LINK: b"2", DIRECTORY: b"5"}
_KINDS = {
    **{flag: kind for kind, flag in _TYPES.items()},
    b"\0": FILE,
    b"7": FILE,
    b"3": "device",
    b"4": "device",
    b"6": "named pipe",
}
_EXTENDED, _GLOBAL, _GNU_NAME, _GNU_TARGET, _GNU_SPARSE = b"x", b"g", b"L", b"K", b"S"
_EXTENSION_NAME = b"././@PaxHeader"
_NOTE_PATH, _NOTE_REASON = b"VMNEST.path", b"VMNEST.reason"
_SPARSE = b"GNU.sparse"
_WANTED = frozenset({b"path", b"linkpath", b"size", b"mtime", _NOTE_PATH, _NOTE_REASON})
_MAX_REASON_BYTES = 400
_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_TIME = re.compile(rb"(-?)([0-9]{1,20})(?:\.([0-9]*))?")
_DECIMAL = re.compile(rb"[0-9]{1,20}")
_RECORD_LENGTH = re.compile(rb"([1-9][0-9]{0,7}) ")


class ArchiveError(ValueError):
    """These bytes are no tar archive, or not all of one."""


class Member:
    """One member of an archive. ``target`` is what a link leads to; ``mtime_ns`` is in nanoseconds."""

    __slots__ = ("is_sparse", "kind", "mode", "mtime_ns", "name", "size", "target")

    def __init__(
        self, name: bytes, *, kind: str = FILE, mode: int = 0o644, size: int = 0, mtime_ns: int = 0, target: bytes = b""
    ) -> None:
        self.name = name
        self.kind = kind
        self.mode = mode
        self.size = size
        self.mtime_ns = mtime_ns
        self.target = target
        self.is_sparse = False  # its content has a map of holes before it, which is not understood here


class Note:
    """A remark of the packer: what was left out, or did not stay the same, and why."""

    __slots__ = ("path", "reason")

    def __init__(self, path: bytes, reason: str) -> None:
        self.path = path
        self.reason = reason


# -- writing


def encode_member(member: Member) -> bytes:
    """The headers of a member; its content and ``padding`` follow."""
    name = member.name + b"/" if member.kind == DIRECTORY and not member.name.endswith(b"/") else member.name
    seconds, fraction = divmod(member.mtime_ns, _NANOSECONDS)
    records: list[tuple[bytes, bytes]] = []
    if any(len(text) > 100 or not text.isascii() for text in (name, member.target)):
        if not (_is_utf8(name) and _is_utf8(member.target)):
            records.append((b"hdrcharset", b"BINARY"))
        records.append((b"path", name))
        if member.target:
            records.append((b"linkpath", member.target))
    if fraction or not 0 <= seconds < 1 << 33:
        records.append((b"mtime", _encode_time(member.mtime_ns)))
        seconds = min(max(seconds, 0), (1 << 33) - 1)
    size = member.size
    if size >= 1 << 33:
        records.append((b"size", b"%d" % size))
        size = 0
    header = _encode_header(
        name,
        flag=_TYPES[member.kind],
        mode=member.mode,
        size=size,
        seconds=seconds,
        target=member.target,
    )
    return _encode_extension(_EXTENDED, records) + header if records else header


def encode_note(note: Note) -> bytes:
    """A remark for whoever unpacks."""
    return _encode_extension(_GLOBAL, [(_NOTE_PATH, note.path), (_NOTE_REASON, note.reason.encode("utf-8"))])


def padding(size: int) -> bytes:
    """What follows a content of ``size`` bytes."""
    return bytes(-size % BLOCK_BYTES)


def _encode_extension(flag: bytes, records: list[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(_encode_record(key, value) for key, value in records)
    return _encode_header(_EXTENSION_NAME, flag=flag, size=len(body)) + body + padding(len(body))


def _encode_record(key: bytes, value: bytes) -> bytes:
    """A record begins with its own length in decimal, which counts itself."""
    rest = b" %b=%b\n" % (key, value)
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d%b" % (length, rest)


def _encode_header(
    name: bytes, *, flag: bytes, size: int, mode: int = 0o644, seconds: int = 0, target: bytes = b""
) -> bytes:
    fields = (
        name[:100].ljust(100, b"\0"),
        b"%07o\0" % (mode & 0o7777),
        b"%07o\0" % 0,  # the owner is not told: what is unpacked belongs to who unpacks it
        b"%07o\0" % 0,
        b"%011o\0" % size,
        b"%011o\0" % seconds,
        b" " * 8,
        flag,
        target[:100].ljust(100, b"\0"),
        b"ustar\x0000",
    )
    block = b"".join(fields).ljust(BLOCK_BYTES, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _encode_time(nanoseconds: int) -> bytes:
    sign = b"-" if nanoseconds < 0 else b""
    seconds, fraction = divmod(abs(nanoseconds), _NANOSECONDS)
    return (b"%b%d.%09d" % (sign, seconds, fraction)).rstrip(b"0").rstrip(b".")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# -- reading


class Reader:
    """Reads an archive that arrives in pieces, in one pass.

    Iterate over ``members()``; before going on to the next one, ``content()`` gives what is in a file. What is not
    taken is passed over.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._source = _Source(pieces)
        self._left = 0  # bytes of the present member's content that were not taken
        self._padding = 0

    def members(self) -> Iterator[Member | Note]:
        """The members and remarks in their order, up to the end of the archive.

        Raises:
            ArchiveError: it is malformed, or ends too early.
        """
        records: dict[bytes, bytes] = {}
        while True:
            block = self._source.take(BLOCK_BYTES)
            if block == _EMPTY:
                break
            flag = _check_header(block)
            size = _parse_number(block[124:136])
            if flag in (_EXTENDED, _GLOBAL, _GNU_NAME, _GNU_TARGET):
                extension = self._read_extension(size)
                if flag == _GLOBAL:
                    yield from _parse_notes(extension)
                elif flag == _EXTENDED:
                    records.update(_parse_records(extension))
                else:
                    records[b"path" if flag == _GNU_NAME else b"linkpath"] = extension.partition(b"\0")[0]
                continue
            member = _parse_member(block, flag=flag, records=records)
            self._left, self._padding = member.size, -member.size % BLOCK_BYTES
            yield member
            self._skip()
            records = {}
        if self._source.take(BLOCK_BYTES) != _EMPTY:
            raise ArchiveError("the archive has an empty block in its middle")
        self._source.drain()

    def content(self) -> Iterator[bytes]:
        """What is left of the present member's content.

        Raises:
            ArchiveError: the archive ends too early.
        """
        while self._left:
            piece = self._source.take_some(self._left)
            self._left -= len(piece)
            yield piece
        if self._padding:
            self._source.take(self._padding)
            self._padding = 0

    def _skip(self) -> None:
        for _ in self.content():
            """Nobody wanted it."""

    def _read_extension(self, size: int) -> bytes:
        if size > MAX_EXTENSION_BYTES:
            raise ArchiveError(f"an extended header of {size} bytes")
        return self._source.take(size + -size % BLOCK_BYTES)[:size]


class _Source:
    """Bytes on demand out of pieces as they come."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held = b""
        self._position = 0

    def take_some(self, most: int) -> bytes:
        """One to ``most`` bytes."""
        while self._position == len(self._held):
            piece = next(self._pieces, None)
            if piece is None:
                raise ArchiveError("the archive ends too early")
            self._held, self._position = piece, 0
        if self._position == 0 and len(self._held) <= most:
            piece, self._held = self._held, b""
            return piece
        piece = self._held[self._position : self._position + most]
        self._position += len(piece)
        return piece

    def take(self, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        parts = []
        while count:
            parts.append(self.take_some(count))
            count -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drain(self) -> None:
        """Read on to the end: archives are padded with zeros."""
        self._held, self._position = b"", 0
        for _ in self._pieces:
            """Nothing counts after the end of the archive."""


def _check_header(block: bytes) -> bytes:
    """The type of the member, if this is a header at all."""
    told = _OCTAL.fullmatch(block[148:156])
    rest = block[:148] + b" " * 8 + block[156:]
    number = int(told[1] or b"0", 8) if told else -1
    # Some old archivers summed signed bytes.
    if number != sum(rest) and number != sum(rest) - 256 * sum(byte > 127 for byte in rest):
        _fail("a header has a wrong checksum" if block[257:262] == b"ustar" else "this is no tar archive")
    flag = block[156:157]
    if flag == _GNU_SPARSE:
        _fail("files with holes in GNU's old format are not understood")
    return flag


def _parse_member(block: bytes, *, flag: bytes, records: dict[bytes, bytes]) -> Member:
    name = records.get(b"path")
    if name is None:
        name = _until_nul(block[:100])
        if block[257:263] == b"ustar\0" and block[345]:
            name = _until_nul(block[345:500]) + b"/" + name
    kind = _KINDS.get(flag) or f"member of type {flag!r}"
    if kind == FILE and name.endswith(b"/"):
        kind = DIRECTORY  # as archives had it before there was a type for it
    size = _parse_size(records[b"size"]) if b"size" in records else _parse_number(block[124:136])
    if _KINDS.get(flag, FILE) != FILE:
        size = 0  # whatever the field says, no content follows
    time = records.get(b"mtime")
    member = Member(
        _check_name(name),
        kind=kind,
        mode=_parse_number(block[100:108]) & 0o7777,
        size=size,
        mtime_ns=_parse_number(block[136:148], signed=True) * _NANOSECONDS if time is None else _parse_time(time),
        target=_check_name(records.get(b"linkpath", _until_nul(block[157:257]))),
    )
    member.mtime_ns = min(max(member.mtime_ns, -_MAX_SECONDS * _NANOSECONDS), _MAX_SECONDS * _NANOSECONDS)
    member.is_sparse = _SPARSE in records
    return member


def _parse_records(extension: bytes) -> dict[bytes, bytes]:
    records = {}
    position = 0
    while position < len(extension):
        match = _RECORD_LENGTH.match(extension, position)
        end = position + int(match[1]) if match else 0
        if match is None or end > len(extension) or end <= match.end() or extension[end - 1] != 0x0A:
            _fail("an extended header is malformed")
        key, equals, value = extension[match.end() : end - 1].partition(b"=")
        if not equals:
            _fail("an extended header is malformed")
        # Only what is used: a stranger's archive may have any number of others.
        if key in _WANTED:
            records[key] = value
        elif key.startswith(_SPARSE):
            records[_SPARSE] = b""
        position = end
    return records


def _parse_notes(extension: bytes) -> Iterator[Note]:
    records = _parse_records(extension)
    if _NOTE_PATH in records:
        reason = records.get(_NOTE_REASON, b"")[:_MAX_REASON_BYTES].decode("utf-8", "replace")
        yield Note(_check_name(records[_NOTE_PATH]), reason)


def _parse_number(field: bytes, *, signed: bool = False) -> int:
    """Octal digits, or GNU's binary numbers with the topmost bit set."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big", signed=True) if field[0] == 0xFF else int.from_bytes(field[1:], "big")
        value += 0 if field[0] == 0xFF else (field[0] & 0x7F) << 8 * (len(field) - 1)
    else:
        match = _OCTAL.fullmatch(field)
        if match is None:
            _fail("a number in a header is malformed")
        value = int(match[1] or b"0", 8)
    if value > _MAX_SIZE or (value < 0 and not signed):
        _fail(f"a header has the number {value}")
    return max(value, -_MAX_SIZE)


def _parse_size(text: bytes) -> int:
    if not _DECIMAL.fullmatch(text) or int(text) > _MAX_SIZE:
        _fail("a size in an extended header is malformed")
    return int(text)


def _parse_time(text: bytes) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        _fail("a time in an extended header is malformed")
    fraction = (match[3] or b"")[:9].ljust(9, b"0")
    value = int(match[2]) * _NANOSECONDS + int(fraction)
    return -value if match[1] else value


def _check_name(name: bytes) -> bytes:
    if len(name) > MAX_NAME_BYTES:
        _fail(f"a name of {len(name)} bytes")
    if b"\0" in name:
        _fail("a name with a NUL in it")
    return name


def _until_nul(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _fail(problem: str) -> NoReturn:
    raise ArchiveError(problem)
