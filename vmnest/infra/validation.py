"""From the tree of a document to a ``Stack``: every key is known, every value is what it must be.

The tree is what was written, not what YAML makes of it: a number where a text is wanted is taken as it stands there
(``1.10`` is not 1.1, ``0123`` not 83). Only what reads as true, false or nothing is refused: ``region: no`` is a
mistake. Every error names the file, the line and the key, and what is expected there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .. import errors, settings
from .spec import DEFAULT_GUEST_DIR, BucketConfig, EgressConfig, ImageConfig, RoleConfig, Stack

__all__ = ["Entries", "Items", "Node", "Origin", "Scalar", "build_stack", "check_stack_name", "wrong"]

TEXT, NUMBER, FLAG, NOTHING = "text", "number", "flag", "nothing"

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
MOST_SUBNETS = 16
MOST_VARIABLES = 100
MOST_TAGS = 45  # of 50, some of which are ours
LONGEST_TAG_KEY, LONGEST_TAG_VALUE = 128, 256
LONGEST_VARIABLE, LONGEST_VALUE = 256, 4096
LONGEST_ROLE_NAME = 64
OPERATOR_SUFFIX = "-operator"
OUR_TAG_PREFIX = "vmnest:"

_ARN = r"arn:aws[a-z-]*"
_LABEL = re.compile(r"\w(?:[\w .+=@-]{0,126}[\w.+=@-])?")
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z0-9]+)+")
_IMAGE_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE_ARN = re.compile(_ARN + r":lambda:[a-z0-9-]+:(?:aws|[0-9]{12}):microvm-image:[a-zA-Z0-9_-]{1,64}")
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


@dataclass(frozen=True)
class Scalar:
    """One value as it is written, and what YAML takes it for; ``line`` counts from 1."""

    text: str
    kind: str
    line: int


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Entries:
    """A mapping; ``lines`` are those of its keys."""

    members: Mapping[str, Node]
    lines: Mapping[str, int]
    line: int


Node = Scalar | Items | Entries


@dataclass(frozen=True)
class Origin:
    """Where a document stands.

    Attributes:
        path: The file, as the user named it.
        folder: Its folder, absolute.
        document: Its number in a file with several; 0 if it is the only one.
        want_guest: The folder of the image must be there.
    """

    path: str
    folder: str
    document: int = 0
    want_guest: bool = False

    @property
    def label(self) -> str:
        """The document in a message."""
        return f"{self.path}, document {self.document}" if self.document else self.path


def wrong(path: str, line: int, message: str, *, hint: str | None = None) -> errors.ConfigurationError:
    """The error for what stands in a line of a file."""
    return errors.ConfigurationError(f"{path}:{line}: {message}", hint=hint, details={"file": path, "line": line})


class _Section:
    """One mapping of the document: its values by key, each checked."""

    def __init__(self, node: Node | None, *, name: str, origin: Origin) -> None:
        self._name = name
        self._origin = origin
        self._members: Mapping[str, Node] = {}
        if isinstance(node, Entries):
            self._members = node.members
            for key in node.members:
                if key not in KEYS[name]:
                    raise self._unknown(key, node.lines[key])
        elif not (node is None or _is_nothing(node)):
            raise wrong(
                origin.path,
                node.line,
                f"{name or 'the document'} must be a mapping of keys to values, and is {_describe(node)}",
                hint=f"Its keys are {', '.join(KEYS[name])}.",
            )

    def _unknown(self, key: str, line: int) -> errors.ConfigurationError:
        from difflib import get_close_matches

        shown = errors.quote(self._path(key), limit=80)
        elsewhere = [f"{place}.{key}" if place else key for place, keys in KEYS.items() if key in keys]
        close = get_close_matches(key, KEYS[self._name], n=1)
        meant = [*(self._path(each) for each in close), *elsewhere]
        known = f"The keys {'of ' + self._name if self._name else 'here'} are {', '.join(KEYS[self._name])}."
        return wrong(
            self._origin.path, line, f"there is no key {shown}", hint=f"Did you mean {meant[0]}?" if meant else known
        )

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def fail(self, key: str, message: str, *, node: Node | None = None, hint: str | None = None) -> Exception:
        """The error for a key's value."""
        at = node or self._members[key]
        return wrong(self._origin.path, at.line, f"{self._path(key)} {message}", hint=hint)

    def section(self, key: str) -> _Section:
        """The mapping below a key; an empty one if it is absent."""
        return _Section(self._members.get(key), name=self._path(key), origin=self._origin)

    def line(self, key: str) -> int:
        """Where the value of a key stands."""
        return self._members[key].line

    def has(self, key: str) -> bool:
        """The key stands in the file and has a value."""
        node = self._members.get(key)
        return not (node is None or _is_nothing(node) or (isinstance(node, Scalar) and not node.text))

    def text(
        self, key: str, pattern: re.Pattern[str] | None, *, expected: str, default: str | None = None
    ) -> str | None:
        """A text. Empty ones are None where there is no default, and refused where there is one."""
        node = self._members.get(key)
        if node is None:
            return default
        text = "" if _is_nothing(node) else self._as_text(node, key, expected=expected)
        if not text and default is None:
            return None
        if not text or (pattern and not pattern.fullmatch(text)):
            shown = f": {errors.quote(text, limit=100)!r}" if text else ", and is empty"
            raise self.fail(key, f"must be {expected}{shown}")
        return text

    def named(self, key: str, pattern: re.Pattern[str], *, expected: str, default: str) -> str:
        """A text that cannot be empty."""
        return self.text(key, pattern, expected=expected, default=default) or default

    def texts(self, key: str, pattern: re.Pattern[str] | None, *, expected: str, most: int) -> tuple[str, ...]:
        """A list of texts, none of them twice."""
        node = self._members.get(key)
        if node is None or _is_nothing(node):
            return ()
        if not isinstance(node, Items):
            raise self.fail(
                key, f"must be a list, each {expected}, and is {_describe(node)}", hint=f"Write it as {key}: [...]"
            )
        found: dict[str, None] = {}
        for item in node.items:
            text = self._as_text(item, key, expected=f"a list, each {expected}")
            if not text or (pattern and not pattern.fullmatch(text)):
                raise self.fail(key, f"must be a list, each {expected}: {errors.quote(text, limit=100)!r}", node=item)
            if text in found:
                raise self.fail(key, f"names {text} twice", node=item)
            found[text] = None
        if len(found) > most:
            raise self.fail(key, f"has {len(found)} entries; at most {most} are possible")
        return tuple(found)

    def table(self, key: str, *, expected: str, check: Callable[[str, str], str | None], most: int) -> dict[str, str]:
        """A mapping of texts to texts; ``check`` tells what is wrong with a pair, and never shows the value."""
        node = self._members.get(key)
        if node is None or _is_nothing(node):
            return {}
        if not isinstance(node, Entries):
            raise self.fail(key, f"must be a mapping of {expected}, and is {_describe(node)}")
        found = {}
        for name, value in node.members.items():
            shown = errors.quote(f"{key}.{name}", limit=100)
            found[name] = self._as_text(value, shown, expected="a text") if not _is_nothing(value) else ""
            problem = check(name, found[name])
            if problem:
                raise wrong(self._origin.path, node.lines[name], f"{self._path(shown)} {problem}")
        if len(found) > most:
            raise self.fail(key, f"has {len(found)} entries; at most {most} are possible")
        return found

    def mib(self, key: str) -> int | None:
        """An amount of memory: MiB, or a text with a unit."""
        text = self.text(key, None, expected="a number of MiB, or a size such as 2GiB")
        if text is None:
            return None
        try:
            mib = settings.parse_count(text) if text.isdigit() else settings.parse_size(text) // 2**20
        except ValueError:
            mib = 0
        if not 0 < mib < 2**30:
            raise self.fail(key, f"must be a number of MiB, or a size such as 2GiB: {errors.quote(text, limit=40)!r}")
        return mib

    def _as_text(self, node: Node, key: str, *, expected: str) -> str:
        if isinstance(node, Scalar) and node.kind in (TEXT, NUMBER):
            return node.text
        hint = None
        if isinstance(node, Scalar) and node.kind in (FLAG, NOTHING):
            hint = f'If that word is meant, put it in quotes: "{node.text}"' if node.text else None
        raise self.fail(key, f"must be {expected}, and is {_describe(node)}", node=node, hint=hint)


def _is_nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.kind == NOTHING


def _describe(node: Node) -> str:
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Entries):
        return "a mapping"
    shown = errors.quote(node.text, limit=40)
    words = {FLAG: f"{shown}, which YAML takes for true or false", NOTHING: "empty"}
    return words.get(node.kind, repr(shown))


# -- the document ------------------------------------------------------------------------------------------------------


def build_stack(node: Node, *, origin: Origin, stack: str | None = None) -> Stack:
    """The stack of a document; ``stack`` replaces the name that the file gives it.

    Raises:
        errors.ConfigurationError: it says something that cannot be.
    """
    top = _Section(node, name="", origin=origin)
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
        tags=top.table("tags", expected="tags to values", check=_check_tag, most=MOST_TAGS),
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


def _image(image: _Section, *, origin: Origin) -> ImageConfig:
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
        memory_mib=image.mib("memory"),
        environment=image.table(
            "environment", expected="variables to texts", check=_check_variable, most=MOST_VARIABLES
        ),
        capabilities=image.texts("capabilities", re.compile("ALL"), expected="ALL", most=1),
        log_group=image.text("log_group", _LOG_GROUP, expected="the name of a CloudWatch log group"),
    )


def _guest_dir(image: _Section, *, origin: Origin) -> str | None:
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


def _role(role: _Section) -> tuple[RoleConfig, list[str]]:
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


def _bucket(bucket: _Section) -> str | None:
    name = bucket.text("name", _BUCKET, expected="the name of a bucket: 3 to 63 lower-case letters, digits, . and -")
    if name and (name.endswith(_BUCKET_ENDS) or ".." in name or _ADDRESS.fullmatch(name)):
        raise bucket.fail("name", f"must be the name of a bucket, and S3 does not allow {name!r}")
    return name


def _egress(egress: _Section) -> tuple[EgressConfig | None, list[str]]:
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
        return None, []
    if found.connector_arn:
        unused = [f"network.egress.{key}" for key in wanted if key != "connector_arn"]
        return found, [f"{' and '.join(unused)} not used: the connector is reused"] if unused else []
    longest = LONGEST_ROLE_NAME - len(OPERATOR_SUFFIX)
    if not found.operator_role_arn and len(found.name) > longest:
        raise egress.fail("name", f"must have at most {longest} characters: its role is called NAME{OPERATOR_SUFFIX}")
    if found.name.startswith("sg-") and not found.security_group_id:
        raise egress.fail(
            "name", "must not begin with sg-: its security group has that name, and EC2 keeps sg- for ids"
        )
    return found, []


def _check_tag(key: str, value: str) -> str | None:
    if not 1 <= len(key) <= LONGEST_TAG_KEY or not _TAG.fullmatch(key):
        return f"must have 1 to {LONGEST_TAG_KEY} letters, digits, spaces and _.:/=+-@"
    if key.lower().startswith("aws:") or key.startswith(OUR_TAG_PREFIX):
        return f"cannot be a tag of yours: aws: and {OUR_TAG_PREFIX} are kept for others"
    if len(value) > LONGEST_TAG_VALUE or not _TAG.fullmatch(value):
        return f"must have a value of at most {LONGEST_TAG_VALUE} letters, digits, spaces and _.:/=+-@"
    return None


def _check_variable(name: str, value: str) -> str | None:
    if not 1 <= len(name) <= LONGEST_VARIABLE or re.search(r"[\s=\0]", name):
        return f"is no name of a variable: 1 to {LONGEST_VARIABLE} characters without spaces and ="
    if len(value) > LONGEST_VALUE:
        return f"has {len(value)} characters; at most {LONGEST_VALUE} are possible"
    if "\0" in value:
        return "has a NUL in it"
    return None
