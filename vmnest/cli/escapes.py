"""The way out of a terminal that takes every key: ``~.`` at the beginning of a line, as ssh has it."""

from __future__ import annotations

import re

__all__ = ["Escapes"]

_LINE_ENDS = b"\r\n"
_TILDE = ord("~")
_BEGINNING = re.compile(rb"[\r\n]~")


class Escapes:
    """Keys in, keys to pass on out. A ``~`` that begins a line is held until the key after it: ``~~`` is one ``~``."""

    def __init__(self) -> None:
        self._is_at_start = True
        self._is_held = False
        self.is_left = False

    def feed(self, keys: bytes) -> bytes:
        """The keys to pass on. After ``~.`` the user has left (``is_left``), and the rest is dropped."""
        passed = bytearray()
        place = 0
        while place < len(keys) and not self.is_left:
            if self._is_held or (self._is_at_start and keys[place] == _TILDE):
                self._take(keys[place], passed)
                place += 1
                continue
            # The common case, in one piece: up to the next line that begins with a tilde.
            found = _BEGINNING.search(keys, place)
            end = len(keys) if found is None else found.start() + 1
            passed += keys[place:end]
            self._is_at_start = keys[end - 1] in _LINE_ENDS
            place = end
        return bytes(passed)

    def _take(self, key: int, passed: bytearray) -> None:
        if self._is_held:
            self._is_held = False
            if key == ord("."):
                self.is_left = True
                return
            if key != _TILDE:
                passed.append(_TILDE)
        elif self._is_at_start and key == _TILDE:
            self._is_held = True
            return
        passed.append(key)
        self._is_at_start = key in _LINE_ENDS
