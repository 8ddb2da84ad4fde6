"""Building an image: look at a directory, pack it, upload it, have a version built of it."""

from __future__ import annotations

import contextlib
import os

from .. import errors, settings
from .. import target as targets
from ..deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from ..control.image_specs import Hooks, ImageSpec
    from ..control.images import Draft, Images, ImageVersion
    from ..guest_image import Package
    from ..infra.spec import Stack
    from ..target import Target

    class Front(Protocol):
        """Whoever shows what happens meanwhile."""

        def on_remark(self, text: str) -> None:
            """Something that the user should know."""

        def on_upload(self, done: int, total: int) -> None:
            """So many bytes of the zip are uploaded."""

        def on_state(self, text: str) -> None:
            """The build has got so far."""


__all__ = ["Wish", "build_image", "read_build_log"]

BUILD_SECONDS = 3600.0  # most take two to six minutes
ASK_SECONDS = 60.0
LOG_TAIL_LINES = 20
_LOCAL_BASE = "whatever FROM names, the image is built on this machine's own programs"
_LOG_SECONDS = 15.0  # must not hold up the error that it explains
_LONGEST_LINE = 300

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
        base_image: ARN of the service's image to build on.
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


def build_image(
    *,
    directory: str | None = None,
    wish: Wish | None = None,
    wait: bool = True,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = BUILD_SECONDS,
    front: Front | None = None,
) -> dict[str, object]:
    """Build an image of a directory with a Dockerfile, or a new version of the image that has the name.

    Args:
        directory: The directory; by default ./guest, or else the guest that comes with vmnest.
        wish: What it shall be.
        wait: Wait until it is built.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
        front: Is told what happens.
    """
    from .. import guest_image
    from ..guest_image import publishing

    wish = wish or Wish()
    front = front or _Nobody()
    environ = settings.environment()
    stack = _configured(wish, environ)
    place = _place(local, region, stack, environ)
    deadline = Deadline(timeout)
    name, memory, environment = _name(wish, stack), _memory(wish, stack), _environment(wish, stack)
    guest_image.check_settings(memory_mib=memory, environment=environment)
    if wish.egress_allow is not None and not place.is_local:
        raise errors.UsageError(
            "what a build may reach is chosen on this machine only (--local)",
            hint="On AWS it reaches the internet, or what the egress connector of the image lets through.",
        )
    source = guest_image.find(_directory(directory, stack))
    for remark in filter(None, (source.remark, _LOCAL_BASE if place.is_local else None)):
        front.on_remark(remark)
    control = place.control(deadline=deadline)
    with guest_image.pack(source.path) as package:
        hooks = _hooks(wish, package, environ)
        for warning in guest_image.check(
            package,
            hooks=hooks,
            agent_port=settings.number("agent_port", environ=environ),
            architecture=_architecture(place),
        ):
            front.on_remark(warning)
        bucket, role = _bucket(wish, place, environ, deadline), _role(wish, place, environ, deadline)
        uri = publishing.upload(
            package,
            place.s3(deadline=deadline),
            bucket=bucket,
            image_name=name,
            deadline=deadline,
            on_progress=front.on_upload,
        )
        spec = _spec(
            wish, stack, name=name, uri=uri, role=role, hooks=hooks, memory=memory, environment=environment
        )._replace(base_image_arn=_base_image(wish, stack, control.images, deadline))
        if place.is_local and wish.egress_allow is not None:
            spec = spec._replace(local_options={"egress_allow": list(wish.egress_allow)})
        draft = publishing.publish(spec, control.images, deadline=deadline)
        described = {"artifact": uri, "digest": package.digest, "content_bytes": package.content_size}
    version = _await(draft, control.images, place, deadline, front) if wait else None
    return {
        "name": name,
        "image_arn": draft.image_arn,
        "image_version": draft.image_version,
        "state": draft.state if version is None else version.state,
        **described,
    }


def read_build_log(
    *,
    image: str,
    image_version: str | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Read what was logged while a version of an image was built.

    Args:
        image: The image: its name or ARN.
        image_version: The version; by default the newest, whatever became of it.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
    """
    from ..control import logs
    from . import images as shown

    deadline = Deadline(timeout)
    place = targets.resolve(local=local, region=region, arn=image if image.startswith("arn:") else None)
    control = place.control(deadline=deadline)
    image_arn = shown.find(place, control.images, image, deadline=deadline)
    number = image_version or shown.newest(control.images, image_arn, deadline=deadline)
    version = control.images.version(image_arn, number, deadline=deadline)
    service = place.service("logs", deadline=deadline)
    lines = sorted(logs.build_log(service, version, deadline=deadline), key=lambda line: line.time)
    return {
        "image_arn": image_arn,
        "image_version": version.image_version,
        "state": version.state,
        "log_group": logs.group_of(version),
        "lines": [{"time": line.time, "stream": line.stream, "message": line.message} for line in lines],
    }


class _Nobody:
    def on_remark(self, text: str) -> None:
        """Nobody listens."""

    def on_upload(self, done: int, total: int) -> None:
        """Nobody listens."""

    def on_state(self, text: str) -> None:
        """Nobody listens."""


# -- what is wanted, from whichever source has it ----------------------------------------------------------------------


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


def _place(local: bool | None, region: str | None, stack: Stack | None, environ: Mapping[str, str]) -> Target:
    asked = region or settings.text("region", environ=environ) or (stack.region if stack else None)
    return targets.resolve(local=local, region=asked, environ=environ)


def _name(wish: Wish, stack: Stack | None) -> str:
    if wish.name:
        from ..guest_image import check_name

        return check_name(wish.name)
    if stack is None:
        raise errors.UsageError(
            "the image has no name", hint="Name it with --name, or by image.name in a sandbox.yaml (vmnest infra init)."
        )
    return stack.image.name


def _directory(given: str | None, stack: Stack | None) -> str | None:
    return given if given is not None or stack is None else stack.image.guest_dir


def _memory(wish: Wish, stack: Stack | None) -> int | None:
    return wish.memory if wish.memory is not None or stack is None else stack.image.memory_mib


def _environment(wish: Wish, stack: Stack | None) -> dict[str, str]:
    return {**(stack.image.environment if stack else {}), **(wish.environment or {})}


def _hooks(wish: Wish, package: Package, environ: Mapping[str, str]) -> Hooks | None:
    from ..control.image_specs import Hooks

    is_on = package.has_agent if wish.hooks is None else wish.hooks
    return Hooks(port=settings.number("hook_port", environ=environ)) if is_on else None


def _architecture(place: Target) -> str:
    from ..guest_image import machines

    if not place.is_local:
        return machines.ARM
    return machines.X86 if os.uname().machine in {"x86_64", "amd64"} else machines.ARM


def _bucket(wish: Wish, place: Target, environ: Mapping[str, str], deadline: Deadline) -> str:
    from ..infra import outputs

    if wish.bucket:
        return wish.bucket
    found = outputs.resolve(outputs.BUILD_BUCKET, is_local=place.is_local, environ=environ)
    if found is not None:
        return found.value
    if not place.is_local:
        raise errors.UsageError(
            "no bucket to upload the image to", hint="Name one with --bucket, or let vmnest infra up make one."
        )
    place.s3(deadline=deadline).create_bucket(LOCAL_BUCKET, deadline=deadline)
    return LOCAL_BUCKET


def _role(wish: Wish, place: Target, environ: Mapping[str, str], deadline: Deadline) -> str:
    from ..infra import outputs

    role = place.role(wish.role)
    if role:
        return role
    found = outputs.resolve(outputs.EXECUTION_ROLE, is_local=place.is_local, environ=environ)
    if found is not None:
        return found.value
    if not place.is_local:
        raise errors.UsageError(
            "no role for the build", hint="Name one with --role or AGENT_SANDBOX_EXECUTION_ROLE_ARN, or run infra up."
        )
    return _local_role(place, deadline)


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


def _base_image(wish: Wish, stack: Stack | None, images: Images, deadline: Deadline) -> str:
    configured = wish.base_image or (stack.image.base_image_arn if stack else None)
    if configured:
        return configured
    newest = next(images.managed(deadline=deadline), None)
    if newest is None:
        raise errors.ImageNotFoundError(
            "the service has no image to build on in this region", hint="Name one with --base-image, or change region."
        )
    return newest


def _spec(
    wish: Wish,
    stack: Stack | None,
    *,
    name: str,
    uri: str,
    role: str,
    hooks: Hooks | None,
    memory: int | None,
    environment: dict[str, str],
) -> ImageSpec:
    from ..control.image_specs import ALL_CAPABILITIES, ImageSpec

    image = stack.image if stack else None
    return ImageSpec(
        name=name,
        code_uri=uri,
        build_role_arn=role,
        base_image_arn="",
        base_image_version=wish.base_image_version or (image.base_image_version if image else None),
        description=wish.description,
        memory_mib=memory,
        environment=environment,
        has_all_capabilities=wish.capabilities or bool(image and ALL_CAPABILITIES in image.capabilities),
        hooks=hooks,
        log_group=wish.log_group or (image.log_group if image else None),
        tags=dict(stack.tags) if stack else {},
    )


# -- waiting -----------------------------------------------------------------------------------------------------------


def _await(draft: Draft, images: Images, place: Target, deadline: Deadline, front: Front) -> ImageVersion:
    from ..control import building

    front.on_state(f"building version {draft.image_version}")
    try:
        return building.wait(
            images,
            draft,
            deadline=deadline,
            on_change=lambda state: front.on_state(f"version {draft.image_version} is {state}"),
        )
    except errors.ImageBuildError as error:
        lines = _log_tail(draft, images, place)
        if lines:
            error.details["log"] = lines
            for line in lines:
                front.on_remark(line)
        raise


def _log_tail(draft: Draft, images: Images, place: Target) -> list[str]:
    """The end of the build's log; none if it cannot be had: then the reason of the build must do."""
    from ..control import logs

    patience = Deadline(_LOG_SECONDS)
    try:
        version = images.version(draft.image_arn, draft.image_version, deadline=patience)
        found = sorted(
            logs.build_log(place.service("logs", deadline=patience), version, deadline=patience),
            key=lambda line: line.time,
        )
    except errors.VmnestError:
        return []
    lines = [line for each in found for line in each.message.splitlines() if line.strip()]
    return [errors.quote(line, limit=_LONGEST_LINE) for line in lines[-LOG_TAIL_LINES:]]
