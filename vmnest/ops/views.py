"""What is known of a sandbox: its record, and what the service says, as ``--json`` and the MCP server show it."""

from __future__ import annotations

from .. import errors
from .. import target as targets
from ..wire import names
from . import moments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

    from ..control import Control
    from ..control.microvms import MicroVM, MicroVMSummary
    from ..deadline import Deadline
    from ..registry import Record

__all__ = [
    "GONE",
    "LAUNCHING",
    "STATES",
    "Controls",
    "Look",
    "control_of",
    "describe",
    "describe_record",
    "describe_summary",
    "describe_unknown",
]

# States that no service answers: what can be said of a record whose MicroVM cannot be asked for.
LAUNCHING = "LAUNCHING"  # it is being started, or whoever started it was cut off
GONE = "GONE"  # the service does not know it (any more)
# All that a sandbox's state can be, unless the service has a new word.
STATES = (*names.STATES, LAUNCHING, GONE, names.UNKNOWN)
# A record in a file says anything: what is longer than this is no life of a MicroVM.
_LONGEST_SECONDS = 10**7

# What a record keeps for vmnest itself: with the first a launch could be repeated, the second is its parameters.
_INTERNAL_MEMBERS = ("client_token", "launch")


def control_of(record: Record, *, region: str | None, deadline: Deadline) -> Control:
    """The control plane that knows a record's MicroVM."""
    try:
        place = targets.resolve(local=record.is_local, region=region or record.region, arn=record.image_arn)
    except errors.SettingError as error:
        if region or not record.region:
            raise
        raise errors.StateFileError(
            f"sandbox {record.name} is recorded in {record.region!r}, which is no AWS region",
            hint="Repair the state file, or say with --region where it is.",
        ) from error
    return place.control(deadline=deadline, start=False)


class Controls:
    """The control planes of records. Each is made once: ask for all of them before threads do."""

    def __init__(self, *, region: str | None, deadline: Deadline) -> None:
        self._region = region
        self._deadline = deadline
        self._made: dict[tuple[str, str | None], Control | errors.VmnestError] = {}

    def place(self, record: Record) -> tuple[str, str | None]:
        """Equal for records that have one control plane."""
        return record.target, self._region or record.region or record.image_arn

    def reach(self, record: Record) -> Control:
        """The one of a record; raises what kept it from being reached."""
        found = self.try_reach(record)
        if isinstance(found, errors.VmnestError):
            raise found
        return found

    def try_reach(self, record: Record) -> Control | errors.VmnestError:
        """The one of a record, or what kept it from being reached."""
        place = self.place(record)
        if place not in self._made:
            try:
                self._made[place] = control_of(record, region=self._region, deadline=self._deadline)
            except errors.VmnestError as error:
                self._made[place] = error
        return self._made[place]


class Look:
    """Asks for the state of sandboxes."""

    def __init__(self, *, region: str | None, deadline: Deadline, controls: Controls | None = None) -> None:
        self._deadline = deadline
        self._controls = controls or Controls(region=region, deadline=deadline)

    def at(self, record: Record) -> dict[str, object]:
        """What is known of a sandbox; an error becomes a part of it."""
        try:
            return self.closely_at(record)
        except errors.VmnestError as error:
            return describe_unknown(record, error)

    def closely_at(self, record: Record) -> dict[str, object]:
        """What is known of a sandbox."""
        return self._view(record, self._ask(record))

    def into(self, record: Record) -> dict[str, object]:
        """The same with all that is recorded and all that the service says, each in its own words."""
        microvm = self._ask(record)
        recorded = {name: value for name, value in record.to_file().items() if name not in _INTERNAL_MEMBERS}
        said = None if microvm is None else _to_json(microvm.raw)
        return {**self._view(record, microvm), "record": recorded, "microvm": said}

    def _view(self, record: Record, microvm: MicroVM | None) -> dict[str, object]:
        if microvm is not None:
            return describe(record, microvm)
        return describe_record(record, state=LAUNCHING if record.microvm_id is None else GONE)

    def _ask(self, record: Record) -> MicroVM | None:
        """The MicroVM, or None if there is none to ask for, or none any more."""
        if record.microvm_id is None:
            return None
        try:
            return self._controls.reach(record).microvms.get(record.microvm_id, deadline=self._deadline)
        except errors.MicroVMNotFoundError:
            return None


def describe(record: Record, microvm: MicroVM) -> dict[str, object]:
    """A sandbox whose MicroVM the service knows."""
    ends = None if microvm.ended else _end(microvm.started_at, microvm.max_duration_seconds)
    seen: dict[str, object] = {
        "image_arn": microvm.image_arn,
        "image_version": microvm.image_version,
        "endpoint": microvm.endpoint,
        "started_at": moments.to_iso(microvm.started_at),
        "expires_at": ends,
        "terminated_at": None if microvm.terminated_at is None else moments.to_iso(microvm.terminated_at),
        "state_reason": microvm.state_reason,
        "max_duration_seconds": microvm.max_duration_seconds,
        "idle_policy": None if microvm.idle_policy is None else microvm.idle_policy._asdict(),
        "execution_role_arn": microvm.execution_role_arn,
        "ingress_network_connectors": list(microvm.ingress),
        "egress_network_connectors": list(microvm.egress),
    }
    if microvm.state not in names.SUSPENDED_STATES:
        seen["stopped_at"] = None  # a request, of which the record knows nothing, resumed it since
    details = microvm.raw.get(names.LOCAL_DETAILS_MEMBER)
    local = {} if details is None else {"local_details": details}
    return {**describe_record(record, state=microvm.state), **seen, **local}


def describe_summary(record: Record, summary: MicroVMSummary) -> dict[str, object]:
    """A sandbox whose MicroVM stands in a listing, which tells less of it; what else is known is as recorded."""
    view = describe_record(record, state=summary.state)
    duration = view["max_duration_seconds"]
    ends = None if summary.ended or not isinstance(duration, int) else _end(summary.started_at, duration)
    seen: dict[str, object] = {
        "microvm_id": summary.microvm_id,
        "image_arn": summary.image_arn,
        "image_version": summary.image_version,
        "started_at": moments.to_iso(summary.started_at),
        "expires_at": ends,
    }
    if summary.state not in names.SUSPENDED_STATES:
        seen["stopped_at"] = None
    return {**view, **seen}


def describe_unknown(record: Record, error: errors.VmnestError) -> dict[str, object]:
    """A sandbox of which the service could not be asked."""
    return {**describe_record(record, state=names.UNKNOWN), "error": error.to_wire()}


def describe_record(record: Record, *, state: str) -> dict[str, object]:
    """A sandbox of which only the record is known. It has the same members; what it does not tell is null."""
    return {
        "name": record.name,
        "target": record.target,
        "state": state,
        "microvm_id": record.microvm_id,
        "image_arn": record.image_arn,
        "image_version": None,
        "region": record.region,
        "endpoint": record.endpoint,
        "created_at": moments.from_epoch(record.created_at),
        "started_at": None,
        "stopped_at": moments.from_epoch(record.stopped_at),
        "expires_at": None,
        "terminated_at": None,
        "state_reason": None,
        "max_duration_seconds": _recorded_duration(record),
        "idle_policy": _recorded_policy(record),
        "execution_role_arn": None,
        "ingress_network_connectors": None,
        "egress_network_connectors": None,
        "labels": dict(record.labels),
    }


def _recorded_duration(record: Record) -> int | None:
    known = record.max_duration is not None and 0 < record.max_duration <= _LONGEST_SECONDS
    return record.max_duration if known else None


def _recorded_policy(record: Record) -> dict[str, object] | None:
    """Only if it is whole, and each of its members of the right type."""
    policy = record.idle_policy or {}
    seconds = [policy.get(member) for member in ("max_idle_duration_seconds", "suspended_duration_seconds")]
    is_good = all(type(value) is int and 0 <= value <= _LONGEST_SECONDS for value in seconds)
    is_good = is_good and isinstance(policy.get("auto_resume_enabled"), bool)
    members = ("max_idle_duration_seconds", "suspended_duration_seconds", "auto_resume_enabled")
    return {member: policy[member] for member in members} if is_good else None


def _end(started_at: datetime, seconds: int) -> str | None:
    """When a MicroVM's time is up; None if that is no time that there is: a service can say anything."""
    from datetime import timedelta

    try:
        return moments.to_iso(started_at + timedelta(seconds=seconds))
    except OverflowError:
        return None


def _to_json(value: object) -> object:
    """What a service said as JSON values: its moments are texts, with their fractions."""
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    if isinstance(value, datetime):
        return moments.to_iso(value, fractions=True)
    if isinstance(value, Mapping):
        return {str(name): _to_json(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_to_json(item) for item in value]
    return value
