"""What programs leave in a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.cli.screen import Backlog, Modes

VIM = (
    b"\x1b[?1049h\x1b[22;0;0t\x1b[>4;2m\x1b[?1h\x1b=\x1b[?2004h\x1b[?1000;1006h\x1b[?25l\x1b[2;9r\x1b[6 q\x1b[>1u\x1b(0"
)


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"text",
        b"\x1b[31mred\x1b[0m",
        b"\x1b[?1049h\x1b[?1049l",
        b"\x1b[?25l\x1b[?25h",
        b"\x1b[?12h",
        b"\x1b[>4;2m\x1b[>4;m",
        b"\x1b[2;9r\x1b[r",
        b"\x1b[6 q\x1b[ q",
        b"\x1b[>1u\x1b[>5u\x1b[<2u\x1b[<u",
        b"\x1b(0x\x1b(B",
    ],
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
    for sequence in (b"\x1b[>4m", b"\x1b[r", b"\x1b[0 q", b"\x1b[<1u", b"\x1b(B"):
        assert sequence in undone


def test_as_many_protocols_of_the_keyboard_are_popped_as_were_pushed() -> None:
    modes = Modes()
    modes.feed(b"\x1b[<u\x1b[>1u\x1b[>u\x1b[>31u\x1b[<u")
    assert modes.restore().endswith(b"\x1b[<2u")


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


QUESTIONS = [
    b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[=c", b"\x1b[>0q", b"\x1b[6n", b"\x1b[?6n", b"\x1b[?2026$p", b"\x1b[?u",
    b"\x1b[14t", b"\x1b[18t", b"\x1b[21t", b"\x1bZ", b"\x1b]11;?\x07", b"\x1b]4;1;?\x1b\\",
    b"\x1bP+q544e\x1b\\", b"\x1bP$qm\x1b\\",
]  # fmt: skip
HARMLESS = [
    b"text\n", b"\x1b[31m", b"\x1b[H\x1b[2J", b"\x1b[?1049h", b"\x1b[22;0;0t", b"\x1b]0;title\x07", b"\x1b]8;;https://x?y\x07",
    b"\x1bc", b"\x1b[3;5H", b"\x1b[>4;2m", b"\x1b(B", "é".encode(),
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_not_asked_again(question: bytes) -> None:
    assert Backlog(100).feed(b"a" + question + b"b") == b"ab"


@pytest.mark.parametrize("output", HARMLESS)
def test_all_else_is_shown_again(output: bytes) -> None:
    assert Backlog(100).feed(output + b".") == output + b"."


@given(output=st.lists(st.sampled_from(QUESTIONS + HARMLESS)), new=st.binary(), cuts=st.sets(st.integers(1, 300)))
def test_it_makes_no_difference_how_old_output_comes(output: list[bytes], new: bytes, cuts: set[int]) -> None:
    data = b"".join(output)
    backlog = Backlog(len(data))
    shown, start = b"", 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data) + len(new)]:
        shown += backlog.feed((data + new)[start:end])
        start = end
    assert shown == b"".join(each for each in output if each not in QUESTIONS) + new
    assert backlog.is_over


@given(st.lists(st.binary(max_size=50)))
def test_any_old_output_can_be_shown(output: list[bytes]) -> None:
    backlog = Backlog(sum(map(len, output)))
    for data in output:
        backlog.feed(data)
    assert backlog.is_over
