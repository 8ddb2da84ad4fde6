"""What a daemon takes over from the one before it, which ended in order or was killed.

Supervisors hold their VMs whether or not a daemon lives. What becomes of a VM that was last noted as

- PENDING: what there is of it is cleaned away, and it is started anew: nobody can have used it yet;
- RUNNING: it goes on;
- SUSPENDING: if it is frozen it is SUSPENDED, else it is suspended once more, hook included;
- SUSPENDED: it stays so; one that is not frozen was about to be resumed, and is;
- TERMINATING: it is ended, for the reason that was noted;
- TERMINATED: it stays listed.

One whose supervisor does not answer is TERMINATED and cleaned away, as is everything that nobody noted. After another
start of the machine that is all of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import threading
import urllib.parse
from concurrent import futures
from dataclasses import dataclass

from .. import deadline, errors
from ..wire import names
from . import acceptor, ledger, records, vms
from .drivers import interface

_LOG = logging.getLogger(__name__)

BOOT_FILE = "boot-id"
REASON_RESTARTED = "MicroVM was lost: the machine was restarted."
_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
_WORKERS = 8  # a supervisor that hangs is waited for: it must not hold up all the others


class _Ends:
    """Hands the end of a machine on to the VMs, but not before they know its record. Thread-safe."""

    def __init__(self, opened: vms.VMs, record: records.Record) -> None:
        self._vms = opened
        self._record = record
        self._lock = threading.Lock()  # guards the two below
        self._is_open = False
        self._kept: interface.Ended | None = None

    def tell(self, ended: interface.Ended) -> None:
        """The machine has ended."""
        with self._lock:
            if not self._is_open:
                self._kept = ended
                return
        self._vms.on_end(self._record, ended)

    def open(self) -> None:
        """The record is known now."""
        with self._lock:
            self._is_open = True
            kept = self._kept
        if kept is not None:
            self._vms.on_end(self._record, kept)


@dataclass(frozen=True)
class _Found:
    """A VM as it is now: its record, whose state is true, and its machine if there is one."""

    record: records.Record
    machine: interface.Machine | None = None
    ends: _Ends | None = None


class Adoption:
    """Brings the VMs of an earlier daemon under this one's care. Used once, before anybody can ask for them.

    Args:
        opened: Gets the VMs.
        notes: What the earlier daemon noted of them.
        folder: The state folder.
        clock: For the times of the records.
    """

    def __init__(
        self,
        opened: vms.VMs,
        notes: ledger.Ledger,
        *,
        folder: str,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
    ) -> None:
        self._vms = opened
        self._driver = opened.driver
        self._ledger = notes
        self._folder = folder
        self._clock = clock
        self._is_same_boot = _read(self._boot_file) == _read(_BOOT_ID_PATH)

    def run(self) -> None:
        """Take over what there is, and clean away the rest."""
        with futures.ThreadPoolExecutor(_WORKERS, thread_name_prefix="adopt") as pool:
            found = list(pool.map(self._find, self._ledger.load()))
            held = {each.record.microvm_id for each in found if each.machine is not None}
            known = {each.record.microvm_id: each.record for each in found}
            os.makedirs(self._path(), mode=0o700, exist_ok=True)
            left = sorted(set(os.listdir(self._path())) - held)
            for _ in pool.map(self._discard, left, [known.get(name) for name in left]):
                continue
        for each in found:
            self._insert(each)
        self._note_boot()

    def _note_boot(self) -> None:
        """Last: should we be killed before, the next daemon must come to the same conclusions."""
        if self._is_same_boot:
            return
        try:
            with open(self._boot_file, "wb") as file:
                file.write(_read(_BOOT_ID_PATH))
        except OSError as error:
            _LOG.warning("this start of the machine cannot be noted: the next daemon will find no VMs: %s", error)

    @property
    def _boot_file(self) -> str:
        return os.path.join(self._folder, BOOT_FILE)

    def _path(self, *parts: str) -> str:
        return os.path.join(self._folder, vms.FOLDER, *parts)

    # -- looking -------------------------------------------------------------------------------------------------------

    def _find(self, note: ledger.Note) -> _Found:
        record = _restore(note)
        record.ledger = self._ledger
        if record.is_ended:
            return _Found(record)
        if not self._is_same_boot:
            return self._gone(record, reason=REASON_RESTARTED)
        if record.state == names.TERMINATING:
            return self._gone(record, reason=records.REASON_SUCCESS)
        if record.state == names.PENDING:
            return self._bind(_Found(record), note)
        ends = _Ends(self._vms, record)
        machine = self._adopt(record, ends)
        if machine is None:
            # It may have ended in order while no daemon was there.
            ended = self._discard(record.microvm_id, record) or interface.Ended(None, None, interface.LOST)
            return self._gone(record, reason=records.end_reason(ended, memory_mib=record.spec.options.memory_mib))
        return self._bind(_Found(record, machine, ends), note)

    def _adopt(self, record: records.Record, ends: _Ends) -> interface.Machine | None:
        try:
            return self._driver.adopt(self._path(record.microvm_id), on_end=ends.tell)
        except (OSError, errors.LocalCloudError):
            _LOG.exception("%s cannot be taken over", record.microvm_id)
            return None

    def _gone(self, record: records.Record, *, reason: str) -> _Found:
        with record.changed:
            _LOG.warning("%s, which was %s, is gone", record.microvm_id, record.state)
            record.advance(records.GONE, at=self._clock.time(), reason=reason)
        return _Found(record)

    def _bind(self, found: _Found, note: ledger.Note) -> _Found:
        """Listen where the VM's clients know it, or else elsewhere; they find out by GetMicrovm."""
        record = found.record
        record.listener = _listen(note.endpoint)
        record.endpoint = f"http://127.0.0.1:{record.listener.getsockname()[1]}"
        if record.endpoint != note.endpoint:
            _LOG.warning("%s: %s is taken; it is at %s now", note.microvm_id, note.endpoint, record.endpoint)
        return found

    def _discard(self, name: str, record: records.Record | None) -> interface.Ended | None:
        """Clean away what there is of a VM, its last words told; how it ended, if anybody knows."""
        try:
            ended = self._driver.discard(self._path(name))
            if record is not None:
                self._vms.read_out(record)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._path(name))
            return ended
        except (OSError, errors.LocalCloudError):
            _LOG.exception("cannot clean away %s", name)
            return None

    # -- taking over ---------------------------------------------------------------------------------------------------

    def _insert(self, found: _Found) -> None:
        record, machine = found.record, found.machine
        state = record.state
        if machine is not None:
            if machine.is_frozen:
                record.state, record.suspended_at = names.SUSPENDED, record.suspended_at or self._clock.time()
            elif state == names.SUSPENDING:
                record.state = names.RUNNING
            with record.changed:
                self._ledger.save(record)
        self._vms.insert(record, machine=machine, client_token=record.client_token)
        if found.ends is not None:
            found.ends.open()
        if machine is not None and not machine.is_frozen:
            self._go_on(record, state)

    def _go_on(self, record: records.Record, state: str) -> None:
        """Do what was under way when the VM was in that state."""
        try:
            if state == names.SUSPENDING:
                self._vms.suspend(record)
            elif state == names.SUSPENDED:
                self._vms.resume(record)
        except errors.VmnestError as error:
            _LOG.info("%s: %s", record.microvm_id, error)


def _restore(note: ledger.Note) -> records.Record:
    record = records.Record(
        note.microvm_id,
        note.spec,
        number=note.number,
        started_at=note.started_at,
        endpoint=note.endpoint,
        client_token=note.client_token,
        fingerprint=note.fingerprint,
    )
    record.state = note.state
    record.state_reason = note.state_reason
    record.suspended_at = note.suspended_at
    record.terminated_at = note.terminated_at
    return record


def _listen(endpoint: str) -> socket.socket:
    try:
        return acceptor.bind(urllib.parse.urlsplit(endpoint).port or 0)
    except (OSError, ValueError):
        return acceptor.bind()


def _read(path: str) -> bytes:
    """What the file has; nothing if there is none: a machine that does not tell its starts apart has only one."""
    try:
        with open(path, "rb") as file:
            return file.read(200)
    except FileNotFoundError:
        return b""
