"""When the end of a terminal's input is typed.

Whoever reads from a pipe finds its end, now or later. In a terminal the end is a character (Ctrl+D), which somebody has
to read as one, and a program that edits lines itself (a shell, an interpreter) changes the terminal's mode before each
line and after it. A character that was typed for a reader of lines and still waits at a change is a byte without a
meaning afterwards, and lost.

- So it is typed when all that came before has been read and the terminal has come to rest. (script(1) does so, too.)
- If it was typed for a reader of lines, has waited, and the mode has changed, it is typed for the new reader: once.
- Where a reader took it, it is not typed again: it was for him, and there may be others who go on.
"""

from __future__ import annotations

_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.5
_PAUSE_GROWTH = 1.5
_LOOKS_AT_REST = 7  # that find the same, over 0.1 s


class Ending:
    """Decides from one look at a terminal after the other. Used under the lock of its input.

    Attributes:
        pause: Seconds until the next look: longer and longer while nothing changes.
        is_typed: The end was typed.
        is_over: There is nothing to decide any more.
    """

    __slots__ = ("_before", "_has_waited", "_looks", "is_over", "is_typed", "pause")

    def __init__(self) -> None:
        self.pause = _FIRST_PAUSE_SECONDS
        self.is_typed = False
        self.is_over = False
        self._before: tuple[bool, bool] | None = None
        self._looks = 0
        self._has_waited = False

    def want_typing(self, look: tuple[bool, bool] | None) -> bool:
        """The end is to be typed now. ``look``: see ``terminals.look``."""
        if look is None:
            self.is_over = self.is_typed
            return not self.is_typed
        self._count(look)
        is_line_mode, is_waiting = look
        if self.is_typed:
            self._has_waited |= is_line_mode and is_waiting
            was_taken = is_line_mode and not is_waiting
            self.is_over = was_taken or not self._has_waited
        return not (self.is_over or is_waiting or self._looks < _LOOKS_AT_REST)

    def tell_typed(self, look: tuple[bool, bool] | None) -> None:
        """It was, as ``want_typing`` said of this look."""
        # What is typed into a mode without lines stays what it is, whatever comes.
        self.is_over = self.is_typed or look is None or not look[0]
        self.is_typed = True
        self.pause = _FIRST_PAUSE_SECONDS
        self._before = None

    def _count(self, look: tuple[bool, bool]) -> None:
        if look != self._before:
            self._before = look
            self._looks = 0
            self.pause = _FIRST_PAUSE_SECONDS
        else:
            self.pause = min(self.pause * _PAUSE_GROWTH, _LONGEST_PAUSE_SECONDS)
        self._looks += 1
