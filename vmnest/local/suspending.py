"""Suspending and resuming VMs.

A suspend: the suspend hook is posted; once it answered 200, every process is frozen and the connections of requests
that are in the VM are cut. A resume: the processes run again, and the resume hook is posted; until it answered 200 the
VM stays SUSPENDED, and requests are held. Both wait for what is in the VM, so each has a thread of its own.

A failed hook ends the VM. Of the run and the suspend hook that is the service's measured behaviour. Of the resume hook
nothing is known; a VM whose agent cannot be resumed is of no use, and its end says why, where one that stays suspended
would only refuse.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from .. import deadline, errors
from ..wire import names
from . import faults, hooks, idling, records, timers, workers
from .drivers import interface

_LOG = logging.getLogger(__name__)


class End(Protocol):
    """Begins to end a VM."""

    def __call__(self, record: records.Record, *, reason: str) -> None:
        """For that reason, from any thread; nothing happens to one that ends or has ended."""


class Suspender:
    """Suspends and resumes the VMs of one daemon. Thread-safe.

    Args:
        end: Ends a VM.
        work: Does what waits.
        timing: For idle times and the time as SUSPENDED.
        clock: The clock of the records, the idle times and ``timing``.
    """

    def __init__(self, *, end: End, work: workers.Workers, timing: timers.Timers, clock: deadline.Clock) -> None:
        self._end = end
        self._work = work
        self._timing = timing
        self._clock = clock
        self._watch = idling.IdleWatch(timing, clock=clock, on_idle=self._on_idle)

    # -- from any thread -----------------------------------------------------------------------------------------------

    def watch(self, record: records.Record) -> None:
        """Look after a VM that became RUNNING or SUSPENDED. ``record.changed`` is held."""
        record.wake = lambda: self._begin_to_resume(record)
        if record.state == names.RUNNING:
            self._watch.watch(record)
        elif record.state == names.SUSPENDED:
            self._limit(record)

    def suspend(self, record: records.Record) -> None:
        """Begin to suspend a VM; nothing happens to one that is SUSPENDED, or will be.

        Raises:
            faults.Fault: it is being started, woken or ended, or has ended.
        """
        with record.changed:
            _check_not_ended(record)
            # What the service says to a suspend of a PENDING VM is not known. One that is being woken has been seen as
            # PENDING there: to whoever looks, it is both.
            if record.state == names.PENDING or record.is_waking:
                raise faults.conflict(f"The MicroVM {record.microvm_id} is not running yet: it cannot be suspended.")
            if record.state == names.RUNNING:
                self._begin_to_suspend(record)

    def resume(self, record: records.Record) -> None:
        """Begin to resume a VM; nothing happens to one that is RUNNING, or will be.

        Raises:
            faults.Fault: it is being suspended or ended, or has ended.
        """
        with record.changed:
            _check_not_ended(record)
            # What the service says to a resume of a SUSPENDING VM is not known.
            if record.state == names.SUSPENDING:
                raise faults.conflict(f"The MicroVM {record.microvm_id} is being suspended: it cannot be resumed yet.")
            if record.state == names.SUSPENDED and not record.is_waking:
                self._begin_to_resume(record)

    # -- suspending ----------------------------------------------------------------------------------------------------

    def _on_idle(self, record: records.Record) -> None:
        with record.changed:
            if record.state != names.RUNNING or not self._watch.is_idle(record):
                return
            if record.spec.max_suspended_seconds != 0:
                self._begin_to_suspend(record)
                return
        self._end(record, reason=records.REASON_SUSPENDED)

    def _begin_to_suspend(self, record: records.Record) -> None:
        machine = record.machine
        assert machine is not None
        self._spawn("suspend", record, lambda: self._suspend(record, machine))
        record.advance(records.SUSPEND)

    def _suspend(self, record: records.Record, machine: interface.Machine) -> None:
        with record.changed:  # entered once the state is SUSPENDING
            if record.state != names.SUSPENDING:
                return
        try:
            hooks.post_suspend(machine, config=record.spec.hooks)
        except hooks.HookError as error:
            self._end(record, reason=error.message)
            return
        try:
            machine.freeze()
        except errors.LocalCloudError as error:
            self._keep(record, machine, error)
            return
        with record.changed:
            # Who ends a VM deals with its being frozen.
            if record.advance(records.FROZEN, at=self._clock.time()):
                record.cut_passages()
                self._limit(record)

    def _keep(self, record: records.Record, machine: interface.Machine, error: errors.LocalCloudError) -> None:
        """It runs on, and must be told, since it prepared for the other."""
        with record.changed:
            if record.state != names.SUSPENDING:
                return
        _LOG.warning("%s cannot be suspended: %s", record.microvm_id, error)
        self._tell_and_run(record, machine, event=records.KEPT)

    def _limit(self, record: records.Record) -> None:
        """End it when it was SUSPENDED for as long as its policy allows."""
        allowed = record.spec.max_suspended_seconds
        if allowed is None:
            return
        assert record.suspended_at is not None
        left = max(0.0, record.suspended_at + allowed - self._clock.time())
        record.expiry = self._timing.after(left, lambda: self._expire(record))

    def _expire(self, record: records.Record) -> None:
        with record.changed:
            if record.state != names.SUSPENDED or record.is_waking:
                return
        self._end(record, reason=records.REASON_SUSPENDED)

    # -- resuming ------------------------------------------------------------------------------------------------------

    def _begin_to_resume(self, record: records.Record) -> None:
        machine = record.machine
        assert machine is not None
        self._spawn("resume", record, lambda: self._resume(record, machine))
        record.is_waking = True
        if record.expiry is not None:
            record.expiry.cancel()

    def _resume(self, record: records.Record, machine: interface.Machine) -> None:
        try:
            machine.thaw()
        except errors.LocalCloudError as error:
            self._end(record, reason=f"MicroVM could not be resumed: {error.message}")
            return
        self._tell_and_run(record, machine, event=records.RESUMED)

    def _tell_and_run(self, record: records.Record, machine: interface.Machine, *, event: str) -> None:
        try:
            hooks.post_resume(machine, config=record.spec.hooks)
        except hooks.HookError as error:
            self._end(record, reason=error.message)
            return
        with record.changed:
            record.is_waking = False
            if record.advance(event):
                self._watch.watch(record)

    def _spawn(self, verb: str, record: records.Record, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception:  # a fault of ours; the VM must not stay half-way for ever
                self._end(record, reason=f"MicroVM could not {verb}: the daemon's log has the reason")
                raise

        self._work.spawn(f"{verb} {record.microvm_id}", run)


def _check_not_ended(record: records.Record) -> None:
    if record.state in names.ENDED_STATES:
        raise faults.microvm_ended(record.microvm_id)
