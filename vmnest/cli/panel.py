"""Text on standard output that is drawn anew in its place, while somebody looks at it."""

from __future__ import annotations

import re

from .. import settings
from . import render, terminal

__all__ = ["Panel", "can_redraw"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CLEAR_SCREEN = "\x1b[2J\x1b[H"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"


def can_redraw() -> bool:
    """Standard output is a terminal that knows how to move its cursor."""
    return terminal.is_terminal(terminal.STDOUT) and (settings.environment().get("TERM") or "dumb") != "dumb"


class Panel:
    """Each text that is drawn takes the place of the one before. What has no room on the screen is left out.

    Between two of them nothing else may be written to the terminal.
    """

    def __init__(self) -> None:
        self._rows = 0  # of the terminal, taken by what was drawn last
        self._size: tuple[int, int] | None = None

    def draw(self, text: str) -> None:
        """Show this text, whole lines, in the place of the last one."""
        size = columns, rows = terminal.size()
        lines = _fit(text.splitlines(), columns=columns, rows=rows - 1)  # the cursor has a line of its own, the last
        back = f"\x1b[{self._rows}F" if self._rows else ""
        if self._size not in (None, size):
            back = _CLEAR_SCREEN  # where lines went when the window changed, differs between terminals
        self._size, self._rows = size, sum(_height(line, columns) for line in lines)
        shown = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
        terminal.write_text(terminal.STDOUT, f"{back}{shown}{_CLEAR_BELOW}")


def _fit(lines: list[str], *, columns: int, rows: int) -> list[str]:
    """The lines that have room, with a last one that tells of the others."""
    if sum(_height(line, columns) for line in lines) <= rows:
        return lines
    kept: list[str] = []
    left = rows - 1
    for line in lines:
        left -= _height(line, columns)
        if left < 0:
            break
        kept.append(line)
    return [*kept, f"{len(lines) - len(kept)} more"[: max(1, columns)]]


def _height(line: str, columns: int) -> int:
    """Rows of the terminal that a line takes."""
    return max(1, -(-render.width(_COLOURS.sub("", line)) // columns))
