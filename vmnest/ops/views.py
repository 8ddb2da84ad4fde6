"""What is known of a sandbox: its record, and what the service says, as ``--json`` and the MCP server show it."""

from __future__ import annotations

from .. import errors
from .. import target as targets
from ..wire import names
from . import moments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..control import Control
    from ..control.microvms import MicroVM
    from ..deadline import Deadline
    from ..registry import Record

__all__ = ["GONE", "LAUNCHING", "Look", "control_of", "describe", "describe_record"]

# States that no service answers: what can be said of a record whose MicroVM cannot be asked for.
LAUNCHING = "LAUNCHING"  # it is being started, or whoever started it was cut off
GONE = "GONE"  # the service does not know it (any more)

# What a record keeps for vmnest itself: with the first a launch could be repeated, the second is its parameters.
_INTERNAL_MEMBERS = ("client_token", "launch")


def control_of(record: Record, *, region: str | None, deadline: Deadline) -> Control:
    """The control plane that knows a record's MicroVM."""
    place = targets.resolve(local=record.is_local, region=region or record.region, arn=record.image_arn)
    return place.control(deadline=deadline)


class Look:
    """Asks for the state of sandboxes. Its controls are made before threads use them."""

    def __init__(self, *, region: str | None, deadline: Deadline) -> None:
        self._region = region
        self._deadline = deadline
        self._controls: dict[tuple[str, str | None], Control | errors.VmnestError] = {}

    def prepare(self, records: Sequence[Record]) -> None:
        """Reach each target once."""
        for record in records:
            if record.microvm_id is not None:
                self._control(record)

    def at(self, record: Record) -> dict[str, object]:
        """What is known of a sandbox; an error becomes a part of it."""
        try:
            return self.closely_at(record)
        except errors.VmnestError as error:
            return {**describe_record(record, state=names.UNKNOWN), "error": error.to_wire()}

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
        control = self._control(record)
        if isinstance(control, errors.VmnestError):
            raise control
        try:
            return control.microvms.get(record.microvm_id, deadline=self._deadline)
        except errors.MicroVMNotFoundError:
            return None

    def _control(self, record: Record) -> Control | errors.VmnestError:
        place = (record.target, self._region or record.region or record.image_arn)
        if place not in self._controls:
            try:
                self._controls[place] = control_of(record, region=self._region, deadline=self._deadline)
            except errors.VmnestError as error:
                self._controls[place] = error
        return self._controls[place]


def describe(record: Record, microvm: MicroVM) -> dict[str, object]:
    """A sandbox whose MicroVM the service knows."""
    from datetime import timedelta

    ends = None if microvm.ended else microvm.started_at + timedelta(seconds=microvm.max_duration_seconds)
    seen: dict[str, object] = {
        "image_arn": microvm.image_arn,
        "image_version": microvm.image_version,
        "endpoint": microvm.endpoint,
        "started_at": moments.to_iso(microvm.started_at),
        "expires_at": None if ends is None else moments.to_iso(ends),
        "terminated_at": None if microvm.terminated_at is None else moments.to_iso(microvm.terminated_at),
        "state_reason": microvm.state_reason,
        "max_duration_seconds": microvm.max_duration_seconds,
        "idle_policy": None if microvm.idle_policy is None else microvm.idle_policy._asdict(),
        "execution_role_arn": microvm.execution_role_arn,
        "ingress_network_connectors": list(microvm.ingress),
        "egress_network_connectors": list(microvm.egress),
    }
    if microvm.state not in (names.SUSPENDING, names.SUSPENDED):
        seen["stopped_at"] = None  # a request, of which the record knows nothing, resumed it since
    details = microvm.raw.get(names.LOCAL_DETAILS_MEMBER)
    local = {} if details is None else {"local_details": details}
    return {**describe_record(record, state=microvm.state), **seen, **local}


def describe_record(record: Record, *, state: str) -> dict[str, object]:
    """A sandbox of which only the record is known. It has the same members; most are null."""
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
        "max_duration_seconds": None,
        "idle_policy": None,
        "execution_role_arn": None,
        "ingress_network_connectors": [],
        "egress_network_connectors": [],
        "labels": dict(record.labels),
    }


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
