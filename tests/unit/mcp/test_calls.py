"""Calls that can be cancelled and tell how far they are."""

from __future__ import annotations

import threading

import pytest

from vmnest.mcp.calls import Call, Calls, CancelledError
from vmnest.mcp.eras import Era
from vmnest.mcp.jsonrpc import Request

ERA = Era("2025-11-25", is_modern=False)
WAIT_SECONDS = 30.0


class Stage:
    def __init__(self, identity: int | str = 1, **meta: object) -> None:
        self.sent: list[dict[str, object]] = []
        self.now = 0.0
        request = Request(identity, "tools/call", {"_meta": meta})
        self.call = Call(request, era=ERA, send=self.sent.append, monotonic=lambda: self.now)


def test_nothing_is_sent_after_a_cancellation():
    stage = Stage(progressToken=1)
    stage.call.check()
    stage.call.cancel()
    stage.call.progress(1)
    assert not stage.call.answer({"id": 1})
    assert stage.sent == []
    with pytest.raises(CancelledError):
        stage.call.check()


def test_nothing_is_sent_after_the_answer():
    stage = Stage(progressToken=1)
    ended = threading.Event()
    stage.call.on_cancel(ended.set)
    assert stage.call.answer({"id": 1})
    assert not stage.call.answer({"id": 1})
    stage.call.progress(1)
    assert stage.call.cancel() is None
    assert stage.sent == [{"id": 1}]
    assert not ended.is_set()
    assert not stage.call.is_cancelled


def test_what_goes_on_for_a_call_is_ended_on_a_thread_of_its_own():
    stage = Stage()
    threads: list[threading.Thread] = []
    stage.call.on_cancel(lambda: threads.append(threading.current_thread()))
    thread = stage.call.cancel()
    assert thread is not None
    thread.join(WAIT_SECONDS)
    assert threads == [thread]
    assert stage.call.cancel() is None


def test_what_begins_after_the_cancellation_is_ended_at_once():
    stage = Stage()
    stage.call.cancel()
    ended = threading.Event()
    stage.call.on_cancel(ended.set)
    assert ended.is_set()


@pytest.mark.parametrize("token", [0, "", "t", -1])
def test_progress_is_told_to_whoever_gave_a_token(token):
    stage = Stage(progressToken=token)
    assert stage.call.wants_progress
    stage.call.progress(1, total=3, message="one")
    assert stage.sent == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1, "total": 3, "message": "one"},
        }
    ]


@pytest.mark.parametrize("meta", [{}, {"progressToken": None}, {"progressToken": True}, {"progressToken": 1.5}])
def test_nobody_else_hears_of_progress(meta):
    stage = Stage(**meta)
    stage.call.progress(1)
    assert stage.sent == []
    assert not stage.call.wants_progress


def test_progress_grows_and_does_not_come_too_often():
    stage = Stage(progressToken=1)
    for now, reached in ((0.0, 1.0), (0.1, 2.0), (0.3, 3.0), (0.6, 3.0), (0.9, 2.5), (1.2, 4.0)):
        stage.now = now
        stage.call.progress(reached)
    assert [message["params"]["progress"] for message in stage.sent] == [1.0, 3.0, 4.0]


def test_a_call_is_cancelled_by_its_id_and_the_ids_type_counts():
    calls = Calls()
    one, text, twice = Stage(1), Stage("1"), Stage(1)
    for stage in (one, text, twice):
        calls.add(stage.call)
    for stranger in (True, 1.0, None, [], {}, "", 2):
        calls.cancel(stranger)
    assert not one.call.is_cancelled
    calls.remove(twice.call)
    calls.cancel(1)
    assert [stage.call.is_cancelled for stage in (one, text, twice)] == [True, False, False]
    calls.remove(one.call)
    calls.remove(one.call)
    calls.cancel_all()
    assert [stage.call.is_cancelled for stage in (one, text, twice)] == [True, True, False]


def test_cancelling_all_waits_for_what_ends():
    calls, stage = Calls(), Stage()
    calls.add(stage.call)
    ended: list[int] = []
    stage.call.on_cancel(lambda: ended.append(1))
    calls.cancel_all()
    assert ended == [1]
    assert stage.call.hurry.is_set()


def test_cancelling_all_hurries_what_was_cancelled_before_and_waits_for_it():
    calls, stage = Calls(), Stage()
    calls.add(stage.call)
    ended: list[int] = []
    stage.call.on_cancel(lambda: ended.append(stage.call.hurry.wait(30)))
    calls.cancel(1)
    assert not stage.call.hurry.is_set()
    calls.cancel_all()
    assert ended == [True]
