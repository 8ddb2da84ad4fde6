"""Threads for work that waits."""

import threading

import pytest

from vmnest.local import workers


def test_work_is_done_in_a_thread_of_its_name():
    one, seen = workers.Workers(), []
    one.spawn("a name", lambda: seen.append(threading.current_thread().name))
    one.join()
    assert seen == ["a name"]


def test_joining_waits_for_work_that_work_began():
    one, seen, gate = workers.Workers(), [], threading.Event()

    def first():
        gate.wait(10)
        one.spawn("second", lambda: seen.append("second"))

    one.spawn("first", first)
    gate.set()
    one.join()
    assert seen == ["second"]


def test_a_failure_is_logged_and_ends_nothing_else(caplog):
    one, seen = workers.Workers(), []
    one.spawn("bad", lambda: 1 / 0)
    one.spawn("good", lambda: seen.append(1))
    one.join()
    assert seen == [1]
    assert "bad failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_work_that_gets_no_thread_is_not_waited_for(monkeypatch):
    one = workers.Workers()

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        one.spawn("none", lambda: None)
    one.join()
