"""A launch that takes too long tells what took so long."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from vmnest import errors
from vmnest.sandbox.phases import Phases


def test_a_phase_that_takes_too_long_tells_how_long_all_took(fake_clock: FakeClock) -> None:
    phases = Phases(clock=fake_clock)
    for name, seconds in (("reach", 0.25), ("plan", 0.5), ("run", 1.25)):
        with phases.phase(name):
            fake_clock.advance(seconds)

    def wait() -> None:
        fake_clock.advance(118)
        raise errors.WaitTimeoutError("no answer", hint="Wait longer.")

    with pytest.raises(errors.WaitTimeoutError) as caught, phases.phase("agent"):
        wait()
    assert caught.value.details["seconds"] == {"reach": 0.25, "plan": 0.5, "run": 1.25, "agent": 118.0}
    assert caught.value.hint == (
        "Wait longer. The time went into: reaching the service 0.2 s, finding the image 0.5 s, "
        "starting the MicroVM 1.2 s, waiting for its agent 118.0 s."
    )


def test_an_error_that_is_no_matter_of_time_stays_as_it_is(fake_clock: FakeClock) -> None:
    with pytest.raises(errors.ConnectError) as caught, Phases(clock=fake_clock).phase("run"):
        raise errors.ConnectError("refused")
    assert (caught.value.hint, caught.value.details) == (None, {})
