"""Values as text."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.cli.render import (
    fold,
    render_age,
    render_age_since,
    render_duration,
    render_hint,
    render_json,
    render_members,
    render_moment,
    render_names,
    render_remark,
    render_time_until,
    to_printable,
    width,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (5, "5"),
        ("web", "web"),
        ("naïve 日本", "naïve 日本"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b1m", "\\x9b1m"),
        ("evil\u202etxt", "evil\\u202etxt"),
        ("\udcff", "\\udcff"),
        ("\u2028", "\\u2028"),
    ],
)
def test_text_that_could_steer_a_terminal_is_escaped(value: object, text: str) -> None:
    assert to_printable(value) == text


@given(st.text())
def test_printable_text_is_one_line_without_controls(text: str) -> None:
    assert to_printable(text).isprintable()


def test_wide_and_combining_characters_have_their_columns() -> None:
    assert [width(text) for text in ("abc", "日本", "e\u0301", "ｱ")] == [3, 4, 1, 1]


def test_members_without_a_value_are_left_out() -> None:
    assert render_members([("name", "web"), ("reason", None), ("id", "\x1b")]) == "name  web\nid    \\x1b\n"
    assert render_members([]) == ""


def test_names_of_members_come_from_elsewhere_too() -> None:
    assert render_members([("a\x1b[2J\n", "x")]) == "a\\x1b[2J\\n  x\n"


def test_json_is_ascii_on_one_line() -> None:
    text = render_json({"a": "日\n\x1b\udcff"})
    assert text.isascii()
    assert text.count("\n") == 1
    assert json.loads(text) == {"a": "日\n\x1b\udcff"}
    assert json.loads(render_json({"a": [1]}, indented=True)) == {"a": [1]}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86399, "23h"), (200000, "2d")],
)
def test_an_age_is_in_its_largest_unit(seconds: float, text: str) -> None:
    assert render_age(seconds) == text


def test_an_age_counts_from_a_moment() -> None:
    began = datetime.now(timezone.utc) - timedelta(hours=5, seconds=1)
    assert render_age_since(began.isoformat(timespec="seconds")) == "5h"
    assert render_age_since(None) is None


def test_a_time_that_is_left_counts_to_a_moment() -> None:
    now = datetime.now(timezone.utc)
    for left, shown in [
        (timedelta(hours=7, minutes=59, seconds=50), "7h59m"),
        (timedelta(hours=2, seconds=59), "2h"),
        (timedelta(days=2, hours=3, minutes=9), "2d3h"),
        (timedelta(hours=-1), "0s"),
    ]:
        assert render_time_until((now + left).isoformat()) == shown
    assert render_time_until(None) is None


@pytest.mark.parametrize(
    ("zone", "text"), [("UTC", "2026-11-30 23:39:05"), ("IST-5:30", "2026-12-01 05:09:05"), ("", "2026-11-30 23:39:05")]
)
def test_a_moment_is_told_by_the_clock_of_this_place(monkeypatch: pytest.MonkeyPatch, zone: str, text: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert render_moment("2026-11-30T23:39:05+00:00") == text
    finally:
        monkeypatch.undo()
        time.tzset()
    assert render_moment(None) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (90, "1m30s"), (900, "15m"), (28800, "8h"), (90061, "1d1h1m1s")]
)
def test_a_duration_is_told_exactly(seconds: int, text: str) -> None:
    assert render_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "0"), (5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3 and 2 more"), (200, "0, 1, 2, 3 and 196 more")]
)
def test_of_many_names_some_are_shown(count: int, shown: str) -> None:
    assert render_names(range(count)) == shown


@pytest.mark.parametrize(
    ("text", "room", "lines"),
    [
        ("one two three four five six", 24, ["one two three four five", "six"]),
        ("one two three four five six", None, ["one two three four five six"]),
        ("one two three four five six", 1, ["one", "two", "three", "four", "five", "six"]),
        ("vmnest " + "x" * 30 + " y", 24, ["vmnest", "x" * 30, "y"]),
        ("   log  of two columns and more", 24, ["   log  of two columns", "   and more"]),
        ("\u4e00" * 9 + " " + "\u4e00" * 9, 24, ["\u4e00" * 9, "\u4e00" * 9]),
        ("", 24, [""]),
        ("it goes on: vmnest attach -i box 0123abcd", 24, ["it goes on:", "vmnest attach -i box 0123abcd"]),
        ("Make one: vmnest create NAME. All of them", 24, ["Make one:", "vmnest create NAME. All", "of them"]),
    ],
    ids=[
        "by words",
        "a pipe",
        "too narrow",
        "no blank",
        "a line of a log",
        "wide characters",
        "nothing",
        "a command",
        "and more",
    ],
)
def test_text_is_folded_between_words_where_there_is_a_window(text: str, room: int | None, lines: list[str]) -> None:
    assert fold(text, room).split("\n") == lines


@given(text=st.text("ab \u4e00", max_size=200), room=st.integers(20, 60))
def test_folding_changes_no_word_and_keeps_to_the_room(text: str, room: int) -> None:
    folded = fold(text, room, indent="  ")
    assert folded.split() == text.split()
    for line in folded.split("\n"):
        assert width(line) <= room or " " not in line.strip()


def test_a_remark_and_its_hint_stand_in_columns_of_their_own() -> None:
    assert render_remark("one two three four five", room=28) == "one two three four\n        five\n"
    assert render_hint("one two three four five\nsix", room=22) == "  one two three four\n  five\n  six\n"
