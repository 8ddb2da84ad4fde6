"""The frames of a WebSocket in passing: whatever the pieces, what goes in comes out."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.wire import framing, websocket

OURS = b"ourpings"
PONG = bytes((0x8A, len(OURS))) + OURS
FINAL = 0x80


def frame(kind: int, size: int, *, masked: bool, first: int = FINAL, extended: int = 0) -> bytes:
    """A frame whose payload is of that size; ``extended``: with a length field that is longer than need be."""
    bit = 0x80 if masked else 0
    if size < 126 and not extended:
        head = bytes((first | kind, bit | size))
    elif size < 1 << 16 and extended < 8:
        head = bytes((first | kind, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first | kind, bit | 127)) + size.to_bytes(8, "big")
    return head + (b"\xa5\x8a\x08\xff" if masked else b"") + bytes(index % 251 for index in range(size))


def frames(*, masked: bool) -> st.SearchStrategy[bytes]:
    sizes = st.one_of(st.integers(0, 130), st.sampled_from([125, 126, 127, 300, 65535, 65536]))
    data = st.builds(
        lambda kind, size, first: frame(kind, size, masked=masked, first=first),
        st.sampled_from([websocket.CONTINUATION, websocket.TEXT, websocket.BINARY]),
        sizes,
        st.sampled_from([0x00, 0x80, 0x40, 0xC0]),
    )
    control = st.builds(
        lambda kind, size: frame(kind, size, masked=masked),
        st.sampled_from([websocket.PING, websocket.PONG]),
        st.integers(0, 125),
    )
    return st.one_of(data, control)


def fed(scanner: framing.FrameScanner, data: bytes, cuts: list[int]) -> bytes:
    out, start = b"", 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        out += scanner.feed(memoryview(data)[start:cut])
        start = cut
    return out


CUTS = st.lists(st.integers(0, 1 << 20), max_size=20)


@given(st.booleans().flatmap(lambda masked: st.tuples(st.just(masked), st.lists(frames(masked=masked)))), CUTS)
def test_frames_pass_as_they_are_and_their_ends_are_known(case: tuple[bool, list[bytes]], cuts: list[int]) -> None:
    is_masked, sent = case
    scanner = framing.FrameScanner(from_client=is_masked)
    for each in sent:
        assert fed(scanner, each, cuts) == each
        assert scanner.is_between_frames
        assert not scanner.is_lost


@given(st.one_of(st.binary(max_size=20), frames(masked=True), frames(masked=False)), st.booleans())
def test_a_piece_tells_the_same_as_its_bytes_one_by_one(data: bytes, is_masked: bool) -> None:
    at_once, one_by_one = (framing.FrameScanner(from_client=is_masked) for _ in range(2))
    at_once.feed(data)
    fed(one_by_one, data, list(range(len(data))))
    for name in ("is_lost", "is_closed", "is_between_frames"):
        assert getattr(at_once, name) == getattr(one_by_one, name)


@given(st.lists(st.one_of(frames(masked=False), st.just(PONG))), CUTS)
def test_a_pong_that_is_unwanted_is_taken_out_however_it_comes(sent: list[bytes], cuts: list[int]) -> None:
    scanner = framing.FrameScanner(from_client=False)
    scanner.unwanted = OURS
    assert fed(scanner, b"".join(sent), cuts) == b"".join(each for each in sent if each != PONG)
    assert scanner.is_between_frames


@given(st.binary(max_size=400), st.booleans(), CUTS)
def test_no_byte_of_anything_else_is_lost(data: bytes, is_masked: bool, cuts: list[int]) -> None:
    scanner = framing.FrameScanner(from_client=is_masked)
    assert fed(scanner, data, cuts) == data


def test_what_looks_like_a_pong_inside_a_message_stays() -> None:
    scanner = framing.FrameScanner(from_client=False)
    scanner.unwanted = OURS
    data = bytes((0x82, len(PONG))) + PONG
    assert fed(scanner, data, [1, 2, 5]) == data


def test_what_only_begins_like_the_pong_is_given_out_once_it_differs() -> None:
    scanner = framing.FrameScanner(from_client=False)
    scanner.unwanted = OURS
    other = bytes((0x8A, 8)) + b"ourpangs"
    assert scanner.feed(other[:6]) == b""
    assert not scanner.is_between_frames
    assert scanner.feed(other[6:]) == other


def test_the_head_of_another_frame_is_not_held_back() -> None:
    scanner = framing.FrameScanner(from_client=False)
    scanner.unwanted = OURS
    assert scanner.feed(b"\x82") == b"\x82"


@pytest.mark.parametrize(
    ("data", "is_masked"),
    [
        (b"\x83\x00", False),
        (b"\x8b\x00", False),
        (frame(websocket.TEXT, 3, masked=True), False),
        (frame(websocket.TEXT, 3, masked=False), True),
        (frame(websocket.PING, 3, masked=False, first=0), False),
        (b"\x89\x7e\x00\x7f", False),
        (b"\x82\x7f\x80" + bytes(7), False),
        (b"SSH-2.0-OpenSSH", False),
    ],
    ids=["kind", "control-kind", "masked", "unmasked", "fragment", "large-control", "length", "text"],
)
def test_what_is_no_frame_is_passed_on_for_good(data: bytes, is_masked: bool) -> None:
    scanner = framing.FrameScanner(from_client=is_masked)
    scanner.unwanted = OURS
    more = data + PONG + frame(websocket.TEXT, 4, masked=is_masked)
    assert scanner.feed(more) == more
    assert scanner.is_lost
    assert not scanner.is_between_frames


def test_after_a_close_nothing_may_be_put_in() -> None:
    scanner = framing.FrameScanner(from_client=True)
    closing = frame(websocket.CLOSE, 2, masked=True)
    assert fed(scanner, closing, [1, 4]) == closing
    assert scanner.is_closed
    assert not scanner.is_between_frames
    assert scanner.feed(b"and then?") == b"and then?"


def test_a_ping_is_a_client_s_and_carries_what_its_pong_will() -> None:
    ping = framing.encode_ping(OURS)
    (message,) = websocket.Receiver(from_client=True).feed(ping)
    assert message == (websocket.PING, OURS)


def test_many_small_frames_do_not_take_long() -> None:
    scanner = framing.FrameScanner(from_client=True)
    data = frame(websocket.BINARY, 10, masked=True) * 20_000
    began = time.process_time()
    assert len(scanner.feed(data)) == len(data)
    assert time.process_time() - began < 1.0  # 0.05 s on a slow machine
