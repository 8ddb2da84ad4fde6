"""Images that MicroVMs start from: look at, list, find by name, make, change, delete."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from .. import errors
from ..aws.service import Service
from ..deadline import Deadline
from ..wire import names
from . import answers, local_options
from .image_specs import ALL_CAPABILITIES, ImageSpec

__all__ = ["Build", "Draft", "Image", "ImageVersion", "Images", "ManagedVersion", "Snapshot"]


_NAME = re.compile(names.IMAGE_NAME)


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
    """One version of an image. ``state`` tells how its build went, ``status`` whether it may be started from.

    ``hooks`` are as on the wire: none that is not ENABLED counts.
    """

    image_arn: str
    image_version: str
    state: str
    status: str | None
    memory_mib: int | None = None
    state_reason: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    base_image_arn: str | None = None
    base_image_version: str | None = None
    build_role_arn: str | None = None
    code_uri: str | None = None
    description: str | None = None
    environment: Mapping[str, str] = MappingProxyType({})
    has_all_capabilities: bool = False
    hooks: answers.Answer = answers.NOTHING
    log_group: str | None = None
    egress_connectors: tuple[str, ...] = ()
    raw: Mapping[str, object] = answers.NOTHING

    def __repr__(self) -> str:
        return f"ImageVersion({self.image_arn!r}, {self.image_version!r}, {self.state!r})"  # no environment: see there

    @property
    def runnable(self) -> bool:
        """MicroVMs can start from it."""
        return self.state == "SUCCESSFUL" and self.status == "ACTIVE"

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> ImageVersion:
        """The answer of GetMicrovmImageVersion, or an item of the list."""

        def find(name: str) -> str | None:
            return answers.find(answer, name, str, operation=operation)

        resources = answers.find(answer, "resources", list, operation=operation) or [{}]
        artifact = answers.find(answer, "codeArtifact", dict, operation=operation) or {}
        logging = answers.find(answer, "logging", dict, operation=operation) or {}
        cloud_watch = answers.find(logging, "cloudWatch", dict, operation=operation) or {}
        environment = answers.find(answer, "environmentVariables", dict, operation=operation) or {}
        capabilities = answers.texts(answer, "additionalOsCapabilities", operation=operation)
        return cls(
            image_arn=answers.take(answer, "imageArn", str, operation=operation),
            image_version=answers.take(answer, "imageVersion", str, operation=operation),
            state=answers.take(answer, "state", str, operation=operation),
            status=find("status"),
            memory_mib=answers.find(resources[0], "minimumMemoryInMiB", int, operation=operation),
            state_reason=find("stateReason"),
            created_at=answers.find(answer, "createdAt", datetime, operation=operation),
            updated_at=answers.find(answer, "updatedAt", datetime, operation=operation),
            base_image_arn=find("baseImageArn"),
            base_image_version=find("baseImageVersion"),
            build_role_arn=find("buildRoleArn"),
            code_uri=answers.find(artifact, "uri", str, operation=operation),
            description=find("description"),
            environment={str(key): str(value) for key, value in environment.items()},
            has_all_capabilities=ALL_CAPABILITIES in capabilities,
            hooks=answers.find(answer, "hooks", dict, operation=operation) or {},
            log_group=answers.find(cloud_watch, "logGroup", str, operation=operation),
            egress_connectors=answers.texts(answer, "egressNetworkConnectors", operation=operation),
            raw=answer,
        )


class Draft(NamedTuple):
    """A version whose build was asked for."""

    image_arn: str
    image_version: str
    state: str

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> Draft:
        """The answer of CreateMicrovmImage or UpdateMicrovmImage."""
        return cls(*(answers.take(answer, name, str, operation=operation) for name in _DRAFT_MEMBERS))


_DRAFT_MEMBERS = ("imageArn", "imageVersion", "state")


class Build(NamedTuple):
    """One of the builds of a version: each is for one kind of processor. Only builds tell why one failed."""

    build_id: str
    state: str
    generation: str | None = None
    architecture: str | None = None
    state_reason: str | None = None
    created_at: datetime | None = None
    raw: Mapping[str, object] = answers.NOTHING

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> Build:
        """An item of ListMicrovmImageBuilds."""
        return cls(
            build_id=answers.take(answer, "buildId", str, operation=operation),
            state=answers.take(answer, "buildState", str, operation=operation),
            generation=answers.find(answer, "chipsetGeneration", str, operation=operation),
            architecture=answers.find(answer, "architecture", str, operation=operation),
            state_reason=answers.find(answer, "stateReason", str, operation=operation),
            created_at=answers.find(answer, "createdAt", datetime, operation=operation),
            raw=answer,
        )


class Snapshot(NamedTuple):
    """How large what a build left is. Without the first two it left nothing to start from."""

    memory_bytes: int | None
    disk_bytes: int | None
    code_bytes: int | None

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> Snapshot:
        """The answer of GetMicrovmImageBuild."""
        sizes = answers.find(answer, "snapshotBuild", dict, operation=operation) or {}
        return cls(*(answers.find(sizes, name, int, operation=operation) for name in _SNAPSHOT_MEMBERS))


_SNAPSHOT_MEMBERS = ("memorySnapshotSizeInBytes", "diskSnapshotSizeInBytes", "codeInstallSizeInBytes")


class ManagedVersion(NamedTuple):
    """A version of an image of the service's own, to build on. ``status``: AVAILABLE, DEPRECATED or RECALLED."""

    image_arn: str
    image_version: str
    status: str | None
    raw: Mapping[str, object] = answers.NOTHING


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

    def builds(self, image_arn: str, image_version: str, *, deadline: Deadline) -> Iterator[Build]:
        """The builds of a version.

        Raises:
            errors.ImageNotFoundError: the service knows no such version.
        """
        params = {"imageIdentifier": image_arn, "imageVersion": image_version}
        try:
            for item in answers.pages(self._service, "ListMicrovmImageBuilds", params, deadline=deadline):
                yield Build.from_wire(item, operation="ListMicrovmImageBuilds")
        except errors.ResourceNotFoundError as error:
            raise _not_found(error) from error

    def snapshot(self, image_arn: str, image_version: str, build_id: str, *, deadline: Deadline) -> Snapshot:
        """How large what a build left is.

        Raises:
            errors.ImageNotFoundError: the service knows no such build.
        """
        params = {"imageIdentifier": image_arn, "imageVersion": image_version, "buildId": build_id}
        answer = self._call("GetMicrovmImageBuild", params, deadline)
        return Snapshot.from_wire(answer, operation="GetMicrovmImageBuild")

    def managed(self, *, deadline: Deadline) -> Iterator[str]:
        """The ARNs of the service's own images, in its order."""
        for item in answers.pages(self._service, "ListManagedMicrovmImages", {}, deadline=deadline):
            yield answers.take(item, "imageArn", str, operation="ListManagedMicrovmImages")

    def managed_versions(self, image_arn: str, *, deadline: Deadline) -> Iterator[ManagedVersion]:
        """The versions of one of the service's own images, the newest first."""
        operation = "ListManagedMicrovmImageVersions"
        try:
            for item in answers.pages(self._service, operation, {"imageIdentifier": image_arn}, deadline=deadline):
                number = answers.take(item, "imageVersion", str, operation=operation)
                yield ManagedVersion(image_arn, number, answers.find(item, "status", str, operation=operation), item)
        except errors.ResourceNotFoundError as error:
            raise _not_found(error) from error

    def create(self, spec: ImageSpec, *, deadline: Deadline) -> Draft:
        """Make an image and begin to build its first version. A name that is taken is a ValidationError."""
        params = {**spec.to_wire(), "name": spec.name, "tags": dict(spec.tags) or None}
        return self._build("CreateMicrovmImage", params, spec, deadline)

    def update(self, image_arn: str, spec: ImageSpec, *, deadline: Deadline) -> Draft:
        """Begin to build a new version, of just what ``spec`` says: nothing is kept of the version before.

        Raises:
            errors.ImageNotFoundError: the service knows no image of that ARN.
            errors.ConflictError: one is being built, or a version deleted.
        """
        return self._build("UpdateMicrovmImage", {**spec.to_wire(), "imageIdentifier": image_arn}, spec, deadline)

    def delete(self, image_arn: str, *, deadline: Deadline) -> None:
        """Begin to delete an image with all versions. It is gone once ``get`` does not find it any more."""
        self._call("DeleteMicrovmImage", {"imageIdentifier": image_arn}, deadline)

    def delete_version(self, image_arn: str, image_version: str, *, deadline: Deadline) -> None:
        """Begin to delete one version; the image is UPDATING until that is done, and takes no other change."""
        params = {"imageIdentifier": image_arn, "imageVersion": image_version}
        self._call("DeleteMicrovmImageVersion", params, deadline)

    def resolve(self, image: str, *, deadline: Deadline) -> str:
        """The ARN of an image that is given by its ARN or its name (the service takes ARNs only).

        Raises:
            errors.ImageNotFoundError: no image has that name.
        """
        if image.startswith("arn:"):
            return image
        # What can be no name is not asked for: the service would refuse the question.
        candidates = self.list(name_filter=image, deadline=deadline) if _NAME.fullmatch(image) else ()
        for found in candidates:
            if found.name == image:
                return found.image_arn
        raise errors.ImageNotFoundError(
            f"no image named {image!r} in region {self._service.region}",
            hint="Check the name and the region, or give the image's ARN.",
        )

    def _build(self, operation: str, params: Mapping[str, object], spec: ImageSpec, deadline: Deadline) -> Draft:
        headers = local_options.to_headers(spec.local_options)
        return Draft.from_wire(self._call(operation, params, deadline, headers), operation=operation)

    def _call(
        self,
        operation: str,
        params: Mapping[str, object],
        deadline: Deadline,
        extra_headers: Sequence[tuple[str, str]] = (),
    ) -> dict[str, object]:
        try:
            return self._service.call(operation, params, deadline=deadline, extra_headers=extra_headers)
        except errors.ResourceNotFoundError as error:
            raise _not_found(error) from error


def _not_found(error: errors.ResourceNotFoundError) -> errors.ImageNotFoundError:
    return errors.ImageNotFoundError(error.message, hint="Check its ARN; it may be in another region or account.")
