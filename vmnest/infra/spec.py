"""What ``sandbox.yaml`` asks for, as values. An empty text in the file is None here: it means "make one"."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "DEFAULT_GUEST_DIR",
    "DEFAULT_PROJECT",
    "DEFAULT_REGION",
    "DEFAULT_STACK",
    "LONGEST_ROLE_NAME",
    "MOST_SUBNETS",
    "OPERATOR_SUFFIX",
    "BucketConfig",
    "EgressConfig",
    "ImageConfig",
    "RoleConfig",
    "Stack",
]

DEFAULT_PROJECT = "agent-microvm"
DEFAULT_STACK = "dev"
DEFAULT_REGION = "us-east-1"  # when neither the file nor anything else names one
DEFAULT_GUEST_DIR = "./guest"
MOST_SUBNETS = 16  # of a connector
LONGEST_ROLE_NAME = 64
OPERATOR_SUFFIX = "-operator"  # the name of a connector's role is the connector's with this


@dataclass(frozen=True)
class ImageConfig:
    """The MicroVM image.

    Attributes:
        name: Its name in the account.
        guest_dir: The folder that it is built from, absolute. None: ``./guest`` beside the file, else the guest that
            comes with vmnest.
        base_image_arn: The managed image below it; the newest one if None.
        base_image_version: A version of that, as it is written in the file.
        memory_mib: Its baseline memory; the service's default if None.
        environment: Variables of what runs in it. They may hold secrets: nothing shows their values.
        capabilities: Additional capabilities of the guest's system: ``ALL``, or none.
        log_group: The CloudWatch log group of its builds and of its MicroVMs.
    """

    name: str = "agent-sandbox-guest"
    guest_dir: str | None = None
    base_image_arn: str | None = None
    base_image_version: str | None = None
    memory_mib: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    capabilities: tuple[str, ...] = ()
    log_group: str | None = None


@dataclass(frozen=True)
class RoleConfig:
    """The role that builds the image and that code in the sandbox gets; ``arn`` is that of one to reuse."""

    arn: str | None = None
    name: str = "agent-sandbox-exec"
    extra_policy_arns: tuple[str, ...] = ()


@dataclass(frozen=True)
class BucketConfig:
    """The bucket that the zip of the image goes to; ``name`` is that of one to reuse."""

    name: str | None = None


@dataclass(frozen=True)
class EgressConfig:
    """The VPC egress connector.

    Attributes:
        connector_arn: One to reuse; then nothing else of this counts.
        name: The name of the one to make, and of its security group.
        vpc_id: The VPC; the default one if None.
        subnet_ids: Subnets by id or by their tag ``Name``; those of the VPC if empty.
        security_group_id: One to reuse.
        operator_role_arn: One to reuse.
    """

    connector_arn: str | None = None
    name: str = "agent-sandbox-egress"
    vpc_id: str | None = None
    subnet_ids: tuple[str, ...] = ()
    security_group_id: str | None = None
    operator_role_arn: str | None = None


@dataclass(frozen=True)
class Stack:
    """One document of a ``sandbox.yaml``.

    Attributes:
        project, stack: Its name.
        region: As the file says; None if it does not.
        image, role, bucket: What is wanted.
        egress: The connector that is wanted, or None.
        tags: The user's own tags for everything that can carry some.
        source: The file, and which document of it if there are several; for messages.
        folder: The file's folder, absolute.
        remarks: What the file says to no effect; one line each, for the user.
    """

    project: str = DEFAULT_PROJECT
    stack: str = DEFAULT_STACK
    region: str | None = None
    image: ImageConfig = field(default_factory=ImageConfig)
    role: RoleConfig = field(default_factory=RoleConfig)
    bucket: BucketConfig = field(default_factory=BucketConfig)
    egress: EgressConfig | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    source: str = "sandbox.yaml"
    folder: str = os.curdir
    remarks: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """``project/stack``."""
        return f"{self.project}/{self.stack}"
