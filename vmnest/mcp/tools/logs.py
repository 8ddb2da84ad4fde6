"""What sandboxes have logged."""

from __future__ import annotations

import re

from ...ops import logs
from .. import envelope
from . import attendance, output
from .tool import Tool

__all__ = ["TOOLS"]

MOST_WAIT_MS = 25_000  # with what asking takes, a call stays below what hosts wait
ASK_SECONDS = 15.0


def sandbox_logs_read(
    *,
    name: str,
    tail: int = 100,
    since_minutes: int | None = None,
    grep: str | None = None,
    log_group: str | None = None,
    max_bytes: int | None = None,
) -> dict[str, object]:
    """Read the end of what a sandbox's main process and agent have logged, also after its end. Output of commands is
    not in it. What comes next: pass cursor to sandbox_logs_stream.

    Args:
        name: The sandbox, or a MicroVM's id.
        tail: How many events.
        since_minutes: Only of the last so many minutes.
        grep: Only events that contain this text.
        log_group: CloudWatch log group, if not its own.
        max_bytes: Characters (20000).

    Returns:
        events {time, stream, message}, cursor, note (why there are none), truncated.
    """
    limit = output.resolve_limit(max_bytes)
    data = logs.sandbox_logs(
        name=name,
        tail=tail,
        since=None if since_minutes is None else since_minutes * 60,
        grep=_pattern(grep),
        log_group=log_group,
        timeout=attendance.MOST_SECONDS,
    )
    return _shape(data, limit=limit)


def sandbox_logs_stream(
    *,
    name: str,
    cursor: str | None = None,
    follow_timeout_ms: int = 5000,
    log_group: str | None = None,
    grep: str | None = None,
    max_bytes: int | None = None,
) -> dict[str, object]:
    """Read what a sandbox has logged since the last answer; wait if there is nothing new.

    Args:
        name: The sandbox, or a MicroVM's id.
        cursor: That of the last answer; none: from the beginning.
        follow_timeout_ms: Milliseconds to wait; at most 25000.
        log_group: CloudWatch log group, if not its own.
        grep: Only events that contain this text.
        max_bytes: Characters (20000).

    Returns:
        events, cursor for the next call, more (there is more now), complete (the sandbox has ended).
    """
    limit = output.resolve_limit(max_bytes)
    data = logs.await_logs(
        name=name,
        cursor=cursor,
        wait=max(0, min(follow_timeout_ms, MOST_WAIT_MS)) / 1000,
        log_group=log_group,
        grep=_pattern(grep),
        most_bytes=limit,
        timeout=ASK_SECONDS,
    )
    return _shape(data, limit=limit)


def _shape(data: dict[str, object], *, limit: int) -> dict[str, object]:
    """The last of the events that find room, each message as much as finds room."""
    events = data["events"]
    assert isinstance(events, list)
    kept: list[dict[str, object]] = []
    room, returned, is_cut = limit, 0, False
    for event in reversed(events):
        message = envelope.cap_text(str(event["message"]), most=limit)
        text = str(message["text"])
        room -= len(text) + len(str(event["stream"])) + logs.EVENT_BYTES
        if room < 0 and kept:
            break
        kept.append({**event, "message": text})
        returned += int(str(message["returned_bytes"]))
        is_cut = is_cut or bool(message["truncated"])
    total = sum(len(str(event["message"]).encode("utf-8", "surrogatepass")) for event in events)
    told = {"truncated": is_cut or len(kept) < len(events), "total_bytes": total, "returned_bytes": returned}
    return {**data, "events": kept[::-1], **told, "left_out": len(events) - len(kept)}


def _pattern(text: str | None) -> str | None:
    """For plain text, as upstream: a regular expression that explodes on what a guest wrote would stop the server."""
    return None if text is None else re.escape(text)


TOOLS = (
    Tool(sandbox_logs_read, title="Read a sandbox's log", reads=True),
    Tool(sandbox_logs_stream, title="Follow a sandbox's log", reads=True),
)
