"""A MicroVM as the control plane sees it: what it was started with, and its state.

States change by one table, ``TRANSITIONS``: what is not in it does not happen.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..wire import names
from .drivers import interface
from .options import Options
from .timers import Timer

# What can happen to a VM.
RAN = "ran"  # its main process is up and the run hook answered 200
ENDING = "ending"  # somebody asked for its end, its time is over, or the run hook failed
GONE = "gone"  # nothing of it is left

TRANSITIONS: Mapping[tuple[str, str], str] = {
    (names.PENDING, RAN): names.RUNNING,
    (names.PENDING, ENDING): names.TERMINATING,
    (names.PENDING, GONE): names.TERMINATED,
    (names.RUNNING, ENDING): names.TERMINATING,
    (names.RUNNING, GONE): names.TERMINATED,
    (names.TERMINATING, GONE): names.TERMINATED,
}

REASON_SUCCESS = "Success."
REASON_LIFETIME = "MicroVM exceeded maximum lifetime."


@dataclass(frozen=True)
class Spec:
    """What RunMicrovm asked for, defaults filled in."""

    image_arn: str
    image_version: str
    execution_role_arn: str | None
    idle_policy: Mapping[str, object] | None
    max_seconds: int
    ingress: Sequence[str]
    egress: Sequence[str]
    kms_key: str | None
    payload: str | None
    options: Options


class Record:
    """One MicroVM.

    ``changed`` guards what changes (state, state_reason, terminated_at, machine) and wakes who waits for it.
    """

    def __init__(
        self, microvm_id: str, spec: Spec, *, number: int, started_at: float, listener: socket.socket, endpoint: str
    ) -> None:
        self.microvm_id = microvm_id
        self.spec = spec
        self.number = number
        self.started_at = started_at
        self.listener = listener
        self.endpoint = endpoint
        self.changed = threading.Condition()
        self.state = names.PENDING
        self.state_reason: str | None = None
        self.terminated_at: float | None = None
        self.machine: interface.Machine | None = None
        self.lifetime: Timer | None = None

    @property
    def is_ended(self) -> bool:
        """It is TERMINATED."""
        return self.state == names.TERMINATED

    def advance(self, event: str) -> bool:
        """Go to the state that ``event`` leads to; False if the table has no such step. ``changed`` is held."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        self.changed.notify_all()
        return True

    def wait_while_pending(self, seconds: float) -> str:
        """The state, once it is not PENDING any more or that much time has passed."""
        with self.changed:
            self.changed.wait_for(lambda: self.state != names.PENDING, seconds)
            return self.state


def end_reason(ended: interface.Ended, *, memory_mib: int) -> str:
    """The stateReason of a VM that ended without being asked to."""
    if ended.reason == interface.LIFETIME:
        return REASON_LIFETIME
    if ended.reason == interface.MEMORY:
        return f"MicroVM exceeded its memory limit of {memory_mib} MiB."
    if ended.reason == interface.DISK:
        return "MicroVM exceeded the size of its disk."
    if ended.reason == interface.STOPPED:
        return REASON_SUCCESS
    if ended.reason == interface.LOST:
        return "MicroVM was lost: the process that held it ended."
    code = 128 + (ended.signal or 0) if ended.exit_code is None else ended.exit_code
    return f"Container Stopped with Exit Code: {code}"
