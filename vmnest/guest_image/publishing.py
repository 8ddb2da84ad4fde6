"""From a package to a version of an image: upload the zip, then make the image, or a new version of it."""

from __future__ import annotations

from collections.abc import Callable

from .. import errors
from ..aws.s3 import S3
from ..control import building
from ..control.image_specs import ImageSpec
from ..control.images import Draft, Images
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from .packing import Package

__all__ = ["KEY_PREFIX", "key_of", "publish", "upload"]

KEY_PREFIX = "vmnest/"
_MOST_TRIES = 3


def key_of(image_name: str, digest: str) -> str:
    """Where a package lies in its bucket. Its content is in the name: what is there needs no upload."""
    return f"{KEY_PREFIX}{image_name}/{digest}.zip"


def upload(
    package: Package,
    s3: S3,
    *,
    bucket: str,
    image_name: str,
    deadline: Deadline,
    on_progress: Callable[[int, int], None] | None = None,
) -> str:
    """Put the package into the bucket, if it is not there; its URI.

    Raises:
        errors.ResourceNotFoundError: there is no such bucket.
        errors.AccessDeniedError: the bucket is somebody else's, or the credentials may not write to it.
    """
    key = key_of(image_name, package.digest)
    if not _is_there(s3, bucket, key, deadline):
        s3.upload(bucket, key, package.file, size=package.size, deadline=deadline, on_progress=on_progress)
    return f"s3://{bucket}/{key}"


def _is_there(s3: S3, bucket: str, key: str, deadline: Deadline) -> bool:
    try:
        return s3.exists(bucket, key, deadline=deadline) is not None
    except errors.AccessDeniedError:
        # Told to who may not list the bucket, of a key that is not there. Who may not write either is told so then.
        return False


def publish(
    spec: ImageSpec,
    images: Images,
    *,
    deadline: Deadline,
    on_full: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Draft:
    """Have a version built: the first of a new image, or the next one of the image that has the name.

    While the account has as many builds under way as it may, it waits; ``on_full`` is told so.

    Raises:
        errors.ServiceError: the service refuses; of an unknown outcome it says so.
    """

    def begin(ask: Callable[[], Draft]) -> Draft:
        return building.begin(ask, deadline=deadline, on_full=on_full, clock=clock)

    image_arn = _find(spec.name, images, deadline)
    if image_arn is None:
        return begin(lambda: images.create(spec, deadline=deadline))
    for is_last in (*(False,) * (_MOST_TRIES - 1), True):
        building.wait_settled(images, image_arn, deadline=deadline, clock=clock)
        try:
            return begin(lambda: images.update(image_arn, spec, deadline=deadline))
        except errors.ConflictError:
            if is_last:
                raise  # somebody else is always faster
    raise AssertionError("the last try returns or raises")


def _find(name: str, images: Images, deadline: Deadline) -> str | None:
    for found in images.list(name_filter=name, deadline=deadline):
        if found.name == name and found.state not in {"DELETING", "DELETED"}:
            return found.image_arn
    return None
