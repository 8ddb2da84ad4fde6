"""Reads and writes whole files: regular ones only, nothing that could block; a write is seen entire or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from . import temporaries, wire
from .answers import BLOCK_BYTES
from .errors import RequestError, is_exhaustion, overloaded
from .spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Where a rename cannot reach: the folder is closed to us, or the file is a mount point or belongs to another user.
_UNREACHABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})

# A file that says that it is empty and gives more than this is taken for one without an end (trace_pipe, for example).
_MAX_UNTOLD_BYTES = 64 * 1024 * 1024

_REFUSALS = {
    errno.ENOENT: (404, wire.FILE_NOT_FOUND, "no such file"),
    errno.EEXIST: (409, wire.FILE_EXISTS, "it exists"),
    errno.ENOTDIR: (400, wire.NOT_A_DIRECTORY, "not a directory"),
    errno.ENOTEMPTY: (409, wire.DIRECTORY_NOT_EMPTY, "the directory is not empty"),
    errno.EISDIR: (400, wire.NOT_A_FILE, "it is a directory"),
    errno.EACCES: (400, wire.PERMISSION_DENIED, "permission denied"),
    errno.EPERM: (400, wire.PERMISSION_DENIED, "operation not permitted"),
    errno.EROFS: (400, wire.PERMISSION_DENIED, "the file system is read-only"),
    errno.ENOSPC: (507, wire.NO_SPACE, "no space left"),
    errno.EDQUOT: (507, wire.NO_SPACE, "the disk quota is used up"),
}


class Content:
    """The content of a regular file as it is read.

    Attributes:
        size: The number of bytes. It is fixed at the opening: what is appended later is left out.
        status: What the system told of the file at the opening.
    """

    def __init__(self, descriptor: int, status: os.stat_result) -> None:
        self._descriptor = descriptor
        self.status = status
        self.size = status.st_size

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from ``start`` to before ``end``.

        Raises:
            OSError: the file became shorter meanwhile, or cannot be read.
        """
        end = self.size if end is None else end
        while start < end:
            piece = os.pread(self._descriptor, min(BLOCK_BYTES, end - start), start)
            if not piece:
                raise OSError(errno.EIO, "the file became shorter while it was read")
            start += len(piece)
            yield piece

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class SmallContent:
    """The same for a file that was read at the opening: it is small, or does not tell its true size."""

    def __init__(self, spool: Spool, status: os.stat_result) -> None:
        self._spool = spool
        self.status = status
        self.size = spool.size

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from ``start`` to before ``end``."""
        end = self.size if end is None else end
        position = 0
        for piece in self._spool.pieces():
            part = piece[max(start - position, 0) : max(end - position, 0)]
            position += len(piece)
            if part:
                yield part

    def close(self) -> None:
        """Give memory and disk back."""
        self._spool.close()


class Written:
    """What a write left."""

    __slots__ = ("count", "mode")

    def __init__(self, count: int, mode: int) -> None:
        self.count = count
        self.mode = mode


def open_file(path: bytes) -> Content | SmallContent:
    """The content of a regular file. The caller closes it.

    Raises:
        RequestError: ``file_not_found`` (404), ``not_a_file``, or what else the system says.
    """
    with translated(path):
        _check_regular(path, os.stat(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            status = os.fstat(descriptor)
            _check_regular(path, status)
            if status.st_size <= wire.MEMORY_OUTPUT_BYTES:
                # Files of /proc and /sys do not tell their true size: these are read to their end.
                return SmallContent(_read_small(descriptor, status.st_size), status)
            stack.pop_all()
        return Content(descriptor, status)


def write_file(
    path: bytes,
    pieces: Iterable[bytes],
    *,
    mode: int | None = None,
    mtime_ns: int | None = None,
    overwrite: bool = True,
    check: Callable[[], object] = lambda: None,
) -> Written:
    """Replace a file's content, or make the file and its parents.

    The file keeps its mode and owner; a symbolic link stays, its target is written.

    Args:
        path: Where.
        pieces: The content. Whatever it raises, the old file stays.
        mode: Permission bits to set.
        mtime_ns: When it was last modified, if that is not now.
        overwrite: False: refuse if there is anything of that name.
        check: Called when all is written, before it is seen; what it raises keeps the old file, too.

    Raises:
        RequestError: ``not_a_file``, ``file_exists`` (409), ``no_space`` (507), or what else the system says.
    """
    with translated(path):
        if path.endswith(b"/"):
            raise _not_a_file(path)
        if not overwrite and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "it exists", path)
        target = os.path.realpath(path)
        try:
            existing: os.stat_result | None = os.stat(target)
        except FileNotFoundError:
            existing = None
        if existing is not None:
            _check_regular(path, existing)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        writing = _Writing(target, existing, mode=mode, mtime_ns=mtime_ns, overwrite=overwrite, check=check)
        return writing.run(pieces)


class _Writing:
    """One write, to a path without links."""

    def __init__(
        self,
        target: bytes,
        existing: os.stat_result | None,
        *,
        mode: int | None,
        mtime_ns: int | None,
        overwrite: bool,
        check: Callable[[], object],
    ) -> None:
        self._target = target
        self._existing = existing
        self._mode = mode
        self._mtime_ns = mtime_ns
        self._overwrite = overwrite
        self._check = check

    def run(self, pieces: Iterable[bytes]) -> Written:
        try:
            descriptor, temporary = _create_beside(self._target)
        except OSError as error:
            if self._existing is None or error.errno not in _UNREACHABLE:
                raise
            return self._write_in_place(pieces)
        with contextlib.ExitStack() as stack:
            stack.callback(temporaries.remove, temporary)
            stack.callback(os.close, descriptor)
            count = _write_all(descriptor, pieces)
            self._check()
            mode = self._dress(descriptor)
            os.fsync(descriptor)
            try:
                self._publish(temporary)
            except OSError as error:
                if self._existing is None or error.errno not in _UNREACHABLE:
                    raise
                with open(temporary, "rb", buffering=0) as source:
                    return self._overwrite_with(_read_on(source.fileno()))
        return Written(count, mode)

    def _dress(self, descriptor: int) -> int:
        """Give the new file the owner, mode and time that it is to have; the mode."""
        if self._existing is not None:
            _copy_owner(descriptor, self._existing)
        if self._mode is not None:
            os.fchmod(descriptor, self._mode)
        elif self._existing is not None:
            os.fchmod(descriptor, stat.S_IMODE(self._existing.st_mode))
        if self._mtime_ns is not None:
            os.utime(descriptor, ns=(self._mtime_ns, self._mtime_ns))
        return stat.S_IMODE(os.fstat(descriptor).st_mode)

    def _publish(self, temporary: bytes) -> None:
        if self._overwrite:
            os.rename(temporary, self._target)
        else:
            rename_exclusively(temporary, self._target)

    def _write_in_place(self, pieces: Iterable[bytes]) -> Written:
        """For want of a place beside the file, the new content waits elsewhere until it is whole."""
        with Spool() as spool:
            for piece in pieces:
                spool.append(piece)
                if spool.truncated:
                    raise OSError(errno.ENOSPC, "no space to hold the content")
            self._check()
            return self._overwrite_with(spool.pieces())

    def _overwrite_with(self, pieces: Iterable[bytes]) -> Written:
        descriptor = os.open(self._target, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            count = _write_all(descriptor, pieces)
            if self._mode is not None:
                os.fchmod(descriptor, self._mode)
            os.fsync(descriptor)
            return Written(count, stat.S_IMODE(os.fstat(descriptor).st_mode))
        finally:
            os.close(descriptor)


def rename_exclusively(source: bytes, destination: bytes) -> None:
    """Rename, unless there is anything of that name: then FileExistsError."""
    if os.path.isdir(source) and not os.path.islink(source):
        os.mkdir(destination)  # the claim; an empty directory gives way to another
        try:
            os.rename(source, destination)
        except OSError:
            os.rmdir(destination)
            raise
        return
    try:
        os.link(source, destination, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}:
            raise
        # No hard links here: then there is a moment between the look and the rename.
        if os.path.lexists(destination):
            raise FileExistsError(errno.EEXIST, "it exists", destination) from None
        os.rename(source, destination)
    else:
        os.unlink(source)


def _create_beside(target: bytes) -> tuple[int, bytes]:
    return temporaries.create(os.path.dirname(target), mode=0o666)


def _write_all(descriptor: int, pieces: Iterable[bytes]) -> int:
    total = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            count = os.write(descriptor, view)
            total += count
            view = view[count:]
    return total


def _copy_owner(descriptor: int, existing: os.stat_result) -> None:
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (existing.st_uid, existing.st_gid):
        # Without the right to give files away, the content is what matters.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, existing.st_uid, existing.st_gid)


def _read_small(descriptor: int, size: int) -> Spool:
    """What a file of ``size`` bytes has; if it says 0, what it really has."""
    left = size or _MAX_UNTOLD_BYTES
    spool = Spool()
    try:
        for piece in _read_on(descriptor):
            spool.append(piece[:left])
            left -= len(piece)
            if spool.truncated:
                raise OSError(errno.ENOSPC, "no space to hold the content")
            if left < 0 and not size:
                raise OSError(errno.EFBIG, "it says that it is empty, and has no end")
            if left <= 0:
                break
    except BaseException:
        spool.close()
        raise
    return spool


def _read_on(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(descriptor, BLOCK_BYTES)
        except BlockingIOError as error:  # a file of the kernel that would wait, as /proc/kmsg does
            raise OSError(errno.EIO, "it has nothing to read at the moment") from error
        if not piece:
            return
        yield piece


def _check_regular(path: bytes, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_file(path)


def _not_a_file(path: bytes) -> RequestError:
    return RequestError(400, wire.NOT_A_FILE, f"not a regular file: {printable(path)}")


def printable(path: bytes) -> str:
    """A path for a message."""
    return path.decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def translated(path: bytes) -> Iterator[None]:
    """The seam to the file system: its errors become answers."""
    try:
        yield
    except OSError as error:
        raise refuse(error, path) from error


def refuse(error: OSError, path: bytes) -> RequestError:
    """The answer to what the system refused."""
    if is_exhaustion(error):
        return overloaded(error)
    status, code, reason = _REFUSALS.get(error.errno or 0, (400, wire.FILE_ERROR, error.strerror or str(error)))
    return RequestError(status, code, f"{reason}: {printable(path)}")
