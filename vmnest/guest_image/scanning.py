"""What of a directory goes into an image: its files, links and directories, in one order for all machines.

Nothing is opened in here: a FIFO would wait for ever. Links are never followed.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from typing import NamedTuple

from .. import errors
from . import ignoring
from .source import DOCKERFILE

MAX_NAME_BYTES = 65535  # what a zip has room for
MAX_IGNORE_BYTES = 1 << 20
# The build runs on a disk with some 7.2 GB free, and needs room for its own work.
MAX_CONTENT_BYTES = 7 * 2**30

_SPECIAL = (
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Entry(NamedTuple):
    """Something that goes into the image. ``mode`` has the type and all permission bits.

    ``target`` is where a link leads to; ``size`` is a file's, as it was when it was looked at.
    """

    name: str
    path: str
    mode: int
    size: int = 0
    target: str | None = None

    @property
    def is_directory(self) -> bool:
        """It is a directory."""
        return stat.S_ISDIR(self.mode)


class Tree(NamedTuple):
    """The entries of a directory, sorted by name, and what its user should know."""

    entries: tuple[Entry, ...]
    warnings: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)


def check_size(size: int) -> None:
    """See that a build has room for so many bytes of content.

    Raises:
        errors.GuestImageError: it has not.
    """
    if size > MAX_CONTENT_BYTES:
        raise errors.GuestImageError(
            f"the image's content has {size / 2**30:.1f} GiB, more than the disk of a build",
            hint="Exclude what is not needed in .dockerignore, or fetch it in a RUN step.",
        )


def scan(path: str) -> Tree:
    """Look at a directory.

    Raises:
        errors.GuestImageError: it has no Dockerfile, or something in it that cannot be packed.
    """
    rules = _load_rules(path)
    warnings: list[str] = []
    entries = sorted(_walk(path, rules, warnings), key=lambda entry: entry.name.encode())
    if not any(entry.name == DOCKERFILE and stat.S_ISREG(entry.mode) for entry in entries):
        raise errors.GuestImageError(f"{path} has no file {DOCKERFILE}", hint="It must stand at its top level.")
    return Tree(tuple(_with_their_parents(entries, path)), tuple(warnings))


def _load_rules(path: str) -> ignoring.Rules:
    place = os.path.join(path, ignoring.FILE_NAME)
    if not os.path.lexists(place):
        return ignoring.Rules()
    if not os.path.isfile(place):  # not to be passed over: what it was to exclude may be secret
        raise errors.GuestImageError(f"{place} is no regular file", hint="Mend it, or remove it.")
    try:
        with open(place, "rb") as file:
            text = file.read(MAX_IGNORE_BYTES + 1)
        if len(text) > MAX_IGNORE_BYTES:
            raise errors.GuestImageError(f"{place} has more than {MAX_IGNORE_BYTES} bytes")
        return ignoring.parse(text.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise errors.GuestImageError(f"cannot read {place}: {error}") from error


def _walk(path: str, rules: ignoring.Rules, warnings: list[str]) -> Iterator[Entry]:
    left = [(path, "")]
    while left:
        folder, prefix = left.pop()
        for item in _list(folder):
            name = f"{prefix}{item.name}"
            try:
                status = item.stat(follow_symlinks=False)
            except OSError as error:
                raise _unreadable(item.path, error) from error
            entry = None if rules.excludes(name) else _look_at(item.path, name, status, warnings)
            if entry is not None:
                yield entry
            if stat.S_ISDIR(status.st_mode) and not rules.excludes_all_below(name):
                left.append((item.path, f"{name}/"))


def _list(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda item: item.name)
    except OSError as error:
        raise _unreadable(folder, error) from error


def _look_at(path: str, name: str, status: os.stat_result, warnings: list[str]) -> Entry | None:
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise errors.GuestImageError(
            f"the name {name!r} is no UTF-8, and cannot be stored in a zip",
            hint=f"Rename it, or exclude it in {ignoring.FILE_NAME}.",
        ) from None
    if length >= MAX_NAME_BYTES:
        raise errors.GuestImageError(f"the path {name[:80]}... has {length} bytes, more than a zip can store")
    mode = status.st_mode
    special = next((what for is_it, what in _SPECIAL if is_it(mode)), None)
    if special is not None:
        warnings.append(f"{name} is {special}, and is left out")
        return None
    if stat.S_ISLNK(mode):
        target = _read_link(path)
        if _leaves(name, target):
            warnings.append(f"{name} is a link out of the directory, to {target}; it is stored as that link")
        return Entry(name, path, mode, target=target)
    return Entry(name, path, mode, size=0 if stat.S_ISDIR(mode) else status.st_size)


def _read_link(path: str) -> str:
    try:
        target = os.readlink(path)
        target.encode()
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeEncodeError:
        raise errors.GuestImageError(f"the link {path!r} leads to a name that is no UTF-8") from None
    return target


def _leaves(name: str, target: str) -> bool:
    if target.startswith("/"):
        return True
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target)).split("/")[0] == ".."


def _with_their_parents(entries: list[Entry], path: str) -> list[Entry]:
    """A directory that is excluded comes along if something in it is taken back: it needs a place to be in."""
    there = {entry.name for entry in entries}
    missing = {parent for entry in entries for parent in _parents(entry.name) if parent not in there}
    made = [Entry(name, os.path.join(path, name), os.stat(os.path.join(path, name)).st_mode) for name in missing]
    return sorted((*entries, *made), key=lambda entry: entry.name.encode()) if made else entries


def _parents(name: str) -> Iterator[str]:
    parent = posixpath.dirname(name)
    while parent:
        yield parent
        parent = posixpath.dirname(parent)


def _unreadable(path: str, error: OSError) -> errors.GuestImageError:
    return errors.GuestImageError(
        f"cannot read {path}: {error.strerror or error}",
        hint=f"Make it readable, or exclude it in {ignoring.FILE_NAME}.",
    )
