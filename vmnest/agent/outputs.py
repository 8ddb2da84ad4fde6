"""One answer of output: frames to chunks, a description of the process at the beginning, its end at the end.

What arrives was written by the guest, which nobody trusts: whatever is not what the protocol says is an error, and
nothing is made up for it, least of all an exit code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .. import errors
from .._guest.agentd import frames, wire
from . import results

__all__ = ["Chunk", "Event", "Exit", "ProcessInfo", "parse_info", "read_events"]

STDOUT, STDERR, GAP = "stdout", "stderr", "gap"
_STREAMS = {frames.STDOUT: STDOUT, frames.STDERR: STDERR}


class Chunk(NamedTuple):
    """A piece of output.

    Attributes:
        stream: ``stdout``, ``stderr``, or ``gap`` for output that the sandbox did not keep.
        data: The bytes; none of a gap.
        offset: How many bytes of output, of all streams, stand before it.
        missing: How many bytes a gap stands for.
    """

    stream: str
    data: bytes
    offset: int
    missing: int = 0


class Exit(NamedTuple):
    """The end of a process, after all of its output.

    Attributes:
        exit_code: Its status; 128+N when signal N ended it.
        signal: That signal's name, or None.
        timed_out: It was ended at its timeout.
    """

    exit_code: int
    signal: str | None
    timed_out: bool


class ProcessInfo(NamedTuple):
    """What the agent knows of a process.

    Attributes:
        id: Its id, by which it can be attached to.
        command: The program and its arguments.
        pid: Its number in the sandbox.
        is_running: It has not ended.
        exit_code: Its status, once it has ended; 128+N when signal N ended it.
        signal: That signal's name, or None.
        timed_out: It was ended at its timeout.
        started_at: When it was started, in seconds since the epoch by the sandbox's clock.
        ended_at: When it ended, or None.
        is_pty: It runs in a terminal.
        stdin: ``none``, ``open`` or ``closed``.
        retain: ``block``: it waits while its reader lags behind; ``drop``: it never waits, and output may be lost.
        offset: How many bytes of output it has written so far.
        oldest: The first of them that can still be read.
    """

    id: str
    command: tuple[str, ...]
    pid: int | None
    is_running: bool
    exit_code: int | None
    signal: str | None
    timed_out: bool
    started_at: float | None
    ended_at: float | None
    is_pty: bool
    stdin: str
    retain: str
    offset: int
    oldest: int


Event = ProcessInfo | Chunk | Exit


def parse_info(document: object) -> ProcessInfo:
    """What a process document says.

    Raises:
        errors.AgentAnswerError: it is none.
    """
    if not isinstance(document, dict):
        raise _malformed("a process is described by no object")
    process_id, command = document.get("id"), document.get("command")
    if not isinstance(process_id, str) or not isinstance(command, list):
        raise _malformed("a process has no id or no command")
    exit_code, signal_name = _parse_end(document)
    return ProcessInfo(
        id=process_id,
        command=tuple(word if isinstance(word, str) else str(word) for word in command),
        pid=_number(document, "pid") or None,
        is_running=exit_code is None,
        exit_code=exit_code,
        signal=signal_name,
        timed_out=document.get("timed_out") is True,
        started_at=_moment(document, "started_at"),
        ended_at=_moment(document, "ended_at"),
        is_pty=document.get("pty") is True,
        stdin=str(document.get("stdin")),
        retain=str(document.get("retain")),
        offset=_number(document, "offset"),
        oldest=_number(document, "oldest"),
    )


def read_events(pieces: Iterable[bytes], *, offset: int) -> Iterator[Event]:
    """What one answer brings, while it arrives: the process, pieces of its output from ``offset`` on, perhaps its end.

    Raises:
        errors.AgentAnswerError: it is not what the protocol says.
        errors.ConnectionLostError: it ends in the middle of a frame.
    """
    decoder = frames.Decoder()
    is_first, ended = True, False
    for piece in pieces:
        for kind, payload in _feed(decoder, piece):
            if ended or is_first != (kind == frames.PROCESS):
                raise _malformed("its frames are out of order")
            is_first = False
            event = _to_event(kind, payload, offset=offset)
            if isinstance(event, Chunk):
                offset += len(event.data) + event.missing
            ended = isinstance(event, Exit)
            yield event
    if is_first or not decoder.is_between_frames:
        raise errors.ConnectionLostError("the agent's answer was cut in the middle")


def _feed(decoder: frames.Decoder, piece: bytes) -> Iterator[tuple[int, bytes]]:
    try:
        yield from decoder.feed(piece)
    except frames.FrameError as error:
        raise _malformed(str(error)) from error


def _to_event(kind: int, payload: bytes, *, offset: int) -> Event:
    stream = _STREAMS.get(kind)
    if stream is not None:
        return Chunk(stream, payload, offset)
    if kind == frames.GAP:
        try:
            return Chunk(GAP, b"", offset, frames.parse_gap(payload))
        except frames.FrameError as error:
            raise _malformed(str(error)) from error
    document = _to_object(payload)
    return parse_info(document) if kind == frames.PROCESS else _parse_exit(document, offset=offset)


def _parse_exit(document: Mapping[str, object], *, offset: int) -> Exit:
    if _number(document, "offset") != offset:
        raise _malformed(f"it ends at byte {document.get('offset')} of the output, of which {offset} have arrived")
    exit_code, signal_name = results.parse_exit(document, timed_out=False)
    return Exit(exit_code, signal_name, document.get("timed_out") is True)


def _parse_end(document: Mapping[str, object]) -> tuple[int | None, str | None]:
    if document.get("state") == wire.PROCESS_RUNNING:
        return None, None
    return results.parse_exit(document, timed_out=False)


def _to_object(payload: bytes) -> dict[str, object]:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _malformed("one of its frames holds no object")
    return document


def _number(document: Mapping[str, object], name: str) -> int:
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _malformed(f"its member {name!r} is no number")
    return value


def _moment(document: Mapping[str, object], name: str) -> float | None:
    value = document.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _malformed(what: str) -> errors.AgentAnswerError:
    return errors.AgentAnswerError(f"the agent's answer about a process is not what the protocol says: {what}")
