"""Tables, and the room they have."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.cli import render, tables
from vmnest.cli.tables import Column, render_table

COLUMNS = (
    "NAME",
    Column("STATE", colours=tables.STATE_COLOURS),
    Column("IMAGE", rank=1, shrinks=True),
    Column("ENDPOINT", rank=2),
)
ROWS = [
    ("web", "RUNNING", "arn:aws:lambda:us-east-1:1:microvm-image:guest", "https://a.example"),
    ("日本", "odd", None, None),
]


def test_a_table_is_aligned_and_without_bounds_never_cut() -> None:
    long = "microvm-" + "0" * 300
    assert render_table(("NAME", "ID"), [("a", long), ("日本", None)]) == f"NAME  ID\na     {long}\n日本  -\n"


def test_columns_of_the_highest_rank_go_first_where_the_room_is_small() -> None:
    heads = {room: render_table(COLUMNS, ROWS, room=room).splitlines()[0].split() for room in (200, 50, 40, 22, 1)}
    assert heads[200] == ["NAME", "STATE", "IMAGE", "ENDPOINT"]
    assert heads[50] == ["NAME", "STATE", "IMAGE", "ENDPOINT"]
    assert heads[40] == ["NAME", "STATE", "IMAGE"]
    assert heads[22] == ["NAME", "STATE"]
    assert heads[1] == ["NAME", "STATE"]  # what must be told is wrapped by the terminal


def test_what_may_be_cut_is_cut_before_a_column_goes() -> None:
    assert render_table(COLUMNS, ROWS, room=44) == (
        "NAME  STATE    IMAGE       ENDPOINT\n"
        "web   RUNNING  arn:aws:l…  https://a.example\n"
        "日本  odd      -           -\n"
    )


def test_a_cut_cell_says_so_in_the_signs_that_there_are() -> None:
    assert "arn:aws:l~  https" in render_table(COLUMNS, ROWS, room=44, ellipsis="~")


def test_numbers_end_in_one_line() -> None:
    assert render_table(("A", Column("MIB", right=True)), [("x", 5), ("y", 2048)]) == "A   MIB\nx     5\ny  2048\n"


def test_colour_is_of_whole_cells_that_are_known_and_takes_no_room() -> None:
    plain, painted = (render_table(COLUMNS, ROWS, colour=colour) for colour in (False, True))
    assert painted.splitlines()[1].startswith("web   \x1b[32mRUNNING\x1b[0m  arn")
    assert re.sub(r"\x1b\[\d+m", "", painted) == plain


def test_cells_cannot_steer_the_terminal() -> None:
    text = render_table(
        ("NAME", Column("X", colours={"\x1b[2J": "32"})), [("\x1b[2J\n", "\x1b[2J")], colour=True, room=80
    )
    assert text == "NAME       X\n\\x1b[2J\\n  \\x1b[2J\n"


@given(
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))),
    st.integers(1, 120),
)
def test_no_line_is_longer_than_the_room_but_for_what_must_be_told(rows: list[tuple[str, ...]], room: int) -> None:
    text = render_table(COLUMNS, rows, room=room)
    least = max(render.width(line) for line in render_table(COLUMNS[:2], [row[:2] for row in rows]).splitlines())
    assert all(render.width(line) <= max(room, least) for line in text.splitlines())
    assert text.count("\n") == len(rows) + 1


@pytest.mark.parametrize(
    ("text", "wide", "cut"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 5, "日本…"), ("日本語", 4, "日…"), ("ab", 0, "…")],
)
def test_text_is_cut_by_what_it_takes_on_a_terminal(text: str, wide: int, cut: str) -> None:
    assert tables.cut(text, wide) == cut
