"""The lifecycle of VMs: started, told who they are, ended, remembered.

Each start and each end runs in a thread of its own, since both wait for processes; the control plane answers at once.
A VM's end may be asked for (TerminateMicrovm), come from its lifetime, from a failed hook or from itself; whatever
comes first gives the stateReason. Ended VMs stay listed, the latest of them; their endpoints refuse for a while.
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

from .. import deadline, errors
from ..wire import names
from . import acceptor, faults, hooks, records
from .drivers import interface
from .timers import Timers

_LOG = logging.getLogger(__name__)

FOLDER = "vms"
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
        timers: For lifetimes.
        publish: Called with a new record: from now on its listener is to be served.
        retire: Called with the listener of a VM that nobody needs any more.
        clock: Time of day for the records.
    """

    def __init__(
        self,
        driver: interface.Driver,
        settings: Settings,
        *,
        timers: Timers,
        publish: Publish,
        retire: Callable[[socket.socket], None],
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
    ) -> None:
        self.driver = driver
        self._settings = settings
        self._timers = timers
        self._publish = publish
        self._retire = retire
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._records: dict[str, records.Record] = {}
        self._by_client_token: dict[str, records.Record] = {}
        self._ended: deque[records.Record] = deque()
        self._retiring: deque[records.Record] = deque()
        self._threads: set[threading.Thread] = set()
        self._count = 0
        self._closed = False
        self._last_busy = clock.monotonic()

    # -- asked by the control plane ------------------------------------------------------------------------------------

    def run(self, spec: records.Spec, *, client_token: str | None) -> records.Record:
        """Begin to start a VM; the same VM for the same client token.

        Raises:
            faults.Fault: the client token was used with other parameters, or the daemon is about to end.
        """
        with self._lock:
            known = self._by_client_token.get(client_token) if client_token else None
            if known is None:
                record = self._add(spec, client_token)
        if known is not None:
            if known.spec != spec:
                raise faults.conflict("The client token was used before, with other parameters.")
            return known
        self._publish(record)
        self._spawn(f"start {record.microvm_id}", lambda: self._start(record))
        return record

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
        while threads := self._running_threads():
            for thread in threads:
                thread.join()

    # -- starting ------------------------------------------------------------------------------------------------------

    def _add(self, spec: records.Spec, client_token: str | None) -> records.Record:
        if self._closed:
            raise faults.internal("The local cloud is ending.")
        listener = acceptor.bind()
        self._count += 1
        record = records.Record(
            f"microvm-{uuid.uuid4()}",
            spec,
            number=self._count,
            started_at=self._clock.time(),
            listener=listener,
            endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}",
        )
        self._records[record.microvm_id] = record
        if client_token:
            self._by_client_token[client_token] = record
        self._last_busy = self._clock.monotonic()
        return record

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
        try:
            hooks.post_run(machine, microvm_id=record.microvm_id, payload=record.spec.payload)
        except hooks.HookError as error:
            self._end(record, reason=error.message)
            return
        with record.changed:
            record.advance(records.RAN)

    def _launch(self, record: records.Record) -> interface.Machine:
        spec = record.spec
        folder = os.path.join(self._settings.folder, FOLDER, record.microvm_id)
        os.makedirs(folder, mode=0o700)
        record.lifetime = self._timers.after(
            spec.max_seconds, lambda: self._end(record, reason=records.REASON_LIFETIME)
        )
        launch = interface.Launch(
            microvm_id=record.microvm_id,
            folder=folder,
            environment=_environment(spec),
            memory_mib=spec.options.memory_mib,
            disk_bytes=self._settings.disk_bytes,
            max_seconds=spec.max_seconds + LIFETIME_GRACE_SECONDS,
            cpus=spec.options.cpus,
            visible=tuple(self._settings.visible),
        )
        return self.driver.start(launch, on_end=lambda ended: self._on_end(record, ended))

    # -- ending --------------------------------------------------------------------------------------------------------

    def _end(self, record: records.Record, *, reason: str) -> None:
        """Begin to end the VM, for that reason. Called from any thread."""
        with record.changed:
            was_running = record.state == names.RUNNING
            if not record.advance(records.ENDING):
                return
            record.state_reason = reason
            machine = record.machine
        if machine is not None:
            self._spawn(f"end {record.microvm_id}", lambda: self._stop(record, machine, is_told=was_running))

    def _stop(self, record: records.Record, machine: interface.Machine, *, is_told: bool = False) -> None:
        if is_told:
            # A hook that fails does not keep a VM alive.
            try:
                hooks.post_terminate(machine)
            except hooks.HookError as error:
                _LOG.info("%s: %s", record.microvm_id, error)
        try:
            machine.stop(grace=STOP_GRACE_SECONDS)
        except (errors.LocalCloudError, OSError):
            _LOG.exception("%s could not be stopped cleanly", record.microvm_id)
        self._finish(record, reason=records.REASON_SUCCESS)

    def _on_end(self, record: records.Record, ended: interface.Ended) -> None:
        self._finish(record, reason=records.end_reason(ended, memory_mib=record.spec.options.memory_mib))

    def _finish(self, record: records.Record, *, reason: str) -> None:
        """Nothing of the VM is left; ``reason`` counts unless its end was asked for."""
        with record.changed:
            if not record.advance(records.GONE):
                return
            record.state_reason = record.state_reason or reason
            record.terminated_at = self._clock.time()
        if record.lifetime is not None:
            record.lifetime.cancel()
        self._spawn(f"tidy {record.microvm_id}", lambda: self._tidy(record))

    def _tidy(self, record: records.Record) -> None:
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
            self._retire(one.listener)

    def _forget(self, record: records.Record) -> None:
        del self._records[record.microvm_id]
        for token in [token for token, known in self._by_client_token.items() if known is record]:
            del self._by_client_token[token]

    # -- threads -------------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception:
                _LOG.exception("%s failed", name)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=name)
        # Started under the lock: who joins the threads that it finds must not find one that was not started.
        with self._lock:
            thread.start()
            self._threads.add(thread)

    def _running_threads(self) -> list[threading.Thread]:
        with self._lock:
            return list(self._threads)


def _environment(spec: records.Spec) -> Mapping[str, str]:
    """What AWS sets in every MicroVM."""
    return {
        "AWS_LAMBDA_MICROVM_IMAGE_NAME": spec.image_arn.rpartition(":")[2],
        "AWS_LAMBDA_MICROVM_IMAGE_ARN": spec.image_arn,
        "AWS_LAMBDA_MICROVM_IMAGE_VERSION": spec.image_version,
        "AWS_REGION": names.LOCAL_REGION,
    }
