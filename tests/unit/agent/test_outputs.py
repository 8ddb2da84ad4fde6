"""Frames to events, and whatever is no answer of the agent to errors."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import frames
from vmnest import errors
from vmnest.agent import outputs
from vmnest.agent.outputs import Chunk, Exit

DOCUMENT: dict[str, Any] = {
    "id": "a",
    "command": ["sh", "-c", "x"],
    "pid": 7,
    "state": "running",
    "exit_code": None,
    "signal": None,
    "timed_out": False,
    "started_at": 1.5,
    "ended_at": None,
    "pty": True,
    "stdin": "open",
    "retain": "drop",
    "offset": 9,
    "oldest": 2,
}
PROCESS = frames.encode(frames.PROCESS, json.dumps(DOCUMENT).encode())


def ending(**members: object) -> bytes:
    return frames.encode(frames.EXIT, json.dumps(members).encode())


def read(*pieces: bytes, offset: int = 0) -> list[outputs.Event]:
    return list(outputs.read_events(pieces, offset=offset))


def test_an_answer_gives_the_process_its_output_and_its_end() -> None:
    body = [
        PROCESS,
        frames.encode(frames.STDOUT, b"out"),
        frames.encode(frames.STDERR, b"err!"),
        frames.encode_gap(10),
        frames.encode(frames.STDOUT, b"x"),
        ending(exit_code=137, signal="SIGKILL", timed_out=True, offset=118),
    ]
    first, *rest = read(b"".join(body), offset=100)
    assert first == outputs.parse_info(DOCUMENT)
    assert rest == [
        Chunk("stdout", b"out", 100),
        Chunk("stderr", b"err!", 103),
        Chunk("gap", b"", 107, missing=10),
        Chunk("stdout", b"x", 117),
        Exit(137, "SIGKILL", True),
    ]


def test_output_is_handed_out_before_its_frame_is_complete() -> None:
    frame = frames.encode(frames.STDOUT, b"abcdef")
    events = outputs.read_events(iter([PROCESS, frame[:8], frame[8:]]), offset=0)
    next(events)
    assert next(events) == Chunk("stdout", b"abc", 0)
    assert next(events) == Chunk("stdout", b"def", 3)


@given(st.lists(st.integers(1, 200), max_size=8))
def test_the_pieces_in_which_it_arrives_make_no_difference(cuts: list[int]) -> None:
    body = PROCESS + frames.encode(frames.STDOUT, b"out" * 9) + frames.encode_gap(3) + ending(exit_code=1, offset=30)
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(body[at : at + cut])
        at += cut
    events = read(*pieces, body[at:])
    data = b"".join(event.data for event in events if isinstance(event, Chunk))
    assert data == b"out" * 9
    assert events[-2:] == [Chunk("gap", b"", 27, missing=3), Exit(1, None, False)]


def test_an_answer_that_is_cut_anywhere_but_between_frames_was_cut() -> None:
    body = PROCESS + frames.encode(frames.STDOUT, b"out") + ending(exit_code=0, offset=3)
    whole = {len(PROCESS), len(PROCESS) + 8, len(body)}
    for length in range(len(body) + 1):
        if length in whole:
            read(body[:length])
        else:
            with pytest.raises(errors.ConnectionLostError):
                read(body[:length])


@pytest.mark.parametrize(
    "body",
    [
        frames.encode(frames.STDOUT, b"x"),
        PROCESS + PROCESS,
        PROCESS + ending(exit_code=0, offset=0) + frames.encode(frames.STDOUT, b"x"),
        PROCESS + ending(exit_code=0, offset=0) + ending(exit_code=0, offset=0),
        frames.encode(frames.PROCESS, b"[]"),
        frames.encode(frames.PROCESS, b"{}"),
        frames.encode(frames.PROCESS, b"\xff"),
        PROCESS + frames.encode(frames.GAP, b"1"),
        PROCESS + struct.pack(">BI", frames.STDOUT, 2**31),
        PROCESS + ending(exit_code=None, offset=0),
        PROCESS + ending(exit_code="0", offset=0),
        PROCESS + ending(offset=0),
        PROCESS + ending(exit_code=0),
        PROCESS + ending(exit_code=0, offset=-1),
        PROCESS + frames.encode(frames.STDOUT, b"abc") + ending(exit_code=0, offset=2),
        PROCESS + frames.encode(frames.EXIT, b"[" * 100_000),
    ],
    ids=lambda body: repr(body[-30:]),
)
def test_what_the_protocol_does_not_say_is_refused(body: bytes) -> None:
    with pytest.raises(errors.AgentAnswerError):
        read(body)


@given(st.binary(max_size=300))
def test_no_bytes_are_a_surprise(junk: bytes) -> None:
    for body in (junk, PROCESS + junk):
        try:
            read(body)
        except (errors.AgentAnswerError, errors.ConnectionLostError):
            continue


def test_a_process_is_described_whole() -> None:
    info = outputs.parse_info({**DOCUMENT, "state": "ended", "exit_code": 130, "signal": "SIGINT", "ended_at": 2})
    assert (info.id, info.command, info.pid) == ("a", ("sh", "-c", "x"), 7)
    assert (info.is_running, info.exit_code, info.signal, info.timed_out) == (False, 130, "SIGINT", False)
    assert (info.started_at, info.ended_at) == (1.5, 2.0)
    assert (info.is_pty, info.stdin, info.retain, info.offset, info.oldest) == (True, "open", "drop", 9, 2)
    assert outputs.parse_info(DOCUMENT).is_running


@pytest.mark.parametrize(
    "members",
    [
        {"id": 7}, {"command": "sh"}, {"offset": -1}, {"offset": True}, {"oldest": None},
        {"state": "ended", "exit_code": None}, {"state": "ended", "exit_code": "0"}, {"state": "whatever"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_description_that_makes_no_sense_is_refused(members: dict[str, object]) -> None:
    with pytest.raises(errors.AgentAnswerError):
        outputs.parse_info({**DOCUMENT, **members})
    with pytest.raises(errors.AgentAnswerError):
        outputs.parse_info([members])
