"""Permission bits of files as people write them (``644``, ``u+x``) and read them (``-rw-r--r--``)."""

from __future__ import annotations

import re
import stat

__all__ = ["Change", "parse_change", "parse_mode", "render"]

LARGEST_MODE = 0o7777
# What a clause that names nobody leaves to nobody but the owner, as chmod does under the usual umask.
UMASK = 0o022

_WHO = {"u": 0o4700, "g": 0o2070, "o": 0o1007, "a": 0o7777}
_SET_IDS = stat.S_ISUID | stat.S_ISGID
_BITS = {"r": 0o444, "w": 0o222, "x": 0o111, "s": _SET_IDS, "t": stat.S_ISVTX}
_ANY_EXECUTE = 0o111
_SHIFTS = {"u": 6, "g": 3, "o": 0}

_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[ugo]|[rwxXst]*))+)")
_ACTION = re.compile(r"([-+=])([ugo]|[rwxXst]*)")
_TYPES = {"directory": "d", "link": "l", "fifo": "p", "socket": "s", "device": "c", "file": "-"}


class _Action:
    """One ``+x``, for those that the clause names."""

    __slots__ = ("_operator", "_what", "_who")

    def __init__(self, who: str, *, operator: str, what: str) -> None:
        self._who = 0
        for letter in who:
            self._who |= _WHO[letter]
        self._operator = operator
        self._what = what

    def apply(self, mode: int, *, is_directory: bool) -> int:
        # Whether a folder's new files inherit its group changes only where it is spoken of.
        kept = _SET_IDS if is_directory and "s" not in self._what else 0
        value = self._value(mode, is_directory=is_directory) & (self._who or ~UMASK) & ~kept
        if self._operator == "+":
            return mode | value
        if self._operator == "-":
            return mode & ~value
        untouched = (~self._who if self._who else 0) | kept
        return (mode & untouched) | value

    def _value(self, mode: int, *, is_directory: bool) -> int:
        if self._what in _SHIFTS:
            return ((mode >> _SHIFTS[self._what]) & 0o7) * 0o111
        value = 0
        for letter in self._what:
            if letter != "X":
                value |= _BITS[letter]
            elif is_directory or mode & _ANY_EXECUTE:
                value |= _ANY_EXECUTE
        return value


class Change:
    """What becomes of a mode.

    Attributes:
        mode: The mode that all get, whatever they had; None if it depends on that.
    """

    __slots__ = ("_actions", "mode")

    def __init__(self, mode: int | None, actions: tuple[_Action, ...] = ()) -> None:
        self.mode = mode
        self._actions = actions

    def apply(self, mode: int, *, is_directory: bool) -> int:
        """The mode that comes of this one."""
        if self.mode is not None:
            return self.mode
        for action in self._actions:
            mode = action.apply(mode, is_directory=is_directory)
        return mode


def parse_mode(text: str) -> int:
    """``644``, ``0755``."""
    # int() also takes underscores, signs and blanks.
    if not re.fullmatch(r"[0-7]{1,5}", text) or int(text, 8) > LARGEST_MODE:
        raise ValueError(f"must be permission bits in octal, such as 644: {text!r}")
    return int(text, 8)


def parse_change(text: str) -> Change:
    """The same, or ``u+x``, ``go-w``, ``a=rX``, several of these with commas between them."""
    if text[:1].isdigit():
        return Change(parse_mode(text))
    actions: list[_Action] = []
    for clause in text.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ValueError(f"must be permission bits such as 644, or changes such as u+x,go-w: {text!r}")
        actions += [_Action(match[1], operator=sign, what=what) for sign, what in _ACTION.findall(match[2])]
    return Change(None, tuple(actions))


def render(mode: int, *, kind: str) -> str:
    """``-rw-r--r--``, as ls shows it; ``kind`` is the type of an entry."""
    return _TYPES.get(kind, "?") + stat.filemode(mode & LARGEST_MODE)[1:]
