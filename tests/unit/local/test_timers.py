"""Calls at a later time."""

import contextlib
import threading

from vmnest.local import timers


@contextlib.contextmanager
def running():
    one = timers.Timers()
    one.start()
    try:
        yield one
    finally:
        one.close()


def test_calls_come_in_the_order_of_their_time():
    seen, done = [], threading.Event()
    with running() as one:
        one.after(0.05, lambda: (seen.append("late"), done.set()))
        one.after(0.01, lambda: seen.append("early"))
        assert done.wait(10)
    assert seen == ["early", "late"]


def test_a_cancelled_call_does_not_come():
    seen, done = [], threading.Event()
    with running() as one:
        timer = one.after(0.01, lambda: seen.append("cancelled"))
        timer.cancel()
        timer.cancel()
        one.after(0.02, done.set)
        assert done.wait(10)
    assert seen == []


def test_a_call_that_fails_does_not_stop_the_others(caplog):
    done = threading.Event()
    with running() as one:
        one.after(0, lambda: 1 / 0)
        one.after(0.01, done.set)
        assert done.wait(10)
    assert "ZeroDivisionError" in caplog.text


def test_closing_forgets_the_calls():
    seen = []
    with running() as one:
        one.after(60, lambda: seen.append("too late"))
    assert seen == []
