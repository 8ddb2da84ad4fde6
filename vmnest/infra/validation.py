"""From the tree of a document to a ``Stack``: every key is known, every value is what it must be."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from .. import errors
from ..wire import names
from .sections import Node, Origin, Section
from .spec import (
    DEFAULT_GUEST_DIR,
    LONGEST_ROLE_NAME,
    MOST_SUBNETS,
    OPERATOR_SUFFIX,
    BucketConfig,
    EgressConfig,
    ImageConfig,
    RoleConfig,
    Stack,
)

__all__ = ["KEYS", "build_stack", "check_stack_name"]

# Of each mapping of the file its keys: the one place that lists them.
KEYS: Mapping[str, tuple[str, ...]] = {
    "": ("project", "stack", "region", "image", "role", "bucket", "network", "tags"),
    "image": (
        *("name", "guest_dir", "base_image_arn", "base_image_version"),
        *("memory", "environment", "capabilities", "log_group"),
    ),
    "role": ("arn", "name", "extra_policy_arns"),
    "bucket": ("name",),
    "network": ("egress",),
    "network.egress": ("connector_arn", "name", "vpc_id", "subnet_ids", "security_group_id", "operator_role_arn"),
}

MOST_POLICIES = 10  # that IAM attaches to a role, unless the account has another quota
MOST_TAGS = 45  # of 50, some of which are ours
LONGEST_TAG_KEY, LONGEST_TAG_VALUE = 128, 256
OUR_TAG_PREFIX = "vmnest:"

_ARN = r"arn:aws[a-z-]*"
_LABEL = re.compile(r"\w(?:[\w .+=@-]{0,126}[\w.+=@-])?")
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z0-9]+)+")
_IMAGE_NAME = re.compile(names.IMAGE_NAME)
_IMAGE_ARN = re.compile(_ARN + r":lambda:[a-z0-9-]+:(?:aws|[0-9]{12}):microvm-image:" + names.IMAGE_NAME)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_ROLE_ARN = re.compile(_ARN + r":iam::[0-9]{12}:role/[\w+=,.@/-]{1,1024}", re.ASCII)
_ROLE_NAME = re.compile(r"[\w+=,.@-]{1,64}", re.ASCII)
_POLICY_ARN = re.compile(_ARN + r":iam::(?:aws|[0-9]{12}):policy/[\w+=,.@/-]{1,1024}", re.ASCII)
_CONNECTOR_ARN = re.compile(
    _ARN + r":lambda:[a-z0-9-]+:(?:aws|[0-9]{12}):network-connector:[a-zA-Z0-9_-]+(?::[a-zA-Z0-9_-]+)?"
)
_CONNECTOR_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_VPC = re.compile(r"vpc-[0-9a-f]{8,17}")
_SECURITY_GROUP = re.compile(r"sg-[0-9a-f]{8,17}")
_LOG_GROUP = re.compile(r"[a-zA-Z0-9_\-/.#]{1,512}")
_BUCKET = re.compile(r"(?!xn--|sthree-|amzn-s3-demo-)[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]")
_BUCKET_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
_ADDRESS = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_TAG = re.compile(r"[\w .:/=+@-]*")


def build_stack(node: Node, *, origin: Origin, stack: str | None = None) -> Stack:
    """The stack of a document; ``stack`` replaces the name that the file gives it.

    Raises:
        errors.ConfigurationError: it says something that cannot be.
    """
    top = Section(node, name="", keys=KEYS, origin=origin)
    label = "a text of letters, digits, spaces and . _ + = @ -, at most 128 characters"
    role, role_remarks = _role(top.section("role"))
    egress, egress_remarks = _egress(top.section("network").section("egress"))
    return Stack(
        project=top.named("project", _LABEL, expected=label, default=Stack.project),
        stack=stack or top.named("stack", _LABEL, expected=label, default=Stack.stack),
        region=top.text("region", _REGION, expected="an AWS region such as us-east-1"),
        image=_image(top.section("image"), origin=origin),
        role=role,
        bucket=BucketConfig(name=_bucket(top.section("bucket"))),
        egress=egress,
        tags=_tags(top),
        source=origin.label,
        folder=origin.folder,
        remarks=tuple(f"{origin.label}: {remark}" for remark in (*role_remarks, *egress_remarks)),
    )


def check_stack_name(name: str) -> str:
    """Return the name, or raise UsageError if no stack can be called that."""
    if not _LABEL.fullmatch(name):
        raise errors.UsageError(
            f"no name for a stack: {name!r}",
            hint="It has letters, digits, spaces and . _ + = @ -, at most 128 characters.",
        )
    return name


def _image(image: Section, *, origin: Origin) -> ImageConfig:
    return ImageConfig(
        name=image.named(
            "name",
            _IMAGE_NAME,
            expected="the name of an image: 1 to 64 letters, digits, _ and -",
            default=ImageConfig.name,
        ),
        guest_dir=_guest_dir(image, origin=origin),
        base_image_arn=image.text(
            "base_image_arn",
            _IMAGE_ARN,
            expected="the ARN of an image, such as arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
        ),
        base_image_version=image.text(
            "base_image_version", _VERSION, expected="a version of the base image, such as 1 or 1.0"
        ),
        memory_mib=_memory(image, origin=origin),
        environment=image.table(
            "environment",
            expected="variables to texts",
            check=_check_variable if origin.want_guest else _check_nothing,
        ),
        capabilities=image.texts("capabilities", re.compile("ALL"), expected="ALL", most=1),
        log_group=image.text("log_group", _LOG_GROUP, expected="the name of a CloudWatch log group"),
    )


def _memory(image: Section, *, origin: Origin) -> int | None:
    mib = image.mib("memory")
    problem = _image_problem(memory_mib=mib) if origin.want_guest else None
    if problem:
        raise image.fail("memory", problem)
    return mib


def _guest_dir(image: Section, *, origin: Origin) -> str | None:
    """Absolute; None for the default, which may be missing: then there is the guest that comes with vmnest."""
    given = image.text("guest_dir", None, expected="a folder", default=DEFAULT_GUEST_DIR)
    assert given is not None
    path = os.path.normpath(os.path.join(origin.folder, os.path.expanduser(given)))
    if os.path.normpath(given) == os.path.normpath(DEFAULT_GUEST_DIR):
        return None
    if "\0" in given:
        raise image.fail("guest_dir", "must be a folder, and has a NUL in it")
    if origin.want_guest and not os.path.isdir(path):
        what = "is no folder" if os.path.lexists(path) else "does not exist"
        raise image.fail(
            "guest_dir", f"{what}: {path}", hint="It is looked for beside the file. Without the key it is ./guest."
        )
    return path


def _role(role: Section) -> tuple[RoleConfig, list[str]]:
    arn = role.text("arn", _ROLE_ARN, expected="the ARN of a role, such as arn:aws:iam::123456789012:role/NAME")
    found = RoleConfig(
        arn=arn,
        name=role.named(
            "name", _ROLE_NAME, expected="the name of a role: 1 to 64 letters, digits and _+=,.@-",
            default=RoleConfig.name,
        ),
        extra_policy_arns=role.texts(
            "extra_policy_arns",
            _POLICY_ARN,
            expected="the ARN of a managed policy, such as arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess",
            most=MOST_POLICIES,
        ),
    )  # fmt: skip
    unused = arn and found.extra_policy_arns
    return found, ["role.extra_policy_arns is not used: a role that is reused stays as it is"] if unused else []


def _bucket(bucket: Section) -> str | None:
    name = bucket.text("name", _BUCKET, expected="the name of a bucket: 3 to 63 lower-case letters, digits, . and -")
    if name and (name.endswith(_BUCKET_ENDS) or ".." in name or _ADDRESS.fullmatch(name)):
        raise bucket.fail("name", f"must be the name of a bucket, and S3 does not allow {name!r}")
    return name


def _egress(egress: Section) -> tuple[EgressConfig | None, list[str]]:
    asking = [key for key in KEYS["network.egress"] if key != "name"]
    found = EgressConfig(
        connector_arn=egress.text("connector_arn", _CONNECTOR_ARN, expected="the ARN of a network connector"),
        name=egress.named(
            "name",
            _CONNECTOR_NAME,
            expected="the name of a connector: 1 to 64 letters, digits, _ and -",
            default=EgressConfig.name,
        ),
        vpc_id=egress.text("vpc_id", _VPC, expected="the id of a VPC, such as vpc-0123456789abcdef0"),
        subnet_ids=egress.texts("subnet_ids", None, expected="the id or the tag Name of a subnet", most=MOST_SUBNETS),
        security_group_id=egress.text(
            "security_group_id", _SECURITY_GROUP, expected="the id of a security group, such as sg-0123456789abcdef0"
        ),
        operator_role_arn=egress.text("operator_role_arn", _ROLE_ARN, expected="the ARN of a role"),
    )
    wanted = [key for key in asking if getattr(found, key)]
    if not wanted:
        lost = "network.egress has a name only, and makes no connector: say where it leads (vpc_id, subnet_ids)"
        return None, [lost] if egress.has("name") else []
    if found.connector_arn:
        unused = [f"network.egress.{key}" for key in wanted if key != "connector_arn"]
        verb = "is" if len(unused) == 1 else "are"
        return found, [f"{' and '.join(unused)} {verb} not used: the connector is reused"] if unused else []
    longest = LONGEST_ROLE_NAME - len(OPERATOR_SUFFIX)
    if not found.operator_role_arn and len(found.name) > longest:
        raise egress.fail("name", f"must have at most {longest} characters: its role is called NAME{OPERATOR_SUFFIX}")
    if found.name.startswith("sg-") and not found.security_group_id:
        raise egress.fail(
            "name", "must not begin with sg-: its security group has that name, and EC2 keeps sg- for ids"
        )
    return found, []


def _tags(top: Section) -> dict[str, str]:
    tags = top.table("tags", expected="tags to values", check=_check_tag)
    if len(tags) > MOST_TAGS:
        raise top.fail("tags", f"has {len(tags)} entries; at most {MOST_TAGS} are possible")
    return tags


def _check_tag(key: str, value: str) -> str | None:
    if not 1 <= len(key) <= LONGEST_TAG_KEY or not _TAG.fullmatch(key):
        return f"must have 1 to {LONGEST_TAG_KEY} letters, digits, spaces and _.:/=+-@"
    if key.lower().startswith("aws:") or key.startswith(OUR_TAG_PREFIX):
        return f"cannot be a tag of yours: aws: and {OUR_TAG_PREFIX} are kept for others"
    if len(value) > LONGEST_TAG_VALUE or not _TAG.fullmatch(value):
        return f"must have a value of at most {LONGEST_TAG_VALUE} letters, digits, spaces and _.:/=+-@"
    return None


def _check_nothing(name: str, value: str) -> str | None:
    """Whoever only wants to know the stack's name need not load what knows of images."""
    del name, value
    return None


def _check_variable(name: str, value: str) -> str | None:
    return "has a NUL in it" if "\0" in value else _image_problem(environment={name: value})


def _image_problem(*, memory_mib: int | None = None, environment: Mapping[str, str] | None = None) -> str | None:
    """What an image cannot have."""
    from .. import guest_image

    try:
        guest_image.check_settings(memory_mib=memory_mib, environment=environment or {})
    except errors.GuestImageError as error:
        return f"is refused: {error.message}" + (f" ({error.hint.rstrip('.')})" if error.hint else "")
    return None
