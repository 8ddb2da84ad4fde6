"""The names that a stack's resources have, and their ARNs before they exist. Pure."""

from __future__ import annotations

import hashlib
import re

from ..guest_image import publishing
from .spec import LONGEST_ROLE_NAME, OPERATOR_SUFFIX, Stack
from .state import StackState

# Names of resources in the state (those of 0.1.2), and their kinds.
ROLE = "role"
BUCKET = "bucket"
ARTIFACT = "guest_object"
IMAGE = "image"
OPERATOR_ROLE = "network_operator_role"
GROUP = "security_group"
CONNECTOR = "network_connector"

ROLE_KIND = "iam-role"
BUCKET_KIND = "s3-bucket"
ARTIFACT_KIND = "s3-object"
IMAGE_KIND = "microvm-image"
GROUP_KIND = "ec2-sg"
CONNECTOR_KIND = "network-connector"

_LONGEST_BUCKET_NAME = 63
_DIGEST_LENGTH = 12


def bucket(stack: Stack, *, account_id: str, region: str) -> str:
    """The name of a stack's bucket. All accounts share one space of names: the account and the region are in it."""
    told = "\n".join((account_id, region, stack.project, stack.stack))
    digest = hashlib.sha256(told.encode()).hexdigest()[:_DIGEST_LENGTH]
    words = re.sub("[^a-z0-9]+", "-", f"{stack.project}-{stack.stack}".lower()).strip("-")
    head = words[: _LONGEST_BUCKET_NAME - _DIGEST_LENGTH - 1].strip("-") or "vmnest"
    return f"{head}-{digest}"


def recorded_bucket(state: StackState) -> str | None:
    """The bucket that was made for the stack: it keeps its name, whatever it would be called today."""
    resource = state.resources.get(BUCKET)
    return resource.id if resource is not None and resource.managed and resource.id else None


def artifact_key(image_name: str, digest: str) -> str:
    """Where a zip lies in the bucket."""
    return publishing.key_of(image_name, digest)


def artifact_folder(image_name: str) -> str:
    """The beginning of the keys of all of an image's zips."""
    return f"{publishing.KEY_PREFIX}{image_name}/"


def operator_role(connector_name: str) -> str:
    """The role that makes a connector's interfaces."""
    return connector_name[: LONGEST_ROLE_NAME - len(OPERATOR_SUFFIX)] + OPERATOR_SUFFIX


def role_of_arn(arn: str) -> str:
    """The name of a role. A path may stand before it."""
    return arn.rpartition("/")[2]


def role_arn(name: str, *, partition: str, account_id: str) -> str:
    """The ARN that a role of that name has, or will have."""
    return f"arn:{partition}:iam::{account_id}:role/{name}"


def image_arn(name: str, *, partition: str, region: str, account_id: str) -> str:
    """The ARN that an image of that name has, or will have."""
    return f"arn:{partition}:lambda:{region}:{account_id}:microvm-image:{name}"


def retired(name: str, resource_id: str) -> str:
    """The name in the state of a resource that another one has replaced, until it is removed."""
    return f"{name}:{resource_id}"


def slot(name: str) -> str:
    """The name without what ``retired`` has added."""
    return name.partition(":")[0]
