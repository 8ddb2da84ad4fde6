"""Names of sandboxes: the file that maps each to its MicroVM (``state.json``).

Rules, each held by a test:

- A verb that only reads takes no lock and writes nothing; writers exclude each other (see ``statefile``).
- What is not understood is kept: members of the file and of a record that this version does not know are written back,
  and a record under a name that ``check_name`` would refuse today can still be used and removed.
- A file that cannot be understood is never replaced. Readers refuse it and leave everything as it is; the first
  writer that meets it also puts a copy beside it (``state.json.bad``), so that a repair by hand cannot lose it.
- Files of 0.1.2 have no ``schema``; they are read as they are and get one at the first write.
"""

from __future__ import annotations

import json
import os
import re

from . import errors, rendezvous, settings, statefile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

__all__ = ["ID_PREFIX", "Place", "Record", "Registry", "check_name", "locate", "open_default"]

SCHEMA = 1
FILE_NAME = "state.json"
ID_PREFIX = "microvm-"  # of the ids of MicroVMs

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

# member of a record in the file -> the types that it may have there
_MEMBERS: dict[str, tuple[type, ...]] = {
    "microvm_id": (str,),
    "endpoint": (str,),
    "image_arn": (str,),
    "region": (str,),
    "target": (str,),
    "client_token": (str,),
    "state_hint": (str,),
    "created_at": (int, float),
    "stopped_at": (int, float),
    "auto_resume": (bool,),
    "agent_port": (int,),
    "log_group": (str,),
    "labels": (dict,),
    "sources": (dict,),
    "launch": (dict,),
    "max_duration": (int,),
    "idle_policy": (dict,),
}


def check_name(name: str) -> str:
    """Return the name, or raise UsageError if no new sandbox may be called that."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise errors.UsageError(
            f"not a name for a sandbox: {name!r}",
            hint="A name has 1 to 63 letters, digits, dots, underscores and dashes, and starts with a letter or digit.",
        )
    return name


class Record:
    """What is known about one sandbox. A value: ``replace`` makes a changed copy.

    Attributes:
        name: The sandbox's name.
        microvm_id: The MicroVM, or None while it is being started.
        endpoint: URL of its data plane (0.1.2 wrote it without a scheme).
        image_arn: The image that it was started from.
        region: AWS region.
        target: ``aws`` or ``local``.
        client_token: The token of the RunMicrovm call, by which a launch that was cut off can be found again.
        state_hint: The state last seen; only a hint.
        created_at: Seconds since the epoch.
        stopped_at: When it was suspended on purpose, in seconds since the epoch; None when it was resumed since, or is
            only suspended because it was idle.
        auto_resume: False: the service does not resume it for a request. None: it does, or we do not know.
        agent_port: Port of the agent in the guest.
        log_group: The CloudWatch log group that was asked for.
        labels: The user's own labels.
        sources: Of what nobody named (``image_arn``, ``execution_role_arn``), where it is from.
        launch: The parameters of the RunMicrovm call, until its answer is recorded.
        max_duration: Seconds after which its MicroVM ends in any case, as it was started with.
        idle_policy: When its MicroVM is suspended, as it was started with: the members of ``microvms.IdlePolicy``.
        unknown: Members that this version does not know.
    """

    __slots__ = ("name", *_MEMBERS, "unknown")

    def __init__(
        self,
        name: str,
        *,
        microvm_id: str | None = None,
        endpoint: str | None = None,
        image_arn: str | None = None,
        region: str | None = None,
        target: str = settings.TARGET_AWS,
        client_token: str | None = None,
        state_hint: str | None = None,
        created_at: float | None = None,
        stopped_at: float | None = None,
        auto_resume: bool | None = None,
        agent_port: int | None = None,
        log_group: str | None = None,
        labels: Mapping[str, str] | None = None,
        sources: Mapping[str, str] | None = None,
        launch: Mapping[str, object] | None = None,
        max_duration: int | None = None,
        idle_policy: Mapping[str, object] | None = None,
        unknown: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.microvm_id = microvm_id
        self.endpoint = endpoint
        self.image_arn = image_arn
        self.region = region
        self.target = target
        self.client_token = client_token
        self.state_hint = state_hint
        self.created_at = created_at
        self.stopped_at = stopped_at
        self.auto_resume = auto_resume
        self.agent_port = agent_port
        self.log_group = log_group
        self.labels: dict[str, str] = dict(labels or {})
        self.sources: dict[str, str] = dict(sources or {})
        self.launch: dict[str, object] | None = None if launch is None else dict(launch)
        self.max_duration = max_duration
        self.idle_policy: dict[str, object] | None = None if idle_policy is None else dict(idle_policy)
        self.unknown: dict[str, object] = dict(unknown or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and all(getattr(self, m) == getattr(other, m) for m in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # equal by content, and labels can be changed

    def __repr__(self) -> str:
        return f"Record({self.name!r}, microvm_id={self.microvm_id!r}, target={self.target!r})"

    def replace(self, **changes: object) -> Record:
        """A copy with these members changed."""
        members = {member: getattr(self, member) for member in self.__slots__}
        return Record(**(members | changes))

    @property
    def is_local(self) -> bool:
        """It is on this machine.

        Raises:
            errors.UnsupportedError: it is on a target that this version does not know.
        """
        if self.target not in (settings.TARGET_AWS, settings.TARGET_LOCAL):
            raise errors.UnsupportedError(
                f"sandbox {self.name} is on the target {self.target!r}, which this version of vmnest does not know",
                hint="Use the version that made it. Nothing was changed.",
            )
        return self.target == settings.TARGET_LOCAL

    def is_within(self, local: bool | None, region: str | None = None) -> bool:
        """It is where a search is limited to: this machine (True), AWS (False), or no matter where (None).

        ``region`` limits it to one of AWS's, unless it is limited to this machine.
        """
        if local is None and region is not None:
            local = False
        if local is not None and self.target != (settings.TARGET_LOCAL if local else settings.TARGET_AWS):
            return False
        return region is None or local is True or self._region() in ("", region)

    def _region(self) -> str:
        """The AWS region that it is in, empty if it does not tell."""
        from .aws import region as regions

        return self.region or regions.of_arn(self.image_arn or "")

    def is_same_launch(self, other: Record) -> bool:
        """Both describe one launch of one MicroVM, whatever else was recorded since: its id, for example."""
        if self.microvm_id and other.microvm_id:
            return self.microvm_id == other.microvm_id
        if self.client_token or other.client_token:
            return self.client_token == other.client_token
        return self.microvm_id == other.microvm_id

    def to_file(self) -> dict[str, object]:
        """The record as the file has it; members without a value are left out."""
        members = {member: getattr(self, member) for member in _MEMBERS}
        known = {member: value for member, value in members.items() if value is not None and value != {}}
        return {**self.unknown, "name": self.name, **known}

    @classmethod
    def from_file(cls, name: str, members: object) -> Record:
        """The record from what the file has under ``name``; raises ValueError if that is no record."""
        if not isinstance(members, dict):
            raise ValueError(f"the record of {name!r} is no object")
        known: dict[str, object] = {}
        unknown: dict[str, object] = {}
        for member, value in members.items():
            if member not in _MEMBERS:
                unknown[member] = value
            elif value is not None:
                known[member] = _checked(name, member, value)
        unknown.pop("name", None)
        known.setdefault("target", settings.TARGET_AWS)
        return cls(name).replace(**known, unknown=unknown)


def _checked(name: str, member: str, value: object) -> object:
    types = _MEMBERS[member]
    good = isinstance(value, types) and (isinstance(value, bool) == (types == (bool,)))
    if member in ("labels", "sources") and isinstance(value, dict):
        good = all(isinstance(text, str) for text in value.values())
    if not good:
        raise ValueError(f"the record of {name!r} has a wrong {member}")
    return value


class Place:
    """Where the registry is; with a remark for the user, and the folder to guard, if that is not the usual place."""

    __slots__ = ("note", "path", "private_folder")

    def __init__(self, path: str, *, note: str | None = None, private_folder: str | None = None) -> None:
        self.path = path
        self.note = note
        self.private_folder = private_folder


def locate(environ: Mapping[str, str] | None = None) -> Place:
    """The registry's file: ``AGENT_SANDBOX_STATE``, ``~/.agent_sandbox/state.json``, else in the local cloud's folder.

    The last only if HOME cannot be written and holds no registry yet: one that exists is not forgotten silently.
    """
    environ = settings.environment() if environ is None else environ
    given = settings.text("state", environ=environ)
    if given is not None:
        return Place(given)
    usual = os.path.join(environ.get("HOME", ""), ".agent_sandbox", FILE_NAME)
    folder, is_fallback = rendezvous.state_folder(environ)
    if not is_fallback:
        return Place(os.path.join(folder, FILE_NAME))
    if os.path.isabs(usual) and os.path.exists(usual):
        return Place(usual)
    folder = rendezvous.folder(environ)
    path = os.path.join(folder, FILE_NAME)
    note = f"there is no home folder that can be written to: the names of sandboxes are kept in {path}"
    return Place(path, note=note, private_folder=folder)


def open_default(environ: Mapping[str, str] | None = None) -> Registry:
    """The registry at its place."""
    place = locate(environ)
    return Registry(place.path, private_folder=place.private_folder)


class _Contents:
    """A file, understood: its records, and its members that this version does not know."""

    __slots__ = ("records", "unknown")

    def __init__(self, records: dict[str, Record], unknown: dict[str, object]) -> None:
        self.records = records
        self.unknown = unknown

    def to_bytes(self) -> bytes:
        sandboxes = {name: record.to_file() for name, record in self.records.items()}
        whole = {"schema": SCHEMA, **self.unknown, "sandboxes": sandboxes}
        return json.dumps(whole, indent=2).encode("ascii") + b"\n"


class Registry:
    """The names in one file. Safe between threads and between processes; holds nothing open between calls.

    Raises:
        errors.StateFileError: by every method, if the file is damaged, newer than this version, or not accessible.
    """

    def __init__(self, path: str, *, private_folder: str | None = None) -> None:
        self.path = os.path.abspath(path)
        self._private_folder = private_folder

    def get(self, name: str) -> Record | None:
        """The record of that name, or None. Writes nothing."""
        return self._read().records.get(name)

    def require(self, name: str) -> Record:
        """The record of that name; raises SandboxNotFoundError if there is none. Writes nothing."""
        return _require(self._read(), name)

    def advise(self, name: str) -> str:
        """What to do about a name that is not recorded. Writes nothing."""
        return _advise(self._read(), name)

    def check_free(self, name: str) -> None:
        """See that the name is not recorded, before work that would be in vain; ``put`` decides. Writes nothing.

        Raises:
            errors.NameInUseError: it is recorded.
        """
        present = self.get(name)
        if present is not None:
            raise _in_use(present)

    def all(self) -> list[Record]:
        """All records, in the order in which they were made. Writes nothing."""
        return list(self._read().records.values())

    def show_microvms(self, ids: Sequence[str]) -> list[str]:
        """MicroVMs as people know them: ``demo (microvm-1)``; the id alone of what has no name here."""
        try:
            names = {record.microvm_id: record.name for record in self.all()}
        except errors.StateFileError:
            names = {}  # that is a problem of whoever needs a name
        return [f"{names[each]} ({each})" if each in names else each for each in ids]

    def stamp(self) -> tuple[int, int] | None:
        """A value that changes with the file, for a glance that costs next to nothing; None if there is no file."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def put(
        self, record: Record, *, replace: bool = False, expected: Record | None = None, is_sole: bool = False
    ) -> None:
        """Add a record.

        Args:
            record: The record.
            replace: Also in the place of any other of that name.
            expected: Also in the place of this one.
            is_sole: Only if its MicroVM has no other name.

        Raises:
            errors.NameInUseError: the name is recorded, and is not to be replaced; or the MicroVM has a name.
        """
        with _Change(self) as contents:
            if is_sole:
                _check_sole(contents, record)
            present = contents.records.get(record.name)
            is_expected = present is not None and expected is not None and present.is_same_launch(expected)
            if present is not None and not replace and not is_expected:
                raise _in_use(present)
            contents.records[record.name] = record

    def update(self, name: str, *, expected: Record | None = None, **changes: object) -> Record:
        """Change members of a record and return it as it is now.

        Raises:
            errors.SandboxNotFoundError: the name is not recorded, or stands for another launch than ``expected``.
        """
        with _Change(self) as contents:
            present = _require(contents, name)
            if expected is not None and not present.is_same_launch(expected):
                raise errors.SandboxNotFoundError(f"the name {name!r} stands for another sandbox by now")
            record = contents.records[name] = present.replace(**changes)
        return record

    def remove(self, name: str, *, expected: Record | None = None) -> bool:
        """Forget a name; False if it was not recorded, or stands for another launch than ``expected`` by now."""
        with _Change(self) as contents:
            present = contents.records.get(name)
            if present is None or (expected is not None and not present.is_same_launch(expected)):
                return False
            del contents.records[name]
        return True

    def check_place(self, *, make: bool) -> None:
        """In /tmp somebody else may have made the folder first: then refuse it."""
        if self._private_folder and (make or os.path.lexists(self._private_folder)):
            rendezvous.prepare_folder(self._private_folder)

    def _read(self) -> _Contents:
        self.check_place(make=False)
        try:
            return _parse(statefile.load(self.path), self.path)
        except statefile.DamagedError as error:
            raise _damaged(self.path, reason=str(error)) from error


def _require(contents: _Contents, name: str) -> Record:
    record = contents.records.get(name)
    if record is None:
        raise errors.SandboxNotFoundError(f"no sandbox named {name!r} is recorded", hint=_advise(contents, name))
    return record


_MOST_NAMES = 8


def _advise(contents: _Contents, name: str) -> str:
    """What to do about a name that is not recorded."""
    meant = [record.name for record in contents.records.values() if record.microvm_id == name]
    if meant:
        return f"That is the id of a MicroVM, which has a name: {meant[0]}"
    if name.startswith(ID_PREFIX):
        return (
            f"That looks like the id of a MicroVM. To give it a name: vmnest adopt {name} NAME; "
            "vmnest ls --all shows those that have none."
        )
    known = sorted(contents.records)
    if not known:
        return "None is recorded. Make one: vmnest create NAME (here: vmnest --local create NAME)"
    more = f" and {len(known) - _MOST_NAMES} more: vmnest ls" if len(known) > _MOST_NAMES else ""
    return f"Recorded are: {', '.join(known[:_MOST_NAMES])}{more}"


def _in_use(present: Record) -> errors.NameInUseError:
    return errors.NameInUseError(
        f"a sandbox named {present.name} exists already ({_where(present)})",
        hint=f"Choose another name, or remove it first: vmnest rm {present.name}",
    )


def _check_sole(contents: _Contents, record: Record) -> None:
    for other in contents.records.values():
        if other.microvm_id == record.microvm_id and other.name != record.name:
            raise errors.NameInUseError(
                f"MicroVM {record.microvm_id} is recorded already: as {other.name}",
                hint=f"Use it by that name: vmnest ps {other.name}",
                details={"name": other.name},
            )


def _where(record: Record) -> str:
    return "on this machine" if record.target == settings.TARGET_LOCAL else f"on AWS, {record.region or 'no region'}"


# -- the file ----------------------------------------------------------------------------------------------------------


def _parse(data: bytes, path: str) -> _Contents:
    whole = statefile.parse(data, path, schema=SCHEMA, setting="AGENT_SANDBOX_STATE")
    sandboxes = whole.pop("sandboxes", {})
    if not isinstance(sandboxes, dict):
        raise statefile.DamagedError("its sandboxes are no object")
    try:
        return _Contents({name: Record.from_file(name, members) for name, members in sandboxes.items()}, whole)
    except ValueError as error:
        raise statefile.DamagedError(str(error)) from error


def _damaged(path: str, *, reason: str, copy: str | None = None) -> errors.StateFileError:
    remedy = (
        "move it away to start without records: vmnest ls --all shows the MicroVMs that go on running, "
        "and vmnest adopt ID NAME gives them names again."
    )
    return statefile.damaged(path, reason=reason, remedy=remedy, copy=copy)


# -- writing -----------------------------------------------------------------------------------------------------------


class _Change:
    """One locked change: ``with _Change(registry) as contents`` writes the contents back unless an error leaves it.

    Contents that were not changed are not written.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # A link is followed first: the rename must replace what it points to, not the link.
        self._path = os.path.realpath(registry.path)
        self._lock = statefile.Lock(self._path)

    def __enter__(self) -> _Contents:
        self._registry.check_place(make=True)
        self._lock.__enter__()
        try:
            self._before = statefile.load(self._path)
            self._contents = self._understood()
            self._unchanged = self._contents.to_bytes()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self._contents

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                after = self._contents.to_bytes()
                if after != self._unchanged:
                    statefile.replace(self._path, after)
        finally:
            self._lock.__exit__(kind, value, trace)

    def _understood(self) -> _Contents:
        try:
            return _parse(self._before, self._path)
        except statefile.DamagedError as error:
            copy = statefile.keep_copy(self._path, self._before)
            raise _damaged(self._path, reason=str(error), copy=copy) from error
