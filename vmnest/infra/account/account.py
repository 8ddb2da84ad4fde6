"""One account in one region, as one operation on a stack sees it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ...aws.service import Service
from ...control.connectors import Connectors
from ...control.images import Images
from ...control.microvms import MicroVMs
from ...control.tags import Tags
from ...deadline import SYSTEM_CLOCK, Clock, Deadline
from .buckets import Buckets
from .network import Network
from .roles import Roles

if TYPE_CHECKING:
    from ...target import Target

_PARTITIONS = (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"))


class Account:
    """Access to what an account holds. A service is only reached when something of it is asked for."""

    def __init__(self, target: Target, *, deadline: Deadline, clock: Clock = SYSTEM_CLOCK) -> None:
        self._target = target
        self.deadline = deadline
        self.clock = clock

    @property
    def is_local(self) -> bool:
        """It is the one of this machine."""
        return self._target.is_local

    @property
    def region(self) -> str:
        """Where it is."""
        return self._target.region

    @property
    def partition(self) -> str:
        """The word for this part of AWS in ARNs."""
        return next((word for prefix, word in _PARTITIONS if self.region.startswith(prefix)), "aws")

    @cached_property
    def id(self) -> str:
        """The account's number."""
        return self._target.account_id(deadline=self.deadline)

    @cached_property
    def roles(self) -> Roles:
        """IAM roles."""
        iam = self._target.service("iam", deadline=self.deadline)
        return Roles(iam, deadline=self.deadline, clock=self.clock)

    @cached_property
    def buckets(self) -> Buckets:
        """S3 buckets."""
        s3 = self._target.s3(deadline=self.deadline)
        return Buckets(s3, deadline=self.deadline, clock=self.clock)

    @cached_property
    def images(self) -> Images:
        """MicroVM images."""
        return Images(self._target.service("lambda-microvms", deadline=self.deadline))

    @cached_property
    def microvms(self) -> MicroVMs:
        """MicroVMs."""
        return MicroVMs(self._target.service("lambda-microvms", deadline=self.deadline))

    @cached_property
    def tags(self) -> Tags:
        """Tags of images and connectors."""
        return Tags(self._target.service("lambda-microvms", deadline=self.deadline))

    @cached_property
    def connectors(self) -> Connectors:
        """Network connectors."""
        return Connectors(self._target.service("lambda-core", deadline=self.deadline), clock=self.clock)

    @cached_property
    def network(self) -> Network:
        """VPCs, subnets and security groups."""
        ec2 = self._target.service("ec2", deadline=self.deadline)
        return Network(ec2, deadline=self.deadline, clock=self.clock)

    @cached_property
    def logs(self) -> Service:
        """Log groups."""
        return self._target.service("logs", deadline=self.deadline)
