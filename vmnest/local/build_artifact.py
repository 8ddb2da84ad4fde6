"""Unpacks an image's artifact: a zip that anybody may have made.

Names that leave the folder, files below links, and special files are refused; what it unpacks to is bounded, whatever
its headers say. Links are made as links, last, and nothing here ever goes through one.
"""

from __future__ import annotations

import calendar
import errno
import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

MAX_ENTRIES = 200_000
MAX_NAME_BYTES = 4096
MAX_DIRECTORY_BYTES = 32 << 20  # some 160 bytes for each entry
_MAX_LINK_BYTES = 4095
_CHUNK_BYTES = 1 << 18
_UNIX = 3
# The others are unpacked in pieces of whatever size they like: one of a few bytes can be gigabytes.
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})

FILE, FOLDER, LINK = "file", "folder", "link"


class ArtifactError(Exception):
    """The artifact is no archive that can be used; the message says why."""


class TooLargeError(ArtifactError):
    """It unpacks to more than there may be, or than the disk has."""


@dataclass(frozen=True)
class Entry:
    """Something in the artifact.

    Attributes:
        kind: FILE, FOLDER or LINK.
        mode: Its permissions.
        content: The digest of a file, the target of a link, nothing of a folder.
    """

    kind: str
    mode: int
    content: str = ""


def unpack(artifact: BinaryIO, target: str, *, max_bytes: int, owner: int | None = None) -> dict[str, Entry]:
    """Unpack an artifact into the empty directory ``target``; what is in it, by path.

    Args:
        artifact: A seekable file.
        target: Where to.
        max_bytes: What it may unpack to.
        owner: Whose the files will be, or None for ours.

    Raises:
        ArtifactError: it is no zip, or has something in it that cannot be unpacked.
        TooLargeError: it does not fit.
    """
    try:
        with zipfile.ZipFile(cast("BinaryIO", _Bounded(artifact))) as archive:
            return _Unpacker(archive, target, max_bytes=max_bytes, owner=owner).unpack()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TooLargeError(f"no space is left to unpack it: {error}") from error
        if error.errno in (errno.ENAMETOOLONG, errno.EILSEQ):
            raise ArtifactError(f"a name in it is no name of a file here: {error}") from error
        raise
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ArtifactError(str(error) or "it is damaged") from error
    except (UnicodeError, ValueError, OverflowError) as error:
        raise ArtifactError(f"it is damaged: {error}") from error


class _Bounded:
    """The artifact for ``zipfile``, which reads the whole directory of a zip at once and makes objects of it.

    Nothing else is read in such large pieces.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self.close = file.seek, file.tell, file.close
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size <= MAX_DIRECTORY_BYTES:
            data = self._file.read(MAX_DIRECTORY_BYTES + 1 if size < 0 else size)
            if len(data) <= MAX_DIRECTORY_BYTES:
                return data
        raise TooLargeError(f"its directory has more than {MAX_DIRECTORY_BYTES} bytes")

    def seekable(self) -> bool:
        return True


class _Unpacker:
    def __init__(self, archive: zipfile.ZipFile, target: str, *, max_bytes: int, owner: int | None) -> None:
        self._archive = archive
        self._target = target
        self._left = max_bytes
        self._owner = owner
        self._entries: dict[str, Entry] = {}

    def unpack(self) -> dict[str, Entry]:
        members = self._archive.infolist()
        if len(members) > MAX_ENTRIES:
            raise TooLargeError(f"it has {len(members)} entries; {MAX_ENTRIES} are allowed")
        links: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            path = _check_name(member.filename)
            if path in links or self._entries.get(path, _ANY_FOLDER).kind != FOLDER:
                raise ArtifactError(f"{member.filename!r} stands there twice")
            if member.compress_type not in _METHODS:
                raise ArtifactError(f"{member.filename!r} is compressed in a way that is not known here")
            kind = _kind(member)
            if kind == LINK:
                links[path] = member
                self._make_parents(path)
            elif kind == FOLDER:
                self._make_folder(path, _mode(member, 0o755))
            else:
                self._make_file(path, member)
        for path, member in links.items():
            self._make_link(path, member)
        self._seal()
        return self._entries

    def _make_parents(self, path: str) -> None:
        parent = os.path.dirname(path)
        known = self._entries.get(parent, _ANY_FOLDER)
        if known.kind != FOLDER:
            raise ArtifactError(f"{path!r} lies below {parent!r}, which is no directory")
        if parent and parent not in self._entries:
            self._make_folder(parent, 0o755)

    def _make_folder(self, path: str, mode: int) -> None:
        if path == "":
            return
        self._make_parents(path)
        known = self._entries.get(path)
        if known is None:
            os.mkdir(self._place(path), 0o700)
        self._entries[path] = Entry(FOLDER, mode | 0o700)

    def _make_file(self, path: str, member: zipfile.ZipInfo) -> None:
        if path == "" or path in self._entries:
            raise ArtifactError(f"{member.filename!r} is a directory and a file")
        self._make_parents(path)
        digest = hashlib.sha256()
        place = self._place(path)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as writer:
            for chunk in self._read(member):
                digest.update(chunk)
                writer.write(chunk)
        mode = _mode(member, 0o644) | 0o400
        self._own(place)
        os.chmod(place, mode)
        os.utime(place, (_time(member),) * 2)
        self._entries[path] = Entry(FILE, mode, digest.hexdigest())

    def _make_link(self, path: str, member: zipfile.ZipInfo) -> None:
        if path == "" or path in self._entries:
            raise ArtifactError(f"{member.filename!r} is a link and a directory")
        text = b""
        for chunk in self._read(member):  # of which there may be any number
            text += chunk
            if len(text) > _MAX_LINK_BYTES:
                break
        if not text or len(text) > _MAX_LINK_BYTES or b"\0" in text:
            raise ArtifactError(f"the link {member.filename!r} has no usable target")
        os.symlink(text, os.fsencode(self._place(path)))
        self._own(self._place(path))
        self._entries[path] = Entry(LINK, 0o777, os.fsdecode(text))

    def _read(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        with self._archive.open(member) as reader:
            while chunk := reader.read(_CHUNK_BYTES):
                self._left -= len(chunk)
                if self._left < 0:
                    raise TooLargeError("it unpacks to more than the disk of a build")
                yield chunk

    def _seal(self) -> None:
        """Give the directories their modes: until now we had to write into them."""
        for path, entry in self._entries.items():
            if entry.kind == FOLDER:
                self._own(self._place(path))
                os.chmod(self._place(path), entry.mode)

    def _own(self, place: str) -> None:
        if self._owner is not None:
            os.lchown(place, self._owner, self._owner)

    def _place(self, path: str) -> str:
        return os.path.join(self._target, path)


_ANY_FOLDER = Entry(FOLDER, 0)


def _check_name(name: str) -> str:
    """The path that a member's name means, without a slash at its end."""
    parts = name.rstrip("/").split("/")
    if name.startswith("/") or "\0" in name or len(os.fsencode(name)) > MAX_NAME_BYTES:
        raise ArtifactError(f"the name {name!r} cannot be used")
    kept = [part for part in parts if part not in ("", ".")]
    if ".." in kept:
        raise ArtifactError(f"the name {name!r} leads out of the archive")
    return "/".join(kept)


def _kind(member: zipfile.ZipInfo) -> str:
    mode = member.external_attr >> 16 if member.create_system == _UNIX else 0
    if member.is_dir():
        return FOLDER
    if stat.S_ISLNK(mode):
        return LINK
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise ArtifactError(f"{member.filename!r} is no file, directory or link")
    return FILE


def _mode(member: zipfile.ZipInfo, default: int) -> int:
    mode = member.external_attr >> 16 & 0o777 if member.create_system == _UNIX else 0
    return mode or default


def _time(member: zipfile.ZipInfo) -> float:
    try:
        return calendar.timegm((*member.date_time, 0, 0, 0))
    except (ValueError, OverflowError):  # a month 0, as some writers have it
        return 0
