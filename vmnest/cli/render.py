"""Values to text. What came from elsewhere (names in files, reasons of a service) is escaped before it is shown."""

from __future__ import annotations

import json

from ..ops import moments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "fold",
    "render_age",
    "render_age_since",
    "render_duration",
    "render_hint",
    "render_json",
    "render_members",
    "render_moment",
    "render_names",
    "render_remark",
    "render_time_until",
    "to_printable",
    "width",
]

_ABSENT = "-"
_MOST_NAMES = 4


def to_printable(value: object) -> str:
    """One line of text that cannot steer a terminal: control, bidirectional and other invisible characters escaped."""
    if value is None:
        return _ABSENT
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """The columns that printable text takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    columns = 0
    for char in text:
        if not unicodedata.combining(char):
            columns += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return columns


def render_members(members: Iterable[tuple[str, object]]) -> str:
    """``name  value`` lines; members without a value are left out."""
    shown = [(to_printable(name), to_printable(value)) for name, value in members if value is not None]
    widest = max((len(name) for name, _ in shown), default=0)
    return "".join(f"{name.ljust(widest)}  {value}\n" for name, value in shown)


def render_names(names: Sequence[object]) -> str:
    """``a, b, c and 5 more``."""
    shown = names if len(names) <= _MOST_NAMES + 1 else names[:_MOST_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return ", ".join(map(str, shown)) + more


_COMMAND = r"(?<=: )vmnest .*?(?=[;,)]|[.?!](?: |$)|$)"
_KEPT = "\0"  # no printable text has it


def fold(text: str, room: int | None, *, indent: str = "") -> str:
    """Printable text in lines that fit, broken between words; what has no blank in it is not taken apart.

    Nor is a command line behind a colon, which is there to be copied.

    Args:
        text: The text; the blanks at its beginning begin every line.
        room: How many columns a line may have; None: it stays one line.
        indent: What the lines after the first one begin with; the first one is taken to stand behind as much.
    """
    if room is None:
        return text
    room -= len(indent)
    import re

    first, *others = re.sub(_COMMAND, lambda found: found[0].replace(" ", _KEPT), text.lstrip(" ")).split(" ")
    before = text[: len(text) - len(text.lstrip(" "))]
    lines = [before + first]
    for word in others:
        longer = f"{lines[-1]} {word}"
        if width(longer) <= room:
            lines[-1] = longer
        else:
            lines.append(before + word)
    return f"\n{indent}".join(lines).replace(_KEPT, " ")


def render_remark(text: str, *, room: int | None = None) -> str:
    """What is said of ourselves, without ``vmnest:`` before it; its further lines stand below the first one."""
    return fold(to_printable(text), room, indent=" " * len("vmnest: ")) + "\n"


def render_hint(hint: str, *, room: int | None = None) -> str:
    """What to do about an error, below its line. It may have several lines: what somebody else's program printed."""
    return "".join(f"  {fold(to_printable(line), room, indent='  ')}\n" for line in hint.split("\n") if line)


def render_json(value: object, *, indented: bool = False) -> str:
    """JSON in ASCII, so that no stream's encoding can break it; one line unless a person reads it."""
    return json.dumps(value, indent=2 if indented else None) + "\n"


_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def render_age(seconds: float) -> str:
    """``42s``, ``3m``, ``5h``, ``2d``: the largest unit that has one."""
    whole = max(0, int(seconds))
    size, unit = next(((size, unit) for size, unit in _UNITS if whole >= size), _UNITS[-1])
    return f"{whole // size}{unit}"


def render_age_since(moment: object) -> str | None:
    """The age of what began at this moment (``2026-11-29T12:00:00+00:00``); None if that is none."""
    began = moments.from_iso(moment)
    if began is None:
        return None
    from datetime import datetime, timezone

    return render_age((datetime.now(timezone.utc) - began).total_seconds())


def render_time_until(moment: object) -> str | None:
    """How long it is until this moment, in its two largest units; ``0s`` if it has passed, None if that is none.

    ``7h59m``: in one unit, eight hours of which a second has passed would be seven.
    """
    then = moments.from_iso(moment)
    if then is None:
        return None
    from datetime import datetime, timezone

    whole = max(0, int((then - datetime.now(timezone.utc)).total_seconds()))
    units = [size for size, _ in _UNITS]
    largest = next((place for place, size in enumerate(units) if whole >= size), len(units) - 1)
    finest = units[min(largest + 1, len(units) - 1)]
    return render_duration(whole - whole % finest)


def render_moment(moment: object) -> str | None:
    """A moment (as JSON has it) by the clock of this place: ``2026-11-29 13:00:00``; None if it is none."""
    when = moments.from_iso(moment)
    return None if when is None else when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def render_duration(seconds: int) -> str:
    """``90s`` is ``1m30s``, 28,800 are ``8h``: nothing is lost."""
    parts = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
