"""Images that MicroVMs start from: look at, list, find by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from .. import errors
from ..aws.service import Service
from ..deadline import Deadline
from . import answers


class Image(NamedTuple):
    """An image. What it is made of belongs to its versions."""

    image_arn: str
    name: str
    state: str
    created_at: datetime
    updated_at: datetime | None = None
    latest_active_version: str | None = None
    latest_failed_version: str | None = None
    tags: Mapping[str, str] = MappingProxyType({})
    raw: Mapping[str, object] = answers.NOTHING

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> Image:
        """The answer of GetMicrovmImage, or an item of the list."""
        tags = answers.find(answer, "tags", dict, operation=operation) or {}
        return cls(
            image_arn=answers.take(answer, "imageArn", str, operation=operation),
            name=answers.take(answer, "name", str, operation=operation),
            state=answers.take(answer, "state", str, operation=operation),
            created_at=answers.take(answer, "createdAt", datetime, operation=operation),
            updated_at=answers.find(answer, "updatedAt", datetime, operation=operation),
            latest_active_version=answers.find(answer, "latestActiveImageVersion", str, operation=operation),
            latest_failed_version=answers.find(answer, "latestFailedImageVersion", str, operation=operation),
            tags={str(key): str(value) for key, value in tags.items()},
            raw=answer,
        )


class ImageVersion(NamedTuple):
    """One version of an image. ``state`` tells how its build went, ``status`` whether it may be started from."""

    image_arn: str
    image_version: str
    state: str
    status: str | None
    memory_mib: int | None = None
    state_reason: str | None = None
    created_at: datetime | None = None
    raw: Mapping[str, object] = answers.NOTHING

    @property
    def runnable(self) -> bool:
        """MicroVMs can start from it."""
        return self.state == "SUCCESSFUL" and self.status == "ACTIVE"

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> ImageVersion:
        """The answer of GetMicrovmImageVersion, or an item of the list."""
        resources = answers.find(answer, "resources", list, operation=operation) or [{}]
        return cls(
            image_arn=answers.take(answer, "imageArn", str, operation=operation),
            image_version=answers.take(answer, "imageVersion", str, operation=operation),
            state=answers.take(answer, "state", str, operation=operation),
            status=answers.find(answer, "status", str, operation=operation),
            memory_mib=answers.find(resources[0], "minimumMemoryInMiB", int, operation=operation),
            state_reason=answers.find(answer, "stateReason", str, operation=operation),
            created_at=answers.find(answer, "createdAt", datetime, operation=operation),
            raw=answer,
        )


class Images:
    """Calls about images. They want ARNs: ``resolve`` makes one of a name."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def get(self, image_arn: str, *, deadline: Deadline) -> Image:
        """Look at an image.

        Raises:
            errors.ImageNotFoundError: the service knows none of that ARN.
        """
        answer = self._call("GetMicrovmImage", {"imageIdentifier": image_arn}, deadline)
        return Image.from_wire(answer, operation="GetMicrovmImage")

    def list(self, *, name_filter: str | None = None, deadline: Deadline) -> Iterator[Image]:
        """All images of the account and region whose name contains ``name_filter``, each once."""
        params = {"nameFilter": name_filter}
        seen: set[str] = set()
        for item in answers.pages(self._service, "ListMicrovmImages", params, deadline=deadline):
            image = Image.from_wire(item, operation="ListMicrovmImages")
            if image.image_arn not in seen:
                seen.add(image.image_arn)
                yield image

    def version(self, image_arn: str, image_version: str, *, deadline: Deadline) -> ImageVersion:
        """Look at one version.

        Raises:
            errors.ImageNotFoundError: the service knows no such version.
        """
        params = {"imageIdentifier": image_arn, "imageVersion": image_version}
        answer = self._call("GetMicrovmImageVersion", params, deadline)
        return ImageVersion.from_wire(answer, operation="GetMicrovmImageVersion")

    def versions(self, image_arn: str, *, deadline: Deadline) -> Iterator[ImageVersion]:
        """All versions of an image, failed ones included, in the service's order."""
        params = {"imageIdentifier": image_arn}
        try:
            for item in answers.pages(self._service, "ListMicrovmImageVersions", params, deadline=deadline):
                yield ImageVersion.from_wire(item, operation="ListMicrovmImageVersions")
        except errors.ResourceNotFoundError as error:
            raise _not_found(error) from error

    def resolve(self, image: str, *, deadline: Deadline) -> str:
        """The ARN of an image that is given by its ARN or its name (the service takes ARNs only).

        Raises:
            errors.ImageNotFoundError: no image has that name.
        """
        if image.startswith("arn:"):
            return image
        for found in self.list(name_filter=image, deadline=deadline):
            if found.name == image:
                return found.image_arn
        raise errors.ImageNotFoundError(
            f"no image named {image!r} in region {self._service.region}",
            hint="Check the name and the region, or give the image's ARN.",
        )

    def _call(self, operation: str, params: Mapping[str, object], deadline: Deadline) -> dict[str, object]:
        try:
            return self._service.call(operation, params, deadline=deadline)
        except errors.ResourceNotFoundError as error:
            raise _not_found(error) from error


def _not_found(error: errors.ResourceNotFoundError) -> errors.ImageNotFoundError:
    return errors.ImageNotFoundError(error.message, hint="Check its ARN; it may be in another region or account.")
