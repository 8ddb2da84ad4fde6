"""Sandboxes by their names: make, list, look at, remove."""

from __future__ import annotations

from .. import errors, registry, settings
from .. import target as targets
from ..deadline import Deadline
from ..wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ..control import Control
    from ..control.microvms import MicroVM
    from ..registry import Record

__all__ = ["create_sandbox", "list_sandboxes", "remove_sandbox", "show_sandbox"]

ASK_SECONDS = 30.0
LARGEST_CROWD = 16

# States that no service answers: what can be said of a record whose MicroVM cannot be asked for.
LAUNCHING = "LAUNCHING"  # it is being started, or whoever started it was cut off
GONE = "GONE"  # the service does not know it (any more)


def create_sandbox(
    *,
    name: str,
    image: str | None = None,
    image_version: str | None = None,
    role: str | None = None,
    cpus: float | None = None,
    memory: int | None = None,
    wait_timeout: float | None = None,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Make a sandbox and wait until it runs.

    Args:
        name: Its name: 1 to 63 letters, digits, dots, underscores and dashes.
        image: Image to start from, a name or an ARN.
        image_version: Version of the image; its newest by default.
        role: Role that code in the sandbox gets.
        cpus: CPUs that it needs.
        memory: Memory in MiB that it needs.
        wait_timeout: Seconds to wait for it.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
    """
    from ..sandbox import Sandbox

    registry.check_name(name)  # before anything else: a bad name is one on every target
    sandbox = Sandbox.create(
        name,
        image_arn=image,
        image_version=image_version,
        execution_role_arn=role,
        cpus=cpus,
        memory=memory,
        wait_timeout=wait_timeout,
        local=local,
        region=region,
    )
    return _Look(region=region, deadline=Deadline(ASK_SECONDS)).at(sandbox.record)


def list_sandboxes(
    *, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """List the sandboxes with the state of each. A service that cannot be asked makes a state UNKNOWN, not an error.

    Args:
        local: True: only those on this machine; False: only those on AWS.
        region: AWS region to ask, instead of the recorded ones.
        timeout: Seconds that asking may take.
    """
    records = [record for record in registry.open_default().all() if _is_wanted(record, local)]
    look = _Look(region=region, deadline=Deadline(timeout))
    look.prepare(records)
    return {"sandboxes": _map_parallel(look.at, records)}


def show_sandbox(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """Show a sandbox and its state.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        timeout: Seconds that asking may take.
    """
    record = require(name, local=local)
    return _Look(region=region, deadline=Deadline(timeout)).closely_at(record)


def remove_sandbox(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """End a sandbox and forget its name. That its MicroVM has ended already is fine.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        timeout: Seconds that this may take.
    """
    known = registry.open_default()
    record = require(name, local=local)
    was_there = False
    deadline = Deadline(timeout)
    control = control_of(record, region=region, deadline=deadline)
    microvm_id = record.microvm_id or _adopt(record, control=control, deadline=deadline)
    if microvm_id is not None:
        was_there = control.microvms.terminate(microvm_id, deadline=deadline)
        if not was_there and record.region not in (None, region or record.region):
            # What another region does not know may well run where it was started.
            raise errors.MicroVMNotFoundError(
                f"region {region} has no MicroVM {microvm_id}; {name} is recorded in {record.region}",
                hint="Leave --region out: a name finds its own region.",
            )
    # Only now: had the call failed, the name would be all that leads to what still runs.
    known.remove(name, expected=record)
    return {"name": name, "microvm_id": microvm_id, "removed": True, "was_there": was_there}


def _adopt(record: Record, *, control: Control, deadline: Deadline) -> str | None:
    """The MicroVM of a launch that was cut off before its id was recorded."""
    from ..sandbox import launch

    return launch.adopt(record, control=control, deadline=deadline)


def require(name: str, *, local: bool | None) -> Record:
    """The record of a name, on the target that the caller limits the search to."""
    record = registry.open_default().require(name)
    if not _is_wanted(record, local):
        here = "this machine" if local else "AWS"
        there = "AWS" if local else "this machine"
        raise errors.SandboxNotFoundError(
            f"no sandbox named {name!r} is recorded on {here}; that one is on {there}",
            hint="A name finds its own target: leave the option out.",
        )
    return record


def _is_wanted(record: Record, local: bool | None) -> bool:
    return local is None or (record.target == settings.TARGET_LOCAL) == local


def control_of(record: Record, *, region: str | None, deadline: Deadline) -> Control:
    """The control plane that knows a record's MicroVM."""
    place = targets.resolve(
        local=record.target == settings.TARGET_LOCAL, region=region or record.region, arn=record.image_arn
    )
    return place.control(deadline=deadline)


class _Look:
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
            return {**_describe(record, state=names.UNKNOWN), "error": error.to_wire()}

    def closely_at(self, record: Record) -> dict[str, object]:
        """What is known of a sandbox."""
        if record.microvm_id is None:
            return _describe(record, state=LAUNCHING)
        control = self._control(record)
        if isinstance(control, errors.VmnestError):
            raise control
        try:
            microvm = control.microvms.get(record.microvm_id, deadline=self._deadline)
        except errors.MicroVMNotFoundError:
            return _describe(record, state=GONE)
        return describe(record, microvm)

    def _control(self, record: Record) -> Control | errors.VmnestError:
        place = (record.target, self._region or record.region or record.image_arn)
        if place not in self._controls:
            try:
                self._controls[place] = control_of(record, region=self._region, deadline=self._deadline)
            except errors.VmnestError as error:
                self._controls[place] = error
        return self._controls[place]


def describe(record: Record, microvm: MicroVM) -> dict[str, object]:
    """A sandbox as ``--json`` and the MCP server show it."""
    seen = {
        "image_arn": microvm.image_arn,
        "image_version": microvm.image_version,
        "endpoint": microvm.endpoint,
        "started_at": _iso(microvm.started_at),
        "state_reason": microvm.state_reason,
        "max_duration_seconds": microvm.max_duration_seconds,
    }
    details = microvm.raw.get(names.LOCAL_DETAILS_MEMBER)
    return {**_describe(record, state=microvm.state), **seen, **({} if details is None else {"local_details": details})}


def _describe(record: Record, *, state: str) -> dict[str, object]:
    from datetime import datetime, timezone

    try:
        made = None if record.created_at is None else _iso(datetime.fromtimestamp(record.created_at, timezone.utc))
    except (OverflowError, ValueError, OSError):
        made = None  # the file says anything
    return {
        "name": record.name,
        "target": record.target,
        "state": state,
        "microvm_id": record.microvm_id,
        "image_arn": record.image_arn,
        "image_version": None,
        "region": record.region,
        "endpoint": record.endpoint,
        "created_at": made,
        "started_at": None,
        "state_reason": None,
        "max_duration_seconds": None,
    }


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _map_parallel(
    function: Callable[[Record], dict[str, object]], records: Sequence[Record]
) -> list[dict[str, object]]:
    """``function`` of each record, in their order; several at a time if there are several."""
    if len(records) < 2:
        return [function(record) for record in records]
    import threading

    results: list[dict[str, object]] = [{} for _ in records]
    failures: list[BaseException] = []
    waiting = list(enumerate(records))  # pop() is atomic: no lock is needed to share it

    def work() -> None:
        while waiting:
            try:
                index, record = waiting.pop()
            except IndexError:
                return
            try:
                results[index] = function(record)
            except BaseException as error:
                failures.append(error)

    # Daemons: at Ctrl+C nobody waits for a service that does not answer.
    count = min(len(records), LARGEST_CROWD)
    crowd = [threading.Thread(target=work, name=f"vmnest-look-{number}", daemon=True) for number in range(count)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    if failures:
        raise failures[0]
    return results
