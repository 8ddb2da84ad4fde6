"""The way out of a terminal that takes every key: ``~.`` at the beginning of a line, as ssh has it."""

from __future__ import annotations

__all__ = ["Escapes"]

_LINE_ENDS = b"\r\n"


class Escapes:
    """Keys in, keys to pass on out. A ``~`` that begins a line is held until the key after it: ``~~`` is one ``~``."""

    def __init__(self) -> None:
        self._is_at_start = True
        self._is_held = False
        self.is_left = False

    def feed(self, keys: bytes) -> bytes:
        """The keys to pass on. After ``~.`` the user has left (``is_left``), and the rest is dropped."""
        passed = bytearray()
        for place, key in enumerate(keys):
            if not (self._is_at_start or self._is_held):
                # The common case, in one piece: nothing can begin before the line ends.
                end = min((at for at in (keys.find(b"\r", place), keys.find(b"\n", place)) if at >= 0), default=-1)
                if end < 0:
                    return bytes(passed) + keys[place:]
            self._take(key, passed)
            if self.is_left:
                break
        return bytes(passed)

    def _take(self, key: int, passed: bytearray) -> None:
        if self._is_held:
            self._is_held = False
            if key == ord("."):
                self.is_left = True
                return
            if key != ord("~"):
                passed.append(ord("~"))
        elif self._is_at_start and key == ord("~"):
            self._is_held = True
            return
        passed.append(key)
        self._is_at_start = key in _LINE_ENDS
