"""The time in which VMs live, moved by tests; and what they start from."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from tests.support.clock import FakeClock
from vmnest.local import options, records, timers

WAIT_SECONDS = 10


class MovableTime:
    """Real timers on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = timers.Timers(clock=self.clock)

    def advance(self, seconds: float) -> None:
        """Make it that much later; returns when every timed call that is due by then was made."""
        self.clock.advance(seconds)
        done = threading.Event()
        self.timers.after(0, done.set)
        assert done.wait(WAIT_SECONDS)


@contextlib.contextmanager
def movable_time() -> Iterator[MovableTime]:
    """A MovableTime whose timers run."""
    one = MovableTime()
    one.timers.start()
    try:
        yield one
    finally:
        one.timers.close()


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds, where nothing tells of the change."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def policy(*, idle: int = 60, suspended: int = 3600, auto_resume: bool = True) -> dict[str, object]:
    """An idle policy on the wire."""
    return {
        "maxIdleDurationSeconds": idle,
        "suspendedDurationSeconds": suspended,
        "autoResumeEnabled": auto_resume,
    }


def build_spec(
    *,
    idle_policy: dict[str, object] | None = None,
    payload: str | None = "hello",
    max_seconds: int = 28800,
    egress_allow: tuple[str, ...] = (),
    logging: dict[str, object] | None = None,
) -> records.Spec:
    """What RunMicrovm asked for."""
    return records.Spec(
        image_arn="arn:aws:lambda:us-east-1:000000000000:microvm-image:local",
        image_version="1.0",
        execution_role_arn=None,
        idle_policy=idle_policy,
        max_seconds=max_seconds,
        ingress=("arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:HTTP_INGRESS",),
        egress=(),
        kms_key=None,
        payload=payload,
        logging=logging,
        options=options.Options(cpus=2, memory_mib=512, egress_allow=egress_allow),
    )


def wait_for_state(record: records.Record, *states: str) -> str:
    """Wait until the VM is in one of these states; which one."""
    wait_until(record, lambda: record.state in states)
    return record.state


def wait_until(record: records.Record, condition: Callable[[], bool]) -> None:
    """Wait for a change of the VM after which ``condition`` holds."""
    with record.changed:
        assert record.changed.wait_for(condition, WAIT_SECONDS), record.state
