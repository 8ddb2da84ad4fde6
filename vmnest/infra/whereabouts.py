"""Where a stack was made, and whether we are there. Keys of another account would make a stack look like gone."""

from __future__ import annotations

from dataclasses import replace

from .. import errors
from .account import Account
from .state import Resource, StackState


def check(state: StackState, account: Account) -> None:
    """See that what is recorded is of this region and account.

    Raises:
        errors.InfrastructureError: it is of another one.
    """
    if not state.resources:
        return
    if state.region is not None and state.region != account.region:
        raise errors.InfrastructureError(
            f"the stack {state.label} was made in {state.region}, and {account.region} is asked for",
            hint=f"Use --region {state.region} (or region: in its file), or destroy it there first.",
        )
    others = sorted({owner for owner in map(_owner, state.resources.values()) if owner and owner != account.id})
    if others:
        raise errors.InfrastructureError(
            f"the stack {state.label} was made in account {others[0]}, and these credentials are of {account.id}",
            hint="Use credentials of that account (AWS_PROFILE), or give the stack another name.",
        )


def fill(state: StackState, account: Account) -> StackState:
    """The record with its region, which 0.1.2 did not keep."""
    return replace(state, region=account.region)


def _owner(resource: Resource) -> str | None:
    """The account in the ARN of a resource of ours, if it has one."""
    if not resource.managed:
        return None
    for text in (resource.id, str(resource.attrs.get("arn", ""))):
        parts = text.split(":")
        if parts[0] == "arn" and len(parts) > 5 and parts[4].isdecimal():
            return parts[4]
    return None
