"""Ending sandboxes and forgetting their names."""

from __future__ import annotations

from .. import errors, registry
from ..deadline import Deadline
from ..wire import names as wire_names
from . import crowd, sandboxes, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..control import Control
    from ..registry import Record

__all__ = ["END_SECONDS", "end", "recorded_names", "remove_sandbox", "remove_sandboxes"]

END_SECONDS = 30.0
_OUT_OF_REACH = (errors.CredentialsError, errors.AccessDeniedError, errors.SignatureRefusedError, errors.TransportError)
_LATER = (
    f"A MicroVM ends by itself after {wire_names.LONGEST_LIFE_SECONDS // 3600} hours at most; from then on "
    "vmnest prune forgets its name also if AWS cannot be asked."
)


def remove_sandbox(
    *,
    name: str,
    force: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = END_SECONDS,
) -> dict[str, object]:
    """End a sandbox and forget its name. That its MicroVM has ended already is fine.

    Args:
        name: The sandbox.
        force: That no such name is recorded is fine, too.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        timeout: Seconds that this may take.
    """
    controls = views.Controls(region=region, deadline=Deadline(timeout))
    return _remove(name, force=force, local=local, region=region, controls=controls, timeout=timeout)


def remove_sandboxes(
    *,
    names: Sequence[str] = (),
    everything: bool = False,
    force: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = END_SECONDS,
) -> dict[str, object]:
    """End sandboxes and forget their names, several at a time. What fails for one keeps none of the others.

    Args:
        names: The sandboxes.
        everything: All that are recorded, instead.
        force: That a name is not recorded is fine, too.
        local: True: only look for them on this machine; False: only on AWS.
        region: AWS region to ask, instead of the recorded ones; with ``everything``, only those in it.
        timeout: Seconds that each may take.

    Raises:
        errors.VmnestError: the first failure, when all were tried. Of its details ``report`` tells what became of
            each, and ``removed`` for which it went well.
    """
    known = {record.name: record for record in registry.open_default().all()}
    names = recorded_names(local=local, region=region) if everything else list(dict.fromkeys(names))
    controls = views.Controls(region=region, deadline=Deadline(timeout))
    force = force or everything  # nobody asked for one that somebody else removes meanwhile
    for name in names:
        if name in known:
            controls.try_reach(known[name])

    def remove(name: str) -> dict[str, object] | errors.VmnestError:
        try:
            return _remove(name, force=force, local=local, region=region, controls=controls, timeout=timeout)
        except errors.VmnestError as error:
            return error

    outcomes = crowd.map_parallel(remove, names)
    removed = [each for each in outcomes if isinstance(each, dict)]
    failures = [each for each in outcomes if isinstance(each, errors.VmnestError)]
    if failures:
        _advise_now(names, outcomes)
        report = [
            each if isinstance(each, dict) else _failed(name, known.get(name), each)
            for name, each in zip(names, outcomes, strict=True)
        ]
        failures[0].details.update(removed=[each["name"] for each in removed], report=report)
        raise failures[0]
    return {"removed": removed}


def _advise_now(names: Sequence[str], outcomes: Sequence[object]) -> None:
    """Have errors tell of the names that are left, not of those that were just removed."""
    known = registry.open_default()
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, errors.SandboxNotFoundError) and known.get(name) is None:
            outcome.hint = known.advise(name)


def recorded_names(
    *, labels: Mapping[str, str] | None = None, local: bool | None = None, region: str | None = None
) -> list[str]:
    """The names of all sandboxes that are recorded. Asks nobody.

    Args:
        labels: Only those that have all of these labels.
        local: True: only those on this machine; False: only those on AWS.
        region: Only those in this AWS region.
    """
    wanted = (labels or {}).items()
    recorded = registry.open_default().all()
    return [each.name for each in recorded if each.is_within(local, region) and wanted <= each.labels.items()]


def _failed(name: str, record: Record | None, error: errors.VmnestError) -> dict[str, object]:
    microvm_id = None if record is None else record.microvm_id
    return {"name": name, "microvm_id": microvm_id, "removed": False, "error": error.to_wire()}


def _remove(
    name: str, *, force: bool, local: bool | None, region: str | None, controls: views.Controls, timeout: float
) -> dict[str, object]:
    try:
        record = sandboxes.require(name, local=local)
    except errors.SandboxNotFoundError:
        # One on the other target is no missing one: whoever forces it is to hear that it lives.
        if force and registry.open_default().get(name) is None:
            return {"name": name, "microvm_id": None, "removed": False, "was_there": False}
        raise
    try:
        return end(record, control=controls.reach(record), region=region, deadline=Deadline(timeout))
    except _OUT_OF_REACH as error:
        # Records of one place may share the error.
        if not record.is_local and record.created_at is not None and _LATER not in (error.hint or ""):
            error.add_hint(_LATER)
        raise


def end(record: Record, *, control: Control, region: str | None, deadline: Deadline) -> dict[str, object]:
    """End the MicroVM of a record, which may have ended already, and forget its name.

    Args:
        record: The record.
        control: The control plane of its place.
        region: The AWS region that was asked for, instead of the recorded one.
        deadline: When to give up.
    """
    known = registry.open_default()
    was_there = False
    microvm_id = record.microvm_id or _adopt(record, control=control, deadline=deadline)
    if microvm_id is not None:
        ended = _terminate(microvm_id, control=control, deadline=deadline)
        was_there = ended is True
        if ended is None and record.region not in (None, region or record.region):
            # What another region does not know may well run where it was started.
            raise errors.MicroVMNotFoundError(
                f"region {region} has no MicroVM {microvm_id}; {record.name} is recorded in {record.region}",
                hint="Leave --region out: a name finds its own region.",
            )
    suspects = [] if microvm_id or record.launch else _find_suspects(record, control=control, known=known)
    # Only now: had the call failed, the name would be all that leads to what still runs.
    _forget(record, known=known)
    return {
        "name": record.name,
        "microvm_id": microvm_id,
        "removed": True,
        "was_there": was_there,
        **({"may_still_run": suspects} if suspects else {}),
    }


def _terminate(microvm_id: str, *, control: Control, deadline: Deadline) -> bool | None:
    """End a MicroVM. False if it has ended before, None if the service does not know it."""
    try:
        # The service takes the end of what has ended long ago for one more, and does not tell the difference.
        if control.microvms.get(microvm_id, deadline=deadline).state == wire_names.TERMINATED:
            return False
    except errors.MicroVMNotFoundError:
        return None
    except errors.ServiceError:
        pass  # who may not look may well end it
    return control.microvms.terminate(microvm_id, deadline=deadline) or None


def _forget(record: Record, *, known: registry.Registry) -> None:
    if known.get(record.name) is None:
        return  # who has no name needs no file that can be written
    try:
        known.remove(record.name, expected=record)
    except errors.StateFileError as error:
        raise errors.StateFileError(f"it has ended, but keeps its name: {error.message}", hint=error.hint) from error


def _adopt(record: Record, *, control: Control, deadline: Deadline) -> str | None:
    """The MicroVM of a launch that was cut off before its id was recorded."""
    from ..sandbox import launch

    return launch.adopt(record, control=control, deadline=deadline)


def _find_suspects(record: Record, *, control: Control, known: registry.Registry) -> list[str]:
    """The MicroVMs that a launch which was cut off, and whose parameters nobody kept, may have left."""
    from ..sandbox import launch

    return launch.find_suspects(record, control=control, registry=known)
