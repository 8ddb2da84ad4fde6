"""Tables: aligned columns that fit the room there is.

Where nothing bounds it (a pipe, a file), a table is whole: ids are there to be copied. In a window the columns that can
be missed go first, those of the highest rank before others; then what may be cut is cut, the widest first; and what is
still too wide is wrapped by the terminal.
"""

from __future__ import annotations

from . import render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["STATE_COLOURS", "VERDICT_COLOURS", "Column", "cut", "paint", "render_table"]

LEAST_CUT = 8  # what is cut to less says nothing
_GAP = "  "
_RED, _GREEN, _YELLOW, _DIM = "31", "32", "33", "2"

STATE_COLOURS: Mapping[str, str] = {
    **dict.fromkeys(("RUNNING", "ACTIVE", "CREATED", "UPDATED", "SUCCESSFUL"), _GREEN),
    **dict.fromkeys(
        ("PENDING", "LAUNCHING", "SUSPENDING", "SUSPENDED", "CREATING", "UPDATING", "IN_PROGRESS"), _YELLOW
    ),
    **dict.fromkeys(("UNKNOWN", "FAILED", "CREATE_FAILED", "UPDATE_FAILED", "DELETE_FAILED"), _RED),
    **dict.fromkeys(("TERMINATING", "TERMINATED", "GONE", "INACTIVE", "DELETING"), _DIM),
}
VERDICT_COLOURS: Mapping[str, str] = {
    "ok": _GREEN,
    "warning": _YELLOW,
    "failed": _RED,
    "unknown": _YELLOW,
    "skipped": _DIM,
}


class Column:
    """A column of a table.

    Args:
        head: What stands above it.
        rank: 0: it always stays. Columns of the highest rank are left out first where the room is small.
        right: Its cells end in one line: numbers.
        shrinks: Its cells may be cut where the room is small.
        colours: What a whole cell says -> the colour (SGR parameters) that it has on a terminal.
    """

    __slots__ = ("colours", "head", "rank", "right", "shrinks")

    def __init__(
        self,
        head: str,
        *,
        rank: int = 0,
        right: bool = False,
        shrinks: bool = False,
        colours: Mapping[str, str] | None = None,
    ) -> None:
        self.head = head
        self.rank = rank
        self.right = right
        self.shrinks = shrinks
        self.colours = colours or {}


def render_table(
    columns: Sequence[Column | str],
    rows: Iterable[Sequence[object]],
    *,
    room: int | None = None,
    colour: bool = False,
    ellipsis: str = "…",
) -> str:
    """The lines of a table, its heads first. A ``str`` is the head of a column that stays as it is.

    Args:
        columns: Its columns.
        rows: A value for each column; they are escaped.
        room: How many columns of a terminal there are; None: nothing is left out or cut.
        colour: Colour cells.
        ellipsis: What tells that a cell is cut.
    """
    kept = [column if isinstance(column, Column) else Column(column) for column in columns]
    cells = [[column.head for column in kept], *([render.to_printable(cell) for cell in row] for row in rows)]
    widths = [max(map(render.width, each)) for each in zip(*cells, strict=True)]
    shown = list(range(len(kept)))
    if room is not None:
        shown = _choose(kept, widths, room)
        _shrink(kept, widths, shown=shown, room=room)
    lines = []
    for number, row in enumerate(cells):
        painted = colour and number > 0
        parts = [_cell(row[each], kept[each], wide=widths[each], colour=painted, ellipsis=ellipsis) for each in shown]
        lines.append(_GAP.join(parts).rstrip() + "\n")
    return "".join(lines)


def _width(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[each] for each in shown) + len(_GAP) * (len(shown) - 1)


def _choose(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The columns that stay: none goes that would fit if those that may be cut were."""
    shown = list(range(len(columns)))
    least = [
        min(wide, max(LEAST_CUT, render.width(column.head))) if column.shrinks else wide
        for column, wide in zip(columns, widths, strict=True)
    ]
    while _width(least, shown) > room:
        candidates = [each for each in shown if columns[each].rank]
        if not candidates:
            break
        shown.remove(max(candidates, key=lambda each: (columns[each].rank, each)))
    return shown


def _shrink(columns: Sequence[Column], widths: list[int], *, shown: Sequence[int], room: int) -> None:
    """Make the widest of those that may be cut narrower, until all have room."""
    while _width(widths, shown) > room:
        wide = [each for each in shown if columns[each].shrinks and widths[each] > _least(columns[each])]
        if not wide:
            return
        widths[max(wide, key=lambda each: widths[each])] -= 1


def _least(column: Column) -> int:
    return max(LEAST_CUT, render.width(column.head))


def _cell(text: str, column: Column, *, wide: int, colour: bool, ellipsis: str) -> str:
    shown = cut(text, wide, ellipsis=ellipsis)
    space = " " * (wide - render.width(shown))
    if colour and text in column.colours:
        shown = paint(shown, column.colours[text])
    return space + shown if column.right else shown + space


def cut(text: str, wide: int, *, ellipsis: str = "…") -> str:
    """The beginning of printable text that has no room, with a sign that there is more."""
    if render.width(text) <= wide:
        return text
    while text and render.width(text) > wide - len(ellipsis):
        text = text[:-1]
    return text + ellipsis


def paint(text: str, colour: str) -> str:
    """Text in a colour."""
    return f"\x1b[{colour}m{text}\x1b[0m"
