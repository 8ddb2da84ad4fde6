"""Starting a sandbox: what ``create`` and ``run`` have in common."""

from __future__ import annotations

from .. import errors, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sandbox import IdlePolicy, Sandbox

__all__ = ["start"]


def start(
    *,
    name: str,
    image: str | None,
    image_version: str | None,
    role: str | None,
    cpus: float | None,
    memory: int | None,
    idle: int | None,
    suspended_for: int | None,
    max_duration: int | None,
    auto_resume: bool,
    run_payload: str | None,
    log_group: str | None,
    ingress: Sequence[str] | None,
    egress: bool,
    egress_connector: str | None,
    labels: Mapping[str, str] | None,
    replace: bool,
    wait_timeout: float | None,
    local: bool | None,
    region: str | None,
) -> Sandbox:
    """Start it and wait until it runs; the arguments are those of ``create_sandbox``."""
    from ..control.microvms import LONGEST_LIFE_SECONDS
    from ..sandbox import Sandbox

    return Sandbox.create(
        name,
        image_arn=image,
        image_version=image_version,
        execution_role_arn=role,
        cpus=cpus,
        memory=memory,
        idle_policy=_idle_policy(idle=idle, suspended_for=suspended_for, auto_resume=auto_resume),
        maximum_duration=LONGEST_LIFE_SECONDS if max_duration is None else max_duration,
        run_payload=run_payload,
        log_group=log_group,
        ingress_network_connectors=ingress,
        egress_network_connectors=_egress_connectors(egress=egress, connector=egress_connector),
        labels=labels,
        replace=replace,
        wait_timeout=wait_timeout,
        local=local,
        region=region,
    )


def _idle_policy(*, idle: int | None, suspended_for: int | None, auto_resume: bool) -> IdlePolicy:
    """What is not given is as by default."""
    from ..sandbox import IdlePolicy

    policy = IdlePolicy(auto_resume_enabled=auto_resume)
    if idle is not None:
        policy = policy._replace(max_idle_duration_seconds=idle)
    if suspended_for is not None:
        policy = policy._replace(suspended_duration_seconds=suspended_for)
    return policy


def _egress_connectors(*, egress: bool, connector: str | None) -> list[str] | None:
    """The connector that is named, else the configured one if that is asked for, else the image's own egress."""
    if connector is None and egress:
        connector = settings.text("egress_connector")
        if connector is None:
            raise errors.UsageError(
                "no egress connector is configured",
                hint="Set AGENT_SANDBOX_EGRESS_CONNECTOR to its ARN, or name it with --egress-connector.",
            )
    return None if connector is None else [connector]
