"""Suspending, resuming and waiting: the changes of a MicroVM's state that a sandbox asks for.

States pass: a MicroVM may not take a call just now, and take it a moment later. The service says so with a conflict, or
in ways that nobody has recorded; so a call that is refused while the state passes is made again, within the deadline.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from .. import deadline as deadlines
from .. import errors
from ..deadline import Deadline
from ..wire import names

if TYPE_CHECKING:
    from ..control.microvms import MicroVM
    from .link import Link

__all__ = ["check_awake", "check_states", "ready_for_use", "resume", "run_without_agent", "suspend", "wait"]

# A suspension that was accepted shows within this time, unless something ended it at once.
ACCEPTED_SECONDS = 15.0
FIRST_DELAY_SECONDS = 0.1
LAST_DELAY_SECONDS = 1.0

_PASSING = (names.PENDING, names.SUSPENDING)


def suspend(link: Link, *, deadline: Deadline) -> None:
    """Suspend it, mark that as deliberate, and wait until it is done."""
    from ..control import waiting

    microvms, microvm_id = link.control().microvms, link.microvm_id
    if link.state != names.RUNNING and link.look().state == names.PENDING:
        # What the service makes of a call in this state is not known.
        settled = (names.RUNNING, *names.SUSPENDED_STATES)
        link.see(waiting.wait_until(microvms, microvm_id, states=settled, deadline=deadline, clock=link.clock))
    # Before the call: what asks again and again (a page behind a forwarder) would wake it up before the mark is there.
    before = link.record.stopped_at
    link.note(stopped_at=link.clock.time(), must_be_kept=True)
    try:
        _until_accepted(link, lambda: microvms.suspend(microvm_id, deadline=deadline), deadline=deadline)
    except BaseException:
        link.note(stopped_at=before)
        raise
    # Before the wait: whoever is killed while waiting has stopped it all the same.
    link.note(state_hint=names.SUSPENDED)
    try:
        _watch_suspension(link, microvm_id, deadline=deadline)
    except errors.NotSuspendedError:
        link.note(state_hint=names.RUNNING, stopped_at=None)
        raise


def _watch_suspension(link: Link, microvm_id: str, *, deadline: Deadline) -> None:
    """Wait until a suspension that was accepted is done. Traffic may end it before it was ever seen."""
    from ..control import waiting

    begins_by = Deadline(deadline.clamp(ACCEPTED_SECONDS), clock=link.clock)
    wait_for = functools.partial(waiting.wait_until, link.control().microvms, microvm_id, clock=link.clock)
    try:
        link.see(wait_for(states=names.SUSPENDED_STATES, deadline=begins_by))
    except errors.WaitTimeoutError as error:
        if error.details.get("state") == names.RUNNING:
            raise _not_suspended(link) from error
        raise

    def see(microvm: MicroVM) -> None:
        link.see(microvm)
        if microvm.state == names.RUNNING:
            raise _not_suspended(link)

    if link.state != names.SUSPENDED:
        wait_for(states=(names.SUSPENDED,), deadline=deadline, on_state=see)


def _not_suspended(link: Link) -> errors.NotSuspendedError:
    return errors.NotSuspendedError(
        f"sandbox {link.record.name} was suspended, and runs again at once: something uses it",
        hint="Traffic through its endpoint resumes it. End what asks (a page that reconnects, a command), and repeat.",
    )


def resume(link: Link, *, deadline: Deadline) -> None:
    """Let it go on, take the mark of a deliberate stop away, and wait until the agent answers."""
    _wake(link, deadline=deadline)
    link.wait_ready(deadline=deadline)


def run_without_agent(link: Link, *, deadline: Deadline) -> MicroVM:
    """See to it that it runs, for a use that needs no agent in it.

    Raises:
        errors.SandboxSuspendedError: it is suspended, and its use may not resume it.
        errors.MicroVMEndedError: it has ended.
    """
    from ..control import waiting

    microvm = link.look()
    if microvm.state in names.SUSPENDED_STATES:
        if not link.auto_resume:
            raise link.suspended()
        _wake(link, deadline=deadline)
    microvm = waiting.wait_until(
        link.control().microvms, link.microvm_id, states=(names.RUNNING,), deadline=deadline, clock=link.clock
    )
    link.see(microvm)
    return microvm


def _wake(link: Link, *, deadline: Deadline) -> None:
    microvms, microvm_id = link.control().microvms, link.microvm_id
    _until_accepted(link, lambda: microvms.resume(microvm_id, deadline=deadline), deadline=deadline)
    link.note(state_hint=names.RUNNING, stopped_at=None)


def wait(link: Link, states: Collection[str], *, deadline: Deadline) -> str:
    """Wait until it is in one of these states, which is returned. Nothing of this wakes it."""
    from ..control import waiting

    wanted = check_states(states)
    if names.TERMINATING in wanted:
        wanted.add(names.TERMINATED)  # the former is brief: nobody is sure to see it
    microvm = waiting.wait_until(
        link.control().microvms,
        link.microvm_id,
        states=wanted,
        deadline=deadline,
        on_state=link.see,
        clock=link.clock,
    )
    return microvm.state


def check_states(states: Collection[str]) -> set[str]:
    """The states as a set, or UsageError if one is none of the service's."""
    for state in states:
        if state not in names.STATES:
            raise errors.UsageError(f"no state of a MicroVM: {state!r}", hint=f"States are {', '.join(names.STATES)}.")
    return set(states)


def ready_for_use(link: Link, *, deadline: Deadline) -> None:
    """See to it that a request can be sent now, as far as we know.

    What we know to be suspended is resumed first: a request that meets a proxy which cannot say whether it was
    executed could not be repeated. What we know to have ended may answer for a moment more, and then not.

    Raises:
        errors.SandboxSuspendedError: it is suspended, and its use may not resume it.
        errors.MicroVMEndedError: it has ended.
    """
    if link.record.microvm_id is None:
        link.complete()
    link.catch_up()
    if link.state in names.ENDED_STATES:
        raise errors.MicroVMEndedError(f"sandbox {link.record.name} has ended ({link.state})")
    if not link.auto_resume or not link.resumes_itself:
        # A request would wake it, or would find a proxy that does not say why there is no answer.
        microvm = link.look()
        if microvm.ended:
            raise link.ended(microvm)
    if link.state in names.SUSPENDED_STATES:
        if not link.auto_resume:
            raise link.suspended()
        with link.waking.held(deadline):
            if link.state in names.SUSPENDED_STATES:  # no other thread was faster
                resume(link, deadline=deadline)


def check_awake(link: Link, *, deadline: Deadline) -> MicroVM:
    """See by the service's word, which wakes nothing, that a request would find it awake; what the service says.

    Raises:
        errors.SandboxSuspendedError: it is suspended, or about to be.
        errors.MicroVMEndedError: it has ended.
    """
    microvm = link.look(deadline=deadline)
    if microvm.ended:
        raise link.ended(microvm)
    if microvm.state in names.SUSPENDED_STATES:
        raise link.suspended()
    return microvm


def _until_accepted(link: Link, call: Callable[[], None], *, deadline: Deadline) -> None:
    for delay in deadlines.backoff(first=FIRST_DELAY_SECONDS, last=LAST_DELAY_SECONDS):
        try:
            call()
        except (errors.ConflictError, errors.ValidationError) as error:
            microvm = link.look()
            if microvm.ended:
                raise link.ended(microvm) from error
            if microvm.state not in _PASSING and not isinstance(error, errors.ConflictError):
                raise
            if deadline.clamp(delay) < delay:
                raise
        else:
            return
        link.clock.sleep(delay)
