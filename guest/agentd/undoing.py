"""What an unpacking has made, so that it can be taken back: never what was there before, nor what others have made."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .descents import Descent

_OPEN_MODE = 0o700


class Made:
    """The names that an unpacking has given, all in memory. What took the place of something else is not among them."""

    def __init__(self) -> None:
        self._files: dict[bytes, int] = {}  # paths, of links too, and their numbers in the file system
        self._folders: list[Sequence[bytes]] = []  # each after the one that it is in

    def is_foreign(self, names: Sequence[bytes], *, folder: int) -> bool:
        """Whether something has this name in the open ``folder`` that was not made here."""
        if b"/".join(names) in self._files:
            return False
        try:
            os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def note_file(self, names: Sequence[bytes], *, folder: int) -> None:
        """A file or link got this name."""
        self._files[b"/".join(names)] = os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_ino

    def note_folder(self, names: Sequence[bytes]) -> None:
        """A directory was made."""
        self._folders.append(tuple(names))

    def undo(self, place: Descent) -> None:
        """Remove it all again, as far as that can be done. Directories stay in which others have made something."""
        for names in self._folders:
            with contextlib.suppress(OSError):
                place.move(names)
                os.fchmod(place.descriptor, _OPEN_MODE)  # it may have got its own, and be read-only
        for path, number in self._files.items():
            *way, name = path.split(b"/")
            with contextlib.suppress(OSError):
                place.move(way)
                if os.stat(name, dir_fd=place.descriptor, follow_symlinks=False).st_ino == number:
                    os.unlink(name, dir_fd=place.descriptor)
        for names in reversed(self._folders):
            if names:  # the root has its name elsewhere
                with contextlib.suppress(OSError):
                    place.move(names[:-1])
                    os.rmdir(names[-1], dir_fd=place.descriptor)
