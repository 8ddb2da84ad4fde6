"""Waiting for a MicroVM's state. States come late, and brief ones may never be seen: none but the goal is required."""

from __future__ import annotations

from collections.abc import Callable, Collection

from .. import deadline as deadlines
from .. import errors
from ..deadline import NEVER, SYSTEM_CLOCK, Clock, Deadline
from ..wire import names
from .microvms import MicroVM, MicroVMs

__all__ = ["ENDED_BY_REQUEST", "advice", "ended", "until_explained", "wait_until"]

_FIRST_DELAY_SECONDS = 0.1
_LAST_DELAY_SECONDS = 2.0
# A wait may take hours: what fails meanwhile, and may pass, is outlasted this long. (Each call repeats itself, too.)
_OUTAGE_SECONDS = 60.0
_REASON_SECONDS = 5.0  # an end takes some 3 s, and only then its reason is told
ENDED_BY_REQUEST = "Success."  # the service's reason after TerminateMicrovm, which puzzles as the reason of an error


def wait_until(
    microvms: MicroVMs,
    microvm_id: str,
    *,
    states: Collection[str],
    deadline: Deadline,
    on_state: Callable[[MicroVM], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> MicroVM:
    """Ask until the MicroVM is in one of ``states``; ``on_state`` is told of each state that is new.

    Raises:
        errors.MicroVMEndedError: it ended, and that was not waited for; with the service's reason.
        errors.MicroVMNotFoundError: the service knows none of that id.
        errors.WaitTimeoutError: the deadline passed; with the state that was seen last.
        errors.VmnestError: the service does not answer: at once if it never did, else when that does not pass.
    """
    microvm: MicroVM | None = None
    seen_at = clock.monotonic()
    for delay in deadlines.backoff(first=_FIRST_DELAY_SECONDS, last=_LAST_DELAY_SECONDS):
        try:
            latest = microvms.get(microvm_id, deadline=deadline)
        except errors.VmnestError as error:
            if microvm is None or not error.retryable or clock.monotonic() - seen_at > _OUTAGE_SECONDS:
                raise
        else:
            seen_at = clock.monotonic()
            if on_state is not None and (microvm is None or latest.state != microvm.state):
                on_state(latest)
            microvm = latest
            if microvm.state in states:
                return microvm
            # TERMINATING leads to TERMINATED only, so it is an end too, unless that end is the goal.
            if microvm.ended and names.TERMINATED not in states:
                raise ended(until_explained(microvms, microvm, deadline=deadline, clock=clock))
        left = deadline.remaining()
        if left is not None and delay >= left:
            raise _too_late(microvm, states, deadline)
        clock.sleep(delay)
    raise AssertionError("the schedule of delays has no end")


def until_explained(
    microvms: MicroVMs, microvm: MicroVM, *, deadline: Deadline = NEVER, clock: Clock = SYSTEM_CLOCK
) -> MicroVM:
    """One that is ending, as it is at its end, when the service tells why; as it is now if that takes long."""
    if microvm.state != names.TERMINATING or microvm.state_reason:
        return microvm
    patience = Deadline(deadline.clamp(_REASON_SECONDS), clock=clock)
    try:
        return wait_until(microvms, microvm.microvm_id, states=(names.TERMINATED,), deadline=patience, clock=clock)
    except errors.VmnestError:  # it ends all the same
        return microvm


def ended(microvm: MicroVM) -> errors.MicroVMEndedError:
    """The error for a MicroVM that ended while it was needed."""
    is_over = microvm.state == names.TERMINATED  # before that the reason is not known yet
    reason = microvm.state_reason or ("the service gives no reason" if is_over else "")
    if reason == ENDED_BY_REQUEST:
        reason = "it was ended by a request (vmnest rm, or another caller)"
    return errors.MicroVMEndedError(
        f"MicroVM {microvm.microvm_id} is {microvm.state}{': ' if reason else ''}{reason}",
        hint=advice(microvm.state_reason),
        details={"microvm_id": microvm.microvm_id, "state": microvm.state, "state_reason": microvm.state_reason},
    )


def advice(reason: object) -> str:
    """What to do after an end for that reason."""
    if isinstance(reason, str) and "memory limit" in reason:
        return "Make a new sandbox, with more memory: --memory (Python, MCP: memory)."
    return "Make a new sandbox."


def _too_late(microvm: MicroVM, states: Collection[str], deadline: Deadline) -> errors.WaitTimeoutError:
    wanted = " or ".join(sorted(states))
    return errors.WaitTimeoutError(
        f"MicroVM {microvm.microvm_id} is {microvm.state}, not {wanted}, after {deadline.seconds:g} s",
        hint="Wait longer (--timeout); the MicroVM goes on as it is.",
        details={"microvm_id": microvm.microvm_id, "state": microvm.state},
    )
