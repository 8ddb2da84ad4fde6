"""Builds an image on this machine: an artifact (a zip with a Dockerfile) becomes layers and a way to start VMs.

What ``FROM`` names is taken as this machine's programs, whatever it is. Every instruction that changes files runs in a
sandbox of its own, whose writable layer is kept as the next layer of the image.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from .. import errors
from .built import Built, RunConfig, Sizes
from .drivers import interface

# Why a build failed: the service's codes.
ARCHIVE_INVALID = "ARCHIVE_INVALID"
ARCHIVE_DOCKERFILE_NOT_FOUND = "ARCHIVE_DOCKERFILE_NOT_FOUND"
CONTAINER_BUILD_FAILED = "CONTAINER_BUILD_FAILED"
DISK_STORAGE_FULL = "DISK_STORAGE_FULL"
INTERNAL_PLATFORM_ERROR = "INTERNAL_PLATFORM_ERROR"

INTERNET = ("internet",)
Log = Callable[[str], None]


@dataclass(frozen=True)
class BuildSpec:
    """What is to be built, besides the artifact.

    Attributes:
        image_name: The image's name.
        image_arn: The image's ARN.
        version: The version that is being made.
        environment: The image's own environment variables, for its VMs (RUN does not see them).
        hooks: The API's member ``hooks``.
        memory_mib: Memory of its VMs.
        egress_allow: What RUN may reach.
    """

    image_name: str
    image_arn: str
    version: str
    environment: Mapping[str, str]
    hooks: Mapping[str, object] | None
    memory_mib: int
    egress_allow: tuple[str, ...] = INTERNET


class BuildFailed(errors.VmnestError):
    """A build failed. ``code`` is the service's code, ``reason`` the stateReason."""

    code = "local_build"

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Gate(Protocol):
    """Where RUN's connections to the outside go through."""

    def serve(self, listener: socket.socket) -> None:
        """Take connections from this listener, which is in a sandbox."""

    def close(self) -> None:
        """Serve no more."""


OpenGate = Callable[[Sequence[str], Log], Gate]


class Builder:
    """Builds images. Thread-safe: several builds may run at once, and share layers.

    Args:
        driver: What isolates the steps.
        folder: The state folder.
        open_gate: Opens the way out for RUN, or None: RUN reaches nothing.
        disk_bytes: What one step may write.
        visible: As for VMs.
    """

    def __init__(
        self,
        driver: interface.Driver,
        folder: str,
        *,
        open_gate: OpenGate | None = None,
        disk_bytes: int = 8 << 30,
        visible: Sequence[str] = (),
    ) -> None:
        self._driver = driver
        self._folder = folder
        self._open_gate = open_gate
        self._disk_bytes = disk_bytes
        self._visible = tuple(visible)

    def build(self, artifact: BinaryIO, *, spec: BuildSpec, log: Log) -> Built:
        """Build the image; every step and its output is told to ``log``, line by line.

        Raises:
            BuildFailed: it cannot be built.
        """
        raise BuildFailed(INTERNAL_PLATFORM_ERROR, "Images cannot be built yet.")

    def sweep(self, in_use: Sequence[str]) -> None:
        """Remove the layers that are not among ``in_use``, no VM runs on and no build has under way."""
        del in_use

    def close(self) -> None:
        """End the builds that are under way, which raise BuildFailed; none begins any more. The daemon is ending."""


__all__ = ["BuildFailed", "BuildSpec", "Builder", "Built", "RunConfig", "Sizes"]
