"""A clock that tests move."""

from __future__ import annotations

import threading

import pytest

from vmnest import deadline


class FakeClock(deadline.Clock):
    """Time stands still until somebody sleeps or waits: then it is later at once.

    Attributes:
        sleeps: The seconds of every sleep and of every wait that was not cut short.
    """

    def __init__(self, *, epoch: float = 1_800_000_000.0) -> None:
        self._epoch = epoch
        self._now = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._epoch + self._now

    def advance(self, seconds: float) -> None:
        """Make it that much later."""
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self._now += seconds

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        if not event.is_set():
            assert seconds is not None, "this wait would never end: nothing else moves a fake clock"
            self.sleep(seconds)
        return event.is_set()


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that only the test moves."""
    return FakeClock()
