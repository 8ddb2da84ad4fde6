"""What there is in the account, as far as a stack is concerned: values only. ``reading`` asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..control.connectors import Connector
from ..control.image_specs import Hooks
from ..control.images import Image, ImageVersion
from .account import Bucket, Role, SecurityGroup, Subnet
from .ownership import Tags
from .spec import Stack
from .state import Resource, StackState


@dataclass(frozen=True)
class Artifact:
    """What the guest's folder is packed to.

    Attributes:
        digest: Of its content, in hexadecimal: the same for the same files, however they are compressed.
        size: Of the zip, in bytes.
        hooks: The lifecycle hooks that what is in it serves, or None.
    """

    digest: str
    size: int = 0
    hooks: Hooks | None = None


@dataclass(frozen=True)
class ImageFacts:
    """The image of the wanted name.

    Attributes:
        image: The image.
        active: Its newest version that MicroVMs start from.
        newest: Its newest version, whatever became of it.
    """

    image: Image
    active: ImageVersion | None = None
    newest: ImageVersion | None = None


@dataclass(frozen=True)
class ConnectorFacts:
    """The connector of the wanted name, or the one to reuse."""

    connector: Connector
    tags: Tags = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkFacts:
    """Where a connector is to lead to.

    Attributes:
        vpc_id: The VPC.
        subnets: Those that are configured, or those of the VPC that suit.
        notes: What the user should know about the choice.
    """

    vpc_id: str
    subnets: tuple[Subnet, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything that is looked at before a plan is made.

    Attributes:
        account_id, region, partition: Where.
        role, bucket, image, operator_role, group, connector: Those of the wanted names or ids, if they exist.
        has_artifact: The zip is in the bucket already.
        base_image_arn: The image to build on: the configured one, else the service's newest.
        network: Where the connector is to lead to.
        vanished: Names of recorded resources that do not exist any more.
    """

    account_id: str
    region: str
    partition: str = "aws"
    role: Role | None = None
    bucket: Bucket | None = None
    has_artifact: bool = False
    image: ImageFacts | None = None
    base_image_arn: str = ""
    operator_role: Role | None = None
    network: NetworkFacts | None = None
    group: SecurityGroup | None = None
    connector: ConnectorFacts | None = None
    vanished: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Inputs:
    """All that a plan is made of.

    Attributes:
        stack: What is wanted.
        facts: What there is.
        state: What is recorded.
        artifact: What the guest's folder is packed to.
        rebuild: A new version of the image is wanted in any case.
    """

    stack: Stack
    facts: Facts
    state: StackState
    artifact: Artifact
    rebuild: bool = False

    def recorded(self, name: str, resource_id: str) -> Resource | None:
        """What is recorded under that name, if it is the resource of that id."""
        resource = self.state.resources.get(name)
        return resource if resource is not None and resource.id == resource_id else None
