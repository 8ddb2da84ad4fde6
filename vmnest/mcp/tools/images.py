"""Images: what sandboxes start from; listed, looked at, built, deleted."""

from __future__ import annotations

from ... import errors
from ...ops import builds, images
from . import attendance, hostpaths, longer
from .pulse import Pulse
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..calls import Call

__all__ = ["TOOLS"]

_BUILDS = longer.Works(
    "build",
    again="It goes on. Call image_build again with nothing but this id.",
    lost="It may have been started by a server that has ended: image_inspect tells what became of the image.",
)


def image_list(*, managed: bool = False, local: bool | None = None, region: str | None = None) -> dict[str, object]:
    """List the images, or those of the service, which images are built on.

    Args:
        managed: Those of the service.
        local: true: here; false: AWS. Best left out.
        region: AWS region.

    Returns:
        images {name, image_arn, state, latest_active_version}; managed ones with versions.
    """
    return images.image_list(managed=managed, local=local, region=region, timeout=attendance.MOST_SECONDS)


def image_inspect(*, image_arn: str, image_version: str | None = None, local: bool | None = None) -> dict[str, object]:
    """Show an image, and what a version of it is made of.

    Args:
        image_arn: Its ARN, or its name.
        image_version: By default the newest that can run.
        local: true: here; false: AWS. Best left out.

    Returns:
        name, state, tags, version {state, state_reason, memory, builds}.
    """
    return images.image_inspect(
        image=image_arn, image_version=image_version, local=local, timeout=attendance.MOST_SECONDS
    )


def image_build(
    *,
    directory: str | None = None,
    name: str | None = None,
    id: str | None = None,  # noqa: A002 - as all tools call it
    memory: int | None = None,
    environment: dict[str, str] | None = None,
    bucket: str | None = None,
    role: str | None = None,
    egress_allow: list[str] | None = None,
    local: bool | None = None,
    region: str | None = None,
    call: Call,
) -> dict[str, object]:
    """Build an image, or a new version of it, of a directory of this machine with a Dockerfile. Takes minutes. Answers
    within 45 seconds: if running is true, call it again with nothing but id. The error of one that fails has its log.

    Args:
        directory: By default ./guest, or else vmnest's own guest.
        name: By default that in sandbox.yaml.
        id: Wait on for the build with this id.
        memory: MiB: 512, 1024, 2048, 4096 or 8192.
        environment: Variables; no secrets: the image shows them.
        bucket: S3 bucket to upload to.
        role: ARN of the build's role.
        egress_allow: Hosts that a local build may reach; internet by default.
        local: true: here; false: AWS. Best left out.
        region: AWS region.

    Returns:
        image_arn, image_version, state; or running, id, progress.
    """
    if id is not None:
        return _BUILDS.attend(id, call=call)
    wish = builds.Wish(
        name=name,
        bucket=bucket,
        role=role,
        memory=memory,
        environment=environment,
        egress_allow=egress_allow,
    )
    given = None if directory is None else hostpaths.allow(directory)
    source = builds.find_source(directory=given, wish=wish, local=local, region=region)
    path = source.path if source.is_packaged else hostpaths.allow(source.path)

    def build(work: longer.Work) -> dict[str, object]:
        if source.remark is not None:
            work.notes.append(source.remark)
        return builds.build_image(directory=path, wish=wish, local=local, region=region, front=_Front(work))

    return _BUILDS.start(build, call=call)


class _Front:
    """Tells a work how far a build is; a ``builds.Front``."""

    def __init__(self, work: longer.Work) -> None:
        self._work = work

    def on_remark(self, text: str) -> None:
        """For the user."""
        self._work.notes.append(text)

    def on_upload(self, done: int, total: int) -> None:
        """How much is uploaded."""
        self._work.tell(f"uploaded {done} of {total} bytes")

    def on_state(self, text: str) -> None:
        """How far the build is."""
        self._work.tell(text)


def image_remove(
    *,
    image_arn: str,
    confirm: bool = False,
    image_version: str | None = None,
    local: bool | None = None,
    call: Call,
) -> dict[str, object]:
    """Delete an image with all its versions, or one of them, for good: ask the user first.

    Args:
        image_arn: Its ARN, or its name.
        confirm: Must be true.
        image_version: Only this version.
        local: true: here; false: AWS. Best left out.

    Returns:
        image_arn, image_version, removed.
    """
    if not confirm:
        raise _unconfirmed(f"image_remove deletes {image_arn} for good", instead="")
    try:
        with Pulse(call, f"deleting {image_arn}"):
            return images.image_remove(
                image=image_arn,
                image_version=image_version,
                local=local,
                timeout=attendance.MOST_SECONDS,
            )
    except errors.WaitTimeoutError as error:
        error.add_hint("A deletion that has begun goes on by itself: image_inspect tells how far it is.")
        raise


def image_prune(
    *,
    confirm: bool = False,
    versions: bool = False,
    dry_run: bool = False,
    local: bool | None = None,
    call: Call,
) -> dict[str, object]:
    """Delete all images that no live sandbox is of and nothing names, for good: ask the user first, with what dry_run
    tells.

    Args:
        confirm: Must be true.
        versions: Also old versions of images that stay.
        dry_run: Only tell what would go.
        local: true: here; false: AWS. Best left out.

    Returns:
        images {image_arn, name, image_version} that have gone, or would go; failed.
    """
    if dry_run:
        planned = images.plan_prune(versions=versions, local=local, timeout=attendance.MOST_SECONDS)
        return {**planned, "dry_run": True}
    if not confirm:
        raise _unconfirmed("image_prune deletes images for good", instead="dry_run: true tells which ones. ")
    try:
        with Pulse(call, "deleting images"):
            return images.image_prune(versions=versions, local=local, timeout=attendance.MOST_SECONDS)
    except errors.WaitTimeoutError as error:
        error.add_hint("Those that were begun with go on being deleted; call image_prune again for the others.")
        raise


def _unconfirmed(what: str, *, instead: str) -> errors.UsageError:
    return errors.ConfirmationError(what, hint=f"{instead}If the user wants that: confirm: true.")


TOOLS = (
    Tool(image_list, title="List images", reads=True),
    Tool(image_inspect, title="Inspect an image", reads=True),
    Tool(image_remove, title="Delete an image", destroys=True, repeatable=True),
    Tool(image_prune, title="Delete unused images", destroys=True, repeatable=True),
    Tool(image_build, title="Build an image", is_open=True),
)
