"""Images: the built-in one, ``local``, whose programs are this machine's."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from .._guest.agentd import wire
from ..wire import names
from . import faults, hooks, paging

VERSION = "1.0"
BASE_NAME = "al2023-1"
BASE_VERSION = "1"
_ACTIVE = "ACTIVE"

Wire = Mapping[str, object]


@dataclass(frozen=True)
class Image:
    """An image that can be run.

    Attributes:
        name: Its name in this account.
        created_at: When it was made.
        number: Its place in lists.
        has_run_hook: A payload can be handed to its VMs.
    """

    name: str
    created_at: float
    number: int = 1
    has_run_hook: bool = True

    @property
    def arn(self) -> str:
        """Its ARN."""
        return names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=self.name)


class Images:
    """The images of this local cloud."""

    def __init__(self, *, created_at: float, memory_mib: int) -> None:
        self._created_at = created_at
        self._memory_mib = memory_mib
        self._images = (Image(names.LOCAL_IMAGE_NAME, created_at),)

    def find(self, arn: str) -> Image | None:
        """The image of that ARN, or None."""
        return next((image for image in self._images if image.arn == arn), None)

    def to_run(self, identifier: str, version: str | None) -> tuple[Image, str]:
        """The image and version that RunMicrovm means.

        Raises:
            faults.Fault: there is none that can run.
        """
        if not identifier.startswith("arn:"):
            raise faults.validation("Malformed ARN - doesn't start with 'arn:'")
        self._check_account(identifier, action="RunMicrovm")
        image = self.find(identifier)
        if image is None or version not in {None, VERSION}:
            pinned = "" if version is None else f" and version {version}"
            raise faults.not_found(f"No active version found for MicroVM image {identifier}{pinned}")
        return image, VERSION

    # -- operations ----------------------------------------------------------------------------------------------------

    def get_image(self, params: Wire, *, tags: Wire) -> Wire:
        """GetMicrovmImage."""
        return {**self._summary(self._named(params)), "tags": tags, "updatedAt": self._created_at}

    def list_images(self, params: Wire) -> Wire:
        """ListMicrovmImages. As in the service, the name filter works on the page: a page may be empty."""
        chosen, token = paging.page(self._images, params, key=lambda image: image.number)
        wanted = str(params.get("nameFilter") or "")
        return {"items": [self._summary(image) for image in chosen if wanted in image.name], "nextToken": token}

    def list_versions(self, params: Wire, *, tags: Wire) -> Wire:
        """ListMicrovmImageVersions."""
        version = self._version(self._named(params), tags)
        chosen, token = paging.page([version], params, key=lambda item: 1)
        return {"items": chosen, "nextToken": token}

    def get_version(self, params: Wire, *, tags: Wire) -> Wire:
        """GetMicrovmImageVersion."""
        image = self._named(params)
        if params["imageVersion"] not in {VERSION, VERSION.removesuffix(".0")}:
            raise faults.not_found(
                f"MicroVMImage not found for MicroVMImage: {image.arn}, Version: {params['imageVersion']}"
            )
        return self._version(image, tags)

    def list_managed(self, params: Wire) -> Wire:
        """ListManagedMicrovmImages."""
        item = {"imageArn": base_arn(), "createdAt": self._created_at, "updatedAt": self._created_at}
        chosen, token = paging.page([item], params, key=lambda item: 1)
        return {"items": chosen, "nextToken": token}

    def list_managed_versions(self, params: Wire) -> Wire:
        """ListManagedMicrovmImageVersions."""
        if params["imageIdentifier"] != base_arn():
            raise faults.not_found(f"MicroVMImage not found for MicroVMImageID: {params['imageIdentifier']}")
        item = {
            "imageArn": base_arn(),
            "imageVersion": BASE_VERSION,
            "status": "AVAILABLE",
            "createdAt": self._created_at,
            "updatedAt": self._created_at,
        }
        chosen, token = paging.page([item], params, key=lambda item: 1)
        return {"items": chosen, "nextToken": token}

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _named(self, params: Wire) -> Image:
        identifier = str(params["imageIdentifier"])
        if not identifier.startswith("arn:"):
            raise faults.validation(f"Invalid ARN format: {identifier}")
        self._check_account(identifier, action="GetMicrovmImage")
        image = self.find(identifier)
        if image is None:
            raise faults.not_found(f"MicroVMImage not found for MicroVMImageID: {identifier}")
        return image

    def _check_account(self, arn: str, *, action: str) -> None:
        parts = arn.split(":")
        if len(parts) < 7 or parts[5] != "microvm-image":
            raise faults.validation(f"Invalid ARN format: {arn}")
        if parts[4] != names.LOCAL_ACCOUNT:
            raise faults.access_denied(action, arn)

    def _summary(self, image: Image) -> dict[str, object]:
        return {
            "imageArn": image.arn,
            "name": image.name,
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, image.arn)),
            "state": "CREATED",
            "latestActiveImageVersion": VERSION,
            "latestFailedImageVersion": None,
            "createdAt": image.created_at,
        }

    def _version(self, image: Image, tags: Wire) -> Wire:
        return {
            "imageArn": image.arn,
            "imageVersion": VERSION,
            "state": "SUCCESSFUL",
            "status": _ACTIVE,
            "stateReason": None,
            "description": "The programs of this machine",
            "baseImageArn": base_arn(),
            "baseImageVersion": f"{BASE_VERSION}.0",
            # Members that the model requires, of an image that nobody built.
            "buildRoleArn": f"arn:aws:iam::{names.LOCAL_ACCOUNT}:role/vmnest-local",
            "codeArtifact": {"uri": "s3://vmnest-local/built-in"},
            "logging": None,
            "egressNetworkConnectors": [],
            "cpuConfigurations": None,
            "resources": [{"minimumMemoryInMiB": self._memory_mib}],
            "additionalOsCapabilities": None,
            "hooks": _hooks(),
            "environmentVariables": None,
            "tags": tags,
            "createdAt": image.created_at,
            "updatedAt": image.created_at,
        }


def _hooks() -> Wire:
    """The agent has all hooks; where one of the runtime is, the service wants ``ready`` too."""
    timeouts = {
        "run": hooks.RUN_SECONDS,
        "resume": hooks.RESUME_SECONDS,
        "suspend": hooks.SUSPEND_SECONDS,
        "terminate": hooks.TERMINATE_SECONDS,
    }
    enabled: dict[str, object] = dict.fromkeys(timeouts, "ENABLED")
    return {
        "port": wire.HOOK_PORT,
        "microvmImageHooks": {"ready": "ENABLED", "readyTimeoutInSeconds": 60},
        "microvmHooks": {**enabled, **{f"{name}TimeoutInSeconds": int(value) for name, value in timeouts.items()}},
    }


def base_arn() -> str:
    """The managed base image: by name AWS's, in truth this machine."""
    return names.image_arn(region=names.LOCAL_REGION, account="aws", name=BASE_NAME)
