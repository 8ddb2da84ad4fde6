"""Building an image: look at a directory, pack it, upload it, have a version built of it."""

from __future__ import annotations

import contextlib

from .. import errors, registry, settings
from .. import target as targets
from ..deadline import Deadline
from ..wire import names
from . import image_wishes, moments
from .image_wishes import Wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from ..control import Control
    from ..control.images import Draft, Images, ImageVersion
    from ..guest_image import Package, Source
    from ..target import Target

    class Front(Protocol):
        """Whoever shows what happens meanwhile."""

        def on_remark(self, text: str) -> None:
            """Something that the user should know."""

        def on_upload(self, done: int, total: int) -> None:
            """So many bytes of the zip are uploaded."""

        def on_state(self, text: str) -> None:
            """The build has got so far."""


__all__ = ["ASK_SECONDS", "BUILD_SECONDS", "Wish", "build_image", "find_source", "init_image", "read_build_log"]

BUILD_SECONDS = 3600.0  # most take two to six minutes
ASK_SECONDS = 60.0
_LOCAL_BASE = "whatever FROM names, the image is built on this machine's own programs"
_NO_AGENT = (
    "vmnest's agent (agentd) is not in the directory: unless something else answers in its place, sandboxes of this "
    "image run no commands. vmnest image init DIR writes a directory with the agent and a Dockerfile that starts it"
)
_SERVICES_ACCOUNT = "aws"  # in the ARNs of the service's own images
_LOG_SECONDS = 15.0  # must not hold up the error that it explains


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

    front = front or _Nobody()
    intent = image_wishes.resolve(wish or Wish(), local=local, region=region, environ=settings.environment())
    deadline = Deadline(timeout)
    source = guest_image.find(intent.directory(directory))
    for remark in filter(None, (source.remark, _LOCAL_BASE if intent.place.is_local else None)):
        front.on_remark(remark)
    intent.place.check_isolation(deadline=deadline)  # what a Dockerfile runs is no better than what a sandbox runs
    images = intent.place.control(deadline=deadline).images
    with guest_image.pack(source.path) as package:
        draft, uri = _publish(package, intent, images=images, deadline=deadline, front=front)
        described = {"artifact": uri, "digest": package.digest, "content_bytes": package.content_size}
    state = draft.state
    if wait:
        state = _await(draft, images, place=intent.place, deadline=deadline, front=front).state
    return {
        "name": intent.name,
        "image_arn": draft.image_arn,
        "image_version": draft.image_version,
        "state": state,
        **described,
    }


def init_image(*, directory: str | None = None) -> dict[str, object]:
    """Write the guest that comes with vmnest, its agent with a Dockerfile, into a directory to make an image of.

    Args:
        directory: One that is not there yet, or empty; by default ./guest.
    """
    from ..guest_image import source, starting

    path = directory or source.DEFAULT_DIRECTORY
    return {"directory": path, "files": list(starting.write(path))}


def find_source(
    *, directory: str | None = None, wish: Wish | None = None, local: bool | None = None, region: str | None = None
) -> Source:
    """The directory that ``build_image`` would make the image of, for whoever has a say in that.

    Args:
        directory: The directory; by default ./guest, or else the guest that comes with vmnest.
        wish: What it shall be.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
    """
    from .. import guest_image

    intent = image_wishes.resolve(wish or Wish(), local=local, region=region, environ=settings.environment())
    return guest_image.find(intent.directory(directory))


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

    Raises:
        errors.UnsupportedError: nobody built that image.
    """
    from ..control import logs
    from . import images as shown

    deadline = Deadline(timeout)
    place = targets.resolve(local=local, region=region, arn=image if image.startswith("arn:") else None)
    control = place.control(deadline=deadline)
    image_arn = _find_built(place, control.images, image, deadline=deadline)
    number = image_version or shown.newest(control.images, image_arn, deadline=deadline)
    version = control.images.version(image_arn, number, deadline=deadline)
    service = place.service("logs", deadline=deadline)
    found = logs.build_log(
        service, version, others=lambda: _sandboxes_of(version, control, deadline=deadline), deadline=deadline
    )
    lines = sorted(found, key=lambda line: line.time)
    return {
        "image_arn": image_arn,
        "image_version": version.image_version,
        "state": version.state,
        "log_group": logs.group_of(version),
        "lines": [
            {"time": moments.from_epoch(line.time, fractions=True), "stream": line.stream, "message": line.message}
            for line in lines
        ],
    }


def _find_built(place: Target, images: Images, image: str, *, deadline: Deadline) -> str:
    """The ARN of an image that somebody has built."""
    image_arn = image if _is_managed(image) else _find(place, images, image, deadline=deadline)
    built_in = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=names.LOCAL_IMAGE_NAME)
    if image_arn == built_in:
        whose = "it stands for this machine's own programs"
    elif _is_managed(image_arn):
        whose = "it is one of the service's own, which images are built on"
    else:
        return image_arn
    raise errors.UnsupportedError(
        f"image {image_arn.rpartition(':')[2]} was never built, so that there is no log of a build: {whose}",
        hint="What a sandbox has printed: vmnest logs NAME",
    )


def _find(place: Target, images: Images, image: str, *, deadline: Deadline) -> str:
    """The ARN of an image, be it the service's own."""
    from . import images as shown

    try:
        return shown.find(place, images, image, deadline=deadline)
    except errors.ImageNotFoundError:
        with contextlib.suppress(errors.AccessDeniedError):
            for arn in images.managed(deadline=deadline):
                if arn.endswith(f":{image}"):
                    return arn
        raise


def _is_managed(image: str) -> bool:
    return image.split(":")[4:5] == [_SERVICES_ACCOUNT]


def _sandboxes_of(version: ImageVersion, control: Control, *, deadline: Deadline) -> set[str]:
    """The ids of MicroVMs of a version's image that are no part of its build."""
    from ..control import logs

    recorded = {record.microvm_id for record in registry.open_default().all() if record.microvm_id}
    return recorded.union(logs.sandboxes_of(control.microvms, version, deadline=deadline))


class _Nobody:
    def on_remark(self, text: str) -> None:
        """Nobody listens."""

    def on_upload(self, done: int, total: int) -> None:
        """Nobody listens."""

    def on_state(self, text: str) -> None:
        """Nobody listens."""


def _publish(
    package: Package, intent: image_wishes.Intent, *, images: Images, deadline: Deadline, front: Front
) -> tuple[Draft, str]:
    """Look at the package, upload it and have a version built of it; that, and where the package is."""
    from .. import guest_image
    from ..guest_image import publishing

    hooks = intent.hooks(package)
    agent_port = settings.number("agent_port", environ=intent.place.environ)
    for warning in guest_image.check(package, hooks=hooks, agent_port=agent_port, architecture=intent.architecture):
        front.on_remark(warning)
    if not package.has_agent:
        front.on_remark(_NO_AGENT)
    bucket, role = intent.bucket(deadline), intent.role(deadline)
    uri = publishing.upload(
        package,
        intent.place.s3(deadline=deadline),
        bucket=bucket,
        image_name=intent.folder(bucket=bucket, role=role),
        deadline=deadline,
        on_progress=front.on_upload,
    )
    spec = intent.spec(uri=uri, role=role, base_image=intent.base_image(images, deadline), hooks=hooks)
    return publishing.publish(spec, images, deadline=deadline, on_full=front.on_state), uri


# -- waiting -----------------------------------------------------------------------------------------------------------


def _await(draft: Draft, images: Images, *, place: Target, deadline: Deadline, front: Front) -> ImageVersion:
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
        building.explain(error, _log_tail(draft, images, place=place), tell=front.on_remark)
        raise


def _log_tail(draft: Draft, images: Images, *, place: Target) -> list[str]:
    """The end of the build's log; none if it cannot be had."""
    from ..control import logs

    patience = Deadline(_LOG_SECONDS)
    try:
        version = images.version(draft.image_arn, draft.image_version, deadline=patience)
    except errors.VmnestError:
        return []  # then the reason of the build must do
    since = version.created_at.timestamp() if version.created_at else 0.0
    service = place.service("logs", deadline=patience)
    group = logs.group_of(version)
    return list(logs.tail(service, group, image_version=version.image_version, since=since, deadline=patience))
