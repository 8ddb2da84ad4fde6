"""Network connectors: which ones RunMicrovm accepts, and what they allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..wire import names
from . import faults

_MANAGED = "aws-network-connector"
_ACTIVE = "ACTIVE"

StateOf = Callable[[str], "str | None"]


def managed(name: str) -> str:
    """The ARN of a connector that the service owns."""
    return names.managed_connector_arn(region=names.LOCAL_REGION, name=name)


def check_ingress(arns: Sequence[str]) -> tuple[str, ...]:
    """The ingress connectors that hold for these.

    Raises:
        faults.Fault: one is unknown, or they do not go together.
    """
    kinds = [_managed_name(arn) for arn in arns]
    for arn, kind in zip(arns, kinds, strict=True):
        if kind not in names.INGRESS_CONNECTORS:
            raise faults.validation(f"Unrecognized managed network connector ARN: {arn}")
    if names.ALL_INGRESS in kinds and len(kinds) > 1:
        raise faults.validation(
            "ALL_INGRESS cannot be combined with other ingress network connectors; "
            "use HTTP_INGRESS and/or SHELL_INGRESS instead"
        )
    return tuple(arns) or (managed(names.HTTP_INGRESS),)


def check_egress(arns: Sequence[str], *, state_of: StateOf = lambda arn: None) -> tuple[str, ...]:
    """The egress connectors that are answered for these. What a VM here can really reach is in ``localDetails``.

    Args:
        arns: As asked for.
        state_of: The state of one of the account's own connectors, None if it has none of that ARN.

    Raises:
        faults.Fault: there is more than one, or it is unknown, or not ACTIVE.
    """
    if len(arns) > 1:
        raise faults.validation("Only one egress network connector can be provided")
    for arn in arns:
        state = state_of(arn)
        if state == _ACTIVE:
            continue
        if state is not None:
            raise faults.validation(f"Network connector {arn} is not active: its state is {state}")
        if _managed_name(arn) != names.INTERNET_EGRESS:
            raise faults.validation(f"Unrecognized managed network connector ARN: {arn}")
    return tuple(arns) or (managed(names.INTERNET_EGRESS),)


def admits_http(ingress: Sequence[str]) -> bool:
    """Whether requests through the endpoint reach the VM."""
    return any(arn.endswith((f":{names.HTTP_INGRESS}", f":{names.ALL_INGRESS}")) for arn in ingress)


def admits_shell(ingress: Sequence[str]) -> bool:
    """Whether shell tokens can be made."""
    return any(arn.endswith(f":{names.SHELL_INGRESS}") for arn in ingress)


def _managed_name(arn: str) -> str:
    parts = arn.split(":")
    if len(parts) < 7 or parts[0] != "arn" or parts[5] != "network-connector":
        raise faults.validation(f"Malformed network connector ARN: {arn}")
    if parts[6] != _MANAGED:
        raise faults.not_found(f"Network connector not found for: {arn}")
    return parts[-1]
