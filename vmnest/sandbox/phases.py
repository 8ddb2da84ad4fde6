"""Where the time of a launch went, for the error of one that took too long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import errors
from ..deadline import SYSTEM_CLOCK, Clock

__all__ = ["Phases"]

# What is done in the phase of that name.
_WORK = {
    "reach": "reaching the service",
    "plan": "finding the image",
    "run": "starting the MicroVM",
    "agent": "waiting for its agent",
}


class Phases:
    """The phases of one launch, one after the other.

    Attributes:
        seconds: How long each took that has ended, or has failed.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One phase; what takes too long in it tells how long all of them took."""
        began = self._clock.monotonic()
        try:
            yield
        except (errors.WaitTimeoutError, errors.ReadTimeoutError) as error:
            self._end(name, began)
            error.details["seconds"] = dict(self.seconds)
            spent = ", ".join(f"{_WORK[phase]} {seconds:.1f} s" for phase, seconds in self.seconds.items())
            error.add_hint(f"The time went into: {spent}.")
            raise
        self._end(name, began)

    def _end(self, name: str, began: float) -> None:
        self.seconds[name] = round(self._clock.monotonic() - began, 3)
