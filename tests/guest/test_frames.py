"""Frames survive every way of being cut into pieces, and what is no frame is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import frames

KINDS = st.sampled_from([frames.PROCESS, frames.STDOUT, frames.STDERR, frames.GAP, frames.EXIT])


def decode(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    decoder = frames.Decoder()
    found = [frame for piece in pieces for frame in decoder.feed(piece)]
    assert decoder.is_between_frames
    return found


def joined(found: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Neighbouring pieces of the same output as one; empty output says nothing."""
    result: list[tuple[int, bytes]] = []
    for kind, payload in found:
        if kind in frames.OUTPUT_KINDS and not payload:
            continue
        if kind in frames.OUTPUT_KINDS and result and result[-1][0] == kind:
            result[-1] = kind, result[-1][1] + payload
        else:
            result.append((kind, payload))
    return result


@given(st.lists(st.tuples(KINDS, st.binary(max_size=40)), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_frames_come_out_as_they_went_in_wherever_they_are_cut(sent: list[tuple[int, bytes]], cuts: list[int]) -> None:
    wire = b"".join(frames.encode(kind, payload) for kind, payload in sent)
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    assert joined(decode([wire[a:b] for a, b in itertools.pairwise(edges)])) == joined(sent)


def test_output_comes_before_its_frame_is_whole() -> None:
    decoder = frames.Decoder()
    wire = frames.encode(frames.STDOUT, b"abcdef")
    assert list(decoder.feed(wire[:8])) == [(frames.STDOUT, b"abc")]
    assert not decoder.is_between_frames
    assert list(decoder.feed(wire[8:])) == [(frames.STDOUT, b"def")]


def test_an_unknown_kind_is_passed_over() -> None:
    assert decode([frames.encode(99, b"new") + frames.encode(frames.STDERR, b"x")]) == [(frames.STDERR, b"x")]


@pytest.mark.parametrize("cut", range(1, frames.HEAD_BYTES + 3))
def test_a_stream_that_ends_inside_a_frame_is_seen_to(cut: int) -> None:
    decoder = frames.Decoder()
    list(decoder.feed(frames.encode(frames.EXIT, b"{}")[:-1][:cut]))
    assert not decoder.is_between_frames


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    decoder = frames.Decoder()
    try:
        list(decoder.feed(data))
    except frames.FrameError:
        return


def test_a_frame_larger_than_any_may_be_is_refused() -> None:
    with pytest.raises(frames.FrameError):
        list(frames.Decoder().feed(b"\x02\xff\xff\xff\xff"))
    with pytest.raises(ValueError, match="at most"):
        frames.encode(frames.STDOUT, b"x" * (frames.MAX_PAYLOAD_BYTES + 1))


@given(st.integers(0, 2**64 - 1))
def test_a_gap_tells_its_size(count: int) -> None:
    ((kind, payload),) = decode([frames.encode_gap(count)])
    assert (kind, frames.parse_gap(payload)) == (frames.GAP, count)


def test_a_malformed_gap_is_refused() -> None:
    with pytest.raises(frames.FrameError):
        frames.parse_gap(b"123")


@given(st.binary(max_size=40))
def test_a_head_and_its_payload_are_the_frame(payload: bytes) -> None:
    assert frames.encode_head(frames.STDOUT, len(payload)) + payload == frames.encode(frames.STDOUT, payload)


def test_no_head_is_made_for_a_payload_that_is_too_large() -> None:
    with pytest.raises(ValueError, match="at most"):
        frames.encode_head(frames.STDOUT, frames.MAX_PAYLOAD_BYTES + 1)
