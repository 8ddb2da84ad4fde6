"""Starting a sandbox: what ``create`` and ``run`` have in common."""

from __future__ import annotations

from .. import errors, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sandbox import IdlePolicy, Sandbox

__all__ = ["Demand", "start"]


class Demand:
    """What a new sandbox shall be. What is not given is as by default.

    Attributes:
        image: Image to start from, a name or an ARN.
        image_version: Version of the image; its newest by default.
        role: Role that code in the sandbox gets.
        cpus: CPUs that it needs.
        memory: Memory in MiB that it needs.
        idle: Seconds without a request after which it is suspended; 900 by default.
        suspended_for: Seconds after which it ends when it is suspended; 0 ends it instead; 28,800 by default.
        max_duration: Seconds after which it ends in any case; 28,800 by default.
        auto_resume: Whether a request resumes it when it is suspended.
        run_payload: Text for the image's run hook, up to 4,096 bytes.
        log_group: CloudWatch log group that it writes to.
        ingress: Ingress connectors, names or ARNs; HTTP_INGRESS by default.
        egress: Attach the egress connector that AGENT_SANDBOX_EGRESS_CONNECTOR names, or that infrastructure offers.
        egress_connector: Egress connector to attach, a name or an ARN.
        egress_allow: Hosts that a local sandbox may reach, or ``internet``.
        labels: Labels of your own.
        wait_timeout: Seconds to wait for it.
    """

    __slots__ = (
        *("auto_resume", "cpus", "egress", "egress_allow", "egress_connector", "idle", "image", "image_version"),
        *("ingress", "labels", "log_group", "max_duration", "memory", "role", "run_payload", "suspended_for"),
        "wait_timeout",
    )

    def __init__(
        self,
        *,
        image: str | None = None,
        image_version: str | None = None,
        role: str | None = None,
        cpus: float | None = None,
        memory: int | None = None,
        idle: int | None = None,
        suspended_for: int | None = None,
        max_duration: int | None = None,
        auto_resume: bool = True,
        run_payload: str | None = None,
        log_group: str | None = None,
        ingress: Sequence[str] | None = None,
        egress: bool = False,
        egress_connector: str | None = None,
        egress_allow: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        wait_timeout: float | None = None,
    ) -> None:
        self.image = image
        self.image_version = image_version
        self.role = role
        self.cpus = cpus
        self.memory = memory
        self.idle = idle
        self.suspended_for = suspended_for
        self.max_duration = max_duration
        self.auto_resume = auto_resume
        self.run_payload = run_payload
        self.log_group = log_group
        self.ingress = ingress
        self.egress = egress
        self.egress_connector = egress_connector
        self.egress_allow = egress_allow
        self.labels = labels
        self.wait_timeout = wait_timeout

    def __repr__(self) -> str:
        return f"Demand(image={self.image!r})"  # the payload may be a secret


def start(
    name: str, demand: Demand, *, replace: bool = False, local: bool | None = None, region: str | None = None
) -> Sandbox:
    """Start it and wait until it runs."""
    from ..control.microvms import LONGEST_LIFE_SECONDS
    from ..sandbox import Sandbox

    return Sandbox.create(
        name,
        image_arn=demand.image,
        image_version=demand.image_version,
        execution_role_arn=demand.role,
        cpus=demand.cpus,
        memory=demand.memory,
        idle_policy=_idle_policy(demand),
        maximum_duration=LONGEST_LIFE_SECONDS if demand.max_duration is None else demand.max_duration,
        run_payload=demand.run_payload,
        log_group=demand.log_group,
        ingress_network_connectors=demand.ingress,
        egress_network_connectors=_egress_connectors(demand, local=local),
        egress_allow=demand.egress_allow,
        labels=demand.labels,
        replace=replace,
        wait_timeout=demand.wait_timeout,
        local=local,
        region=region,
    )


def _idle_policy(demand: Demand) -> IdlePolicy:
    from ..sandbox import IdlePolicy

    policy = IdlePolicy(auto_resume_enabled=demand.auto_resume)
    if demand.idle is not None:
        policy = policy._replace(max_idle_duration_seconds=demand.idle)
    if demand.suspended_for is not None:
        policy = policy._replace(suspended_duration_seconds=demand.suspended_for)
    return policy


def _egress_connectors(demand: Demand, *, local: bool | None) -> list[str] | None:
    """The connector that is named, else the configured or offered one if that is asked for, else the image's own."""
    connector = demand.egress_connector
    if connector is None and demand.egress:
        from ..sandbox import wiring

        connector = wiring.egress_connector(local=local, environ=settings.environment())
        if connector is None:
            raise errors.UsageError(
                "no egress connector is configured",
                hint="Set AGENT_SANDBOX_EGRESS_CONNECTOR to its ARN, name it with --egress-connector, or make one: "
                "network.egress in sandbox.yaml, and vmnest infra up. Local sandboxes have --egress-allow.",
            )
    return None if connector is None else [connector]
