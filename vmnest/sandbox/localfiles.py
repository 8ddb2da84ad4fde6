"""Files of this machine: read as they were when that began, replaced as a whole or not at all.

Only regular files are opened; opening anything else could wait for ever, or do something. Who must not be led elsewhere
names a file in a directory that is held open: see ``Place``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence

from .. import errors, systems
from .._guest.agentd import patterns
from ..agent.sources import PIECE_BYTES

__all__ = [
    "LocalFile",
    "LocalPath",
    "NewFile",
    "Place",
    "check_trees",
    "is_directory",
    "measure",
    "replacing",
    "to_bytes",
    "to_place",
    "translated",
]

LocalPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_ATTEMPTS = 100
_TEMPORARY_PREFIX = b".vmnest-"
_TEMPORARY_PREFIXES = (_TEMPORARY_PREFIX, b".agentd-")  # in a tree they are the guest's code
_READ_FLAGS = os.O_RDONLY | systems.NONBLOCK | systems.NOCTTY | systems.CLOEXEC
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | systems.NOFOLLOW | systems.CLOEXEC
_PERMISSIONS = 0o777


def to_bytes(path: LocalPath) -> bytes:
    """The path as the system takes it.

    Raises:
        errors.UsageError: it can be no path.
    """
    try:
        data = os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        data = b""
    if not data or 0 in data:
        raise errors.UsageError(f"no path of this machine: {path!r}")
    return data


class Place:
    """Where a file of this machine is: a path, or a name in a directory that is held open.

    A path is looked up each time that it is used, and its links are followed. A name in an open directory leads to that
    directory whatever becomes of the way there, and nowhere else: it is never followed if it is a link.

    Attributes:
        name: The path, or the name.
        folder: The descriptor of the directory; None for a path.
        shown: What to call it.
    """

    __slots__ = ("folder", "name", "shown")

    def __init__(self, name: bytes, *, folder: int | None = None, shown: bytes | None = None) -> None:
        self.name = name
        self.folder = folder
        self.shown = name if shown is None else shown

    def stat(self) -> os.stat_result:
        """What is there."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=self.folder is None)

    def open(self, flags: int) -> int:
        """A descriptor of what is there."""
        return os.open(self.name, flags if self.folder is None else flags | systems.NOFOLLOW, dir_fd=self.folder)


def to_place(local: LocalPath | Place) -> Place:
    """The same as a place.

    Raises:
        errors.UsageError: it can be no path.
    """
    return local if isinstance(local, Place) else Place(to_bytes(local))


@contextlib.contextmanager
def translated(local: LocalPath | Place) -> Iterator[None]:
    """The seam to this machine's file system: its errors become ours."""
    place = to_place(local)
    try:
        yield
    except OSError as error:
        shown = errors.quote(os.fsdecode(_path_of(error, place)), limit=500)
        kind = errors.LocalFileNotFoundError if isinstance(error, FileNotFoundError) else errors.LocalFileError
        raise kind(f"{error.strerror or error}: {shown} (on this machine)") from error


def _path_of(error: OSError, place: Place) -> bytes:
    """What the error is about: the place, or something in it."""
    name = error.filename
    if not isinstance(name, (str, bytes)) or os.path.basename(os.fsencode(name)).startswith(_TEMPORARY_PREFIXES):
        return place.shown
    is_itself = os.fsencode(name) in (place.name, place.shown)
    return place.shown if is_itself else os.path.join(place.shown, os.fsencode(name))


def is_directory(local: LocalPath | Place) -> bool:
    """Whether it is a directory, or a path that leads to one.

    Raises:
        errors.LocalFileError: there is nothing, or it cannot be seen.
    """
    place = to_place(local)
    with translated(place):
        return stat.S_ISDIR(place.stat().st_mode)


class LocalFile:
    """A regular file that is sent as it was when this was made: with that size.

    Files of /proc and /sys do not tell their true size: they are sent to their end.

    Attributes:
        size: Bytes; None if that is not known.
        mode: Permission bits.
        has_changed: It was changed while ``pieces`` read it.

    Raises:
        errors.LocalFileError: it cannot be read, or is no regular file.
    """

    def __init__(self, local: LocalPath | Place) -> None:
        self._place = to_place(local)
        with translated(self._place):
            status = self._place.stat()
        _check_regular(self._place.shown, status)
        self.size = status.st_size or self._size_of_nothing()
        self.mode = stat.S_IMODE(status.st_mode) & _PERMISSIONS
        self.has_changed = False
        self._stamp = _stamp(status)

    def pieces(self) -> Iterator[bytes]:
        """The content, from its beginning.

        Raises:
            errors.LocalFileError: it cannot be read, or has become shorter.
        """
        with _opened(self._place) as descriptor:
            if self.size is None:
                yield from iter(lambda: os.read(descriptor, PIECE_BYTES), b"")
                return
            left = self.size
            while left:
                piece = os.read(descriptor, min(left, PIECE_BYTES))
                if not piece:
                    raise OSError(errno.EIO, "it became shorter while it was sent", self._place.shown)
                left -= len(piece)
                yield piece
            self.has_changed = _stamp(os.fstat(descriptor)) != self._stamp

    def _size_of_nothing(self) -> int | None:
        """Zero, or None if there is something to read all the same."""
        with _opened(self._place) as descriptor:
            return None if os.read(descriptor, 1) else 0


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[int]:
    """The descriptor of a regular file."""
    with translated(place):
        descriptor = place.open(_READ_FLAGS)
        try:
            _check_regular(place.shown, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)


class NewFile:
    """A file that is being written under another name. ``count`` bytes were written."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.count = 0

    def write(self, data: bytes) -> None:
        """Append."""
        view = memoryview(data)
        while view:
            written = os.write(self.descriptor, view)
            self.count += written
            view = view[written:]

    def digest(self) -> str:
        """The SHA-256 of what was written, as hexadecimal digits."""
        digest, offset = hashlib.sha256(), 0
        while piece := os.pread(self.descriptor, PIECE_BYTES, offset):
            digest.update(piece)
            offset += len(piece)
        return digest.hexdigest()


@contextlib.contextmanager
def replacing(local: LocalPath | Place, *, mode: int) -> Iterator[NewFile]:
    """A file that takes the place of ``local`` when the block ends well; otherwise nothing is left of it.

    Of a path the directory is made; if it is a symbolic link that stays, and what it leads to is replaced.

    Args:
        local: What it is to be.
        mode: Its permission bits, from which the process's umask is taken.

    Raises:
        errors.LocalFileError: it cannot be written, or something other than a regular file is there.
    """
    place = to_place(local)
    with translated(place):
        target = _prepare(place)
        descriptor, temporary = _create_beside(target, mode=mode)
        with contextlib.ExitStack() as undo:
            undo.callback(os.unlink, temporary, dir_fd=target.folder)
            try:
                yield NewFile(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder)
            undo.pop_all()


def _prepare(place: Place) -> Place:
    """Where a file can be made that takes that place."""
    target = place
    if place.folder is None:
        target = Place(os.path.realpath(place.name))
    try:
        _check_regular(place.shown, os.lstat(target.name, dir_fd=target.folder))
    except FileNotFoundError:
        if place.name.endswith(b"/"):
            raise IsADirectoryError(errno.EISDIR, "the name of a file does not end with a slash", place.name) from None
        if place.folder is None:
            os.makedirs(os.path.dirname(target.name), exist_ok=True)
    return target


def check_trees() -> None:
    """See that directories can be copied here: through descriptors alone, so that no link leads elsewhere.

    Raises:
        errors.UnsupportedError: this system opens no file in a directory that is held open (Windows).
    """
    if os.open not in os.supports_dir_fd:
        raise errors.UnsupportedError(
            "directories of this machine cannot be copied: its system has no safe way to do it",
            hint="Copy files one by one, or pack them: tar -c DIR | vmnest exec NAME -i -- tar -x",
        )


def measure(root: bytes, *, exclude: Sequence[bytes] = ()) -> int:
    """The size of all regular files in a directory, as far as they can be seen; of several names of one file once."""
    excluded = patterns.Patterns(exclude)
    total = 0
    seen: set[tuple[int, int]] = set()
    folders = [b""]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(OSError), os.scandir(os.path.join(root, folder)) as found:
            for each in found:
                path = os.path.join(folder, each.name)
                is_folder = each.is_dir(follow_symlinks=False)
                if excluded.match(path, is_folder=is_folder):
                    continue
                if is_folder:
                    folders.append(path)
                elif each.is_file(follow_symlinks=False):
                    status = each.stat(follow_symlinks=False)
                    if status.st_nlink > 1:
                        if (status.st_dev, status.st_ino) in seen:
                            continue
                        seen.add((status.st_dev, status.st_ino))
                    total += status.st_size
    return total


def _create_beside(target: Place, *, mode: int) -> tuple[int, bytes]:
    for _ in range(_ATTEMPTS):
        name = os.path.join(os.path.dirname(target.name), _TEMPORARY_PREFIX + os.urandom(8).hex().encode("ascii"))
        with contextlib.suppress(FileExistsError):
            return os.open(name, _CREATE_FLAGS, mode & _PERMISSIONS, dir_fd=target.folder), name
    raise FileExistsError(errno.EEXIST, "no free temporary name", target.shown)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check_regular(path: bytes, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise errors.LocalFileError(f"{errors.quote(os.fsdecode(path), limit=500)} on this machine is {what}")
