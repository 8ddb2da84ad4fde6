"""The connector through which MicroVMs reach a VPC.

Not every zone has MicroVMs. The service says so only when a connector is to be made, one zone at a time: its subnets
are left out then, with a note, and the call is made again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ... import errors
from ...control.connectors import Connector
from .. import naming, ownership
from ..account import Account, Subnet
from ..account.attempts import repeat
from ..facts import ConnectorFacts, Inputs
from ..spec import MOST_SUBNETS
from ..state import Resource
from ..steps import CREATE, NOTE, NOTHING, PROGRESS, REUSE, UPDATE, Change, Step
from ..work import Work
from . import operator_role, security_group

_KEY = "network.egress.connector_arn"
_SUBNETS = "subnet_ids"
_GROUP = "security_group_id"
_VPC = "vpc_id"
_SKIPPED = "unsupported_zones"
_FAILED = "FAILED"
_DELETING = "DELETING"
_PENDING = "PENDING"
# The one thing that only the text of a refusal tells (recorded: "Availability zone use1-az3 is not available for …").
_UNSUPPORTED_ZONE = re.compile(r"Availability zone (\S+) is not available for compute type", re.IGNORECASE)


def plan(inputs: Inputs) -> Step:
    """What is to happen to the connector."""
    egress, found = inputs.stack.egress, inputs.facts.connector
    assert egress is not None
    if egress.connector_arn:
        _check_reused(egress.connector_arn, found)
        return Step(naming.CONNECTOR, naming.CONNECTOR_KIND, REUSE, egress.connector_arn, f"{_KEY} names it")
    if found is None:
        return _step(CREATE, None, "there is none of that name")
    check_owner(found, inputs=inputs)
    connector = found.connector
    if connector.state == _DELETING:
        return _step(CREATE, None, "the one of that name is being deleted")
    if connector.state == _FAILED:
        return _step(CREATE, None, f"the one of that name has failed: {connector.state_reason or 'no reason is given'}")
    changes = _changes(found, inputs)
    if changes:
        return _step(UPDATE, connector.arn, f"differs in {', '.join(change.field for change in changes)}", changes)
    if connector.state == _PENDING:
        return _step(UPDATE, connector.arn, "is being made of just this")
    return _step(NOTHING, connector.arn, "is as it should be")


def check_owner(found: ConnectorFacts, *, inputs: Inputs) -> None:
    """Raise InfrastructureError if the connector of the wanted name is not ours."""
    recorded = inputs.recorded(naming.CONNECTOR, found.connector.arn)
    if not ownership.is_ours(found.tags, stack=inputs.stack, recorded=recorded):
        raise ownership.foreign(
            f"the network connector {found.connector.name}",
            found.tags,
            hint=f"To use it as it is, set {_KEY}: {found.connector.arn} in {inputs.stack.source}; for one of its own, "
            "network.egress.name.",
        )


def apply(step: Step, work: Work) -> Resource:
    """Perform the step."""
    inputs = work.inputs
    egress, found = inputs.stack.egress, inputs.facts.connector
    assert egress is not None
    if step.action == REUSE:
        return Resource(naming.CONNECTOR_KIND, egress.connector_arn or "", managed=False)
    if step.action == NOTHING:
        assert found is not None
        return _record(found.connector, inputs)
    if found is not None and step.action == UPDATE:
        return _update(found, work)
    if found is not None:
        _clear(found.connector, work.account)
    return _create(work)


def remove(resource: Resource, account: Account, *, is_ours: Callable[[Mapping[str, str]], bool]) -> bool:
    """Delete the connector, if it is ours, and wait until it is gone: it holds its group."""
    found = find(resource.id, account)
    if found is None:
        return True
    if not is_ours(found.tags):
        return False
    _clear(found.connector, account)
    return True


def look(resource: Resource, account: Account) -> Resource | None:
    """The connector as it is now, or None."""
    found = find(resource.id, account)
    if found is None or found.connector.state == _DELETING:
        return None
    attrs = {**resource.attrs, **({_SUBNETS: list(found.connector.subnet_ids)} if resource.managed else {})}
    return Resource(resource.kind, resource.id, resource.managed, attrs)


def unfinished(inputs: Inputs) -> Resource:
    """What is recorded before the connector is made: the service finds one by its name as well."""
    assert inputs.stack.egress is not None
    attrs = {ownership.UNFINISHED: True}
    return Resource(naming.CONNECTOR_KIND, inputs.stack.egress.name, managed=True, attrs=attrs)


def find(identifier: str, account: Account) -> ConnectorFacts | None:
    """The connector of that ARN, id or name with its tags, or None."""

    def ask() -> ConnectorFacts:
        connector = account.connectors.get(identifier, deadline=account.deadline)
        return ConnectorFacts(connector, account.tags.of(connector.arn, deadline=account.deadline))

    try:
        return repeat(ask, deadline=account.deadline, clock=account.clock)
    except errors.ResourceNotFoundError:
        return None


# -- planning ----------------------------------------------------------------------------------------------------------


def _step(action: str, connector_arn: str | None, reason: str, changes: tuple[Change, ...] = ()) -> Step:
    return Step(naming.CONNECTOR, naming.CONNECTOR_KIND, action, connector_arn, reason, changes)


def _check_reused(connector_arn: str, found: ConnectorFacts | None) -> None:
    if found is None:
        raise errors.InfrastructureError(
            f"{_KEY} names a network connector that does not exist: {connector_arn}",
            hint=f"Correct {_KEY}, or leave it empty to make one.",
        )
    if found.connector.state in (_FAILED, _DELETING):
        reason = f": {found.connector.state_reason}" if found.connector.state_reason else ""
        raise errors.InfrastructureError(
            f"the network connector that {_KEY} names is {found.connector.state}{reason}",
            hint="Name one that is ACTIVE.",
        )


def _wanted_subnets(inputs: Inputs, *, skipped: Sequence[str]) -> tuple[Subnet, ...]:
    assert inputs.facts.network is not None
    return tuple(subnet for subnet in inputs.facts.network.subnets if subnet.zone_id not in skipped)


def _recorded_skips(inputs: Inputs) -> tuple[str, ...]:
    """The zones that were left out when the connector was made."""
    resource = inputs.state.resources.get(naming.CONNECTOR)
    skipped = resource.attrs.get(_SKIPPED, ()) if resource is not None else ()
    return tuple(str(zone) for zone in skipped)


def _changes(found: ConnectorFacts, inputs: Inputs) -> tuple[Change, ...]:
    connector, egress = found.connector, inputs.stack.egress
    assert egress is not None
    wanted = {subnet.id for subnet in _wanted_subnets(inputs, skipped=_recorded_skips(inputs))}
    present = set(connector.subnet_ids)
    changes: list[Change] = []
    # Of subnets that were discovered some may have been left out, and others come later: what works stays.
    is_otherwise = present != wanted if egress.subnet_ids else not (present and present <= wanted)
    if is_otherwise:
        changes.append(Change("subnets", ", ".join(sorted(present)), ", ".join(sorted(wanted))))
    group_id = security_group.id_of(inputs)
    if connector.security_group_ids != ((group_id,) if group_id else ()):
        changes.append(Change("security group", ", ".join(connector.security_group_ids), group_id or "(the new one)"))
    role_arn = operator_role.arn(inputs)
    if connector.operator_role_arn != role_arn:
        changes.append(Change("operator role", connector.operator_role_arn, role_arn))
    for key, value in ownership.missing_tags(found.tags, stack=inputs.stack).items():
        changes.append(Change(f"tag {key}", found.tags.get(key), value))
    return tuple(changes)


# -- acting ------------------------------------------------------------------------------------------------------------


def _create(work: Work) -> Resource:
    egress, account = work.inputs.stack.egress, work.account
    assert egress is not None
    tags = ownership.tags_of(work.inputs.stack)

    def make(subnets: Sequence[Subnet]) -> Connector:
        try:
            return account.connectors.create(
                egress.name,
                subnet_ids=[subnet.id for subnet in subnets],
                security_group_ids=[work.made(naming.GROUP).id],
                operator_role_arn=str(work.made(naming.OPERATOR_ROLE).attrs["arn"]),
                tags=tags,
                deadline=account.deadline,
            )
        except errors.VmnestError as error:
            # The name is taken, or the answer was lost: by its tags it may be the one that was asked for.
            is_settled = not isinstance(error, errors.ConflictError) and error.details.get("outcome") != "unknown"
            found = None if is_settled else find(egress.name, account)
            if found is None:
                raise
            check_owner(found, inputs=work.inputs)
            return found.connector

    return _settle(make, work, is_new=True)


def _update(found: ConnectorFacts, work: Work) -> Resource:
    account, arn = work.account, found.connector.arn
    if missing := ownership.missing_tags(found.tags, stack=work.inputs.stack):
        account.tags.add(arn, missing, deadline=account.deadline)
    differs = [change for change in _changes(found, work.inputs) if not change.field.startswith("tag ")]

    def change(subnets: Sequence[Subnet]) -> Connector:
        if not differs:
            return found.connector
        return account.connectors.update(
            arn,
            subnet_ids=[subnet.id for subnet in subnets],
            security_group_ids=[work.made(naming.GROUP).id],
            operator_role_arn=str(work.made(naming.OPERATOR_ROLE).attrs["arn"]),
            deadline=account.deadline,
        )

    return _settle(change, work, is_new=False)


def _settle(call: Callable[[Sequence[Subnet]], Connector], work: Work, *, is_new: bool) -> Resource:
    """Make the call and wait; without the subnets of a zone that has no MicroVMs, as often as one turns up."""
    account, skipped = work.account, list(_recorded_skips(work.inputs))
    while True:
        subnets = _wanted_subnets(work.inputs, skipped=skipped)[:MOST_SUBNETS]
        if not subnets:
            raise errors.ConnectorError(
                f"none of the subnets is in a zone with MicroVMs (left out: {', '.join(skipped)})",
                hint="Name subnets of other zones in network.egress.subnet_ids, or make some.",
            )
        connector: Connector | None = None
        try:
            connector = call(subnets)
            work.tell(PROGRESS, "is being made ready, which takes some minutes")
            ready = account.connectors.wait_active(
                connector.arn, deadline=account.deadline, on_change=lambda state: work.tell(PROGRESS, state)
            )
        except (errors.ValidationError, errors.ConnectorError) as error:
            zone = _UNSUPPORTED_ZONE.search(error.message)
            if zone is None or zone.group(1) not in {name for each in subnets for name in (each.zone_id, each.zone)}:
                raise
            skipped += _zone_ids(subnets, zone.group(1))
            work.tell(NOTE, f"zone {zone.group(1)} has no MicroVMs: its subnets are left out")
            if connector is not None and is_new:
                _clear(connector, account)
        else:
            return _record(ready, work.inputs, skipped=skipped)


def _zone_ids(subnets: Sequence[Subnet], told: str) -> list[str]:
    return sorted({subnet.zone_id for subnet in subnets if told in (subnet.zone_id, subnet.zone)})


def _record(connector: Connector, inputs: Inputs, *, skipped: Sequence[str] | None = None) -> Resource:
    network = inputs.facts.network
    attrs: dict[str, object] = {_SUBNETS: list(connector.subnet_ids)}
    if connector.security_group_ids:
        attrs[_GROUP] = connector.security_group_ids[0]
    if network is not None:
        attrs[_VPC] = network.vpc_id
    zones = list(_recorded_skips(inputs) if skipped is None else skipped)
    if zones:
        attrs[_SKIPPED] = zones
    return Resource(naming.CONNECTOR_KIND, connector.arn, managed=True, attrs=attrs)


def _clear(connector: Connector, account: Account) -> None:
    """Delete a connector and wait until its name is free."""
    try:
        if connector.state != _DELETING:
            account.connectors.delete(connector.arn, deadline=account.deadline)
    except errors.ResourceNotFoundError:
        return
    account.connectors.wait_deleted(connector.arn, deadline=account.deadline)
