"""Which paths of a tree are left out, told by patterns.

A pattern without a slash is the name of something at any depth (``*.pyc``, ``node_modules``); one with a slash is a
path from the root of the tree (``/build``, ``docs/*.html``). ``*``, ``?`` and ``[...]`` stand for characters within one
name, ``**`` as a whole name for any number of folders, and a slash at the end restricts it to folders. What is in a
folder that is left out is left out too.
"""

from __future__ import annotations

import fnmatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Patterns"]

MAX_PATTERNS = 1000
MAX_PATTERN_BYTES = 4096
_ANY_FOLDERS = b"**"


class Patterns:
    """Tells what is left out.

    Raises:
        ValueError: one is empty, or too long, or there are too many.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._names: list[tuple[bytes, bool]] = []
        self._paths: list[tuple[Sequence[bytes], bool]] = []
        for count, pattern in enumerate(patterns):
            if count == MAX_PATTERNS:
                raise ValueError(f"more than {MAX_PATTERNS} patterns")
            self._add(pattern)

    def _add(self, pattern: bytes) -> None:
        text = pattern.rstrip(b"/")
        if not text or len(text) > MAX_PATTERN_BYTES:
            raise ValueError("a pattern is empty" if not text else "a pattern is too long")
        folders_only = text != pattern
        if b"/" in text:
            names = [name for name in text.split(b"/") if name not in (b"", b".")]
            self._paths.append((names, folders_only))
        else:
            self._names.append((text, folders_only))

    def match(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether what has this path, relative to the root of the tree, is left out. Its folders are not looked at."""
        name = path.rpartition(b"/")[2]
        for pattern, folders_only in self._names:
            if (is_folder or not folders_only) and fnmatch.fnmatchcase(name, pattern):
                return True
        if not self._paths:
            return False
        names = path.split(b"/")
        return any(
            (is_folder or not folders_only) and _match_names(names, patterns) for patterns, folders_only in self._paths
        )


def _match_names(names: Sequence[bytes], patterns: Sequence[bytes]) -> bool:
    """Each name by its pattern. Where they do not fit, the latest ``**`` takes one name more: never exponential."""
    name = pattern = 0
    retry: tuple[int, int] | None = None
    while name < len(names):
        if pattern < len(patterns) and patterns[pattern] == _ANY_FOLDERS:
            pattern += 1
            retry = (name, pattern)
        elif pattern < len(patterns) and fnmatch.fnmatchcase(names[name], patterns[pattern]):
            name, pattern = name + 1, pattern + 1
        elif retry is not None:
            retry = (retry[0] + 1, retry[1])
            name, pattern = retry
        else:
            return False
    # Behind a final "**" there must be something: "a/**" is what is in "a", not "a" itself.
    return pattern == len(patterns)
