"""What an image to build shall be: from the caller, else ``sandbox.yaml``, else what infrastructure offers."""

from __future__ import annotations

import contextlib
import os

from .. import errors, settings
from .. import target as targets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..control.image_specs import Hooks, ImageSpec
    from ..control.images import Images
    from ..deadline import Deadline
    from ..guest_image import Package
    from ..infra.spec import Stack
    from ..target import Target


__all__ = ["Intent", "Wish", "resolve"]

# The account of this machine is nobody's concern: a bucket and a role are made there without being asked for.
LOCAL_BUCKET = "vmnest-images"
LOCAL_ROLE = "vmnest-build"
_TRUST = (
    '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},'
    '"Action":"sts:AssumeRole"}]}'
)


class Wish:
    """What a version of an image shall be. What is not given is as ``sandbox.yaml`` says, else as by default.

    Attributes:
        name: The image's name.
        bucket: S3 bucket that its content is uploaded to.
        role: Role that the build has.
        memory: Its MicroVMs' memory in MiB: 512, 1024, 2048, 4096 or 8192.
        environment: Variables of everything in it.
        hooks: Whether it has lifecycle hooks; by default if vmnest's agent is in the directory.
        base_image: The service's image to build on, a name or an ARN.
        base_image_version: Version of that.
        capabilities: Give its programs all capabilities of the kernel.
        log_group: CloudWatch log group of the build.
        egress_allow: On this machine: what RUN steps may reach; the internet by default.
        description: A text for people.
    """

    __slots__ = (
        *("base_image", "base_image_version", "bucket", "capabilities", "description", "egress_allow"),
        *("environment", "hooks", "log_group", "memory", "name", "role"),
    )

    def __init__(
        self,
        *,
        name: str | None = None,
        bucket: str | None = None,
        role: str | None = None,
        memory: int | None = None,
        environment: Mapping[str, str] | None = None,
        hooks: bool | None = None,
        base_image: str | None = None,
        base_image_version: str | None = None,
        capabilities: bool = False,
        log_group: str | None = None,
        egress_allow: Sequence[str] | None = None,
        description: str | None = None,
    ) -> None:
        self.name = name
        self.bucket = bucket
        self.role = role
        self.memory = memory
        self.environment = environment
        self.hooks = hooks
        self.base_image = base_image
        self.base_image_version = base_image_version
        self.capabilities = capabilities
        self.log_group = log_group
        self.egress_allow = egress_allow
        self.description = description

    def __repr__(self) -> str:
        return f"Wish(name={self.name!r})"  # variables may be secrets


def resolve(wish: Wish, *, local: bool | None, region: str | None, environ: Mapping[str, str]) -> Intent:
    """The wish with all that the current folder says of it, checked as far as that needs no service.

    Raises:
        errors.UsageError: it cannot be meant, or the service would refuse it.
        errors.ConfigurationError: ``sandbox.yaml`` cannot be used.
    """
    from .. import guest_image

    stack = _configured(wish, environ)
    asked = region or settings.text("region", environ=environ) or (stack.region if stack else None)
    intent = Intent(wish, stack, place=targets.resolve(local=local, region=asked, environ=environ))
    guest_image.check_name(intent.name)
    guest_image.check_settings(memory_mib=intent.memory, environment=intent.environment)
    if wish.egress_allow is not None and not intent.place.is_local:
        raise errors.UsageError(
            "what a build may reach is chosen on this machine only (--local)",
            hint="On AWS it reaches the internet, or what the egress connector of the image lets through.",
        )
    return intent


def _configured(wish: Wish, environ: Mapping[str, str]) -> Stack | None:
    """What ``sandbox.yaml`` says of the image that is meant, if it says anything of it."""
    from ..infra import places

    if places.find_default(environ) is None:
        return None
    from ..infra import config

    found = config.load(None, environ=environ)
    if wish.name is not None:
        return next((stack for stack in found if stack.image.name == wish.name), None)
    if len(found) > 1:
        named = ", ".join(sorted({stack.image.name for stack in found}))
        raise errors.UsageError(f"{found[0].source} names several images", hint=f"Choose with --name one of {named}.")
    return found[0] if found else None


class Intent:
    """A wish, and what ``sandbox.yaml`` and infrastructure add to it.

    Attributes:
        wish: What the caller says.
        stack: What ``sandbox.yaml`` says, or None.
        place: Where to build.
        name: The image's name.
        memory: In MiB, or None for the service's default.
        environment: Variables of everything in the image.
    """

    __slots__ = ("environment", "memory", "name", "place", "stack", "wish")

    def __init__(self, wish: Wish, stack: Stack | None, *, place: Target) -> None:
        if not wish.name and stack is None:
            raise errors.UsageError(
                "the image has no name",
                hint="Name it with --name, or by image.name in a sandbox.yaml (vmnest infra init).",
            )
        self.wish = wish
        self.stack = stack
        self.place = place
        self.name = wish.name or (stack.image.name if stack else "")
        self.memory = wish.memory or (stack.image.memory_mib if stack else None)
        self.environment = {**(stack.image.environment if stack else {}), **(wish.environment or {})}

    def directory(self, given: str | None) -> str | None:
        """The directory to build; None for the default one."""
        return self.stack.image.guest_dir if given is None and self.stack else given

    def hooks(self, package: Package) -> Hooks | None:
        """The lifecycle hooks, or None."""
        from ..control.image_specs import Hooks

        is_on = package.has_agent if self.wish.hooks is None else self.wish.hooks
        return Hooks(port=settings.number("hook_port", environ=self.place.environ)) if is_on else None

    @property
    def architecture(self) -> str:
        """Of the processor that it will run on."""
        from ..guest_image import machines

        is_x86 = self.place.is_local and os.uname().machine in {"x86_64", "amd64"}
        return machines.X86 if is_x86 else machines.ARM

    def bucket(self, deadline: Deadline) -> str:
        """The bucket to upload to. On this machine there is always one."""
        from ..infra import outputs

        found = self.wish.bucket or self._output(outputs.BUILD_BUCKET)
        if found is None and not self.place.is_local:
            raise errors.UsageError(
                "no bucket to upload the image to", hint="Name one with --bucket, or let vmnest infra up make one."
            )
        if found is None:
            self.place.s3(deadline=deadline).create_bucket(LOCAL_BUCKET, deadline=deadline)
        return found or LOCAL_BUCKET

    def role(self, deadline: Deadline) -> str:
        """The role of the build. On this machine there is always one."""
        from ..infra import outputs

        found = self.place.role(self.wish.role) or self._output(outputs.EXECUTION_ROLE)
        if found is None and not self.place.is_local:
            raise errors.UsageError(
                "no role for the build",
                hint="Name one with --role or AGENT_SANDBOX_EXECUTION_ROLE_ARN, or let vmnest infra up make one.",
            )
        return found or _local_role(self.place, deadline)

    def folder(self, *, bucket: str, role: str) -> str:
        """The image in whose folder of the bucket the content goes: a stack's role may read that of its own image only.

        Raises:
            errors.UsageError: the role is a stack's, and the bucket is not.
        """
        from ..infra import outputs

        if self.place.is_local or role != self._output(outputs.EXECUTION_ROLE):
            return self.name
        stacks = self._output(outputs.IMAGE)
        if bucket != self._output(outputs.BUILD_BUCKET):
            raise errors.UsageError(
                f"the role of the infrastructure may not read the bucket {bucket}",
                hint="Leave --bucket out, or name a role that may read it with --role.",
            )
        return stacks.rpartition(":")[2] if stacks else self.name

    def base_image(self, images: Images, deadline: Deadline) -> str:
        """The service's image to build on."""
        wanted = self.wish.base_image or (self.stack.image.base_image_arn if self.stack else None)
        if wanted and wanted.startswith("arn:"):
            return wanted
        for arn in images.managed(deadline=deadline):
            if not wanted or arn.rpartition(":")[2] == wanted:
                return arn
        raise errors.ImageNotFoundError(
            f"the service has no image {wanted or 'to build on'} in {self.place.region}",
            hint="vmnest image ls --managed lists them; choose one with --base-image, or another region.",
        )

    def spec(self, *, uri: str, role: str, base_image: str, hooks: Hooks | None) -> ImageSpec:
        """All that the version is made of."""
        from ..control.image_specs import ALL_CAPABILITIES, ImageSpec

        wish, image = self.wish, self.stack.image if self.stack else None
        allowed = wish.egress_allow
        return ImageSpec(
            name=self.name,
            code_uri=uri,
            build_role_arn=role,
            base_image_arn=base_image,
            base_image_version=wish.base_image_version or (image.base_image_version if image else None),
            description=wish.description,
            memory_mib=self.memory,
            environment=self.environment,
            has_all_capabilities=wish.capabilities or bool(image and ALL_CAPABILITIES in image.capabilities),
            hooks=hooks,
            log_group=wish.log_group or (image.log_group if image else None),
            tags=dict(self.stack.tags) if self.stack else {},
            local_options={"egress_allow": list(allowed)} if self.place.is_local and allowed is not None else None,
        )

    def _output(self, name: str) -> str | None:
        from ..infra import outputs

        found = outputs.resolve(name, is_local=self.place.is_local, environ=self.place.environ)
        return None if found is None else found.value


def _local_role(place: Target, deadline: Deadline) -> str:
    iam = place.service("iam", deadline=deadline)
    with contextlib.suppress(errors.ConflictError):  # it is there already
        iam.call("CreateRole", {"RoleName": LOCAL_ROLE, "AssumeRolePolicyDocument": _TRUST}, deadline=deadline)
    answer = iam.call("GetRole", {"RoleName": LOCAL_ROLE}, deadline=deadline)
    role = answer.get("Role")
    arn = role.get("Arn") if isinstance(role, dict) else None
    if not isinstance(arn, str):
        raise errors.AnswerInvalidError("GetRole: the answer has no ARN", operation="GetRole", status=200)
    return arn
