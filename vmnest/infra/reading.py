"""Reads from the account what a plan is made of."""

from __future__ import annotations

from dataclasses import replace

from .. import errors
from . import naming
from .account import Account, Bucket, Role, SecurityGroup, Subnet
from .account.attempts import repeat
from .facts import Artifact, ConnectorFacts, Facts, ImageFacts, Inputs, NetworkFacts
from .ownership import is_unfinished
from .resources import artifact as artifacts
from .resources import bucket as buckets
from .resources import connector as connectors
from .resources import image_changes, table
from .spec import MOST_SUBNETS, EgressConfig, Stack
from .state import StackState

_SUBNET_ID = "subnet-"


def read(stack: Stack, *, state: StackState, artifact: Artifact, account: Account, rebuild: bool = False) -> Inputs:
    """Look at everything that a plan for the stack depends on; change nothing."""
    start = Facts(account_id=account.id, region=account.region, partition=account.partition)
    named = Inputs(stack, start, state, artifact, rebuild)
    network = _network(stack.egress, account) if _makes_egress(stack) else None
    bucket = _bucket(named, account)
    facts = Facts(
        account_id=start.account_id,
        region=start.region,
        partition=start.partition,
        role=_role(stack.role.arn, stack.role.name, account),
        bucket=bucket,
        has_artifact=_has_artifact(named, bucket, account),
        image=_image(stack.image.name, account),
        base_image_arn=stack.image.base_image_arn or _newest_base(account),
        operator_role=_operator_role(stack, account),
        network=network,
        group=_group(stack, network, account),
        connector=_connector(stack.egress, account),
    )
    return Inputs(stack, _with_vanished(facts, named, account), state, artifact, rebuild)


def _makes_egress(stack: Stack) -> bool:
    return stack.egress is not None and not stack.egress.connector_arn


def _role(arn: str | None, name: str, account: Account) -> Role | None:
    if not arn:
        return account.roles.find(name)
    try:
        found = account.roles.find(naming.role_of_arn(arn))
    except errors.AccessDeniedError:
        return Role(naming.role_of_arn(arn), arn)  # it is used as it is, and need not be visible to us
    return found if found is not None and found.arn == arn else None


def _operator_role(stack: Stack, account: Account) -> Role | None:
    egress = stack.egress
    if egress is None or egress.connector_arn:
        return None
    return _role(egress.operator_role_arn, naming.operator_role(egress.name), account)


def _bucket(inputs: Inputs, account: Account) -> Bucket | None:
    if inputs.stack.bucket.name:
        return account.buckets.locate(inputs.stack.bucket.name)
    return account.buckets.find(buckets.name(inputs), owner=account.id)


def _has_artifact(inputs: Inputs, bucket: Bucket | None, account: Account) -> bool:
    if bucket is None or bucket.is_foreign:
        return False
    return account.buckets.has_object(bucket.name, artifacts.key(inputs))


def _image(name: str, account: Account) -> ImageFacts | None:
    def ask() -> ImageFacts:
        images, deadline = account.images, account.deadline
        image = images.get(images.resolve(name, deadline=deadline), deadline=deadline)
        active = image.latest_active_version
        return ImageFacts(
            image,
            active=images.version(image.image_arn, active, deadline=deadline) if active else None,
            newest=image_changes.newest_of(images.versions(image.image_arn, deadline=deadline)),
        )

    try:
        return repeat(ask, deadline=account.deadline, clock=account.clock)
    except errors.ImageNotFoundError:
        return None


def _newest_base(account: Account) -> str:
    """The service's own image to build on; its list has the newest first."""
    found = repeat(
        lambda: next(account.images.managed(deadline=account.deadline), None),
        deadline=account.deadline,
        clock=account.clock,
    )
    if found is None:
        raise errors.InfrastructureError(
            f"the service has no image to build on in {account.region}", hint="Set image.base_image_arn."
        )
    return found


def _connector(egress: EgressConfig | None, account: Account) -> ConnectorFacts | None:
    return None if egress is None else connectors.find(egress.connector_arn or egress.name, account)


# -- the network -------------------------------------------------------------------------------------------------------


def _network(egress: EgressConfig | None, account: Account) -> NetworkFacts:
    assert egress is not None
    given = [value for value in egress.subnet_ids if value.startswith(_SUBNET_ID)]
    by_id = account.network.subnets_by_id(given)
    vpc_id = _vpc(egress, by_id, account)
    if egress.subnet_ids:
        return NetworkFacts(vpc_id, _named_subnets(egress.subnet_ids, by_id, vpc_id, account))
    return _discovered(vpc_id, account)


def _vpc(egress: EgressConfig, by_id: tuple[Subnet, ...], account: Account) -> str:
    """The VPC that is configured, else that of the subnets or the security group, else the default one."""
    if egress.vpc_id:
        if not account.network.has_vpc(egress.vpc_id):
            raise errors.InfrastructureError(
                f"network.egress.vpc_id names a VPC that does not exist in {account.region}: {egress.vpc_id}",
                hint="Correct it, or leave it empty for the default VPC.",
            )
        return egress.vpc_id
    if by_id:
        return by_id[0].vpc_id
    group = account.network.group(egress.security_group_id) if egress.security_group_id else None
    if group is not None:
        return group.vpc_id
    default = account.network.default_vpc()
    if default is None:
        raise errors.InfrastructureError(
            f"there is no default VPC in {account.region}", hint="Set network.egress.vpc_id."
        )
    return default


def _named_subnets(
    given: tuple[str, ...], by_id: tuple[Subnet, ...], vpc_id: str, account: Account
) -> tuple[Subnet, ...]:
    """The subnets that are configured by their ids and by their names."""
    ids = {subnet.id: subnet for subnet in by_id}
    others = account.network.subnets(vpc_id) if len(by_id) < len(given) else ()
    chosen: dict[str, Subnet] = {}
    for value in given:
        named = [subnet for subnet in others if subnet.name == value]
        found = [ids[value]] if value in ids else named
        if not found:
            raise errors.InfrastructureError(
                f"network.egress.subnet_ids names a subnet that {vpc_id} does not have: {value}",
                hint="Give the id of a subnet (subnet-…), or the value of its tag Name.",
            )
        chosen.update({subnet.id: subnet for subnet in found})
    for subnet in chosen.values():
        if subnet.vpc_id != vpc_id:
            raise errors.InfrastructureError(
                f"the subnet {subnet.id} belongs to {subnet.vpc_id}, and the connector is to lead to {vpc_id}",
                hint="A connector leads to one VPC.",
            )
    if len(chosen) > MOST_SUBNETS:
        raise errors.InfrastructureError(
            f"{len(chosen)} subnets are too many: a connector has at most {MOST_SUBNETS}",
            hint="Name fewer in network.egress.subnet_ids.",
        )
    return tuple(chosen.values())


def _discovered(vpc_id: str, account: Account) -> NetworkFacts:
    """All subnets of the VPC; where some are private, those: what is in a public one has no way to the internet."""
    found = account.network.subnets(vpc_id)
    if not found:
        raise errors.InfrastructureError(
            f"{vpc_id} has no subnet that can be used", hint="Make one, or name another VPC in network.egress.vpc_id."
        )
    private = tuple(subnet for subnet in found if not subnet.is_public)
    if private:
        return NetworkFacts(vpc_id, private)
    note = (
        f"all subnets of {vpc_id} are public: through them MicroVMs reach what is in the VPC, but the internet only "
        "with a NAT gateway in between"
    )
    return NetworkFacts(vpc_id, found, notes=(note,))


def _group(stack: Stack, network: NetworkFacts | None, account: Account) -> SecurityGroup | None:
    egress = stack.egress
    if egress is None or network is None:
        return None
    if egress.security_group_id:
        return account.network.group(egress.security_group_id)
    return account.network.group_named(egress.name, vpc_id=network.vpc_id)


# -- what is recorded --------------------------------------------------------------------------------------------------


def _with_vanished(facts: Facts, named: Inputs, account: Account) -> Facts:
    """The facts, and which recorded resources that are ours do not exist any more."""
    seen = _seen_ids(facts, named)
    vanished = set()
    for name, resource in named.state.resources.items():
        kind = table.kind(resource.kind)
        if not resource.managed or kind is None or resource.id in seen or is_unfinished(resource):
            continue
        if kind.look(resource, account) is None:
            vanished.add(name)
    return replace(facts, vanished=frozenset(vanished))


def _seen_ids(facts: Facts, named: Inputs) -> set[str]:
    ids = {role.name for role in (facts.role, facts.operator_role) if role is not None}
    if facts.bucket is not None:
        ids.add(facts.bucket.name)
    if facts.image is not None:
        ids.add(facts.image.image.image_arn)
    if facts.group is not None:
        ids.add(facts.group.id)
    if facts.connector is not None:
        ids.add(facts.connector.connector.arn)
    if facts.has_artifact:
        ids.add(artifacts.key(named))
    return ids
