"""Output as lines of JSON."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from vmnest.cli.ndjson import Lines


class Piece(NamedTuple):
    stream: str
    data: bytes
    missing: int = 0


def out(data: bytes) -> Piece:
    return Piece("stdout", data)


def err(data: bytes) -> Piece:
    return Piece("stderr", data)


def read(text: str) -> list[dict[str, Any]]:
    assert text.isascii()
    return [json.loads(line) for line in text.splitlines()]


def feed(*pieces: Piece, offset: int = 0) -> list[dict[str, Any]]:
    lines = Lines(offset=offset)
    return read("".join(map(lines.feed, pieces)) + lines.finish())


def to_bytes(line: dict[str, Any]) -> bytes:
    return base64.b64decode(line["data"]) if line["encoding"] == "base64" else line["data"].encode()


def test_text_is_text_with_its_offset() -> None:
    assert feed(out(b"a\n"), err("é".encode()), out(b"b"), offset=7) == [
        {"stream": "stdout", "data": "a\n", "encoding": "utf-8", "offset": 7},
        {"stream": "stderr", "data": "é", "encoding": "utf-8", "offset": 9},
        {"stream": "stdout", "data": "b", "encoding": "utf-8", "offset": 11},
    ]


def test_what_is_no_text_is_base64() -> None:
    assert feed(out(b"\xff\x00")) == [{"stream": "stdout", "data": "/wA=", "encoding": "base64", "offset": 0}]


def test_a_character_in_two_pieces_is_not_torn() -> None:
    lines = feed(out(b"x\xe6"), out(b"\x97\xa5y"))
    assert [(line["data"], line["offset"]) for line in lines] == [("x", 0), ("日y", 1)]


def test_the_beginning_of_a_character_does_not_overtake_what_came_after_it() -> None:
    lines = feed(out(b"\xe6\x97"), err(b"!"), out(b"\xa5"))
    assert [(line["stream"], line["encoding"], line["offset"]) for line in lines] == [
        ("stdout", "base64", 0),
        ("stderr", "utf-8", 2),
        ("stdout", "base64", 3),
    ]


def test_a_character_that_never_ends_comes_at_the_end() -> None:
    assert feed(out(b"x\xe6")) == [
        {"stream": "stdout", "data": "x", "encoding": "utf-8", "offset": 0},
        {"stream": "stdout", "data": "5g==", "encoding": "base64", "offset": 1},
    ]


def test_a_gap_has_its_place() -> None:
    assert feed(out(b"a\xe6"), Piece("gap", b"", 10), out(b"b"))[1:] == [
        {"stream": "stdout", "data": "5g==", "encoding": "base64", "offset": 1},
        {"stream": "gap", "missing": 10, "offset": 2},
        {"stream": "stdout", "data": "b", "encoding": "utf-8", "offset": 12},
    ]


TEXTS = st.text().map(str.encode)
PIECES = st.builds(Piece, st.sampled_from(["stdout", "stderr"]), st.binary() | TEXTS)
GAPS = st.builds(Piece, st.just("gap"), st.just(b""), st.integers(1, 2**40))


@given(st.lists(PIECES | GAPS))
@example([out(b"\xf0\x9f\x98"), out(b"\x80")])
def test_nothing_is_lost_and_every_offset_is_true(pieces: list[Piece]) -> None:
    lines = feed(*pieces)
    offset = 0
    for line in lines:
        assert line["offset"] == offset
        offset += line["missing"] if line["stream"] == "gap" else len(to_bytes(line))
    for stream in ("stdout", "stderr"):
        seen = b"".join(to_bytes(line) for line in lines if line["stream"] == stream)
        assert seen == b"".join(piece.data for piece in pieces if piece.stream == stream)


@given(st.text(), st.lists(st.integers(1, 7)))
def test_text_stays_text_however_it_is_cut(text: str, cuts: list[int]) -> None:
    data = text.encode()
    lines = Lines()
    seen = ""
    for cut in [*cuts, len(data) + 1]:
        piece, data = data[:cut], data[cut:]
        seen += lines.feed(out(piece))
    assert "".join(line["data"] for line in read(seen) if line["encoding"] == "utf-8") == text
    assert lines.finish() == ""
