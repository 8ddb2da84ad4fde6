"""Reads and writes whole files: regular ones only, nothing that could block; a write is seen entire or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from . import wire
from .answers import BLOCK_BYTES
from .errors import RequestError, is_exhaustion, overloaded
from .spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ATTEMPTS = 100

# A temporary name that fits wherever the target's own name does.
_TEMP_PREFIX = b".agentd-"


class OpenFile:
    """A regular file that is being read. ``size`` is fixed at the opening: what is appended later is left out."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size

    def pieces(self) -> Iterator[bytes]:
        """The content.

        Raises:
            OSError: the file became shorter meanwhile, or cannot be read.
        """
        offset = 0
        while offset < self.size:
            piece = os.pread(self._descriptor, min(BLOCK_BYTES, self.size - offset), offset)
            if not piece:
                raise OSError(errno.EIO, "the file became shorter while it was read")
            offset += len(piece)
            yield piece

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def open_file(path: bytes) -> OpenFile | Spool:
    """The content of a regular file: ``size``, ``pieces()``, ``close()``.

    Raises:
        RequestError: ``file_not_found`` (404), ``not_a_file``, ``file_error``.
    """
    with _translated(path):
        _check_regular(path, os.stat(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, descriptor)
            status = os.fstat(descriptor)
            _check_regular(path, status)
            if status.st_size <= wire.MEMORY_OUTPUT_BYTES:
                # Files of /proc and /sys do not tell their true size: read them to their end.
                return _read_to_end(descriptor)
            stack.pop_all()
        return OpenFile(descriptor, status.st_size)


def write_file(path: bytes, pieces: Iterable[bytes]) -> int:
    """Replace a file's content, or make the file and its parents; the number of bytes written.

    The file keeps its mode and owner; a symbolic link stays, its target is written.

    Raises:
        RequestError: ``not_a_file``, ``file_error``.
    """
    with _translated(path):
        target = os.path.realpath(path)
        try:
            existing: os.stat_result | None = os.stat(target)
        except FileNotFoundError:
            existing = None
        if existing is not None:
            _check_regular(path, existing)
        elif path.endswith(b"/"):
            raise _not_a_file(path)
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        try:
            return _replace(target, pieces, existing=existing)
        except OSError as error:
            if existing is None or error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY}:
                raise
            # A file that may be written in a folder that may not, or a mount point: rename cannot reach it.
            return _overwrite(target, pieces)


def _replace(target: bytes, pieces: Iterable[bytes], *, existing: os.stat_result | None) -> int:
    descriptor, temporary = _create_beside(target)
    with contextlib.ExitStack() as undo:
        undo.callback(os.unlink, temporary)
        try:
            count = _write_all(descriptor, pieces)
            if existing is not None:
                _copy_owner(descriptor, existing)
                os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, target)
        undo.pop_all()
    return count


def _overwrite(target: bytes, pieces: Iterable[bytes]) -> int:
    descriptor = os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return _write_all(descriptor, pieces)
    finally:
        os.close(descriptor)


def _create_beside(target: bytes) -> tuple[int, bytes]:
    for _ in range(_ATTEMPTS):
        name = os.path.join(os.path.dirname(target), _TEMP_PREFIX + os.urandom(8).hex().encode("ascii"))
        with contextlib.suppress(FileExistsError):
            return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), name
    raise FileExistsError(errno.EEXIST, "no free temporary name")


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


def _read_to_end(descriptor: int) -> Spool:
    spool = Spool()
    try:
        while True:
            piece = os.read(descriptor, BLOCK_BYTES)
            if not piece:
                break
            spool.append(piece)
    except BaseException:
        spool.close()
        raise
    if spool.truncated:
        spool.close()
        raise OSError(errno.ENOSPC, "no space to hold the content")
    return spool


def _check_regular(path: bytes, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_file(path)


def _not_a_file(path: bytes) -> RequestError:
    return RequestError(400, wire.NOT_A_FILE, f"not a regular file: {_text(path)}")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _translated(path: bytes) -> Iterator[None]:
    """The seam to the file system: its errors become answers."""
    try:
        yield
    except FileNotFoundError as error:
        raise RequestError(404, wire.FILE_NOT_FOUND, f"no such file: {_text(path)}") from error
    except OSError as error:
        if is_exhaustion(error):
            raise overloaded(error) from error
        raise RequestError(400, wire.FILE_ERROR, f"{error.strerror}: {_text(path)}") from error
