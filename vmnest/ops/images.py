"""Images: list, look at, remove, and clear away what nothing is started from any more."""

from __future__ import annotations

from .. import errors, registry, settings
from .. import target as targets
from ..deadline import Deadline
from ..wire import names
from . import moments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..control import Control
    from ..control.images import Image, Images, ImageVersion
    from ..target import Target


__all__ = [
    "image_inspect",
    "image_list",
    "image_prune",
    "image_remove",
    "image_versions",
    "find",
    "newest",
    "plan_prune",
    "ASK_SECONDS",
    "REMOVE_SECONDS",
]

ASK_SECONDS = 60.0
REMOVE_SECONDS = 300.0
_IN_CHANGE = frozenset({"CREATING", "UPDATING", "DELETING", "DELETED"})


def image_list(
    *,
    managed: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """List the account's images, or the service's own, which images are built on.

    Args:
        managed: The service's own.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
    """
    deadline = Deadline(timeout)
    images = _place(local, region).control(deadline=deadline).images
    if managed:
        found = [_managed(images, arn, deadline) for arn in images.managed(deadline=deadline)]
    else:
        found = [_describe(image) for image in images.list(deadline=deadline)]
    return {"images": sorted(found, key=lambda image: str(image["name"]))}


def image_inspect(
    *,
    image: str,
    image_version: str | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Show an image, and what a version of it is made of. Values of its variables are not shown.

    Args:
        image: Its name or ARN.
        image_version: The version; by default the newest that can run, else the newest.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
    """
    deadline = Deadline(timeout)
    place = _place(local, region, image)
    images = place.control(deadline=deadline).images
    found = images.get(find(place, images, image, deadline=deadline), deadline=deadline)
    number = image_version or found.latest_active_version or newest(images, found.image_arn, deadline=deadline)
    version = images.version(found.image_arn, number, deadline=deadline)
    builds = [
        {"build_id": build.build_id, "state": build.state, "generation": build.generation, "reason": build.state_reason}
        for build in images.builds(found.image_arn, version.image_version, deadline=deadline)
    ]
    return {**_describe(found), "tags": dict(found.tags), "version": {**_describe_version(version), "builds": builds}}


def image_versions(
    *,
    image: str,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """List the versions of an image, the newest first, failed ones included.

    Args:
        image: Its name or ARN.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
    """
    deadline = Deadline(timeout)
    place = _place(local, region, image)
    images = place.control(deadline=deadline).images
    image_arn = find(place, images, image, deadline=deadline)
    found = _newest_first(images.versions(image_arn, deadline=deadline))
    return {"image_arn": image_arn, "versions": [_describe_version(version) for version in found]}


def image_remove(
    *,
    image: str,
    image_version: str | None = None,
    wait: bool = True,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = REMOVE_SECONDS,
) -> dict[str, object]:
    """Delete an image with all its versions, or one version of it.

    Args:
        image: Its name or ARN.
        image_version: Delete this version only.
        wait: Wait until it is gone: until then its name is taken.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
    """
    deadline = Deadline(timeout)
    place = _place(local, region, image)
    control = place.control(deadline=deadline)
    image_arn = find(place, control.images, image, deadline=deadline)
    _remove(control, image_arn, image_version, wait=wait, deadline=deadline)
    if image_version is None:
        _remove_uploads(place, image_arn, deadline)
    return {"image_arn": image_arn, "image_version": image_version, "removed": True}


def plan_prune(
    *,
    versions: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Find the images that no live MicroVM was started from and that nothing names; delete nothing.

    What is being built or deleted is left out, and what has the tags of a stack: that may be recorded elsewhere.

    Args:
        versions: Also the versions, of images that stay, that are neither the newest that can run nor in use.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
    """
    deadline = Deadline(timeout)
    place = _place(local, region)
    control = place.control(deadline=deadline)
    in_use = _in_use(control, deadline)
    needed = {*_needed(place), *(arn for arn, _ in in_use)}
    found: list[dict[str, object]] = []
    for image in control.images.list(deadline=deadline):
        if image.state in _IN_CHANGE:
            continue
        if image.image_arn not in needed:
            if _is_nobodys(control.images, image, deadline):
                found.append({"image_arn": image.image_arn, "name": image.name, "image_version": None})
        elif versions:
            kept = {number for arn, number in in_use if arn == image.image_arn}
            found += _old_versions(control.images, image, kept=kept, deadline=deadline)
    return {"images": found}


def image_prune(
    *,
    versions: bool = False,
    only: Sequence[Mapping[str, object]] | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = REMOVE_SECONDS,
) -> dict[str, object]:
    """Delete the images that no live MicroVM was started from and that nothing names; see ``plan_prune``.

    Args:
        versions: Also the versions, of images that stay, that are neither the newest that can run nor in use.
        only: Of these, what ``plan_prune`` found before and somebody agreed to.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that this may take.
    """
    deadline = Deadline(timeout)
    planned = plan_prune(versions=versions, local=local, region=region, timeout=timeout)
    place = _place(local, region)
    control = place.control(deadline=deadline)
    removed: list[dict[str, object]] = []
    failed: list[dict[str, object]] = []
    found = planned["images"]
    assert isinstance(found, list)
    for each in found:
        if only is not None and each not in only:
            continue
        try:
            _remove(control, str(each["image_arn"]), each["image_version"], wait=True, deadline=deadline)
            if each["image_version"] is None:
                _remove_uploads(place, str(each["image_arn"]), deadline)
        except (errors.ServiceError, errors.ImageNotFoundError) as error:
            failed.append({**each, "error": {"code": error.code, "message": error.message}})
        else:
            removed.append(each)
    return {"images": removed, "failed": failed}


def find(place: Target, images: Images, image: str, *, deadline: Deadline) -> str:
    """The ARN of the image of that name or ARN.

    Raises:
        errors.ImageNotFoundError: no image has that name.
        errors.UsageError: the ARN is of the other target.
    """
    return place.image(image) if image.startswith("arn:") else images.resolve(image, deadline=deadline)


def newest(images: Images, image_arn: str, *, deadline: Deadline) -> str:
    """The number of an image's newest version, whatever became of it.

    Raises:
        errors.ImageNotFoundError: it has none.
    """
    found = _newest_first(images.versions(image_arn, deadline=deadline))
    if not found:
        raise errors.ImageNotFoundError(f"image {image_arn} has no version")
    return found[0].image_version


def _place(local: bool | None, region: str | None, image: str = "") -> Target:
    return targets.resolve(local=local, region=region, arn=image if image.startswith("arn:") else None)


def _describe(image: Image) -> dict[str, object]:
    return {
        "name": image.name,
        "image_arn": image.image_arn,
        "state": image.state,
        "latest_active_version": image.latest_active_version,
        "latest_failed_version": image.latest_failed_version,
        "created_at": moments.to_iso(image.created_at),
    }


def _managed(images: Images, arn: str, deadline: Deadline) -> dict[str, object]:
    versions = [
        {"image_version": version.image_version, "status": version.status}
        for version in images.managed_versions(arn, deadline=deadline)
    ]
    return {"name": arn.rpartition(":")[2], "image_arn": arn, "versions": versions}


def _describe_version(version: ImageVersion) -> dict[str, object]:
    return {
        "image_version": version.image_version,
        "state": version.state,
        "status": version.status,
        "state_reason": version.state_reason,
        "memory": version.memory_mib,
        "base_image": version.base_image_arn,
        "base_image_version": version.base_image_version,
        "build_role": version.build_role_arn,
        "artifact": version.code_uri,
        "description": version.description,
        "variables": sorted(version.environment),
        "capabilities": "ALL" if version.has_all_capabilities else None,
        "hooks": dict(version.hooks),
        "log_group": version.log_group,
        "egress_network_connectors": list(version.egress_connectors),
        "created_at": moments.to_iso(version.created_at) if version.created_at else None,
        "updated_at": moments.to_iso(version.updated_at) if version.updated_at else None,
    }


def _newest_first(versions: Iterator[ImageVersion]) -> list[ImageVersion]:
    return sorted(versions, key=lambda version: _number(version.image_version), reverse=True)


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in text.split("."))


def _remove(control: Control, image_arn: str, image_version: str | None, *, wait: bool, deadline: Deadline) -> None:
    from ..control import building

    if image_version is not None:
        control.images.delete_version(image_arn, image_version, deadline=deadline)
        if wait:
            building.wait_settled(control.images, image_arn, deadline=deadline)
        return
    try:
        control.images.delete(image_arn, deadline=deadline)
    except errors.ValidationError as error:
        users = [microvm_id for microvm_id, arn, _ in _live(control, deadline) if arn == image_arn]
        if users:
            error.add_hint(
                f"End the MicroVMs that were started from it: {_some(users)}. vmnest ls --all shows them, vmnest rm "
                "ends them."
            )
        elif control.images.get(image_arn, deadline=deadline).state in _IN_CHANGE:
            error.add_hint("A version of it is being built or deleted: wait until that is done.")
        raise
    if wait:
        building.wait_deleted(control.images, image_arn, deadline=deadline)


def _remove_uploads(place: Target, image_arn: str, deadline: Deadline) -> None:
    """What was uploaded on this machine to the bucket that ``image build`` has made itself: nothing else removes it."""
    if not place.is_local:
        return
    from ..guest_image import publishing
    from . import image_wishes

    s3, bucket = place.s3(deadline=deadline), image_wishes.LOCAL_BUCKET
    folder = f"{publishing.KEY_PREFIX}{image_arn.rpartition(':')[2]}/"
    try:
        for found in list(s3.objects(bucket, folder, deadline=deadline)):
            s3.call("DeleteObject", {"Bucket": bucket, "Key": found.key}, deadline=deadline)
    except errors.ResourceNotFoundError:
        return  # another bucket was named for all images


def _some(users: Sequence[str]) -> str:
    shown = registry.open_default().show_microvms(users[:3])
    return ", ".join(shown) + (f" and {len(users) - 3} more" if len(users) > 3 else "")


def _live(control: Control, deadline: Deadline) -> Iterator[tuple[str, str, str]]:
    """Id, image and version of the MicroVMs that have not ended."""
    for microvm in control.microvms.list(deadline=deadline):
        if microvm.state not in names.ENDED_STATES:
            yield microvm.microvm_id, microvm.image_arn, microvm.image_version


def _in_use(control: Control, deadline: Deadline) -> set[tuple[str, str]]:
    return {(arn, version) for _, arn, version in _live(control, deadline)}


def _needed(place: Target) -> set[str]:
    """The images that something names from which MicroVMs are to be started."""
    from ..infra import state

    environ = place.environ
    configured = settings.text("image_arn", environ=environ)
    stacks = state.open_default(environ).all()
    recorded = {str(stack.outputs.get("image_arn")) for stack in stacks}
    recorded |= {resource.id for stack in stacks for resource in stack.resources.values()}
    sandboxes = {record.image_arn for record in registry.open_default().all() if record.image_arn}
    built_in = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=names.LOCAL_IMAGE_NAME)
    return {*recorded, *sandboxes, built_in, configured or ""}


def _is_nobodys(images: Images, image: Image, deadline: Deadline) -> bool:
    """It is there, and no stack has made it. The list of images has no tags."""
    from ..infra import ownership

    try:
        return ownership.owner_of(images.get(image.image_arn, deadline=deadline).tags) is None
    except errors.ImageNotFoundError:
        return False


def _old_versions(images: Images, image: Image, *, kept: set[str], deadline: Deadline) -> Iterator[dict[str, object]]:
    """The versions of an image that nobody would miss. The last one can only go with the image."""
    found = _newest_first(images.versions(image.image_arn, deadline=deadline))
    runnable = next((version.image_version for version in found if version.runnable), None)
    keep = {*kept, runnable or (found[0].image_version if found else "")}
    for version in found:
        if version.image_version not in keep and version.state not in {"PENDING", "IN_PROGRESS", "DELETING"}:
            yield {"image_arn": image.image_arn, "name": image.name, "image_version": version.image_version}
