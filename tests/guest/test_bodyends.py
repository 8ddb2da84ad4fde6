"""The end of a body: the same however its bytes arrive, and never guessed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import bodyends, heads

NEXT = b"GET /next HTTP/1.1\r\n\r\n"
CHUNKED = st.tuples(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b";a=b", b" \t", b' ;q="x;y"']))),
    st.lists(st.sampled_from([b"X: 1", b"x-sum:abc", b"E: \xe9"]), max_size=3),
).map(lambda parts: encode(*parts))


def encode(chunks: list[tuple[bytes, bytes]], trailers: list[bytes]) -> bytes:
    body = b"".join(b"%X%b\r\n%b\r\n" % (len(data), extension, data) for data, extension in chunks)
    return body + b"0\r\n" + b"".join(line + b"\r\n" for line in trailers) + b"\r\n"


def follow(end: bodyends.BodyEnd, data: bytes, cuts: list[int]) -> int:
    """How much of the data is body when it arrives in these pieces."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, stop in itertools.pairwise(places):
        piece = data[start:stop]
        while piece and not end.is_passed:
            part = piece[: end.wanted]
            count = end.see(part)
            if count < len(part):
                assert end.is_passed
                return stop - len(piece) + count
            piece = piece[count:]
        if end.is_passed:
            return stop - len(piece)
    return len(data)


@given(body=CHUNKED, cuts=st.lists(st.integers(0, 400), max_size=20))
def test_a_chunked_body_ends_at_the_same_byte_however_it_arrives(body: bytes, cuts: list[int]) -> None:
    end = bodyends.BodyEnd(is_chunked=True)
    assert follow(end, body + NEXT, cuts) == len(body)
    assert end.is_passed
    assert end.wanted == 0


@given(body=CHUNKED, cuts=st.lists(st.integers(0, 400), max_size=5), data=st.data())
def test_a_chunked_body_that_is_cut_has_not_ended(body: bytes, cuts: list[int], data: st.DataObject) -> None:
    end = bodyends.BodyEnd(is_chunked=True)
    kept = body[: data.draw(st.integers(0, len(body) - 1))]
    assert follow(end, kept, cuts) == len(kept)
    assert not end.is_passed


@given(length=st.integers(1, 300), cuts=st.lists(st.integers(0, 400), max_size=10))
def test_a_body_of_a_length_ends_after_it(length: int, cuts: list[int]) -> None:
    end = bodyends.BodyEnd(length=length)
    assert follow(end, b"x" * length + NEXT, cuts) == length
    assert end.is_passed


def test_no_body_has_ended_before_it_begins() -> None:
    assert bodyends.BodyEnd().is_passed
    assert bodyends.BodyEnd().wanted == 0


def test_a_body_until_the_end_of_the_connection_takes_everything() -> None:
    end = bodyends.BodyEnd(is_until_close=True)
    assert end.see(NEXT) == len(NEXT)
    assert not end.is_passed


@pytest.mark.parametrize(
    "body",
    [
        b"\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"+1\r\nx\r\n",
        b"0x1\r\nx\r\n",
        b" 1\r\nx\r\n",
        b"1\nx\r\n",
        b"1 x\r\n",
        b"1;a\x00\r\n",
        b"1;a\rb\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n",
        b"1\r\nx\r\r\n",
        b"1\r\nx0\r\n\r\n",
        b"0\r\n\n",
        b"0\r\nno colon\r\n",
        b"0\r\n folded: 1\r\n",
        b"0\r\nname : 1\r\n",
        b"0\r\nx: 1\n",
        b"0\r\nx: a\rb\r\n",
        b"1" * 16 + b"\r\n",
        b"1;" + b"a" * 5000,
        b"0\r\n" + b"a: " + b"b" * 5000,
        b"0\r\n" + (b"a: " + b"b" * 1000 + b"\r\n") * 20,
    ],
)
@given(cuts=st.lists(st.integers(0, 30), max_size=4))
def test_malformed_chunks_are_refused_however_they_arrive(body: bytes, cuts: list[int]) -> None:
    with pytest.raises(heads.HeadError):
        follow(bodyends.BodyEnd(is_chunked=True), body, cuts)


@given(body=st.binary(max_size=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_any_bytes_are_a_body_or_an_error_whatever_the_pieces(body: bytes, cuts: list[int]) -> None:
    def outcome(pieces: list[int]) -> object:
        end = bodyends.BodyEnd(is_chunked=True)
        try:
            return follow(end, body, pieces), end.is_passed
        except heads.HeadError:
            return "refused"

    assert outcome(cuts) == outcome([])
