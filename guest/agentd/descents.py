"""Ways down a directory tree by descriptors: no link is followed on them, however the tree changes meanwhile."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_folder(root: int, names: Sequence[bytes]) -> int:
    """A descriptor of the directory to which ``names`` lead down from the directory ``root``.

    One after the other, so that no path is too long, and one at a time, so that no tree is too deep.

    Raises:
        OSError: one of them is no directory (a link is none), or cannot be opened.
    """
    descriptor = os.open(b".", FOLDER_FLAGS, dir_fd=root)
    for name in names:
        try:
            below = os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


@contextlib.contextmanager
def opened_folder(root: int, names: Sequence[bytes]) -> Iterator[int]:
    """``open_folder`` for a block."""
    descriptor = open_folder(root, names)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def list_names(descriptor: int) -> list[bytes]:
    """What is in an open directory, in the order of the bytes."""
    return sorted(os.fsencode(name) for name in os.listdir(descriptor))
