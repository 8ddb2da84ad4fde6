"""How far a transfer is, on a terminal: how much of how much, how fast, for how long still, and of what."""

from __future__ import annotations

import time

from . import listing, render, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Protocol

    from .words import Options

    class Step(Protocol):
        """What a transfer tells of itself."""

        @property
        def bytes(self) -> int:
            """What was moved so far."""

        @property
        def total(self) -> int | None:
            """What there is to move, if that is known."""

        @property
        def path(self) -> str:
            """What is being moved just now."""


__all__ = ["Meter", "open_meter", "render_line", "render_size"]

SHOWN_AFTER_SECONDS = 1.0
PERIOD_SECONDS = 0.25
RATE_SECONDS = 5.0  # the rate is that of the latest so many
LEAST_PATH_COLUMNS = 12
_GAP, _CUT = "  ", "..."
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def open_meter(doing: str, *, options: Options) -> Meter:
    """A meter that is shown if somebody watches."""
    is_shown = terminal.is_terminal(terminal.STDERR) and not options.quiet and not options.json
    return Meter(doing, shown=is_shown)


class Meter:
    """``with Meter("copying") as meter: transfer(progress=meter.take)``.

    It shows itself once that takes over a second, and is wiped at the end. ``take`` may be called as often as one
    likes: what it gets is drawn a few times a second, by a thread of the meter's own that goes on while nothing moves.
    """

    def __init__(self, doing: str, *, shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._doing = doing
        self._shown = shown
        self._clock = clock
        self._step: Step | None = None
        self._drawer: terminal.Drawer | None = None

    def take(self, step: Step) -> None:
        """Take note of how far it is."""
        self._step = step

    def __enter__(self) -> Meter:
        if self._shown:
            self._drawer = terminal.Drawer(self._draw, name="vmnest-meter")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        drawer, self._drawer = self._drawer, None
        if drawer is not None:
            drawer.stop()

    def _draw(self, wait: Callable[[float], bool]) -> None:
        begun = self._clock()
        pace = Pace()
        pace.rate(begun, 0)
        if wait(SHOWN_AFTER_SECONDS):
            return
        while True:
            now, step = self._clock(), self._step
            rate = pace.rate(now, 0 if step is None else step.bytes)
            columns, _ = terminal.size()
            line = render_line(self._doing, step, rate=rate, seconds=now - begun, columns=columns)
            terminal.draw_line(line)
            if wait(PERIOD_SECONDS):
                break
        terminal.draw_line("")


class Pace:
    """Bytes a second over the latest few seconds."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def rate(self, now: float, count: int) -> float:
        """Take note of the count of now, and return the rate."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:
            self._seen.pop(0)
        begun, before = self._seen[0]
        return max(0, count - before) / (now - begun) if now > begun else 0.0


def render_line(doing: str, step: Step | None, *, rate: float, seconds: float, columns: int) -> str:
    """One line that fits a terminal of so many columns."""
    if step is None:
        return _cut(f"{doing} ... {seconds:.0f} s", columns)
    done = render_size(step.bytes)
    if step.total:
        done = f"{done} of {render_size(step.total)}, {min(100, 100 * step.bytes // step.total)} %"
    parts = [f"{doing} {done}", f"{render_size(rate)}/s"]
    if step.total and rate >= 1:
        left = max(0, step.total - step.bytes) / rate
        parts.append(f"{render.render_duration(round(left))} left")
    line = _cut(", ".join(parts), columns)
    room = columns - 1 - render.width(line) - len(_GAP)
    return line if room < LEAST_PATH_COLUMNS else f"{line}{_GAP}{_cut_path(listing.to_safe(step.path), room)}"


def _cut(line: str, columns: int) -> str:
    """The beginning of a line, so that it does not wrap: then it could not be wiped."""
    return _take(line, columns - 1) if render.width(line) >= columns else line


def _cut_path(path: str, columns: int) -> str:
    """The end of a path, which tells more than its beginning."""
    if render.width(path) <= columns:
        return path
    return _CUT + _take(path[::-1], columns - len(_CUT))[::-1]


def _take(text: str, columns: int) -> str:
    """As many characters as these columns have room for."""
    taken, wide = 0, 0
    for char in text:
        wide += render.width(char)
        if wide > columns:
            break
        taken += 1
    return text[:taken]


def render_size(count: float) -> str:
    """``512 B``, ``1.5 MiB``."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
