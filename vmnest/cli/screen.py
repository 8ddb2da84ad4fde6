"""What the output of a program in a sandbox does to the user's terminal, beside showing something.

A full-screen program that is killed leaves its screen, its hidden cursor, a mouse that types, and keys that nobody else
understands. ``Modes`` reads the output that goes by for what matters, and knows how to undo what was not undone.

Programs ask terminals who they are, and terminals answer as if somebody typed. ``Backlog`` takes such questions out of
output that is shown again: who asked them has its answers, or is gone, and would read others as commands.
"""

from __future__ import annotations

import re

__all__ = ["Backlog", "Modes"]

_ALTERNATE_SCREENS = (b"1049", b"1047", b"47")
# Mode -> whether a terminal has it set before anybody touches it.
_USUAL = {
    b"1": False,  # cursor keys of applications
    b"7": True,  # lines wrap
    b"9": False, b"1000": False, b"1001": False, b"1002": False, b"1003": False,  # the mouse reports
    b"1004": False,  # the window reports that it is looked at
    b"1005": False, b"1006": False, b"1015": False, b"1016": False,  # in which words the mouse reports
    b"25": True,  # the cursor is seen
    b"2004": False,  # pasted text is bracketed
    **dict.fromkeys(_ALTERNATE_SCREENS, False),
}  # fmt: skip

# Another setting -> how it usually is, and what brings that back.
_SETTINGS = {
    "keys": ((b"", b";", b";0"), b"\x1b[>4m"),  # what keys with modifiers send, as xterm has it
    "margins": ((b"", b";"), b"\x1b7\x1b[r\x1b8"),  # which lines scroll; to change that moves the cursor
    "shape": ((b"", b"0"), b"\x1b[0 q"),  # of the cursor
    "letters": ((b"B",), b"\x1b(B"),  # or lines and corners in their place
}

_CHANGE = re.compile(
    rb"\x1b(?:"
    rb"\[\?(?P<modes>[0-9;]{1,64})(?P<way>[hl])"
    rb"|(?P<plain>[=>c])"
    rb"|\[>4(?P<keys>(?:;[0-9]{0,4})?)m"
    rb"|\[(?P<margins>[0-9;]{0,16})r"
    rb"|\[(?P<shape>[0-9]{0,4}) q"
    rb"|\((?P<letters>[0-9A-Z])"
    rb"|\[(?P<protocol>>[0-9]{0,4}|<[0-9]{0,4})u"  # of the keyboard, as kitty has it: pushed and popped
    rb")"
)
_BEGINNING = re.compile(rb"\x1b(?:\(|\[[?<>]?[0-9;]{0,64} ?)?\Z")
_ATTRIBUTES_OFF = b"\x1b[0m"
_KEYPAD_NUMERIC = b"\x1b>"


class Modes:
    """The modes and settings of one terminal that are not as they usually are."""

    def __init__(self) -> None:
        self._changed: dict[bytes, bool] = {}
        self._has_keypad = False
        self._settings: set[str] = set()
        self._protocols = 0  # of the keyboard that were pushed
        self._cut = b""  # a sequence whose end has not come

    @property
    def is_full_screen(self) -> bool:
        """A program draws on a screen of its own."""
        return any(mode in self._changed for mode in _ALTERNATE_SCREENS)

    def feed(self, data: bytes) -> None:
        """Take note of output."""
        if not self._cut and b"\x1b" not in data:
            return
        data = self._cut + data
        for match in _CHANGE.finditer(data):
            kind = match.lastgroup
            assert kind is not None
            if kind == "way":
                for mode in match["modes"].split(b";"):
                    self._take(mode, is_on=match[kind] == b"h")
            elif kind == "plain":
                self._take_plain(match[kind])
            elif kind == "protocol":
                self._take_protocol(match[kind])
            elif match[kind] in _SETTINGS[kind][0]:
                self._settings.discard(kind)
            else:
                self._settings.add(kind)
        beginning = _BEGINNING.search(data)
        self._cut = b"" if beginning is None else beginning[0]

    def restore(self) -> bytes:
        """What to write to the terminal to have everything as usual; nothing if it is."""
        if not (self._changed or self._has_keypad or self._settings or self._protocols):
            return b""
        # The screen last: what comes before it belongs to the program's own.
        modes = sorted(self._changed, key=lambda mode: mode in _ALTERNATE_SCREENS)
        undone = [_SETTINGS[kind][1] for kind in sorted(self._settings)]
        if self._protocols:
            undone.append(b"\x1b[<%du" % self._protocols)
        undone += [b"\x1b[?%b%b" % (mode, b"h" if _USUAL[mode] else b"l") for mode in modes]
        self._forget()
        return _ATTRIBUTES_OFF + _KEYPAD_NUMERIC + b"".join(undone)

    def _forget(self) -> None:
        self._changed.clear()
        self._has_keypad = False
        self._settings.clear()
        self._protocols = 0

    def _take(self, mode: bytes, *, is_on: bool) -> None:
        if mode not in _USUAL:
            return
        if is_on == _USUAL[mode]:
            self._changed.pop(mode, None)
        else:
            self._changed[mode] = is_on

    def _take_plain(self, letter: bytes) -> None:
        if letter == b"c":  # a full reset
            self._forget()
        self._has_keypad = letter == b"="

    def _take_protocol(self, change: bytes) -> None:
        if change[:1] == b">":
            self._protocols += 1
        else:
            self._protocols = max(0, self._protocols - int(change[1:] or b"1"))


_QUESTIONS = re.compile(
    rb"\x1b(?:"
    rb"Z"  # who are you, in three generations
    rb"|\[[>=]?[0-9;]*c"
    rb"|\[>[0-9]*q"
    rb"|\[\??[0-9;]*n"  # where is the cursor, how are you
    rb"|\[\??[0-9;]*\$p"  # how is a mode set
    rb"|\[\?u"
    rb"|\[(?:1[13-689]|2[01])(?:;[0-9]*)*t"  # how large is the window, what is its title
    rb"|\][0-9;]*;\?(?:;[^\x07\x1b]*)?(?:\x07|\x1b\\)"  # which colours are there
    rb"|P[+$]q[^\x1b]*\x1b\\"  # what is a key or a setting
    rb")"
)
# The beginning of one, or of what may become one.
_BEGUN = re.compile(rb"\x1b(?:\[[>=?]?[0-9;]{0,32}\$?|\][^\x07\x1b]{0,128}\x1b?|P[+$]?q?[^\x1b]{0,512}\x1b?)?\Z")


class Backlog:
    """Output that is shown again: the first ``count`` bytes of what is fed."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._cut = b""  # a sequence whose end has not come

    @property
    def is_over(self) -> bool:
        """What is fed from now on is new."""
        return self._left <= 0

    def feed(self, data: bytes) -> bytes:
        """What to show of it."""
        if self.is_over:
            return data
        old, new = data[: self._left], data[self._left :]
        self._left -= len(old)
        old = _QUESTIONS.sub(b"", self._cut + old)
        begun = None if self.is_over else _BEGUN.search(old)
        self._cut = b"" if begun is None else begun[0]
        return old[: len(old) - len(self._cut)] + new
