"""The security group of a connector: nothing in, everything out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ... import errors
from .. import naming, ownership
from ..account import Account, SecurityGroup
from ..facts import Inputs
from ..state import Resource
from ..steps import CREATE, NOTHING, REUSE, UPDATE, Change, Step
from ..work import Work

DESCRIPTION = "Egress of MicroVMs (vmnest)"
_KEY = "network.egress.security_group_id"
_NAME = "name"
_VPC = "vpc_id"


def id_of(inputs: Inputs) -> str | None:
    """The group's id; None if it is not made yet."""
    return None if inputs.facts.group is None else inputs.facts.group.id


def plan(inputs: Inputs) -> Step:
    """What is to happen to the group."""
    egress, found, network = inputs.stack.egress, inputs.facts.group, inputs.facts.network
    assert egress is not None
    assert network is not None
    if egress.security_group_id:
        if found is None:
            raise errors.InfrastructureError(
                f"{_KEY} names a security group that does not exist: {egress.security_group_id}",
                hint=f"Correct {_KEY}, or leave it empty to make one.",
            )
        _check_vpc(found, vpc_id=network.vpc_id)
        return Step(naming.GROUP, naming.GROUP_KIND, REUSE, found.id, f"{_KEY} names it")
    if found is None:
        return Step(naming.GROUP, naming.GROUP_KIND, CREATE, None, f"there is none of that name in {network.vpc_id}")
    check_owner(found, inputs=inputs)
    missing = ownership.missing_tags(found.tags, stack=inputs.stack)
    if missing:
        changes = tuple(Change(f"tag {key}", found.tags.get(key), value) for key, value in missing.items())
        return Step(naming.GROUP, naming.GROUP_KIND, UPDATE, found.id, "has not all tags", changes)
    return Step(naming.GROUP, naming.GROUP_KIND, NOTHING, found.id, "is as it should be")


def check_owner(found: SecurityGroup, *, inputs: Inputs) -> None:
    """Raise InfrastructureError if the group of the wanted name is not ours."""
    recorded = inputs.recorded(naming.GROUP, found.id)
    if not ownership.is_ours(found.tags, stack=inputs.stack, recorded=recorded):
        raise ownership.foreign(
            f"the security group {found.name} in {found.vpc_id}",
            found.tags,
            hint=f"To use it as it is, set {_KEY}: {found.id} in {inputs.stack.source}; for one of its own, "
            "network.egress.name.",
        )


def apply(step: Step, work: Work) -> Resource:
    """Perform the step."""
    inputs, egress, network = work.inputs, work.inputs.stack.egress, work.inputs.facts.network
    assert egress is not None
    assert network is not None
    found = inputs.facts.group
    if found is None:
        tags = {"Name": egress.name, **ownership.tags_of(inputs.stack)}
        found = work.account.network.create_group(
            egress.name, vpc_id=network.vpc_id, description=DESCRIPTION, tags=tags
        )
        check_owner(found, inputs=inputs)
    elif step.action == UPDATE:
        work.account.network.tag(found.id, ownership.missing_tags(found.tags, stack=inputs.stack))
    attrs = {_NAME: found.name, _VPC: found.vpc_id}
    return Resource(naming.GROUP_KIND, found.id, managed=step.action != REUSE, attrs=attrs)


def remove(resource: Resource, account: Account, *, is_ours: Callable[[Mapping[str, str]], bool]) -> bool:
    """Delete the group, if it is ours, once the connector's interfaces do not hold it any more."""
    found = _find(resource, account)
    if found is None:
        return True
    if not is_ours(found.tags):
        return False
    account.network.delete_group(found.id)
    return True


def look(resource: Resource, account: Account) -> Resource | None:
    """The group as it is now, or None."""
    found = _find(resource, account)
    if found is None:
        return None
    return Resource(resource.kind, resource.id, resource.managed, {**resource.attrs, _VPC: found.vpc_id})


def unfinished(inputs: Inputs) -> Resource:
    """What is recorded before the group is made, and its id is known."""
    egress, network = inputs.stack.egress, inputs.facts.network
    assert egress is not None
    assert network is not None
    attrs = {_NAME: egress.name, _VPC: network.vpc_id, ownership.UNFINISHED: True}
    return Resource(naming.GROUP_KIND, "", managed=True, attrs=attrs)


def _find(resource: Resource, account: Account) -> SecurityGroup | None:
    name, vpc_id = resource.attrs.get(_NAME), resource.attrs.get(_VPC)
    if resource.id:
        return account.network.group(resource.id)
    return account.network.group_named(str(name), vpc_id=str(vpc_id)) if name and vpc_id else None


def _check_vpc(found: SecurityGroup, *, vpc_id: str) -> None:
    if found.vpc_id != vpc_id:
        raise errors.InfrastructureError(
            f"{_KEY} names a security group of {found.vpc_id}, and the connector is to lead to {vpc_id}: {found.id}",
            hint="A connector's subnets and its security group belong to one VPC.",
        )
