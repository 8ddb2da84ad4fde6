"""What a daemon notes about its VMs, so that the next one finds them again should this one be killed.

One file a VM, replaced at once by a rename. Nothing is synced to the disk: what the notes are good for, the VMs
themselves, does not outlive the machine's kernel either. A note that cannot be written costs a VM its next daemon, not
its life. The payload of the run hook may hold secrets: it is noted only as long as the hook is still to be called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from typing import cast

from .. import rendezvous
from ..wire import names
from . import built, options, records

_LOG = logging.getLogger(__name__)

FOLDER = rendezvous.NOTES_FOLDER
SCHEMA = 1
MAX_NOTE_BYTES = 1 << 20
_SUFFIX = ".json"

_TEXT = (str, type(None))
_NUMBER = (int, float)
# member of a note -> the types that it may have
_MEMBERS: Mapping[str, tuple[type, ...]] = {
    "microvm_id": (str,),
    "number": (int,),
    "client_token": _TEXT,
    "fingerprint": (str,),
    "endpoint": (str,),
    "started_at": _NUMBER,
    "state": (str,),
    "state_reason": _TEXT,
    "suspended_at": (*_NUMBER, type(None)),
    "terminated_at": (*_NUMBER, type(None)),
}
_SPEC_MEMBERS: Mapping[str, tuple[type, ...]] = {
    "image_arn": (str,),
    "image_version": (str,),
    "execution_role_arn": _TEXT,
    "idle_policy": (dict, type(None)),
    "max_seconds": (int,),
    "ingress": (list,),
    "egress": (list,),
    "kms_key": _TEXT,
    "payload": _TEXT,
    "options": (dict,),
    "logging": (dict, type(None)),
}


@dataclasses.dataclass(frozen=True)
class Note:
    """A VM as it was when it was last noted; see ``records.Record``."""

    microvm_id: str
    number: int
    spec: records.Spec
    client_token: str | None
    fingerprint: str
    endpoint: str
    started_at: float
    state: str
    state_reason: str | None
    suspended_at: float | None
    terminated_at: float | None


class Ledger:
    """See ``records.Ledger``: the notes in a state folder. Thread-safe; one VM is noted by one thread at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, FOLDER)

    def save(self, record: records.Record) -> None:
        """Note how the VM is now; ``record.changed`` is held. Does not raise if that is impossible."""
        note = json.dumps(_to_wire(record)).encode()
        path = self._path(record.microvm_id)
        try:
            try:
                _replace(path, note)
            except FileNotFoundError:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                _replace(path, note)
        except OSError as error:
            _LOG.warning("%s: that it is %s could not be noted: %s", record.microvm_id, record.state, error)

    def forget(self, microvm_id: str) -> None:
        """Remove the VM's note; one that is not there is fine."""
        try:
            os.unlink(self._path(microvm_id))
        except FileNotFoundError:
            return
        except OSError as error:
            _LOG.warning("%s: its note could not be removed: %s", microvm_id, error)

    def load(self) -> list[Note]:
        """All notes, in the order in which the VMs were started. One that is damaged is kept aside as ``….bad``."""
        try:
            # Whatever else somebody put there, a pipe or a folder, must not keep a daemon from starting.
            found = [entry.name for entry in os.scandir(self._folder) if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        notes = []
        for name in found:
            path = os.path.join(self._folder, name)
            if not name.endswith(_SUFFIX):
                if not name.endswith(".bad"):
                    os.unlink(path)  # of a daemon that was killed while it wrote
                continue
            try:
                notes.append(_read(path, name.removesuffix(_SUFFIX)))
            except (OSError, ValueError) as error:
                _LOG.warning("the note %s cannot be used: %s", path, error)
                with contextlib.suppress(OSError):
                    os.rename(path, f"{path}.bad")
        return sorted(notes, key=lambda note: note.number)

    def _path(self, microvm_id: str) -> str:
        return os.path.join(self._folder, microvm_id + _SUFFIX)


def _replace(path: str, data: bytes) -> None:
    temporary = path.removesuffix(_SUFFIX) + ".tmp"  # one VM is noted by one thread at a time
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)  # the little that fits on a full disk is needed by others
        raise


def _to_wire(record: records.Record) -> dict[str, object]:
    spec = dataclasses.asdict(record.spec)
    if record.state != names.PENDING:
        spec["payload"] = None
    return {"schema": SCHEMA, **{member: getattr(record, member) for member in _MEMBERS}, "spec": spec}


def _read(path: str, microvm_id: str) -> Note:
    with open(path, "rb") as file:
        members = json.loads(file.read(MAX_NOTE_BYTES))
    if not isinstance(members, dict) or members.get("schema") != SCHEMA:
        raise ValueError("it has another schema")
    known = _checked(members, _MEMBERS)
    if known["microvm_id"] != microvm_id or known["state"] not in names.STATES:
        raise ValueError("it makes no sense")
    return Note(**known, spec=_spec(members.get("spec")))  # type: ignore[arg-type]  # checked by the table


def _spec(members: object) -> records.Spec:
    known = _checked(members, _SPEC_MEMBERS)
    image = cast("dict[str, object]", members).get("built")  # notes of older versions lack it
    chosen = cast("dict[str, object]", known.pop("options"))
    for member in ("ingress", "egress"):
        known[member] = tuple(cast("list[str]", known[member]))
    try:
        return records.Spec(**known, options=options.Options.from_note(chosen), built=_built(image))  # type: ignore[arg-type]  # as above
    except TypeError as error:
        raise ValueError(str(error)) from error


def _built(members: object) -> built.Built | None:
    return None if members is None else built.Built.from_wire(cast("dict[str, object]", members))


def _checked(members: object, table: Mapping[str, tuple[type, ...]]) -> dict[str, object]:
    if not isinstance(members, dict):
        raise ValueError("an object is missing")
    for member, types in table.items():
        value = members.get(member)
        if not isinstance(value, types) or isinstance(value, bool):
            raise ValueError(f"its member {member} is wrong")
    return {member: members.get(member) for member in table}
