"""The watch that stands still while the VM is suspended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guest.agentd.stopwatch import TICK_SECONDS, Stopwatch


class Monotonic:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_time_that_is_read_often_counts_as_it_passes() -> None:
    clock = Monotonic()
    watch = Stopwatch(clock)
    readings = []
    for step in (0.0, 0.5, 0.1, 1.9):
        clock.now += step
        readings.append(round(watch.read(), 6))
    assert readings == [0.0, 0.5, 0.6, 2.5]


def test_of_a_suspension_no_more_than_a_tick_counts() -> None:
    clock = Monotonic()
    watch = Stopwatch(clock)
    clock.now += 1
    before = watch.read()
    clock.now += 28_000
    assert watch.read() == before + TICK_SECONDS
    clock.now += 1
    assert watch.read() == before + TICK_SECONDS + 1


@given(st.lists(st.floats(0, 1e6)))
def test_it_never_goes_back_and_never_runs_ahead(steps: list[float]) -> None:
    clock = Monotonic()
    watch = Stopwatch(clock)
    begin, last = clock.now, 0.0
    for step in steps:
        clock.now += step
        reading = watch.read()
        assert last <= reading <= clock.now - begin + 1e-6
        last = reading


def test_time_passes_even_if_every_step_is_long() -> None:
    clock = Monotonic()
    watch = Stopwatch(clock)
    for _ in range(10):
        clock.now += 3
        watch.read()
    assert watch.read() == 10 * TICK_SECONDS
