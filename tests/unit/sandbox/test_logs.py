"""``Sandbox.logs``."""

from __future__ import annotations

import time

import pytest

from tests.support.log_plane import STARTED_MS, STREAM, LogPlane
from vmnest import Sandbox, errors, registry


def test_what_a_sandbox_has_logged_is_read(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", "b", "c", step=1)
    log_plane.launch(state="SUSPENDED")
    sandbox = Sandbox.get("web")
    (event,) = sandbox.logs.read(tail=1)
    assert (event.time, event.stream, event.message) == ((STARTED_MS + 2) / 1000, STREAM, "c")
    assert [event.message for event in sandbox.logs.read(grep="[ab]")] == ["a", "b"]
    log_plane.put("new", at=int(time.time() * 1000))
    assert [event.message for event in sandbox.logs.read(since=60)] == ["new"]
    assert log_plane.looks > 0  # and nothing else was asked of the service


def test_a_group_may_be_named(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", group="/mine")
    assert [event.message for event in Sandbox.get("web").logs.read(log_group="/mine")] == ["a"]


def test_one_that_the_service_has_forgotten_is_found_by_its_record(
    log_plane: LogPlane, logged: registry.Registry
) -> None:
    log_plane.put("a")
    sandbox = Sandbox.get("web")
    log_plane.microvms.clear()
    assert [event.message for event in sandbox.logs.read()] == ["a"]
    assert "DescribeLogGroups" not in log_plane.names()


def test_it_is_followed_to_the_end(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", "b", "c", step=1)
    log_plane.end()
    assert [event.message for event in Sandbox.get("web").logs.follow()] == ["a", "b", "c"]
    assert [event.message for event in Sandbox.get("web").logs.follow(tail=1)] == ["c"]
    assert list(Sandbox.get("web").logs.follow(since=60)) == []


def test_what_cannot_be_meant_is_refused_at_once(logged: registry.Registry) -> None:
    logs = Sandbox.get("web").logs
    for call in (logs.read, logs.follow):
        with pytest.raises(errors.UsageError):
            call(grep="(")
