"""Files of a sandbox as text.

On a terminal names are made safe: what would steer it is escaped. Elsewhere they are the bytes that they are, for the
next program to use.
"""

from __future__ import annotations

import time

from . import permissions, render, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent.entries import Entry

__all__ = ["Lister", "to_bytes", "to_safe"]


def to_bytes(name: str) -> bytes:
    """The bytes of a name."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no name has this; an agent can say anything
        return name.encode("utf-8", "backslashreplace")


def to_safe(name: str) -> str:
    """A name as a terminal may get it; bytes that are no text, and all that is invisible, are escaped."""
    text = to_bytes(name).decode("utf-8", "backslashreplace")
    return render.to_printable(text)


class Lister:
    """Writes names, or a line of facts for each, as they come.

    Args:
        long: Each with its type, permissions, owner, size and time.
        ends_with_nul: Each with a NUL instead of a line's end, and raw.
        named: Whole paths: several directories are listed.
    """

    def __init__(self, *, long: bool, ends_with_nul: bool, named: bool = False) -> None:
        self._long = long
        self._named = named
        self._is_raw = ends_with_nul or not terminal.is_terminal(terminal.STDOUT)
        self._end = b"\0" if ends_with_nul else b"\n"

    def write(self, entry: Entry, *, below: str) -> None:
        """Write one of them, which was found in the directory ``below``."""
        line = self._name(entry.path if self._named else _relative(entry.path, below))
        if self._long:
            line = _facts(entry).encode("ascii") + line
            if entry.target is not None:
                line += b" -> " + self._name(entry.target)
        terminal.write_bytes(terminal.STDOUT, line + self._end)

    def _name(self, name: str) -> bytes:
        return to_bytes(name) if self._is_raw else to_safe(name).encode("utf-8")


def _relative(path: str, below: str) -> str:
    return path.removeprefix(below.rstrip("/") + "/")


def _facts(entry: Entry) -> str:
    """Columns of fixed widths: a list is written as it arrives."""
    mode = permissions.render(entry.mode, kind=entry.type)
    return f"{mode} {entry.uid:5} {entry.gid:5} {entry.size:11} {_moment(entry.mtime):16} "


def _moment(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "-"  # a file may have any time
