"""What the agent tells about files: entries of directories, and what became of a tree."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from .. import errors

__all__ = [
    "MAX_LIST_BYTES",
    "Entry",
    "Progress",
    "Skipped",
    "Transfer",
    "check_below",
    "parse_entry",
    "parse_skipped",
    "parse_transfer",
    "to_text",
]

FILE, DIRECTORY, LINK, UNKNOWN = "file", "directory", "link", "unknown"
MAX_LIST_BYTES = 128 * 1024 * 1024  # of what is told of a directory whose entries are held together
MAX_QUOTED_CHARS = 200
MAX_COUNT = (1 << 64) - 1
MAX_MODE = 0o7777
MAX_SECONDS = 1 << 62


class Entry(NamedTuple):
    """Something in the file system of a sandbox.

    In ``name``, ``path`` and ``target`` bytes that are no UTF-8 are lone surrogates, as ``os.fsdecode`` makes them.

    Attributes:
        name: Its name in its directory.
        path: Where it is: the path that was asked for, and what leads from there.
        type: ``file``, ``directory``, ``link``, ``fifo``, ``socket``, ``device``; ``unknown`` if it cannot be seen.
        size: Bytes.
        mode: Permission bits.
        mtime: When it was last modified; seconds since the epoch.
        uid, gid: Its owner and group, as numbers.
        target: Where it leads, if it is a link.
        sha256: The digest of a file's content as hexadecimal digits, if it was asked for.
        error: Why it, or what is in it, cannot be seen; None if it can.
    """

    name: str
    path: str
    type: str = UNKNOWN
    size: int = 0
    mode: int = 0
    mtime: float = 0.0
    uid: int = 0
    gid: int = 0
    target: str | None = None
    sha256: str | None = None
    error: str | None = None

    @property
    def is_file(self) -> bool:
        """It is a regular file."""
        return self.type == FILE

    @property
    def is_directory(self) -> bool:
        """It is a directory."""
        return self.type == DIRECTORY

    @property
    def is_link(self) -> bool:
        """It is a symbolic link."""
        return self.type == LINK


class Skipped(NamedTuple):
    """Something that was left out, or did not arrive as it was.

    Attributes:
        path: What it was, as a path in the tree.
        reason: Why.
    """

    path: str
    reason: str


class Transfer(NamedTuple):
    """What an upload or a download moved.

    Attributes:
        files: Regular files.
        directories: Directories, the one that was named included.
        links: Symbolic links, and hard links to files that came before.
        bytes: Content of the files.
        skipped: What was left out, with the reasons: sockets, FIFOs, devices, what cannot be read, what changed.
    """

    files: int = 0
    directories: int = 0
    links: int = 0
    bytes: int = 0
    skipped: tuple[Skipped, ...] = ()


class Progress(NamedTuple):
    """How far a transfer is.

    Attributes:
        bytes: Content that was moved so far; after a cut it may begin anew.
        total: All of it, None if that is not known.
        path: The file that is being moved; in a tree, its path there.
    """

    bytes: int
    total: int | None
    path: str


def to_text(path: bytes) -> str:
    """A path as text; bytes that are no UTF-8 are lone surrogates."""
    return path.decode("utf-8", "surrogateescape")


def parse_entry(members: object) -> Entry:
    """The entry that the agent describes.

    Raises:
        errors.AgentAnswerError: it is none.
    """
    if not isinstance(members, dict):
        raise _refused(members)
    return Entry(
        name=_text(members, "name"),
        path=_text(members, "path"),
        type=_optional_text(members, "type") or UNKNOWN,
        size=_count(members, "size"),
        mode=_count(members, "mode", most=MAX_MODE),
        mtime=_seconds(members, "mtime"),
        uid=_count(members, "uid"),
        gid=_count(members, "gid"),
        target=_optional_text(members, "target"),
        sha256=_optional_text(members, "sha256"),
        error=_optional_text(members, "error"),
    )


def check_below(entry: Entry, folder: str) -> Entry:
    """The entry, if it can be one in that directory: whoever gets a list makes paths on this machine of its names.

    Raises:
        errors.AgentAnswerError: it cannot.
    """
    top = posixpath.join(folder, "")
    names = entry.path[len(top) :].split("/")
    if not entry.path.startswith(top) or {"", ".", ".."}.intersection(names) or entry.name != names[-1]:
        raise _refused(entry)
    return entry


def parse_transfer(members: object) -> Transfer:
    """The account that the agent gives of a tree that it unpacked.

    Raises:
        errors.AgentAnswerError: it is none.
    """
    if not isinstance(members, dict):
        raise _refused(members)
    return Transfer(
        files=_count(members, "files"),
        directories=_count(members, "directories"),
        links=_count(members, "links"),
        bytes=_count(members, "bytes"),
        skipped=parse_skipped(members.get("skipped")),
    )


def parse_skipped(told: object) -> tuple[Skipped, ...]:
    """What the agent left out.

    Raises:
        errors.AgentAnswerError: it is no list of that.
    """
    found = [] if told is None else told
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _refused(found)
    return tuple(Skipped(_text(each, "path"), _text(each, "reason")) for each in found)


def _text(members: dict[str, object], name: str) -> str:
    value = _optional_text(members, name)
    if value is None:
        raise _refused(members)
    return value


def _optional_text(members: dict[str, object], name: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise _refused(members)
    return value


def _count(members: dict[str, object], name: str, *, most: int = MAX_COUNT) -> int:
    value = members.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _refused(members)
    return value


def _seconds(members: dict[str, object], name: str) -> float:
    value = members.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > MAX_SECONDS:
        raise _refused(members)
    return float(value)


def _refused(found: object) -> errors.AgentAnswerError:
    quoted = errors.quote(str(found), limit=MAX_QUOTED_CHARS)
    return errors.AgentAnswerError(f"the agent's answer does not describe files: {quoted}")
