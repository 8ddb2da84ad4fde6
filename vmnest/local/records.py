"""A MicroVM as the control plane sees it: what it was started with, and its state.

States change by one table, ``TRANSITIONS``: what is not in it does not happen. Every step is told to the ledger, which
outlives the daemon.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..wire import names
from . import hooks
from .built import Built
from .drivers import interface
from .egress import Gate
from .options import Options
from .timers import Timer

# What can happen to a VM.
RAN = "ran"  # its main process is up and the run hook answered 200
SUSPEND = "suspend"  # somebody asked for it, or nothing passed through the endpoint for long enough
FROZEN = "frozen"  # the suspend hook answered 200, and no process of it runs any more
KEPT = "kept"  # it could not be frozen: it runs on
RESUMED = "resumed"  # its processes run again and the resume hook answered 200
ENDING = "ending"  # somebody asked for its end, its time is over, or a hook failed
GONE = "gone"  # nothing of it is left

TRANSITIONS: Mapping[tuple[str, str], str] = {
    (names.PENDING, RAN): names.RUNNING,
    (names.PENDING, ENDING): names.TERMINATING,
    (names.PENDING, GONE): names.TERMINATED,
    (names.RUNNING, SUSPEND): names.SUSPENDING,
    (names.RUNNING, ENDING): names.TERMINATING,
    (names.RUNNING, GONE): names.TERMINATED,
    (names.SUSPENDING, FROZEN): names.SUSPENDED,
    (names.SUSPENDING, KEPT): names.RUNNING,
    (names.SUSPENDING, ENDING): names.TERMINATING,
    (names.SUSPENDING, GONE): names.TERMINATED,
    (names.SUSPENDED, RESUMED): names.RUNNING,
    (names.SUSPENDED, ENDING): names.TERMINATING,
    (names.SUSPENDED, GONE): names.TERMINATED,
    (names.TERMINATING, GONE): names.TERMINATED,
}

REASON_SUCCESS = "Success."
REASON_LIFETIME = "MicroVM exceeded maximum lifetime."
REASON_LOST = "MicroVM was lost: the process that held it ended."
# The service's own words for this end are not known.
REASON_SUSPENDED = "MicroVM exceeded maximum suspended duration."


@dataclass(frozen=True)
class Spec:
    """What RunMicrovm asked for, defaults filled in.

    ``built`` is what it runs, or None for the built-in image. ``logging`` says where its output goes, as on the wire.
    """

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
    built: Built | None = None
    logging: Mapping[str, object] | None = None

    @property
    def max_idle_seconds(self) -> int | None:
        """It is suspended when nothing passed through its endpoint for that long; None: never."""
        return self._policy_seconds("maxIdleDurationSeconds")

    @property
    def max_suspended_seconds(self) -> int | None:
        """How long it may stay suspended before it is ended; None: for the rest of its lifetime."""
        return self._policy_seconds("suspendedDurationSeconds")

    @property
    def auto_resume(self) -> bool:
        """Whether requests wake it. They do not without a policy."""
        return self.idle_policy is not None and self.idle_policy["autoResumeEnabled"] is True

    @property
    def hooks(self) -> hooks.Config:
        """Which lifecycle hooks are called."""
        return hooks.AGENT if self.built is None else self.built.config.hooks

    @property
    def fingerprint(self) -> str:
        """Equal for equal specs, and tells nothing of the payload."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True, default=list)
        return hashlib.sha256(content.encode()).hexdigest()

    def _policy_seconds(self, name: str) -> int | None:
        if self.idle_policy is None:
            return None
        value = self.idle_policy[name]
        assert isinstance(value, int)
        return value


class Ledger(Protocol):
    """Where records outlive the daemon. A failure to write is the ledger's to log: neither method raises."""

    def save(self, record: Record) -> None:
        """Note the record as it is now. ``record.changed`` is held; it must be quick."""

    def forget(self, microvm_id: str) -> None:
        """The record is of no use any more."""


class NoLedger:
    """Notes nothing: records end with the daemon."""

    def save(self, record: Record) -> None:
        """Note nothing."""

    def forget(self, microvm_id: str) -> None:
        """Nothing was noted."""


class Passage(Protocol):
    """A client's connection while a request on it is in the VM."""

    def cut(self) -> None:
        """End it: whoever reads or writes it wakes. Called with the record's lock held."""


class Record:
    """One MicroVM.

    ``changed`` guards what changes (state, its reason and times, machine, gate, is_waking, passages) and wakes who
    waits.

    Attributes:
        listener: What its endpoint listens on; None for a VM that ended under an earlier daemon.
        fingerprint: Of the spec that the client token was used with.
        suspended_at: Since when it is SUSPENDED.
        is_waking: It is SUSPENDED, but on its way to RUNNING.
        touched_at: When (on the monotonic clock) bytes last passed through the endpoint. Written without the lock.
        gate: Lets its programs out; None while nothing does.
        wake: Makes a SUSPENDED VM run again; set by whoever keeps the record. ``changed`` is held.
        ledger: What every step is told to.
    """

    def __init__(
        self,
        microvm_id: str,
        spec: Spec,
        *,
        number: int,
        started_at: float,
        endpoint: str,
        listener: socket.socket | None = None,
        client_token: str | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.microvm_id = microvm_id
        self.spec = spec
        self.number = number
        self.started_at = started_at
        self.endpoint = endpoint
        self.listener = listener
        self.client_token = client_token
        self.fingerprint = fingerprint or spec.fingerprint
        self.changed = threading.Condition()
        self.state = names.PENDING
        self.state_reason: str | None = None
        self.terminated_at: float | None = None
        self.suspended_at: float | None = None
        self.machine: interface.Machine | None = None
        self.gate: Gate | None = None
        self.is_waking = False
        self.touched_at = 0.0
        self.lifetime: Timer | None = None  # the end of its life
        self.idle: Timer | None = None  # the next look at its idle time
        self.expiry: Timer | None = None  # the end of its time as SUSPENDED
        self.wake: Callable[[], None] = _stay
        self.ledger: Ledger = NoLedger()
        self._passages: set[Passage] = set()

    @property
    def is_ended(self) -> bool:
        """It is TERMINATED."""
        return self.state == names.TERMINATED

    def can(self, event: str) -> bool:
        """Whether the table has a step for that event."""
        return (self.state, event) in TRANSITIONS

    def advance(self, event: str, *, at: float = 0.0, reason: str | None = None) -> bool:
        """Go to the state that ``event`` leads to; False if the table has no such step. ``changed`` is held.

        Args:
            event: What happened.
            at: When (time of day), for the states that tell it.
            reason: The stateReason, unless an earlier step gave one.
        """
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        self.state_reason = self.state_reason or reason
        self.suspended_at = at if state == names.SUSPENDED else None
        self.terminated_at = at if state == names.TERMINATED else None
        self.ledger.save(self)
        self.changed.notify_all()
        return True

    def cancel_timers(self) -> None:
        """No timed call is to come any more."""
        for timer in (self.lifetime, self.idle, self.expiry):
            if timer is not None:
                timer.cancel()

    # -- requests ------------------------------------------------------------------------------------------------------

    def enter(self, passage: Passage, *, start_seconds: float, resume_seconds: float) -> str:
        """Let a request into the VM; the state. If that is RUNNING, ``leave`` must follow.

        A VM that is being started is waited for, and so is one that is asleep, if it is to be woken by requests.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.state != names.PENDING, start_seconds)
            if self.spec.auto_resume:
                self.changed.wait_for(self._is_up_or_over, resume_seconds)
            if self.state == names.RUNNING:
                self._passages.add(passage)
            return self.state

    def leave(self, passage: Passage) -> None:
        """The request has its answer, or will have none."""
        with self.changed:
            self._passages.discard(passage)

    def cut_passages(self) -> None:
        """End the connections of requests that are in the VM, and those that its programs made to the outside.

        They do not survive a suspend. ``changed`` is held.
        """
        for passage in self._passages:
            passage.cut()
        if self.gate is not None:
            self.gate.cut()

    def _is_up_or_over(self) -> bool:
        if self.state == names.SUSPENDED and not self.is_waking:
            self.wake()
        return self.state not in names.SUSPENDED_STATES


def _stay() -> None:
    """Nobody keeps the record: it does not wake."""


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
        return REASON_LOST
    code = 128 + (ended.signal or 0) if ended.exit_code is None else ended.exit_code
    return f"Container Stopped with Exit Code: {code}"
