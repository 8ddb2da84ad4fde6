"""Output that is handed out once, in pieces or in lines, in whatever order they are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.agent.outputs import Chunk
from vmnest.agent.unread import MAX_LINE_BYTES, Line, Unread, check_encoding


def build(*pieces: tuple[str, bytes]) -> Unread:
    """What there is after these pieces were received."""
    made, offset = Unread(), 0
    for stream, data in pieces:
        made.put(Chunk(stream, data, offset))
        offset += len(data)
    return made


def take_line(unread: Unread, *, is_last: bool = False, encoding: str = "utf-8") -> Line | None:
    return unread.take_line(encoding=encoding, handling="replace", is_last=is_last)


def test_pieces_come_out_as_they_went_in() -> None:
    unread = build(("stdout", b"a\nb"), ("stderr", b""), ("stderr", b"c"))
    assert [unread.take(), unread.take(), unread.take()] == [
        Chunk("stdout", b"a\nb", 0),
        Chunk("stderr", b"c", 3),
        None,
    ]


def test_a_line_waits_for_its_end_and_can_be_had_in_pieces_until_then() -> None:
    unread = build(("stdout", b"a\r\nb"), ("stderr", b"x"), ("stdout", b"c"))
    assert take_line(unread) == Line("stdout", "a")
    assert take_line(unread) is None
    assert unread.offset == 3
    assert unread.take() == Chunk("stdout", b"b", 3)
    assert take_line(unread) is None
    assert take_line(unread, is_last=True) == Line("stderr", "x")
    assert take_line(unread, is_last=True) == Line("stdout", "c")
    assert (take_line(unread, is_last=True), unread.take(), unread.offset) == (None, None, None)


def test_what_is_dropped_is_one_gap_that_ends_lines() -> None:
    unread = build(("stdout", b"ab"))
    unread.drop(offset=2, count=3)
    unread.drop(offset=5, count=4)
    unread.put(Chunk("stdout", b"c\n", 9))
    assert (take_line(unread), unread.offset) == (Line("stdout", "ab"), 9)
    gap = take_line(unread)
    assert gap is not None
    assert (gap.stream, "7 bytes" in gap.text) == ("gap", True)
    assert take_line(unread) == Line("stdout", "c")
    unread.drop(offset=11, count=0)
    assert unread.take() is None


def test_a_line_in_pieces_is_cut_in_no_character() -> None:
    unread = build(("stdout", b"x" * MAX_LINE_BYTES + b"\xc3"), ("stdout", b"\xa9\n"))
    assert take_line(unread) == Line("stdout", "x" * MAX_LINE_BYTES)
    assert take_line(unread) == Line("stdout", "\xe9")


def test_lines_are_told_apart_where_they_end_with_a_byte() -> None:
    check_encoding("latin-1")
    assert take_line(build(("stdout", b"\xe9\n")), encoding="latin-1") == Line("stdout", "\xe9")
    for encoding in ("utf-16", "cp037", "hex", "no such"):
        with pytest.raises(errors.UsageError):
            check_encoding(encoding)


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("a\n", min_size=1).map(str.encode)), max_size=8),
    st.lists(st.booleans(), max_size=30),
)
def test_no_byte_is_lost_or_comes_twice(pieces: list[tuple[str, bytes]], wants: list[bool]) -> None:
    unread = build(*pieces)
    got = {"stdout": b"", "stderr": b""}
    for wants_line in (*wants, *[False] * 60):
        if wants_line:
            line = take_line(unread)
            if line is not None:
                got[line.stream] += line.text.encode() + b"\n"
        else:
            chunk = unread.take()
            if chunk is not None:
                got[chunk.stream] += chunk.data
    assert got == {name: b"".join(data for stream, data in pieces if stream == name) for name in got}
