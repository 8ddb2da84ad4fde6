"""The API's operations on images: parameters in, result out. ``OPERATIONS`` and ``BUILD_OPERATIONS`` list them.

Their answers have members that the service's model does not know, as recorded from the service; what is absent is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..wire import names
from . import builder, faults, image_records, image_rules, images, options, paging
from .image_records import Build, Image, Version

Wire = Mapping[str, object]
Operation = Callable[[images.Images, Wire], Wire]
# With the text of the header ``vmnest-local-options``.
BuildOperation = Callable[[images.Images, Wire, "str | None"], Wire]

CHIPSET = "GRAVITON"
# Members of settings that every description of a version has.
_ECHOED = (
    "baseImageArn",
    "baseImageVersion",
    "buildRoleArn",
    "description",
    "codeArtifact",
    "logging",
    "egressNetworkConnectors",
    "cpuConfigurations",
    "resources",
    "additionalOsCapabilities",
    "hooks",
    "environmentVariables",
    "kmsKeyIdentifier",
)


# -- images ------------------------------------------------------------------------------------------------------------


def create_image(known: images.Images, params: Wire, local_options: str | None) -> Wire:
    """CreateMicrovmImage: answers CREATING, and the build begins."""

    def create() -> Wire:
        settings = _settings(known, params)
        tags = {key: str(value) for key, value in image_rules.mapping(params, "tags").items()}
        image, version = known.create(
            str(params["name"]), settings, tags=tags, egress_allow=_egress_allow(local_options)
        )
        return {**_draft(image, version), "tags": tags or None}

    return known.answers.once("CreateMicrovmImage", _asked(params, local_options), create)


def update_image(known: images.Images, params: Wire, local_options: str | None) -> Wire:
    """UpdateMicrovmImage: answers UPDATING, and the build of the next version begins."""

    def update() -> Wire:
        identifier = str(params["imageIdentifier"])
        known.get(identifier, action="UpdateMicrovmImage")  # that there is one comes first
        settings = _settings(known, params)
        return _draft(*known.update(identifier, settings, egress_allow=_egress_allow(local_options)))

    return known.answers.once("UpdateMicrovmImage", _asked(params, local_options), update)


def get_image(known: images.Images, params: Wire) -> Wire:
    """GetMicrovmImage."""
    image = known.get(str(params["imageIdentifier"]), action="GetMicrovmImage")
    return {**_summary(image), "tags": known.neighbours.tags.of(image.arn), "updatedAt": image.updated_at}


def list_images(known: images.Images, params: Wire) -> Wire:
    """ListMicrovmImages. As in the service, the name filter works on the page: a page may be empty."""
    chosen, token = paging.page(known.all(), params, key=lambda image: image.number)
    wanted = str(params.get("nameFilter") or "")
    return {"items": [_summary(image) for image in chosen if wanted in image.name], "nextToken": token}


def delete_image(known: images.Images, params: Wire) -> Wire:
    """DeleteMicrovmImage: answers DELETING, and it is gone a little later."""
    image = known.delete(str(params["imageIdentifier"]))
    state = image_records.DELETED if image is None else image.state
    return {"imageIdentifier": params["imageIdentifier"], "state": state}


def _asked(params: Wire, local_options: str | None) -> Wire:
    return {**params, names.LOCAL_OPTIONS_HEADER: local_options}


def _egress_allow(local_options: str | None) -> tuple[str, ...]:
    """What RUN may reach: the internet, unless the call says otherwise."""
    allowed = options.parse_build_egress(local_options)
    return builder.INTERNET if allowed is None else allowed


def _settings(known: images.Images, params: Wire) -> dict[str, object]:
    around = known.neighbours
    return image_rules.parse_settings(params, role_exists=around.role_exists, connector_state=around.connector_state)


def _draft(image: Image, version: Version) -> dict[str, object]:
    return {
        **_summary(image),
        **_echo(version),
        "imageVersion": version.label,
        "updatedAt": image.updated_at,
        "buildPhaseOverrides": None,
        "roleConfiguration": None,
    }


def _summary(image: Image) -> dict[str, object]:
    active, failed = image.latest_active, image.latest_failed
    return {
        "imageArn": image.arn,
        "name": image.name,
        "id": image.image_id,
        "state": image.state,
        "latestActiveImageVersion": None if active is None else active.label,
        "latestFailedImageVersion": None if failed is None else failed.label,
        "createdAt": image.created_at,
    }


# -- versions ----------------------------------------------------------------------------------------------------------


def get_version(known: images.Images, params: Wire) -> Wire:
    """GetMicrovmImageVersion."""
    return _describe(known, *_version(known, params, action="GetMicrovmImageVersion"))


def list_versions(known: images.Images, params: Wire) -> Wire:
    """ListMicrovmImageVersions."""
    image = known.get(str(params["imageIdentifier"]), action="ListMicrovmImageVersions")
    chosen, token = paging.page(image.versions, params, key=lambda version: version.number)
    return {"items": [_describe(known, image, version) for version in chosen], "nextToken": token}


def update_version(known: images.Images, params: Wire) -> Wire:
    """UpdateMicrovmImageVersion: whether MicroVMs may be started from it."""
    changed = known.set_status(str(params["imageIdentifier"]), str(params["imageVersion"]), str(params["status"]))
    return _describe(known, *changed)


def delete_version(known: images.Images, params: Wire) -> Wire:
    """DeleteMicrovmImageVersion: answers DELETING, and it is gone a little later."""
    image, version = known.delete_version(str(params["imageIdentifier"]), str(params["imageVersion"]))
    number = image_records.parse_number(str(params["imageVersion"]))
    return {
        "imageIdentifier": image.arn,
        "imageVersion": f"{number}.0",
        "state": image_records.DELETED if version is None else version.state,
    }


def _version(known: images.Images, params: Wire, *, action: str) -> tuple[Image, Version]:
    return known.version(str(params["imageIdentifier"]), str(params["imageVersion"]), action=action)


def _describe(known: images.Images, image: Image, version: Version) -> Wire:
    return {
        "imageArn": image.arn,
        "imageVersion": version.label,
        **_echo(version),
        "state": version.state,
        "status": version.status,
        "stateReason": version.reason,
        "tags": known.neighbours.tags.of(image.arn) or None,
        "createdAt": version.created_at,
        "updatedAt": version.updated_at,
        "versionStateTimeBucket": version.state_time_bucket,
    }


def _echo(version: Version) -> dict[str, object]:
    return {name: version.settings.get(name) for name in _ECHOED}


# -- builds ------------------------------------------------------------------------------------------------------------


def list_builds(known: images.Images, params: Wire) -> Wire:
    """ListMicrovmImageBuilds."""
    image, version = _version(known, params, action="ListMicrovmImageBuilds")
    found = [
        (number, build)
        for number, build in enumerate(version.builds, start=1)
        if params.get("architecture") in {None, image_rules.ARCHITECTURE}
        and params.get("chipset") in {None, CHIPSET}
        and params.get("chipsetGeneration") in {None, build.generation}
    ]
    chosen, token = paging.page(found, params, key=lambda one: one[0])
    return {"items": [_describe_build(image, version, build) for _, build in chosen], "nextToken": token}


def get_build(known: images.Images, params: Wire) -> Wire:
    """GetMicrovmImageBuild. A snapshot here is the disk's alone: it has no size of memory."""
    image, version = _version(known, params, action="GetMicrovmImageBuild")
    build = next((build for build in version.builds if build.build_id == params["buildId"]), None)
    if build is None:
        raise faults.not_found(
            f"MicroVMImage build not found for MicroVMImage: {image.arn}, Version: {params['imageVersion']}, "
            f"Build: {params['buildId']}"
        )
    made = version.built
    sizes = None
    if made is not None:
        sizes = {
            "codeInstallSizeInBytes": made.sizes.code_install_bytes,
            "diskSnapshotSizeInBytes": made.sizes.disk_snapshot_bytes,
        }
    return {**_describe_build(image, version, build), "snapshotBuild": sizes}


def _describe_build(image: Image, version: Version, build: Build) -> dict[str, object]:
    return {
        "imageArn": image.arn,
        "imageVersion": version.label,
        "buildId": build.build_id,
        "buildState": build.state,
        "architecture": image_rules.ARCHITECTURE,
        "chipset": CHIPSET,
        "chipsetGeneration": build.generation,
        "stateReason": build.reason,
        "createdAt": build.created_at,
        "terminationReasonCode": None,
    }


# -- what the service itself offers to build on ------------------------------------------------------------------------


def list_managed(known: images.Images, params: Wire) -> Wire:
    """ListManagedMicrovmImages."""
    return _page([_managed(known)], params)


def list_managed_versions(known: images.Images, params: Wire) -> Wire:
    """ListManagedMicrovmImageVersions, newest first."""
    identifier = str(params["imageIdentifier"])
    if not identifier.startswith("arn:"):
        raise faults.validation(f"Invalid ARN format: {identifier}")
    if identifier != image_rules.base_arn():
        raise faults.not_found(f"MicroVMImage not found for MicroVMImageID: {identifier}")
    found = [
        {
            **_managed(known),
            "imageVersion": str(number),
            "status": "AVAILABLE",
            "supportedCpuConfigurations": [{"architecture": image_rules.ARCHITECTURE}],
        }
        for number in image_rules.BASE_VERSIONS
    ]
    return _page(found, params)


def _managed(known: images.Images) -> dict[str, object]:
    return {"imageArn": image_rules.base_arn(), "createdAt": known.created_at, "updatedAt": known.created_at}


def _page(items: Sequence[Wire], params: Wire) -> Wire:
    """A page of a list that never changes."""
    chosen, token = paging.page(list(enumerate(items, start=1)), params, key=lambda one: one[0])
    return {"items": [item for _, item in chosen], "nextToken": token}


BUILD_OPERATIONS: Mapping[str, BuildOperation] = {
    "CreateMicrovmImage": create_image,
    "UpdateMicrovmImage": update_image,
}
OPERATIONS: Mapping[str, Operation] = {
    "GetMicrovmImage": get_image,
    "ListMicrovmImages": list_images,
    "DeleteMicrovmImage": delete_image,
    "GetMicrovmImageVersion": get_version,
    "ListMicrovmImageVersions": list_versions,
    "UpdateMicrovmImageVersion": update_version,
    "DeleteMicrovmImageVersion": delete_version,
    "ListMicrovmImageBuilds": list_builds,
    "GetMicrovmImageBuild": get_build,
    "ListManagedMicrovmImages": list_managed,
    "ListManagedMicrovmImageVersions": list_managed_versions,
}
