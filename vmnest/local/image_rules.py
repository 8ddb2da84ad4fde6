"""What the service demands of an image beyond its model, in its words where they are known. Pure.

``parse_settings`` takes the parameters of CreateMicrovmImage or UpdateMicrovmImage and gives what the new version is
made with: an update replaces everything, so what it does not name is the default again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ..wire import names
from . import connectors, faults, image_records

BASE_NAME = "al2023-1"
BASE_VERSIONS = (1, 0)  # newest first, as they are listed
MEMORY_SIZES_MIB = (512, 1024, 2048, 4096, 8192)
DEFAULT_MEMORY_MIB = 2048
ARCHITECTURE = "ARM_64"
RESERVED_VARIABLES = frozenset({"AWS_REGION"})

RUNTIME_HOOKS = ("run", "resume", "suspend", "terminate")
IMAGE_HOOKS = ("ready", "validate")
ENABLED = "ENABLED"

# What a version keeps of the parameters.
_KEPT = (
    "baseImageArn",
    "buildRoleArn",
    "description",
    "codeArtifact",
    "logging",
    "cpuConfigurations",
    "additionalOsCapabilities",
    "hooks",
    "environmentVariables",
    "kmsKeyIdentifier",
)
_ARTIFACT = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.+)", re.DOTALL)

Wire = Mapping[str, object]
RoleExists = Callable[[str], bool]


def base_arn() -> str:
    """The managed base image: by name AWS's, in truth this machine."""
    return names.image_arn(region=names.LOCAL_REGION, account="aws", name=BASE_NAME)


def parse_settings(params: Wire, *, role_exists: RoleExists, connector_state: connectors.StateOf) -> dict[str, object]:
    """What a version is to be made with, defaults filled in.

    Args:
        params: The call's.
        role_exists: Whether the account has a role of that ARN.
        connector_state: The state of a connector of the account's own; None if there is none of that ARN.

    Raises:
        faults.Fault: the service would refuse it.
    """
    parse_artifact(mapping(params, "codeArtifact"))
    version = _check_base(str(params["baseImageArn"]), params.get("baseImageVersion"))
    memory = _check_memory(params)
    _check_architecture(params)
    _check_environment(mapping(params, "environmentVariables"))
    _check_hooks(mapping(params, "hooks"))
    egress = connectors.check_egress(
        [str(arn) for arn in _items(params, "egressNetworkConnectors")], state_of=connector_state
    )
    _check_role(str(params["buildRoleArn"]), role_exists=role_exists)
    return {
        **{name: params[name] for name in _KEPT if params.get(name) is not None},
        "baseImageVersion": f"{version}.0",
        "resources": [{"minimumMemoryInMiB": memory}],
        "egressNetworkConnectors": list(egress),
    }


def parse_artifact(artifact: Wire) -> tuple[str, str]:
    """Bucket and key of the artifact."""
    found = _ARTIFACT.fullmatch(str(artifact.get("uri")))
    if found is None:
        raise faults.validation("CodeArtifact URI must be a valid S3 URI in the format: s3://<bucket>/<key>")
    return found.group(1), found.group(2)


def memory_mib(settings: Wire) -> int:
    """The memory of a version's MicroVMs."""
    for item in _items(settings, "resources"):
        if isinstance(item, Mapping):
            return int(item["minimumMemoryInMiB"])
    return DEFAULT_MEMORY_MIB


def has_hook(settings: Wire, hook: str) -> bool:
    """Whether that hook is on."""
    group = "microvmImageHooks" if hook in IMAGE_HOOKS else "microvmHooks"
    return mapping(mapping(settings, "hooks"), group).get(hook) == ENABLED


def mapping(params: Wire, name: str) -> Wire:
    """A member that is an object; empty if it is absent."""
    value = params.get(name)
    return value if isinstance(value, Mapping) else {}


def _items(params: Wire, name: str) -> Sequence[object]:
    value = params.get(name)
    return value if isinstance(value, (list, tuple)) else ()


def _check_base(arn: str, version: object) -> int:
    if version is None:
        if arn != base_arn():
            raise faults.validation(f"No managed MicroVM Image with arn {arn} is available")
        return BASE_VERSIONS[0]
    number = image_records.parse_number(str(version))
    if arn != base_arn() or number not in BASE_VERSIONS:
        raise faults.validation(f"No managed MicroVM Image with arn {arn} and version {version} is available")
    return number


def _check_memory(params: Wire) -> int:
    wanted = memory_mib(params)
    if wanted not in MEMORY_SIZES_MIB:
        raise faults.validation(
            f"The requested memory size of {wanted} MiB is not supported by base MicroVM image {base_arn()}. "
            f"Supported memory sizes in MiB are: {list(MEMORY_SIZES_MIB)}."
        )
    return wanted


def _check_architecture(params: Wire) -> None:
    for item in _items(params, "cpuConfigurations"):
        if isinstance(item, Mapping) and item["architecture"] != ARCHITECTURE:
            raise faults.validation(
                f"The requested architecture {item['architecture']} is not supported by base MicroVM image "
                f"{base_arn()}. Supported architectures are: [{ARCHITECTURE}]."
            )


def _check_environment(environment: Wire) -> None:
    for key in environment:
        if key in RESERVED_VARIABLES:
            raise faults.validation(f"Environment variable key '{key}' is reserved")


def _check_hooks(hooks: Wire) -> None:
    enabled = [hook for hook in (*RUNTIME_HOOKS, *IMAGE_HOOKS) if has_hook({"hooks": hooks}, hook)]
    if any(hook in RUNTIME_HOOKS for hook in enabled) and "ready" not in enabled:
        raise faults.validation(
            "The ready (/ready) MicroVM image hook must be enabled when any MicroVM lifecycle hook "
            "(run, resume, suspend, or terminate) is enabled."
        )
    if enabled and hooks.get("port") is None:
        raise faults.validation("The hooks port must be specified when any hook is enabled.")


def _check_role(arn: str, *, role_exists: RoleExists) -> None:
    # arn:aws:iam::000000000000:role/path/name
    if arn.split(":")[4] != names.LOCAL_ACCOUNT or not role_exists(arn):
        raise faults.validation(f"The role {arn} cannot be assumed by Lambda.")
