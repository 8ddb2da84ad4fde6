"""What operating systems do differently: flags of ``open``, locks on files, who we are. Imports nothing of ours.

Linux and other POSIX systems have ``fcntl``, whose locks the kernel drops with the process. Where there is none
(Windows), whoever creates a file beside the locked one has the lock; the system removes that file with the process.
"""

from __future__ import annotations

import contextlib
import os

try:
    import fcntl
except ModuleNotFoundError:
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "CLOEXEC",
    "DIRECTORY",
    "HAS_FLOCK",
    "NOCTTY",
    "NOFOLLOW",
    "NONBLOCK",
    "FileLock",
    "has_poll",
    "is_locked",
    "make_private_folder",
    "user_id",
]

HAS_FLOCK = fcntl is not None

# 0 where there is no such flag. O_BINARY, on Windows, keeps line ends as they are: no file is to be opened without.
CLOEXEC: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
NOCTTY: int = getattr(os, "O_NOCTTY", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
_REMOVED_WHEN_CLOSED: int = getattr(os, "O_TEMPORARY", 0)


def user_id() -> int | None:
    """Our number; None where users have none."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def make_private_folder(path: str) -> None:
    """Make a folder, and those above it that are missing, for us alone. Fine if it is there, however open it is.

    (``os.makedirs`` gives its mode to the last folder alone, and leaves those above it to the umask.)
    """
    if os.path.isdir(path):
        return
    above = os.path.dirname(path.rstrip(os.sep))
    if above:
        make_private_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def has_poll() -> bool:
    """Whether a thread can wait for several sockets and pipes with ``select.poll``."""
    import select  # which few commands need

    return hasattr(select, "poll")


class FileLock:
    """An exclusive lock, among processes, on a file that is there for that alone. Not shared by threads.

    The file is made, and never removed: whoever waits for it would hold one that nobody else finds any more.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._is_taken = False

    def try_take(self) -> bool:
        """Take the lock, unless somebody else has it. Whatever comes of it, ``release`` is to follow.

        Raises:
            OSError: the file cannot be made.
        """
        self._is_taken = self._try_flock() if HAS_FLOCK else self._try_create()
        return self._is_taken

    def _try_flock(self) -> bool:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _try_create(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOEXEC | _REMOVED_WHEN_CLOSED
        try:
            self._fd = os.open(_holder(self._path), flags, 0o600)
        except FileExistsError:
            return False
        except PermissionError:
            if not os.path.exists(_holder(self._path)):  # on Windows also one that is just being removed
                raise
            return False
        return True

    def release(self) -> None:
        """Let go. Idempotent."""
        fd, self._fd = self._fd, -1
        is_taken, self._is_taken = self._is_taken, False
        if fd < 0:
            return
        if is_taken and HAS_FLOCK:
            # By closing alone it would stay locked as long as a child lives that was forked meanwhile.
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
        if is_taken and not HAS_FLOCK:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_holder(self._path))


def is_locked(path: str) -> bool:
    """Whether somebody holds the ``FileLock`` of a file at this moment.

    Raises:
        OSError: the file is not there, or closed to us.
    """
    if not HAS_FLOCK:
        return os.path.exists(_holder(path))
    fd = os.open(path, os.O_RDONLY | CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _holder(path: str) -> str:
    """Whoever has made it has the lock."""
    return f"{path}.held"
