"""How far a transfer is."""

from __future__ import annotations

import os
import re
import threading
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.screens import on_terminal, read_until
from vmnest import errors
from vmnest.cli import meter, render, terminal


class Step(NamedTuple):
    bytes: int
    total: int | None
    path: str


MIB = 1024 * 1024


def line(step: Step | None, *, rate: float = 0.0, seconds: float = 3.0, columns: int = 80) -> str:
    return meter.render_line("copying", step, rate=rate, seconds=seconds, columns=columns)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * MIB, "5.0 MiB"),
        (3 * 1024 * MIB, "3.0 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_a_size_has_a_unit(count: int, text: str) -> None:
    assert meter.render_size(count) == text


def test_a_line_tells_how_much_how_fast_how_long_and_what() -> None:
    assert line(None) == "copying ... 3 s"
    assert line(Step(5 * MIB, None, "a/b"), rate=MIB) == "copying 5.0 MiB, 1.0 MiB/s  a/b"
    whole = line(Step(5 * MIB, 20 * MIB, "a\x1b"), rate=MIB)
    assert whole == "copying 5.0 MiB of 20.0 MiB, 25 %, 1.0 MiB/s, 15s left  a\\x1b"
    assert line(Step(5 * MIB, 20 * MIB, "a")) == "copying 5.0 MiB of 20.0 MiB, 25 %, 0 B/s  a"
    assert line(Step(0, 0, "empty")) == "copying 0 B, 0 B/s  empty"


def test_of_a_long_path_the_end_is_shown() -> None:
    assert line(Step(0, None, "日本/" * 20 + "end"), columns=40) == "copying 0 B, 0 B/s  ...本/日本/日本/end"
    assert line(Step(0, None, os.fsdecode(b"\xff")), columns=40) == "copying 0 B, 0 B/s  \\xff"
    assert line(Step(0, None, "no/room/for/this"), columns=30) == "copying 0 B, 0 B/s"


def test_a_source_that_grew_is_never_more_than_whole() -> None:
    assert "100 %, " in line(Step(30 * MIB, 20 * MIB, "a"), rate=MIB)
    assert ", 0s left" in line(Step(30 * MIB, 20 * MIB, "a"), rate=MIB)


@given(
    count=st.integers(0, 2**60),
    total=st.none() | st.integers(0, 2**60),
    path=st.text(),
    rate=st.floats(0, 2**60),
    columns=st.integers(1, 200),
)
def test_a_line_never_wraps_and_never_steers(
    count: int, total: int | None, path: str, rate: float, columns: int
) -> None:
    text = line(Step(count, total, path), rate=rate, columns=columns)
    assert render.width(text) < max(columns, 1)
    assert text.isprintable()


def test_the_rate_is_that_of_the_latest_seconds() -> None:
    pace = meter.Pace()
    assert pace.rate(0.0, 0) == 0.0
    assert pace.rate(1.0, 100) == 100.0
    assert pace.rate(4.0, 100) == 25.0
    for second in range(5, 20):
        rate = pace.rate(float(second), 100)
    assert rate == 0.0
    assert pace.rate(20.0, 600) == 100.0
    assert pace.rate(21.0, 0) == 0.0  # it was cut, and begins anew


def test_it_shows_itself_follows_and_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SHOWN_AFTER_SECONDS", 0.0)
    with on_terminal(terminal.STDERR) as screen:
        with meter.Meter("copying", shown=True) as shown:
            read_until(screen, b"\rcopying ... 0 s\x1b[K")
            shown.take(Step(MIB, 2 * MIB, "a"))
            read_until(screen, b"\rcopying 1.0 MiB of 2.0 MiB, 50 %")
        read_until(screen, re.compile(rb"\r\x1b\[K\Z"))
    assert "vmnest-meter" not in [thread.name for thread in threading.enumerate()]


def test_one_that_is_not_shown_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with meter.Meter("copying", shown=False) as shown:
        shown.take(Step(1, None, "a"))
        assert "vmnest-meter" not in [thread.name for thread in threading.enumerate()]
    assert capfd.readouterr() == ("", "")


def test_one_that_is_over_soon_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SHOWN_AFTER_SECONDS", 60.0)
    with on_terminal(terminal.STDERR) as screen:
        with meter.Meter("copying", shown=True):
            pass
        os.set_blocking(screen, False)
        with pytest.raises(BlockingIOError):
            os.read(screen, 1)


def test_a_terminal_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    def refuse(fd: int, text: str) -> None:
        gone.set()
        raise errors.OutputError("cannot write to standard error: Input/output error")

    monkeypatch.setattr(meter, "SHOWN_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(terminal, "write_text", refuse)
    with meter.Meter("copying", shown=True) as shown:
        assert gone.wait(20)
        shown.take(Step(1, None, "a"))
