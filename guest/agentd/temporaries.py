"""Names for what is not whole yet, beside the place that it will take."""

from __future__ import annotations

import contextlib
import errno
import os

from . import descents

# Short: such a name fits wherever a name fits.
PREFIX = b".agentd-"
_ATTEMPTS = 100
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | descents.NOFOLLOW | descents.CLOEXEC


def build_name() -> bytes:
    """A name that nobody has."""
    return PREFIX + os.urandom(8).hex().encode("ascii")


def create(folder: bytes = b"", *, mode: int, dir_fd: int | None = None) -> tuple[int, bytes]:
    """A new file in ``folder`` (below the directory ``dir_fd``, if there is one): its descriptor and its path.

    Raises:
        OSError: none can be made there.
    """
    for _ in range(_ATTEMPTS):
        path = os.path.join(folder, build_name())
        with contextlib.suppress(FileExistsError):
            return os.open(path, _FLAGS, mode, dir_fd=dir_fd), path
    raise FileExistsError(errno.EEXIST, "no free temporary name")


def remove(path: bytes, *, dir_fd: int | None = None) -> None:
    """Remove a file that may have got its true name meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)
