"""Starting a MicroVM so that nothing is lost: neither the VM when we die, nor the name when it fails.

Order: the record, with the run's client token and parameters, is written first; then RunMicrovm; then the record is
completed. Whoever finds a record without a MicroVM repeats the very same run: the token makes the service answer with
the MicroVM of then, and it can be ended. On a failure that we live to see we do so ourselves.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from .. import errors
from ..control.microvms import LONGEST_LIFE_SECONDS, IdlePolicy, MicroVM, RunSpec
from ..deadline import Deadline
from ..registry import Record, Registry
from . import wishes

if TYPE_CHECKING:
    from ..control import Control
    from ..target import Target
    from .wishes import Wish

__all__ = [
    "BASE_MEMORY_MIB",
    "adopt",
    "complete",
    "completed",
    "discard",
    "end",
    "find_suspects",
    "plan",
    "start",
    "tell_what_is_left",
]

CLEANUP_SECONDS = 30.0
LAUNCH_MARGIN_SECONDS = 180.0  # between a record and the start of its MicroVM; clocks differ, too
BASE_MEMORY_MIB = 2048  # of an image version that does not say
MEMORY_MIB_PER_PEAK_CPU = 512  # the service's sizes: at its peak a MicroVM has one CPU for each 512 MiB of its baseline

_logger = logging.getLogger(__name__)


def plan(wish: Wish, *, place: Target, control: Control, deadline: Deadline) -> tuple[Record, RunSpec]:
    """The record to write and the run to make, for a wish that was checked. Names are resolved; nothing is started.

    Raises:
        errors.UsageError: a connector, a host or a size that cannot be had.
        errors.ImageNotFoundError: no such image.
    """
    wish = wishes.with_egress(wish, is_local=place.is_local)
    ingress, egress = wishes.connector_arns(wish, region=place.region)
    image_arn = control.images.resolve(wish.image, deadline=deadline)
    if not place.is_local:
        _check_image_size(wish, image_arn, control=control, deadline=deadline)
    policy = wish.idle_policy or IdlePolicy()
    spec = RunSpec(
        image_arn=image_arn,
        client_token=os.urandom(16).hex(),
        image_version=wish.image_version,
        execution_role_arn=wish.execution_role_arn,
        idle_policy=policy,
        maximum_duration_seconds=wish.maximum_duration_seconds,
        ingress_connectors=ingress,
        egress_connectors=egress,
        run_payload=wish.run_payload,
        log_group=wish.log_group,
        local_options=_local_options(wish) if place.is_local else None,
    )
    record = Record(
        wish.name,
        image_arn=image_arn,
        region=place.region,
        target=place.kind,
        client_token=spec.client_token,
        created_at=time.time(),
        auto_resume=None if policy.auto_resume_enabled else False,
        agent_port=wish.agent_port,
        log_group=wish.log_group,
        labels=wish.labels,
        sources=wish.sources,
        launch=_to_file(spec),
        max_duration=wish.maximum_duration_seconds,
        idle_policy=policy._asdict(),
    )
    return record, spec


def start(
    record: Record,
    spec: RunSpec,
    *,
    control: Control,
    registry: Registry,
    deadline: Deadline,
    instead_of: Record | None = None,
) -> Record:
    """Record, run, and complete the record, which is returned. If it fails, no MicroVM and no record is left.

    Args:
        record, spec: What ``plan`` made.
        control, registry: Where to run and to record.
        deadline: When to stop waiting for the service.
        instead_of: The record whose place it takes; its MicroVM has been ended.

    Raises:
        errors.NameInUseError: the name stands for another sandbox; nothing was started.
    """
    registry.put(record, expected=instead_of)
    started = record
    try:
        microvm = control.microvms.run(spec, deadline=deadline)
        started = record.replace(**completed(microvm))
        return _completed(record, microvm, registry=registry, if_taken=errors.NameInUseError)
    except BaseException as error:
        if started is record and _was_refused(error):
            _forget(record, because=error, registry=registry)
        else:
            discard(started, because=error, control=control, registry=registry, spec=spec)
        raise


def _completed(
    record: Record,
    microvm: MicroVM,
    *,
    registry: Registry,
    if_taken: type[errors.VmnestError] = errors.SandboxNotFoundError,
) -> Record:
    try:
        return registry.update(record.name, expected=record, **completed(microvm))
    except errors.SandboxNotFoundError as error:
        is_taken = registry.get(record.name) is not None
        what = "given to another sandbox" if is_taken else "removed"
        raise (if_taken if is_taken else errors.SandboxNotFoundError)(
            f"the name {record.name} was {what} while its MicroVM was started",
            hint="Somebody else works with the same names: see vmnest ls.",
        ) from error


def completed(microvm: MicroVM) -> dict[str, object]:
    """What a record gains once its MicroVM is known."""
    return {
        "microvm_id": microvm.microvm_id,
        "endpoint": microvm.endpoint,
        "image_arn": microvm.image_arn,
        "launch": None,
    }


def discard(
    record: Record, *, because: BaseException, control: Control, registry: Registry, spec: RunSpec | None = None
) -> None:
    """End what a failed launch may have started, and forget its record.

    Meant for the way out of the error ``because``, which a failure in here must not hide: it is told with that error,
    or logged if that is none of ours. The record then stays, and ``vmnest rm`` can try again.
    """
    try:
        deadline = Deadline(CLEANUP_SECONDS)
        microvm_id = record.microvm_id or _find(spec or _from_file(record), control=control, deadline=deadline)
        if microvm_id is not None:
            control.microvms.terminate(microvm_id, deadline=deadline)
            if isinstance(because, errors.VmnestError) and not isinstance(because, errors.MicroVMEndedError):
                because.add_hint(f"MicroVM {microvm_id} was ended.")
    except errors.VmnestError as error:
        tell_what_is_left(error, because=because, name=record.name)
    else:
        _forget(record, because=because, registry=registry)


def _forget(record: Record, *, because: BaseException, registry: Registry) -> None:
    try:
        current = registry.get(record.name)
        if current is not None and current.client_token == record.client_token:
            registry.remove(record.name, expected=current)
    except errors.StateFileError as error:
        left = f"Its name is still recorded, without a MicroVM that runs ({error}); forget it with"
        _tell(f"{left}: {_remove(record.name)}", because=because, name=record.name)


def tell_what_is_left(failure: errors.VmnestError, *, because: BaseException, name: str) -> None:
    """Say with the error ``because``, on whose way out the end of a sandbox failed, that it may still run."""
    left = f"What was started may still run ({failure}); end it with"
    _tell(f"{left}: {_remove(name)}", because=because, name=name)


def _tell(left: str, *, because: BaseException, name: str) -> None:
    if isinstance(because, errors.VmnestError):
        because.add_hint(left)
        because.details["left_behind"] = name
    else:
        _logger.warning("%s", left)


def end(record: Record, *, control: Control, deadline: Deadline) -> str | None:
    """End the MicroVM of a record, by its id alone; it may be gone already. Returns the id, None if there was none."""
    microvm_id = record.microvm_id or adopt(record, control=control, deadline=deadline)
    if microvm_id is not None:
        control.microvms.terminate(microvm_id, deadline=deadline)
    return microvm_id


def adopt(record: Record, *, control: Control, deadline: Deadline) -> str | None:
    """The MicroVM of a launch whose client died before it could record it; None if there can be none.

    Meant for its end; for its use there is ``complete``.
    """
    return _find(_from_file(record), control=control, deadline=deadline)


def complete(record: Record, *, control: Control, registry: Registry, deadline: Deadline) -> Record:
    """The record of a launch that was cut off, with its MicroVM: that of then, or a new one if it never came to be.

    Raises:
        errors.MicroVMNotFoundError: the launch cannot be repeated.
        errors.SandboxNotFoundError: the name was removed or stands for another sandbox by now.
    """
    present = registry.get(record.name)
    if present is not None and present.microvm_id is not None and present.is_same_launch(record):
        return present  # its launch was not cut off, only slower than we are
    spec = _from_file(record)
    if spec is None:
        raise _not_repeatable(record, suspects=find_suspects(record, control=control, registry=registry))
    try:
        microvm = control.microvms.run(spec, deadline=deadline)
    except errors.VmnestError as error:
        error.add_hint(
            f"The launch of {record.name} was cut off and had to be repeated; or drop it: {_remove(record.name)}"
        )
        raise
    try:
        return _completed(record, microvm, registry=registry)
    except errors.SandboxNotFoundError:
        # Whoever took the record away meant the MicroVM, too, and may have done so before it was there.
        control.microvms.terminate(microvm.microvm_id, deadline=deadline)
        raise


def find_suspects(record: Record, *, control: Control, registry: Registry) -> list[str]:
    """The MicroVMs one of which may be that of a launch that was cut off and cannot be repeated.

    Of its image, started when it was, alive, and of no other record. Only a person can tell whose they are.
    """
    if _has_outlived_any_microvm(record):
        return []
    begin = (record.created_at or 0) - LAUNCH_MARGIN_SECONDS
    end = begin + 2 * LAUNCH_MARGIN_SECONDS
    known = {other.microvm_id for other in registry.all()}
    listed = control.microvms.list(image_arn=record.image_arn, deadline=Deadline(CLEANUP_SECONDS))
    return [
        microvm.microvm_id
        for microvm in listed
        if not microvm.ended and microvm.microvm_id not in known and begin <= microvm.started_at.timestamp() <= end
    ]


def _not_repeatable(record: Record, *, suspects: list[str]) -> errors.MicroVMNotFoundError:
    reason = "it is too long ago to be repeated" if record.launch else "it cannot be repeated, its payload is not kept"
    maybe = f" It may be {' or '.join(suspects)}." if suspects else ""
    return errors.MicroVMNotFoundError(
        f"the launch of sandbox {record.name} was cut off: its MicroVM is not known, and {reason}",
        hint=f"Forget the name: {_remove(record.name)}. What was started ends at its maximum duration.{maybe}",
        details={"microvm_ids": suspects},
    )


def _remove(name: str) -> str:
    return f"vmnest rm {name}"


def _find(spec: RunSpec | None, *, control: Control, deadline: Deadline) -> str | None:
    """Repeat the run: with the same token it is the same MicroVM, if there ever was one."""
    if spec is None:
        return None
    try:
        return control.microvms.run(spec, deadline=deadline).microvm_id
    except errors.VmnestError as error:
        if _says_there_is_none(error):
            return None
        raise


def _says_there_is_none(error: errors.VmnestError) -> bool:
    """Whether the answer to a repeated run shows that the first one started nothing.

    The service's own refusal does. Unlike the first run, this one need not have been sent, allowed or admitted to say
    so; and what answers without the service's name for the error may be something before it, which knows nothing.
    """
    if isinstance(error, (errors.AccessDeniedError, errors.SignatureRefusedError)):
        return False
    if isinstance(error, errors.ConflictError):
        return False  # the token is known, and it is its request that does not fit, or is not done yet
    return "error_type" in error.details and _was_refused(error) and not error.retryable


def _was_refused(error: BaseException) -> bool:
    """Whether the service surely started nothing, in this attempt and those before it."""
    if isinstance(error, errors.VmnestError) and error.details.get("outcome") == "unknown":
        return False
    if isinstance(error, errors.TransportError):
        return not error.sent
    if isinstance(error, errors.ServiceError):
        return 300 <= error.status < 500 or isinstance(error, errors.CapacityError)
    return isinstance(error, (errors.NotFoundError, errors.UsageError, errors.CredentialsError))


def _to_file(spec: RunSpec) -> dict[str, object] | None:
    """The run's parameters for the record. One with a payload cannot be repeated later: payloads are secrets."""
    if spec.run_payload is not None:
        return None
    return {**spec._asdict(), "idle_policy": spec.idle_policy and spec.idle_policy._asdict()}


def _from_file(record: Record) -> RunSpec | None:
    """The run of a record that has no MicroVM; None if it cannot be repeated, or has outlived any MicroVM."""
    if not record.launch or _has_outlived_any_microvm(record):
        return None
    members: dict[str, Any] = dict(record.launch)
    policy = members.pop("idle_policy", None)
    try:
        for name in ("ingress_connectors", "egress_connectors"):
            members[name] = tuple(members[name])
        return RunSpec(**members, idle_policy=IdlePolicy(**policy) if policy else None)
    except (KeyError, TypeError) as error:
        raise errors.StateFileError(f"the record of {record.name} has a launch that cannot be understood") from error


def _has_outlived_any_microvm(record: Record) -> bool:
    return time.time() - (record.created_at or 0) > LONGEST_LIFE_SECONDS


# -- sizes -------------------------------------------------------------------------------------------------------------


def _check_image_size(wish: Wish, image_arn: str, *, control: Control, deadline: Deadline) -> None:
    """On AWS the size belongs to the image: refuse what it cannot give."""
    if wish.cpus is None and wish.memory_mib is None:
        return
    version = wish.image_version or control.images.get(image_arn, deadline=deadline).latest_active_version
    if version is None:
        return  # it cannot run: the service says so better
    baseline = control.images.version(image_arn, version, deadline=deadline).memory_mib or BASE_MEMORY_MIB
    peak = baseline / MEMORY_MIB_PER_PEAK_CPU
    wanted = []
    if (wish.memory_mib or 0) > baseline:
        wanted.append(f"memory {wish.memory_mib} MiB (it has {baseline})")
    if (wish.cpus or 0) > peak:
        wanted.append(f"cpus {wish.cpus:g} (it has {peak:g} at its peak)")
    if wanted:
        raise errors.UsageError(
            f"version {version} of the image {image_arn} cannot give {' and '.join(wanted)}",
            hint="Sizes belong to the image: start from one that was built with a larger memory.",
        )


def _local_options(wish: Wish) -> dict[str, object] | None:
    options = {"cpus": wish.cpus, "memory": wish.memory_mib, "egress_allow": list(wish.egress_allow) or None}
    return {name: value for name, value in options.items() if value is not None} or None
