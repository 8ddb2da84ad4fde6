"""Text that is drawn anew in its place, as a screen shows it."""

from __future__ import annotations

import fcntl
import re
import struct
import termios
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.screens import on_terminal, read_until
from vmnest.cli import panel, terminal

DRAWN = re.compile(rb"\x1b\[J\Z")
SIGNS = re.compile(r"\x1b\[([0-9;]*)([FHJKm])|(\n)|([^\x1b\n])")


class Screen:
    """What a terminal shows, as far as panels use one: text that wraps, and the sequences that they send."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [""] * rows
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            sign = SIGNS.match(text, at)
            assert sign is not None, text[at:]
            at = sign.end()
            if sign[4]:
                self._put(sign[4])
            elif sign[3]:
                self._next_row()
                self.column = 0
            else:
                self._obey(sign[1], sign[2])

    def shown(self) -> list[str]:
        """The lines down to the cursor."""
        return [line.rstrip() for line in self.lines[: self.row]]

    def _put(self, char: str) -> None:
        if self.column == self.columns:
            self._next_row()
            self.column = 0
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + char + line[self.column + 1 :]
        self.column += 1

    def _next_row(self) -> None:
        if self.row == self.rows - 1:
            self.lines = [*self.lines[1:], ""]
        else:
            self.row += 1

    def _obey(self, number: str, letter: str) -> None:
        if letter == "F":
            self.row, self.column = max(0, self.row - int(number)), 0
        elif letter == "H":
            self.row = self.column = 0
        elif letter == "K":
            if self.column < self.columns:  # in the last column the next character would wrap: nothing is behind it
                self.lines[self.row] = self.lines[self.row][: self.column]
        elif letter == "J":
            first = 0 if number == "2" else self.row
            self.lines[first:] = [""] * (self.rows - first)


def draw(texts: Sequence[str], *, sizes: Sequence[tuple[int, int]], before: int = 0) -> list[Screen]:
    """The screen after each text; there are some lines on it before. The window is new where its size changes."""
    screens: list[Screen] = []
    with on_terminal(terminal.STDOUT) as master:
        board = panel.Panel()
        for text, size in zip(texts, sizes, strict=True):
            columns, rows = size
            fcntl.ioctl(terminal.STDOUT, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            if not screens or (screens[-1].columns, screens[-1].rows) != size:
                screens.append(Screen(columns, rows))
                screens[-1].feed("before\n" * before)
            else:
                screens.append(screens[-1])
            board.draw(text)
            screens[-1].feed(read_until(master, DRAWN).decode())
    return screens


def test_a_text_takes_the_place_of_the_one_before_and_leaves_the_rest_alone() -> None:
    texts = ["a\nbbbb\nc\n", "aa\nb\n", "1\n2\n3\n4\n"]
    (screen, *_) = draw(texts, sizes=[(20, 10)] * 3, before=2)
    assert screen.shown() == ["before", "before", "1", "2", "3", "4"]
    (screen, *_) = draw(texts[:2], sizes=[(20, 10)] * 2, before=2)
    assert screen.shown() == ["before", "before", "aa", "b"]


def test_at_the_bottom_of_the_screen_it_stays_in_its_place_too() -> None:
    (screen, *_) = draw(["a\nb\n", "c\nd\n", "e\nf\n"], sizes=[(20, 5)] * 3, before=9)
    assert screen.shown() == ["before", "before", "e", "f"]


def test_lines_that_wrap_are_counted_as_what_they_take() -> None:
    (screen, *_) = draw(["x" * 25 + "\ny\n", "z" * 11 + "\n"], sizes=[(10, 8)] * 2, before=1)
    assert screen.shown() == ["before", "z" * 10, "z"]


def test_colours_and_wide_characters_have_the_width_that_they_take() -> None:
    assert panel._height("\x1b[32m" + "x" * 10 + "\x1b[0m", 10) == 1
    assert panel._height("日" * 6, 10) == 2
    assert panel._height("", 10) == 1


def test_what_has_no_room_is_left_out_and_counted() -> None:
    (screen,) = draw(["".join(f"{number}\n" for number in range(9))], sizes=[(20, 5)])
    assert screen.shown() == ["0", "1", "2", "6 more"]


def test_a_window_that_changed_begins_anew() -> None:
    *_, screen = draw(["x" * 30 + "\n", "y\n", "z\n"], sizes=[(40, 9), (10, 9), (10, 9)], before=3)
    assert screen.shown() == ["z"]


TEXTS = st.lists(st.lists(st.text("abc ", max_size=30), max_size=9).map(lambda lines: "".join(f"{x}\n" for x in lines)))


@given(TEXTS.filter(bool), st.integers(1, 30), st.integers(2, 12), st.integers(0, 12))
def test_after_any_texts_the_screen_ends_with_the_last_one(
    texts: list[str], columns: int, rows: int, before: int
) -> None:
    *_, screen = draw(texts, sizes=[(columns, rows)] * len(texts), before=before)
    alone = Screen(columns, rows)
    for line in panel._fit(texts[-1].splitlines(), columns=columns, rows=rows - 1):
        alone.feed(f"{line}\n")
    expected, shown = alone.shown(), screen.shown()
    above = len(shown) - len(expected)
    assert shown[above:] == expected
    assert set(shown[:above]) <= {"before"[at : at + columns] for at in range(0, 6, columns)}
    assert not any(screen.lines[screen.row :])


@pytest.mark.parametrize(
    ("environ", "expected"), [("xterm", True), ("screen", True), ("dumb", False), ("", False), (None, False)]
)
def test_a_terminal_that_is_dumb_or_unknown_cannot_draw_anew(
    monkeypatch: pytest.MonkeyPatch, environ: str | None, expected: bool
) -> None:
    if environ is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", environ)
    with on_terminal(terminal.STDOUT):
        assert panel.can_redraw() is expected


def test_a_pipe_cannot_draw_anew(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert not panel.can_redraw()
