"""The lifecycle of VMs: started, told who they are, ended, remembered.

Each start and each end runs in a thread of its own, since both wait for processes; the control plane answers at once.
A VM's end may be asked for (TerminateMicrovm), come from its lifetime, from a failed hook or from itself; whatever
comes first gives the stateReason. Ended VMs stay listed, the latest of them; their endpoints refuse for a while. What
happens between start and end is in ``suspending``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .. import deadline, errors, rendezvous
from ..wire import names
from . import acceptor, build_layers, console_logs, faults, hooks, records, suspending, workers
from .built import platform_environment
from .drivers import interface
from .egress import Gate, Outlet
from .timers import Timers

_LOG = logging.getLogger(__name__)

FOLDER = rendezvous.VMS_FOLDER
MAX_ENDED_RECORDS = 1000
MAX_ENDED_ENDPOINTS = 64
# The supervisor ends the VM by itself, should this daemon not be there to do it in time.
LIFETIME_GRACE_SECONDS = 10.0
STOP_GRACE_SECONDS = 0.0

Publish = Callable[["records.Record"], None]


@dataclass(frozen=True)
class Settings:
    """What holds for all VMs of this daemon."""

    folder: str
    disk_bytes: int
    visible: Sequence[str] = ()


class VMs:
    """All VMs of one daemon. Thread-safe.

    Args:
        driver: What isolates them.
        settings: What holds for all of them.
        timers: For lifetimes and idle times.
        publish: Called with a new record: from now on its listener is to be served.
        retire: Called with the listener of a VM that nobody needs any more.
        ledger: Is told every change.
        outlet: Makes the connections to the outside for those that may have some.
        outputs: Carries what they print to the logs; None: it goes nowhere.
        clock: Time of day for the records, and the clock of ``timers``.
    """

    def __init__(
        self,
        driver: interface.Driver,
        settings: Settings,
        *,
        timers: Timers,
        publish: Publish,
        retire: Callable[[socket.socket], None],
        ledger: records.Ledger | None = None,
        outlet: Outlet | None = None,
        outputs: console_logs.ConsoleLogs | None = None,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
    ) -> None:
        self.driver = driver
        self._settings = settings
        self._timers = timers
        self._publish = publish
        self._retire = retire
        self._clock = clock
        self._ledger = ledger or records.NoLedger()
        self._outlet = outlet or Outlet()
        self._outputs = outputs
        self._work = workers.Workers()
        self._suspender = suspending.Suspender(end=self._end, work=self._work, timing=timers, clock=clock)
        self._lock = threading.Lock()  # guards all below
        self._records: dict[str, records.Record] = {}
        self._by_client_token: dict[str, records.Record] = {}
        self._ended: deque[records.Record] = deque()
        self._retiring: deque[records.Record] = deque()
        self._count = 0
        self._closed = False
        self._last_busy = clock.monotonic()

    @property
    def disk_bytes(self) -> int:
        """What each VM may write to its disk."""
        return self._settings.disk_bytes

    # -- asked by the control plane ------------------------------------------------------------------------------------

    def started_by(self, client_token: str | None, *, fingerprint: str) -> records.Record | None:
        """The VM that was started with that client token, or None.

        Raises:
            faults.Fault: it was started by a call with another fingerprint.
        """
        with self._lock:
            known = self._by_client_token.get(client_token) if client_token else None
        return None if known is None else _of_same_call(known, fingerprint)

    def run(self, spec: records.Spec, *, client_token: str | None, fingerprint: str | None = None) -> records.Record:
        """Begin to start a VM; the same VM for the same client token.

        Args:
            spec: What to start.
            client_token: Of the call, or None.
            fingerprint: Of what the call asked for; by default that of the spec.

        Raises:
            faults.Fault: the client token was used with other parameters, or the daemon is about to end.
        """
        asked = fingerprint or spec.fingerprint
        with self._lock:
            known = self._by_client_token.get(client_token) if client_token else None
            if known is None:
                record = self._add(spec, client_token, fingerprint=asked)
        if known is not None:
            return _of_same_call(known, asked)
        with record.changed:
            self._ledger.save(record)
        self._publish(record)
        self._work.spawn(f"start {record.microvm_id}", lambda: self._start(record))
        return record

    def insert(self, record: records.Record, *, machine: interface.Machine | None, client_token: str | None) -> None:
        """Take over a VM of an earlier daemon, in the state that its record has.

        ``machine`` is its machine, which calls ``on_end``; None if it has none any more: then one that is PENDING is
        started anew, and any other is TERMINATED now, if it was not. One that was TERMINATING is ended.
        """
        record.ledger = self._ledger
        record.machine = machine
        with self._lock:
            self._count = max(self._count, record.number)
            self._register(record, client_token)
            if record.is_ended:
                self._ended.append(record)
        if record.listener is not None:
            self._publish(record)
        self._take_up(record)

    def on_end(self, record: records.Record, ended: interface.Ended) -> None:
        """Its machine has ended by itself, or was lost. Harmless if it is known already."""
        self._finish(record, reason=records.end_reason(ended, memory_mib=record.spec.options.memory_mib))

    def get(self, microvm_id: str) -> records.Record:
        """The VM of that id.

        Raises:
            faults.Fault: there is none.
        """
        with self._lock:
            record = self._records.get(microvm_id)
        if record is None:
            raise faults.microvm_not_found(microvm_id)
        return record

    def all(self) -> list[records.Record]:
        """All VMs, in the order of their start."""
        with self._lock:
            return list(self._records.values())

    def suspend(self, record: records.Record) -> None:
        """Begin to suspend a VM; nothing happens to one that is SUSPENDED, or will be.

        Raises:
            faults.Fault: its state does not allow it.
        """
        self._suspender.suspend(record)

    def resume(self, record: records.Record) -> None:
        """Begin to resume a VM; nothing happens to one that is RUNNING, or will be.

        Raises:
            faults.Fault: its state does not allow it.
        """
        self._suspender.resume(record)

    def terminate(self, record: records.Record) -> None:
        """Begin to end a VM; nothing happens to one that ends or has ended."""
        self._end(record, reason=records.REASON_SUCCESS)

    def idle_seconds(self) -> float:
        """How long there has been no VM outside TERMINATED; 0 while there is one."""
        with self._lock:
            if any(not record.is_ended for record in self._records.values()):
                self._last_busy = self._clock.monotonic()
            return self._clock.monotonic() - self._last_busy

    def retire(self) -> bool:
        """Start no more VMs, if none is there; False, and no change, if one is."""
        with self._lock:
            if any(not record.is_ended for record in self._records.values()):
                return False
            self._closed = True
            return True

    def close(self) -> None:
        """End all VMs and wait until nothing of them is left."""
        with self._lock:
            self._closed = True
            alive = [record for record in self._records.values() if not record.is_ended]
        for record in alive:
            self._end(record, reason=records.REASON_SUCCESS)
        self._work.join()

    # -- starting ------------------------------------------------------------------------------------------------------

    def _add(self, spec: records.Spec, client_token: str | None, *, fingerprint: str) -> records.Record:
        if self._closed:
            raise faults.internal("The local cloud is ending.")
        listener = acceptor.bind()
        self._count += 1
        record = records.Record(
            f"microvm-{uuid.uuid4()}",
            spec,
            number=self._count,
            started_at=self._clock.time(),
            endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}",
            listener=listener,
            client_token=client_token,
            fingerprint=fingerprint,
        )
        record.ledger = self._ledger
        self._register(record, client_token)
        return record

    def _register(self, record: records.Record, client_token: str | None) -> None:
        self._records[record.microvm_id] = record
        if client_token:
            self._by_client_token[client_token] = record
        self._last_busy = self._clock.monotonic()

    def _start(self, record: records.Record) -> None:
        try:
            machine = self._launch(record)
        except (errors.LocalCloudError, OSError) as error:
            _LOG.warning("%s did not start: %s", record.microvm_id, error)
            self._finish(record, reason=f"MicroVM did not start: {error}")
            return
        except Exception:  # a fault of ours; the VM must not stay PENDING for ever
            self._finish(record, reason="MicroVM did not start: the daemon's log has the reason")
            raise
        with record.changed:
            record.machine = machine
            is_wanted = record.state == names.PENDING
        if not is_wanted:
            self._stop(record, machine)
            return
        config = record.spec.hooks
        try:
            # No memory is kept with an image: what was ready when it was built has begun anew.
            hooks.await_image_hook(machine, "ready", config=config)
            hooks.post_run(machine, microvm_id=record.microvm_id, payload=record.spec.payload, config=config)
        except hooks.HookError as error:
            self._end(record, reason=error.message)
            return
        except errors.LocalCloudError as error:  # it has ended meanwhile, which is heard by other ways
            _LOG.info("%s: %s", record.microvm_id, error)
            return
        with record.changed:
            if record.advance(records.RAN):
                self._suspender.watch(record)

    def _launch(self, record: records.Record) -> interface.Machine:
        spec = record.spec
        folder = os.path.join(self._settings.folder, FOLDER, record.microvm_id)
        os.makedirs(folder, mode=0o700)
        self._limit(record)
        built, config = spec.built, None if spec.built is None else spec.built.config
        layers = () if built is None else built.layers
        launch = interface.Launch(
            microvm_id=record.microvm_id,
            folder=folder,
            environment=_environment(spec),
            command=None if config is None else config.command,
            workdir=None if config is None else config.workdir,
            image_layers=tuple(os.path.join(self._settings.folder, build_layers.FOLDER, name) for name in layers),
            memory_mib=spec.options.memory_mib,
            disk_bytes=self._settings.disk_bytes,
            max_seconds=spec.max_seconds + LIFETIME_GRACE_SECONDS,
            cpus=spec.options.cpus,
            visible=tuple(self._settings.visible),
            egress=bool(spec.options.egress_allow),
        )
        self._follow(record)  # first: what ends at once has its last words told, too
        machine = self.driver.start(launch, on_end=lambda ended: self.on_end(record, ended))
        try:
            self._open_gate(record, machine)
        except BaseException:
            machine.stop()
            raise
        return machine

    def read_out(self, record: records.Record) -> None:
        """Tell what a VM of an earlier daemon printed to its end, before its folder goes."""
        self._follow(record)
        self._finish_output(record)

    def _follow(self, record: records.Record) -> None:
        """Let what it prints go where that is wanted."""
        if self._outputs is not None:
            self._outputs.follow(record, os.path.join(self._settings.folder, FOLDER, record.microvm_id))

    def _open_gate(self, record: records.Record, machine: interface.Machine) -> None:
        """Let its programs reach what they may."""
        rules = record.spec.options.rules
        if not rules.rules:
            return
        listener = machine.egress_listener()
        gate = Gate(rules, lambda line: self._tell_egress(record, line), outlet=self._outlet)
        gate.serve(listener)
        with record.changed:
            if not record.is_ended:
                record.gate = gate
                return
        gate.close()

    def _tell_egress(self, record: records.Record, line: str) -> None:
        _LOG.info("%s: %s", record.microvm_id, line)
        if self._outputs is not None:
            self._outputs.tell_egress(record, line)

    def _open_gate_again(self, record: records.Record, machine: interface.Machine) -> None:
        """The same for a VM of an earlier daemon, which goes on without, should that fail."""
        try:
            self._open_gate(record, machine)
        except errors.LocalCloudError as error:
            _LOG.warning("%s has no egress any more: %s", record.microvm_id, error)

    def _limit(self, record: records.Record) -> None:
        """End it when its lifetime is over."""
        left = max(0.0, record.started_at + record.spec.max_seconds - self._clock.time())
        record.lifetime = self._timers.after(left, lambda: self._end(record, reason=records.REASON_LIFETIME))

    def _take_up(self, record: records.Record) -> None:
        """Go on with a VM of an earlier daemon where that one was."""
        machine = record.machine
        if machine is None and record.state == names.PENDING:
            self._work.spawn(f"start {record.microvm_id}", lambda: self._start(record))
            return
        if machine is None:
            self._finish(record, reason=records.REASON_LOST)
            return
        with record.changed:
            if record.is_ended:  # it ended just now
                return
            self._limit(record)
            self._follow(record)
            self._suspender.watch(record)
            is_ending = record.state == names.TERMINATING
        if not is_ending:
            self._work.spawn(f"egress {record.microvm_id}", lambda: self._open_gate_again(record, machine))
        if is_ending:
            self._work.spawn(f"end {record.microvm_id}", lambda: self._stop(record, machine))

    # -- ending --------------------------------------------------------------------------------------------------------

    def _end(self, record: records.Record, *, reason: str) -> None:
        """Begin to end the VM, for that reason. Called from any thread."""
        with record.changed:
            if not record.can(records.ENDING):
                return
            machine, was_running = record.machine, record.state == names.RUNNING
            # First, and under the lock: without a thread to be had nothing changes.
            if machine is not None:
                self._work.spawn(f"end {record.microvm_id}", lambda: self._stop(record, machine, is_told=was_running))
            record.advance(records.ENDING, reason=reason)

    def _stop(self, record: records.Record, machine: interface.Machine, *, is_told: bool = False) -> None:
        if is_told:
            # A hook that fails does not keep a VM alive.
            try:
                hooks.post_terminate(machine, config=record.spec.hooks)
            except hooks.HookError as error:
                _LOG.info("%s: %s", record.microvm_id, error)
        try:
            machine.stop(grace=STOP_GRACE_SECONDS)
        except (errors.LocalCloudError, OSError):
            _LOG.exception("%s could not be stopped cleanly", record.microvm_id)
        self._finish(record, reason=records.REASON_SUCCESS)

    def _finish(self, record: records.Record, *, reason: str) -> None:
        """Nothing of the VM is left; ``reason`` counts unless its end was asked for."""
        self._finish_output(record)  # whoever hears of the end can read its last words
        with record.changed:
            if not record.advance(records.GONE, at=self._clock.time(), reason=reason):
                return
            record.cancel_timers()
        self._work.spawn(f"tidy {record.microvm_id}", lambda: self._tidy(record))

    def _finish_output(self, record: records.Record) -> None:
        if self._outputs is not None:
            self._outputs.finish(record.microvm_id)

    def _tidy(self, record: records.Record) -> None:
        with record.changed:
            gate, record.gate = record.gate, None
        if gate is not None:
            gate.close()
        folder = os.path.join(self._settings.folder, FOLDER, record.microvm_id)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        with self._lock:
            self._last_busy = self._clock.monotonic()
            self._ended.append(record)
            self._retiring.append(record)
            retired = [self._retiring.popleft() for _ in range(len(self._retiring) - MAX_ENDED_ENDPOINTS)]
            for _ in range(len(self._ended) - MAX_ENDED_RECORDS):
                self._forget(self._ended.popleft())
        for one in retired:
            if one.listener is not None:
                self._retire(one.listener)

    def _forget(self, record: records.Record) -> None:
        del self._records[record.microvm_id]
        self._ledger.forget(record.microvm_id)
        for token in [token for token, known in self._by_client_token.items() if known is record]:
            del self._by_client_token[token]


def _of_same_call(known: records.Record, fingerprint: str) -> records.Record:
    if known.fingerprint != fingerprint:
        raise faults.conflict("The client token was used before, with other parameters.")
    return known


def _environment(spec: records.Spec) -> Mapping[str, str]:
    """What AWS sets in every MicroVM, and what its image says."""
    own = {} if spec.built is None else spec.built.config.environment
    return {**platform_environment(spec.image_arn, spec.image_version), **own}
