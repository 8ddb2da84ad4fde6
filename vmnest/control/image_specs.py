"""What an image's version is made of, as it is sent: settings, hooks, artifact."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["ALL_CAPABILITIES", "DEFAULT_MEMORY_MIB", "MEMORY_CLASSES_MIB", "Hooks", "ImageSpec"]

DEFAULT_HOOK_PORT = 9000
BUILD_HOOKS = ("ready", "validate")
RUN_HOOKS = ("run", "resume", "suspend", "terminate")
ALL_CAPABILITIES = "ALL"
MEMORY_CLASSES_MIB = (512, 1024, 2048, 4096, 8192)
DEFAULT_MEMORY_MIB = 2048
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Hooks(NamedTuple):
    """Lifecycle hooks, all of them on. The service's own timeouts are as short as 1 s: they are always sent."""

    port: int = DEFAULT_HOOK_PORT
    ready_seconds: int = 300
    validate_seconds: int = 300
    run_seconds: int = 60
    resume_seconds: int = 30
    suspend_seconds: int = 10
    terminate_seconds: int = 5

    def to_wire(self) -> dict[str, object]:
        """The member ``hooks``."""
        return {
            "port": self.port,
            "microvmImageHooks": self._enabled(BUILD_HOOKS),
            "microvmHooks": self._enabled(RUN_HOOKS),
        }

    def _enabled(self, hooks: tuple[str, ...]) -> dict[str, object]:
        members: dict[str, object] = {}
        for hook in hooks:
            members[hook] = "ENABLED"
            members[f"{hook}TimeoutInSeconds"] = getattr(self, f"{hook}_seconds")
        return members


class ImageSpec(NamedTuple):
    """All that a version is made of. An update replaces everything, so that there is no such thing as a part of it.

    Attributes:
        name: Of the image; 1 to 64 letters, digits, ``-`` and ``_``.
        code_uri: ``s3://bucket/key`` of the zip.
        build_role_arn: Role that the build has.
        base_image_arn: The service's own image that it is built on.
        base_image_version: Of that image; its newest by default.
        description: A text for people.
        memory_mib: One of MEMORY_CLASSES_MIB; the service's default is 2048.
        environment: Variables of every MicroVM; frozen into its snapshot.
        has_all_capabilities: The container gets all of the kernel's capabilities.
        hooks: None switches all of them off.
        log_group: CloudWatch log group of the builds; the service's default by default.
        egress_connectors: ARNs; what the build reaches, and MicroVMs by default.
        tags: Of the image; only its creation sets them.
        local_options: What AWS's wire has no member for (``egress_allow``); sent to the local cloud only.
    """

    name: str
    code_uri: str
    build_role_arn: str
    base_image_arn: str
    base_image_version: str | None = None
    description: str | None = None
    memory_mib: int | None = None
    environment: Mapping[str, str] = _NOTHING
    has_all_capabilities: bool = False
    hooks: Hooks | None = None
    log_group: str | None = None
    egress_connectors: tuple[str, ...] = ()
    tags: Mapping[str, str] = _NOTHING
    local_options: Mapping[str, object] | None = None

    def __repr__(self) -> str:
        return f"ImageSpec({self.name!r}, code_uri={self.code_uri!r})"  # the environment may hold secrets

    def to_wire(self) -> dict[str, object]:
        """The members that a creation and an update have in common."""
        return {
            "codeArtifact": {"uri": self.code_uri},
            "buildRoleArn": self.build_role_arn,
            "baseImageArn": self.base_image_arn,
            "baseImageVersion": self.base_image_version,
            "description": self.description,
            "resources": [{"minimumMemoryInMiB": self.memory_mib}] if self.memory_mib else None,
            "environmentVariables": dict(self.environment) or None,
            "additionalOsCapabilities": [ALL_CAPABILITIES] if self.has_all_capabilities else None,
            "hooks": self.hooks.to_wire() if self.hooks else None,
            "logging": {"cloudWatch": {"logGroup": self.log_group}} if self.log_group else None,
            "egressNetworkConnectors": list(self.egress_connectors) or None,
        }
