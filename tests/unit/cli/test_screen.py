"""What programs leave in a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.cli.screen import Modes

VIM = b"\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?2004h\x1b[?1000;1006h\x1b[?25l"


@pytest.mark.parametrize(
    "output", [b"", b"text", b"\x1b[31mred\x1b[0m", b"\x1b[?1049h\x1b[?1049l", b"\x1b[?25l\x1b[?25h", b"\x1b[?12h"]
)
def test_where_nothing_is_left_nothing_is_undone(output: bytes) -> None:
    modes = Modes()
    modes.feed(output)
    assert modes.restore() == b""
    assert not modes.is_full_screen


def test_all_that_is_left_is_undone_and_the_screen_last() -> None:
    modes = Modes()
    modes.feed(VIM)
    assert modes.is_full_screen
    undone = modes.restore()
    assert undone.endswith(b"\x1b[?1049l")
    for sequence in (b"\x1b[?1l", b"\x1b>", b"\x1b[?2004l", b"\x1b[?1000l", b"\x1b[?1006l", b"\x1b[?25h"):
        assert sequence in undone


def test_it_is_undone_once() -> None:
    modes = Modes()
    modes.feed(VIM)
    modes.restore()
    assert modes.restore() == b""


def test_a_full_reset_leaves_nothing() -> None:
    modes = Modes()
    modes.feed(VIM + b"\x1bc")
    assert modes.restore() == b""


@given(cuts=st.sets(st.integers(1, len(VIM) - 1)))
def test_sequences_may_come_in_pieces(cuts: set[int]) -> None:
    whole, pieces = Modes(), Modes()
    whole.feed(VIM)
    start = 0
    for end in [*sorted(cuts), len(VIM)]:
        pieces.feed(VIM[start:end])
        start = end
    assert pieces.restore() == whole.restore()


@given(st.lists(st.binary(max_size=50)))
def test_any_output_can_be_read(output: list[bytes]) -> None:
    modes = Modes()
    for data in output:
        modes.feed(data)
    modes.restore()
