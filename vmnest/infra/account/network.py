"""EC2, as far as a connector needs it: VPCs, subnets, security groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ... import deadline as deadlines
from ... import errors
from ...aws.service import Service
from ...deadline import Clock, Deadline
from . import answers, attempts

# The interfaces of a connector that was deleted go minutes later (up to twenty), and hold its group until then.
_LINGER_SECONDS = 1200.0
_IN_USE = "DependencyViolation"


@dataclass(frozen=True)
class Subnet:
    """A subnet. ``zone_id`` is the same place in every account (``use1-az3``), unlike the zone's name."""

    id: str
    vpc_id: str
    zone_id: str = ""
    zone: str = ""
    name: str | None = None
    is_public: bool = False


@dataclass(frozen=True)
class SecurityGroup:
    """A security group."""

    id: str
    name: str
    vpc_id: str
    tags: Mapping[str, str] = field(default_factory=dict)


class Network:
    """Calls to EC2. What can be made twice is repeated through faults that pass.

    Filters narrow what is answered; what is taken from it is compared once more, since it may be deleted.
    """

    def __init__(self, ec2: Service, *, deadline: Deadline, clock: Clock) -> None:
        self._ec2 = ec2
        self._deadline = deadline
        self._clock = clock

    def default_vpc(self) -> str | None:
        """The default VPC of the region, if there is one."""
        vpcs = self._pages("DescribeVpcs", "Vpcs", _filters(isDefault="true"))
        return answers.text(vpcs[0], "VpcId") if vpcs else None

    def has_vpc(self, vpc_id: str) -> bool:
        """Whether there is a VPC of that id."""
        found = self._pages("DescribeVpcs", "Vpcs", _filters(vpc_id=vpc_id))
        return any(vpc.get("VpcId") == vpc_id for vpc in found)

    def subnets(self, vpc_id: str) -> tuple[Subnet, ...]:
        """The subnets of a VPC that can be used, by zone."""
        found = self._pages("DescribeSubnets", "Subnets", _filters(vpc_id=vpc_id, state="available"))
        return tuple(sorted(map(_subnet, found), key=lambda subnet: (subnet.zone, subnet.id)))

    def subnets_by_id(self, ids: Sequence[str]) -> tuple[Subnet, ...]:
        """Those of these subnets that exist, in any VPC."""
        if not ids:
            return ()
        found = map(_subnet, self._pages("DescribeSubnets", "Subnets", _filters(subnet_id=ids)))
        return tuple(subnet for subnet in found if subnet.id in ids)

    def group(self, group_id: str) -> SecurityGroup | None:
        """The security group of that id, or None."""
        return next((group for group in self._groups(_filters(group_id=group_id)) if group.id == group_id), None)

    def group_named(self, name: str, *, vpc_id: str) -> SecurityGroup | None:
        """The security group of that name in a VPC, or None."""
        found = self._groups(_filters(group_name=name, vpc_id=vpc_id))
        return next((group for group in found if (group.name, group.vpc_id) == (name, vpc_id)), None)

    def create_group(self, name: str, *, vpc_id: str, description: str, tags: Mapping[str, str]) -> SecurityGroup:
        """Make a security group, or return the one of that name: its tags tell whose it is.

        A new one lets nothing in and everything out, which is what a connector for egress needs.
        """
        params = {
            "GroupName": name,
            "Description": description,
            "VpcId": vpc_id,
            "TagSpecifications": [{"ResourceType": "security-group", "Tags": answers.tag_list(tags)}],
        }
        return attempts.create(
            lambda: self._ec2.call("CreateSecurityGroup", params, deadline=self._deadline),
            lambda: self.group_named(name, vpc_id=vpc_id),
            deadline=self._deadline,
            clock=self._clock,
        )

    def tag(self, resource_id: str, tags: Mapping[str, str]) -> None:
        """Set tags; others stay."""
        self._call("CreateTags", {"Resources": [resource_id], "Tags": answers.tag_list(tags)})

    def delete_group(self, group_id: str) -> None:
        """Delete a security group, once nothing uses it any more. What is gone already is no error."""
        waiting = Deadline(self._deadline.clamp(_LINGER_SECONDS), clock=self._clock)
        for delay in deadlines.backoff(first=1.0, last=15.0):
            try:
                self._call("DeleteSecurityGroup", {"GroupId": group_id})
            except errors.ResourceNotFoundError:
                return
            except errors.ServiceError as error:
                if error.error_type != _IN_USE or delay >= (waiting.remaining() or 0.0):
                    raise
            else:
                return
            self._clock.sleep(delay)

    def _groups(self, filters: Mapping[str, object]) -> Iterator[SecurityGroup]:
        return map(_group, self._pages("DescribeSecurityGroups", "SecurityGroups", filters))

    def _pages(self, operation: str, items: str, params: Mapping[str, object]) -> list[answers.Answer]:
        def read() -> list[answers.Answer]:
            return list(self._ec2.pages(operation, params, deadline=self._deadline, items=items))

        return attempts.repeat(read, deadline=self._deadline, clock=self._clock)

    def _call(self, operation: str, params: Mapping[str, object]) -> answers.Answer:
        def ask() -> answers.Answer:
            return self._ec2.call(operation, params, deadline=self._deadline)

        return attempts.repeat(ask, deadline=self._deadline, clock=self._clock)


def _filters(**conditions: str | Sequence[str]) -> dict[str, object]:
    """Filters by name: what does not exist is then not found, and no error. ``vpc_id`` is the filter ``vpc-id``."""
    return {
        "Filters": [
            {"Name": _filter_name(name), "Values": [values] if isinstance(values, str) else list(values)}
            for name, values in conditions.items()
        ]
    }


def _filter_name(name: str) -> str:
    return name if name == "isDefault" else name.replace("_", "-")


def _subnet(found: answers.Answer) -> Subnet:
    return Subnet(
        id=answers.text(found, "SubnetId"),
        vpc_id=answers.text(found, "VpcId"),
        zone_id=str(found.get("AvailabilityZoneId") or ""),
        zone=str(found.get("AvailabilityZone") or ""),
        name=answers.tags(found.get("Tags")).get("Name"),
        is_public=found.get("MapPublicIpOnLaunch") is True,
    )


def _group(found: answers.Answer) -> SecurityGroup:
    return SecurityGroup(
        id=answers.text(found, "GroupId"),
        name=answers.text(found, "GroupName"),
        vpc_id=answers.text(found, "VpcId"),
        tags=answers.tags(found.get("Tags")),
    )
