"""A name for a MicroVM that has none here."""

from __future__ import annotations

from .. import errors, registry, settings
from .. import target as targets
from ..deadline import Deadline
from . import views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..control.microvms import MicroVM

__all__ = ["adopt_sandbox"]

ASK_SECONDS = 30.0


def adopt_sandbox(
    *,
    microvm_id: str,
    name: str,
    labels: Mapping[str, str] | None = None,
    agent_port: int | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Record a MicroVM that has no name here, so that it can be used and ended by one. This wakes nothing.

    Args:
        microvm_id: The MicroVM, which has not ended.
        name: The name that it gets.
        labels: Labels for it.
        agent_port: The agent's port, by default what AGENT_SANDBOX_AGENT_PORT says, else 8080.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else where the id is
            known: this machine, if its local cloud knows it, or AWS.
        region: AWS region.
        timeout: Seconds that this may take.

    Raises:
        errors.NameInUseError: the name stands for another one, or the MicroVM has a name already.
        errors.MicroVMNotFoundError: there is no such MicroVM.
        errors.MicroVMEndedError: it has ended.
    """
    registry.check_name(name)
    if not microvm_id or (name.startswith(registry.ID_PREFIX) and not microvm_id.startswith(registry.ID_PREFIX)):
        raise errors.UsageError(f"no id of a MicroVM: {microvm_id!r}", hint="The id comes first, then the name.")
    environ = settings.environment()
    port = settings.number("agent_port", flag=agent_port, environ=environ)
    known = registry.open_default(environ)
    present = known.get(name)
    if present is None or present.microvm_id != microvm_id:
        known.check_free(name)
    deadline = Deadline(timeout)
    place = targets.resolve_for(microvm_id, local=local, region=region, environ=environ)
    try:
        microvm = place.control(deadline=deadline, start=False).microvms.get(microvm_id, deadline=deadline)
    except errors.MicroVMNotFoundError as error:
        raise targets.unknown_microvm(microvm_id, place) from error
    if microvm.ended:
        reason = f" ({microvm.state_reason})" if microvm.state_reason else ""
        raise errors.MicroVMEndedError(f"MicroVM {microvm_id} has ended: {microvm.state}{reason}")
    if present is None or present.microvm_id != microvm_id:
        present = _record(name, microvm, place=place).replace(labels=dict(labels or {}), agent_port=port)
        known.put(present, is_sole=True)
    return views.describe(present, microvm)


def _record(name: str, microvm: MicroVM, *, place: targets.Target) -> registry.Record:
    policy = microvm.idle_policy
    return registry.Record(
        name,
        microvm_id=microvm.microvm_id,
        endpoint=microvm.endpoint,
        image_arn=microvm.image_arn,
        region=place.region,
        target=place.kind,
        created_at=microvm.started_at.timestamp(),
        # What was started without a policy may stay suspended at a request: then we look before we send one.
        auto_resume=None if policy is not None and policy.auto_resume_enabled else False,
        max_duration=microvm.max_duration_seconds,
        idle_policy=None if policy is None else policy._asdict(),
    )
