"""The loop: descriptors, times and calls of other threads, all in its one thread."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator

import pytest

from guest.agentd import loop, stopwatch


class Bench:
    """A loop, its clock, and what it called."""

    def __init__(self) -> None:
        self.shift = 0.0
        self.loop = loop.Loop(start_watch=lambda: stopwatch.Stopwatch(self.monotonic))
        self.calls: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.loop.start()

    def monotonic(self) -> float:
        return time.monotonic() + self.shift

    def expect(self, *expected: object) -> None:
        """These calls come next."""
        assert [self.calls.get(timeout=20) for _ in expected] == list(expected)

    def settle(self) -> None:
        """The loop has done what was asked of it before."""
        done = threading.Event()
        self.loop.post(done.set)
        assert done.wait(20)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.stop()


def test_calls_of_other_threads_come_in_order_and_in_its_own_thread(bench: Bench) -> None:
    for number in range(100):
        bench.loop.post(lambda number=number: bench.calls.put((number, threading.current_thread().name)))
    bench.expect(*((number, "agentd-loop") for number in range(100)))


def test_a_call_may_post_another(bench: Bench) -> None:
    bench.loop.post(lambda: bench.loop.post(lambda: bench.calls.put("second")))
    bench.expect("second")


def test_a_descriptor_is_told_of_as_long_as_there_is_something(bench: Bench) -> None:
    reader, writer = os.pipe()

    def on_event() -> None:
        bench.calls.put(os.read(reader, 1))

    bench.loop.watch(reader, on_event)
    os.write(writer, b"abc")
    bench.expect(b"a", b"b", b"c")
    bench.loop.unwatch(reader)
    bench.loop.unwatch(reader)
    os.write(writer, b"d")
    bench.settle()
    assert bench.calls.empty()
    os.close(reader)
    os.close(writer)


def test_two_busy_descriptors_take_turns(bench: Bench) -> None:
    pipes = {name: os.pipe() for name in "ab"}
    for _, writer in pipes.values():
        os.write(writer, b"x" * 50)
    busy, ready = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        ready.wait(20)

    bench.loop.post(hold)
    assert busy.wait(20)  # until then one of the two could be seen before the other is there
    for name, (reader, _) in pipes.items():
        bench.loop.watch(reader, lambda name=name, reader=reader: bench.calls.put((name, os.read(reader, 1))))
    ready.set()
    names = [bench.calls.get(timeout=20)[0] for _ in range(100)]  # type: ignore[index]
    assert all(set(pair) == {"a", "b"} for pair in zip(names[::2], names[1::2], strict=True))
    for reader, writer in pipes.values():
        bench.loop.unwatch(reader)
        os.close(reader)
        os.close(writer)


def test_what_cannot_be_watched_is_an_error_and_not_remembered(bench: Bench) -> None:
    with open(__file__, "rb") as file, pytest.raises(OSError):
        bench.loop.watch(file.fileno(), lambda: None)
    assert len(bench.loop._callbacks) == 1  # its own


def test_timers_come_in_the_order_of_their_times(bench: Bench) -> None:
    def arm() -> None:
        for seconds in (0.03, 0.0, 0.01, 0.02):
            bench.loop.call_later(seconds, lambda seconds=seconds: bench.calls.put(seconds))

    bench.loop.post(arm)
    bench.expect(0.0, 0.01, 0.02, 0.03)


def test_a_cancelled_timer_is_not_called(bench: Bench) -> None:
    def arm() -> None:
        timer = bench.loop.call_later(0.01, lambda: bench.calls.put("cancelled"))
        bench.loop.call_later(0.02, lambda: bench.calls.put("kept"))
        timer.cancel()
        timer.cancel()

    bench.loop.post(arm)
    bench.expect("kept")
    assert bench.calls.empty()


def test_cancelled_timers_do_not_pile_up(bench: Bench) -> None:
    def arm() -> None:
        bench.loop.call_later(3000, lambda: None)
        for _ in range(10_000):
            bench.loop.call_later(3600, lambda: None).cancel()
        bench.calls.put(len(bench.loop._timers))

    bench.loop.post(arm)
    count = bench.calls.get(timeout=20)
    assert isinstance(count, int)
    assert count < 200


def test_the_time_of_a_suspension_does_not_count(bench: Bench) -> None:
    bench.loop.post(lambda: bench.loop.call_later(60, lambda: bench.calls.put("late")))
    bench.settle()
    bench.shift += 3600
    bench.loop.post(lambda: bench.loop.call_later(0.01, lambda: bench.calls.put("soon")))
    bench.expect("soon")
    assert bench.calls.empty()


def test_a_callback_that_fails_is_logged_and_the_others_go_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x")
    bench.loop.watch(reader, lambda: 1 // 0)
    bench.loop.post(lambda: 1 // 0)
    bench.loop.post(lambda: bench.loop.call_later(0, lambda: 1 // 0))
    bench.settle()
    bench.loop.post(lambda: bench.loop.call_later(0.01, lambda: bench.calls.put("alive")))
    bench.expect("alive")
    assert capsys.readouterr().err.count("ZeroDivisionError") == 3
    os.close(reader)
    os.close(writer)


def test_a_callback_may_close_what_it_watches_and_fail(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x")

    def on_event() -> None:
        bench.loop.unwatch(reader)
        os.close(reader)
        raise ValueError("after the close")

    bench.loop.watch(reader, on_event)
    bench.settle()
    bench.loop.post(lambda: bench.calls.put("alive"))
    bench.expect("alive")
    assert "ValueError < test_loop.py" in capsys.readouterr().err
    os.close(writer)


def test_the_loop_survives_what_its_own_code_did_not_expect(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = bench.loop._turn
    failures = iter([MemoryError("for a moment")])

    def fail_once() -> None:
        for failure in failures:
            raise failure
        turn()

    monkeypatch.setattr(bench.loop, "_turn", fail_once)
    bench.loop.post(lambda: None)
    bench.loop.post(lambda: bench.calls.put("alive"))
    bench.expect("alive")
    bench.loop.post(lambda: bench.calls.put("still"))
    bench.expect("still")
    assert "for a moment" in capsys.readouterr().err
