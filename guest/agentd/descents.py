"""A way down a directory tree by descriptors: no link is followed on it, however the tree changes meanwhile."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# 0 on systems that lack the flag: hosts, on which the modules for trees are imported, and not used.
CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
FOLDER_FLAGS: int = os.O_RDONLY | CLOEXEC | getattr(os, "O_DIRECTORY", 0)


class Descent:
    """A place in a tree, and the one descriptor that is open there; a context manager.

    Each directory is opened from the one above it, so no path is too long; and only the last one is open, so no tree is
    too deep. The way back leads through ``..`` where that is the directory from which we came, else from the root.

    Args:
        root: A path; it may be one of a link.
        dir_fd: A directory in which ``root`` is a name; then it may be none of a link.

    Raises:
        OSError: ``root`` is no directory, or cannot be opened.
    """

    def __init__(self, root: bytes, *, dir_fd: int | None = None) -> None:
        flags = FOLDER_FLAGS if dir_fd is None else FOLDER_FLAGS | NOFOLLOW
        self._root = self.descriptor = os.open(root, flags, dir_fd=dir_fd)
        self._names: list[bytes] = []
        self._identities = [_identify(self._root)]  # of the root and of each directory on the way

    def __enter__(self) -> Descent:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptors back. Idempotent."""
        self._become(self._root)
        if self._root >= 0:
            os.close(self._root)
            self._root = self.descriptor = -1

    @property
    def names(self) -> tuple[bytes, ...]:
        """The way from the root to here."""
        return tuple(self._names)

    def move(self, names: Sequence[bytes]) -> None:
        """Go to another directory of the tree. Where that fails we are at the root, or on the way.

        Raises:
            OSError: one of the names is no directory (a link is none), or cannot be opened.
        """
        common = count_common(names, self._names)
        if len(self._names) - common > len(names):
            self._return()  # the way down from the root is shorter
            common = 0
        while len(self._names) > common:
            if not self._ascend():
                self._return()
                common = 0
        for name in names[common:]:
            self.enter(name)

    def enter(self, name: bytes) -> None:
        """Go down to a directory here. Where that fails we stay.

        Raises:
            OSError: it is none (a link is none), or cannot be opened.
        """
        below = os.open(name, FOLDER_FLAGS | NOFOLLOW, dir_fd=self.descriptor)
        self._become(below)
        self._names.append(name)
        self._identities.append(_identify(below))

    def leave(self) -> bytes:
        """Go up to the directory above; the name of the one that is left."""
        name = self._names[-1]
        if not self._ascend():
            self.move(self._names[:-1])
        return name

    def list_names(self) -> list[bytes]:
        """What is in this directory, in the order of the bytes."""
        with os.scandir(self.descriptor) as entries:  # listdir would hold all names as text, too
            return sorted(os.fsencode(entry.name) for entry in entries)

    def _ascend(self) -> bool:
        """Go up to the directory from which we came; False if it is not there any more."""
        try:
            above = os.open(b"..", FOLDER_FLAGS, dir_fd=self.descriptor)
        except OSError:
            return False
        if _identify(above) != self._identities[-2]:
            os.close(above)
            return False
        self._become(above)
        self._names.pop()
        self._identities.pop()
        return True

    def _return(self) -> None:
        self._become(self._root)
        self._names = []
        del self._identities[1:]

    def _become(self, descriptor: int) -> None:
        if self.descriptor not in (descriptor, self._root):
            os.close(self.descriptor)
        self.descriptor = descriptor


def count_common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many names two ways have in common before they part."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _identify(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
