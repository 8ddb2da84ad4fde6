"""Logs, through tools."""

from __future__ import annotations

import time

import pytest

from tests.support.log_plane import MICROVM, STARTED_MS, LogPlane
from tests.support.mcp_tools import Tools
from vmnest import registry


def messages(data: dict[str, object]) -> list[object]:
    events = data["events"]
    assert isinstance(events, list)
    return [event["message"] for event in events]


def test_the_last_events_are_read(log_plane: LogPlane, logged: registry.Registry, tools: Tools) -> None:
    log_plane.put(*(f"line {number}" for number in range(150)), step=1)
    read = tools.data("sandbox_logs_read", name="web")
    assert messages(read) == [f"line {number}" for number in range(50, 150)]
    assert (read["truncated"], read["left_out"], read["state"]) == (False, 0, "RUNNING")
    assert messages(tools.data("sandbox_logs_read", name="web", tail=1)) == ["line 149"]
    assert messages(tools.data("sandbox_logs_read", name=MICROVM, grep="e 149")) == ["line 149"]
    assert messages(tools.data("sandbox_logs_read", name=MICROVM, grep="(a+)+$")) == []
    assert tools.error("sandbox_logs_read", name="web", tail=-1)["code"] == "usage"
    assert tools.error("sandbox_logs_read", name="nobody")["code"] == "sandbox_not_found"
    assert tools.error("sandbox_logs_read", name="web", log_group="/nope")["code"] == "not_found"


def test_minutes_are_minutes(log_plane: LogPlane, logged: registry.Registry, tools: Tools) -> None:
    now = int(time.time() * 1000)
    log_plane.put("old", at=now - 3_600_000)
    log_plane.put("new", at=now)
    assert messages(tools.data("sandbox_logs_read", name="web", since_minutes=10)) == ["new"]


def test_too_much_is_left_out_at_its_beginning(log_plane: LogPlane, logged: registry.Registry, tools: Tools) -> None:
    log_plane.put(*("é" * 400 for _ in range(60)), "end", step=1)
    read = tools.data("sandbox_logs_read", name="web")
    shown = messages(read)
    assert shown[-1] == "end"
    assert 20 < len(shown) < 50
    assert (read["truncated"], read["left_out"]) == (True, 61 - len(shown))
    assert (read["total_bytes"], read["returned_bytes"]) == (48_003, 800 * (len(shown) - 1) + 3)
    assert len(messages(tools.data("sandbox_logs_read", name="web", max_bytes=100_000))) == 61


def test_one_long_message_has_its_beginning_and_its_end(
    log_plane: LogPlane, logged: registry.Registry, tools: Tools
) -> None:
    log_plane.put("a" * 50_000 + "z")
    read = tools.data("sandbox_logs_read", name="web", max_bytes=100)
    (shown,) = messages(read)
    assert str(shown).startswith("aaa")
    assert str(shown).endswith("z")
    assert (read["truncated"], read["left_out"], read["returned_bytes"]) == (True, 0, 100)


@pytest.mark.parametrize("step", [1, 0], ids=["at times of their own", "at one moment"])
def test_a_log_is_followed_by_its_cursor_without_loss(
    log_plane: LogPlane, logged: registry.Registry, tools: Tools, step: int
) -> None:
    lines = [f"{number} {'x' * 500}" for number in range(100)]
    log_plane.put(*lines, step=step)
    seen: list[object] = []
    cursor: object = None
    answers = 0
    while True:
        data = tools.data("sandbox_logs_stream", name="web", cursor=cursor, follow_timeout_ms=0)
        assert len(str(data)) < 25_000
        assert data["truncated"] is False
        seen += messages(data)
        cursor, answers = data["cursor"], answers + 1
        if not data["more"]:
            break
    assert seen == lines
    assert answers > 2


def test_what_is_logged_later_is_waited_for(log_plane: LogPlane, logged: registry.Registry, tools: Tools) -> None:
    log_plane.put("a", "b", step=1)
    cursor = tools.data("sandbox_logs_read", name="web", tail=1)["cursor"]
    assert messages(tools.data("sandbox_logs_stream", name="web", cursor=cursor, follow_timeout_ms=-1)) == []
    log_plane.put("late", at=STARTED_MS + 5000)
    data = tools.data("sandbox_logs_stream", name="web", cursor=cursor, max_bytes=10)
    assert (messages(data), data["more"], data["complete"]) == (["late"], False, False)
    assert tools.error("sandbox_logs_stream", name="web", cursor="x")["code"] == "usage"
    assert tools.error("sandbox_logs_stream", name="web", max_bytes=0)["code"] == "usage"


def test_a_long_message_is_cut_and_nothing_else_is_lost(
    log_plane: LogPlane, logged: registry.Registry, tools: Tools
) -> None:
    log_plane.put("y" * 90_000, "end", step=1)
    first = tools.data("sandbox_logs_stream", name="web", follow_timeout_ms=0)
    (shown,) = messages(first)
    assert len(str(shown)) < 21_000
    assert (first["truncated"], first["left_out"], first["total_bytes"]) == (True, 0, 90_000)
    assert messages(tools.data("sandbox_logs_stream", name="web", cursor=first["cursor"])) == ["end"]
