"""What happens to stacks while ``infra up`` or ``destroy`` works on them: a line for each thing that is done.

On a terminal a last line, which is drawn anew, tells what is under way and for how long. Elsewhere (a file, CI) lines
stay, so that only what takes its time is told before it is done: when it begins to, when it changes, and every minute.
Stacks that are worked on at a time have their names before their lines.
"""

from __future__ import annotations

import time

from . import render, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ..infra.plan import Plan
    from ..infra.steps import Event, Step

__all__ = ["Board"]

PERIOD_SECONDS = 0.5
TOLD_FROM_SECONDS = 1.0  # a shorter time is not worth telling
# Where lines stay: when what is under way is told at all, when a change of it is, and when it is told again.
TAKES_ITS_TIME_SECONDS = 2.0
CHANGE_AFTER_SECONDS = 5.0
REMIND_AFTER_SECONDS = 60.0

# action of a step -> while it is done, when it is done
_DOING = {"create": ("making", "made"), "update": ("changing", "changed"), "delete": ("removing", "removed")}


class _UnderWay:
    """What is being done to a resource: since when, what was last heard of it, and when that was last written."""

    __slots__ = ("begun", "is_written", "text", "told")

    def __init__(self, begun: float, text: str) -> None:
        self.begun = self.told = begun
        self.text = text
        self.is_written = False


class Board:
    """``with Board(shown=True) as board: infra.up_infra(front=board)``.

    Args:
        shown: Somebody wants to read it.
        is_terminal: The last line can be drawn anew.
        clock: Seconds.
    """

    def __init__(
        self, *, shown: bool, is_terminal: bool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        import threading

        self._shown = shown
        self._is_terminal = terminal.is_terminal(terminal.STDERR) if is_terminal is None else is_terminal
        self._clock = clock
        self._lock = threading.Lock()  # of all below, and of what is written
        self._under_way: dict[tuple[str, str], _UnderWay] = {}
        self._steps: dict[tuple[str, str], Step] = {}
        self._labels: dict[str, None] = {}
        self._drawer: terminal.Drawer | None = None

    def __enter__(self) -> Board:
        if self._shown:
            self._drawer = terminal.Drawer(self._tick, name="vmnest-board")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        drawer, self._drawer = self._drawer, None
        if drawer is not None:
            drawer.stop()
            if self._is_terminal:
                terminal.draw_line("")

    def on_begin(self, label: str) -> None:
        """This stack is among those that are worked on."""
        with self._lock:
            self._labels[label] = None

    def on_plan(self, label: str, plan: Plan) -> None:
        """Say how much there is to do, and what the plan remarks."""
        with self._lock:
            self._steps.update({(label, step.resource): step for step in plan.steps})
            for note in plan.notes:
                self._write(label, note)
            self._write(label, render_counts([step.action for step in plan.steps]))

    def on_event(self, label: str, event: Event) -> None:
        """Something happens."""
        with self._lock:
            key = (label, event.resource)
            if event.step is not None:  # a resource may be made and, what it replaces, removed
                self._steps[key] = event.step
            if event.phase == "start":
                self._under_way[key] = _UnderWay(self._clock(), self._doing(key, event.text))
                self._draw()
            elif event.phase == "progress":
                self._show(key, event.text)
            elif event.phase == "note":
                self._write(label, f"{_name(event.resource)}{event.text}")
            else:
                self._finish(key, event)

    def on_end(self, label: str, error: BaseException | None) -> None:
        """Work on a stack is over."""
        with self._lock:
            for key in [key for key in self._under_way if key[0] == label]:
                del self._under_way[key]
            if error is not None and len(self._labels) > 1:
                self._write(label, f"failed: {error}" if str(error) else "stopped")

    def _doing(self, key: tuple[str, str], reason: str) -> str:
        step = self._steps.get(key)
        return reason if step is None else f"{_DOING.get(step.action, ('', ''))[0]} {step.id or ''}: {reason}".lstrip()

    def _finish(self, key: tuple[str, str], event: Event) -> None:
        under_way = self._under_way.pop(key, None)
        seconds = 0.0 if under_way is None else self._clock() - under_way.begun
        took = f" ({render_seconds(seconds)})" if seconds >= TOLD_FROM_SECONDS else ""
        step = self._steps.get(key)
        text = "failed" if event.phase == "failed" else event.text  # why, the error tells at the end
        if not text:
            text = "done" if step is None else f"{_DOING.get(step.action, ('', 'done'))[1]} {step.id or ''}".rstrip()
        self._write(key[0], f"{_name(key[1])}{text}{took}")

    def _show(self, key: tuple[str, str], text: str) -> None:
        """Something goes on: draw it anew, or write it, if the last line about it is some time ago."""
        under_way = self._under_way.setdefault(key, _UnderWay(self._clock(), text))
        is_new = under_way.text != text or not under_way.is_written
        under_way.text = text
        if self._is_terminal:
            self._draw()
        elif is_new and (not under_way.is_written or self._clock() - under_way.told >= CHANGE_AFTER_SECONDS):
            self._tell(key, under_way)

    def _tell(self, key: tuple[str, str], under_way: _UnderWay) -> None:
        under_way.is_written = True
        under_way.told = self._clock()
        seconds = under_way.told - under_way.begun
        since = f" ... {render_seconds(seconds)}" if seconds >= TOLD_FROM_SECONDS else ""
        self._write(key[0], f"{_name(key[1])}{under_way.text}{since}")

    def _write(self, label: str, text: str) -> None:
        if self._shown:
            terminal.tell(f"{render.to_printable(self._before(label) + text)}\n")
            self._draw()

    def _before(self, label: str) -> str:
        return f"[{label}] " if len(self._labels) > 1 else ""

    def _tick(self, wait: Callable[[float], bool]) -> None:
        while not wait(PERIOD_SECONDS):
            with self._lock:
                self._draw()
                self._remind()

    def _remind(self) -> None:
        """Where lines stay: tell of what goes on and on."""
        if self._is_terminal:
            return
        for key, under_way in self._under_way.items():
            patience = REMIND_AFTER_SECONDS if under_way.is_written else TAKES_ITS_TIME_SECONDS
            if self._clock() - under_way.told >= patience:
                self._tell(key, under_way)

    def _draw(self) -> None:
        if not (self._shown and self._is_terminal and self._drawer):
            return
        now = self._clock()
        parts = [
            f"{self._before(label)}{_name(resource)}{each.text} ... {render_seconds(now - each.begun)}"
            for (label, resource), each in self._under_way.items()
        ]
        columns, _ = terminal.size()
        terminal.draw_line(_cut(render.to_printable(";  ".join(parts)), columns - 1))


def _name(resource: str) -> str:
    return f"{resource.replace('_', ' ')}: " if resource else ""


def _cut(text: str, columns: int) -> str:
    """The beginning, so that the line does not wrap: then it could not be wiped."""
    while render.width(text) > columns:
        text = text[: max(0, len(text) - max(1, (render.width(text) - columns) // 2))]
    return text


def render_seconds(seconds: float) -> str:
    """``42 s``, ``3 min 5 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


_WORDS = (("create", "to create"), ("update", "to update"), ("delete", "to remove"), ("reuse", "reused"))


def render_counts(actions: list[str]) -> str:
    """``2 to create, 1 reused, 3 as they are``."""
    parts = [f"{actions.count(action)} {words}" for action, words in _WORDS if action in actions]
    same = actions.count("nothing")
    if same:
        parts.append(f"{same} as {'it is' if same == 1 else 'they are'}")
    return ", ".join(parts) or "nothing to do"
