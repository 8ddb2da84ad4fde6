"""What a caller of ``Sandbox.create`` asks for, and what of it cannot be had: found before anything is recorded.

The service checks all of this too, but later, one call at a time, and in its own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import errors, settings
from ..control.microvms import LONGEST_LIFE_SECONDS, IdlePolicy
from ..wire import names

if TYPE_CHECKING:
    from ..target import Target

__all__ = ["Wish", "check", "check_port", "connector_arns", "with_egress"]

TOO_MANY_CPUS = 1024
NO_SOURCES: Mapping[str, str] = {}


class Wish(NamedTuple):
    """What is asked for, with the target's defaults filled in. The payload may be a secret: nothing shows it."""

    name: str
    image: str
    image_version: str | None
    execution_role_arn: str | None
    idle_policy: IdlePolicy | None
    maximum_duration_seconds: int
    ingress: Sequence[str]
    egress: Sequence[str]
    run_payload: str | None
    cpus: float | None
    memory_mib: int | None
    agent_port: int
    labels: Mapping[str, str]
    log_group: str | None = None
    egress_allow: Sequence[str] = ()
    sources: Mapping[str, str] = NO_SOURCES  # what infrastructure offered, see ``wiring``

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self._asdict().items() if name != "run_payload")
        return f"Wish({', '.join(shown)})"


def check(wish: Wish, *, place: Target) -> None:
    """Refuse what cannot be meant, also what Python would let through and take apart by its letters.

    Raises:
        errors.UsageError: with the member that is wrong.
    """
    check_port(wish.agent_port, environ=place.environ)
    for name in ("image_version", "execution_role_arn", "log_group"):
        value = getattr(wish, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise errors.UsageError(f"{name} must be a text that is not empty: {value!r}")
    _check_times(wish)
    _check_payload(wish.run_payload)
    _check_labels(wish.labels)
    _check_sizes(wish)


def with_egress(wish: Wish, *, is_local: bool) -> Wish:
    """The wish in the words of its target for what a sandbox may reach: a list here, a connector on AWS.

    Raises:
        errors.UsageError: what is allowed makes no sense, or cannot be had on AWS.
    """
    if not wish.egress_allow and not (is_local and wish.egress):
        return wish
    from ..wire import egress

    if isinstance(wish.egress_allow, (str, bytes)):
        raise errors.UsageError(f"egress_allow must be a list of hosts: {wish.egress_allow!r}")
    allowed = egress.parse(wish.egress_allow).texts
    if is_local:
        is_open = any(isinstance(each, str) and _is_internet(each) for each in wish.egress)
        return wish._replace(egress_allow=egress.parse([*allowed, *([egress.INTERNET] if is_open else [])]).texts)
    if allowed != (egress.INTERNET,):
        raise errors.UsageError(
            f"on AWS a sandbox cannot be held to {' and '.join(text for text in allowed if text != egress.INTERNET)}",
            hint=f"There is {egress.INTERNET}, and what a connector to a VPC of yours lets out (--egress-connector, "
            "egress_network_connectors). Single hosts can be allowed to local sandboxes.",
        )
    if wish.egress and not all(_is_internet(each) for each in wish.egress):
        raise errors.UsageError(
            f"{egress.INTERNET} is allowed, and another egress connector is given",
            hint="A connector to a VPC takes the place of the one to the internet: leave one of them out.",
        )
    return wish._replace(egress=wish.egress or (names.INTERNET_EGRESS,), egress_allow=())


def _is_internet(connector: str) -> bool:
    return connector.rpartition(":")[2] == names.INTERNET_EGRESS


def connector_arns(wish: Wish, *, region: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ARNs of the wish's ingress and egress connectors; the service's own may be given by their names.

    Raises:
        errors.UsageError: no such connector, or none through which the agent can be reached.
    """
    ingress = _to_arns(wish.ingress, known=names.INGRESS_CONNECTORS, parameter="ingress", region=region)
    egress = _to_arns(wish.egress, known=names.EGRESS_CONNECTORS, parameter="egress", region=region)
    if ingress and not any(_may_admit_http(arn) for arn in ingress):
        raise errors.UsageError(
            f"through {' and '.join(map(str, wish.ingress))} alone the agent in the sandbox could not be reached",
            hint=f"Add {names.HTTP_INGRESS}, or leave the ingress connectors out: that is the default.",
        )
    if len(egress) > 1:
        raise errors.UsageError(
            f"a sandbox has one egress connector, and {len(egress)} are given",
            hint="A connector to a VPC takes the place of the one to the internet.",
        )
    return ingress, egress


def check_port(port: int, *, environ: Mapping[str, str]) -> int:
    """The agent's port, or UsageError if it can be none: no token may ever open the port of the lifecycle hooks."""
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise errors.UsageError(f"the agent's port must be 1 to 65535: {port!r}")
    if port == settings.number("hook_port", environ=environ):
        raise errors.UsageError(
            f"port {port} is that of the lifecycle hooks, which nobody but the platform may reach",
            hint="AGENT_SANDBOX_AGENT_PORT and AGENT_SANDBOX_HOOK_PORT must be different ports.",
        )
    return port


def _to_arns(given: Sequence[str], *, known: Sequence[str], parameter: str, region: str) -> tuple[str, ...]:
    if isinstance(given, (str, bytes)) or not all(isinstance(each, str) for each in given):
        raise errors.UsageError(f"{parameter}_network_connectors must be a list of names or ARNs: {given!r}")
    arns = []
    for each in given:
        if each not in known and not each.startswith("arn:"):
            raise errors.UsageError(
                f"no {parameter} connector: {each!r}",
                hint=f"By name there are {', '.join(known)}; others by their ARN.",
            )
        arns.append(names.managed_connector_arn(region=region, name=each) if each in known else each)
    return tuple(arns)


def _may_admit_http(arn: str) -> bool:
    """Only of the service's own connectors we know that they do not."""
    return arn.rpartition(":")[2] not in names.CONNECTORS_WITHOUT_HTTP


def _check_times(wish: Wish) -> None:
    _check_seconds(wish.maximum_duration_seconds, name="maximum_duration", least=1)
    policy = wish.idle_policy
    if policy is None:
        return
    if not isinstance(policy, IdlePolicy):
        raise errors.UsageError(f"idle_policy must be an IdlePolicy: {policy!r}")
    _check_seconds(
        policy.max_idle_duration_seconds, name="max_idle_duration_seconds", least=names.SHORTEST_IDLE_SECONDS
    )
    _check_seconds(policy.suspended_duration_seconds, name="suspended_duration_seconds", least=0)
    if not isinstance(policy.auto_resume_enabled, bool):
        raise errors.UsageError(f"auto_resume_enabled must be True or False: {policy.auto_resume_enabled!r}")


def _check_seconds(value: object, *, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LONGEST_LIFE_SECONDS:
        raise errors.UsageError(
            f"{name} must be a whole number of seconds, {least} to {LONGEST_LIFE_SECONDS}: {value!r}"
        )


def _check_payload(payload: object) -> None:
    # Its content is nobody's business: not even an error quotes it.
    if payload is None:
        return
    if not isinstance(payload, str):
        raise errors.UsageError(f"run_payload must be a text, and is of type {type(payload).__name__}")
    try:
        size = len(payload.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise errors.UsageError(f"run_payload has no UTF-8: {error.reason} at {error.start}") from None
    if size > names.LONGEST_PAYLOAD_BYTES:
        raise errors.UsageError(
            f"run_payload has {size} bytes as UTF-8; at most {names.LONGEST_PAYLOAD_BYTES} can be passed",
            hint="Pass a reference to what is larger, or write it as a file once the sandbox runs.",
        )


def _check_labels(labels: object) -> None:
    if not isinstance(labels, Mapping):
        raise errors.UsageError(f"labels must map names to texts: {labels!r}")
    for name, value in labels.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise errors.UsageError(f"labels are texts with names that are texts: {name!r}={value!r}")


def _check_sizes(wish: Wish) -> None:
    cpus, memory = wish.cpus, wish.memory_mib
    if cpus is not None and (
        isinstance(cpus, bool) or not isinstance(cpus, (int, float)) or not 0 < cpus < TOO_MANY_CPUS
    ):
        raise errors.UsageError(f"cpus must be a number above 0 and below {TOO_MANY_CPUS}: {cpus!r}")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 1):
        raise errors.UsageError(f"memory must be a whole number of MiB above 0: {memory!r}")
