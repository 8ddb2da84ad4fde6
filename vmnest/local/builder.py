"""Builds an image on this machine: an artifact (a zip with a Dockerfile) becomes layers and a way to start VMs.

What ``FROM`` names is taken as this machine's programs, whatever it is. Every instruction that changes files runs in a
sandbox of its own, whose writable layer is kept as the next layer of the image.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from .. import errors
from ..wire import egress as rules
from . import build_artifact, build_cells, build_steps, dockerfile, dockerfile_actions, dockerfile_stages, egress, hooks
from .build_context import Context
from .build_layers import Layers, measure
from .build_steps import Gate, OpenGate
from .built import Built, RunConfig, Sizes, platform_environment
from .drivers import interface, removal
from .drivers.machine import LAYER_NAME

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


def open_gate(allowed: Sequence[str], log: Log) -> Gate:
    """The way out for RUN; see ``egress.Gate``."""
    return egress.Gate(rules.parse(allowed), log)


class Builder:
    """Builds images. Thread-safe: several builds may run at once, and share layers.

    Args:
        driver: What isolates the steps.
        folder: The state folder.
        way_out: Opens the way out for RUN.
        disk_bytes: What the artifact, and each step, may write.
        visible: As for VMs.
    """

    def __init__(
        self,
        driver: interface.Driver,
        folder: str,
        *,
        way_out: OpenGate = open_gate,
        disk_bytes: int = 8 << 30,
        visible: Sequence[str] = (),
    ) -> None:
        self._driver = driver
        self._way_out = way_out
        self._disk_bytes = disk_bytes
        self._layers = Layers(folder)
        self._cells = build_cells.Cells(driver, folder, disk_bytes=disk_bytes, visible=visible)
        self._workspaces = os.path.join(folder, "builds")
        self._layers.throw(self._workspaces)  # of a daemon that was killed
        os.makedirs(self._workspaces, mode=0o700)

    def build(self, artifact: BinaryIO, *, spec: BuildSpec, log: Log) -> Built:
        """Build the image; every step and its output is told to ``log``, line by line.

        Raises:
            BuildFailed: it cannot be built.
        """
        try:
            with _translated(), self._workspace() as folder:
                return self._build(artifact, folder, spec=spec, log=log)
        except BuildFailed as failed:
            log(failed.reason)
            raise

    def sweep(self, in_use: Sequence[str], *, kept_seconds: float | None = None) -> None:
        """Remove the layers that are not in use. To be called while no build is under way.

        Args:
            in_use: Layers of images.
            kept_seconds: Those that were used that short a time ago stay, for the next build.
        """
        if kept_seconds is None:
            self._layers.sweep(in_use)
        else:
            self._layers.sweep(in_use, kept_seconds=kept_seconds)

    def close(self) -> None:
        """End the builds that are under way; they fail."""
        self._cells.close()

    # -- a build -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _workspace(self) -> Iterator[str]:
        folder = os.path.join(self._workspaces, str(uuid.uuid4()))
        os.mkdir(folder, 0o700)
        try:
            yield folder
        finally:
            removal.remove_tree(folder)

    def _build(self, artifact: BinaryIO, folder: str, *, spec: BuildSpec, log: Log) -> Built:
        if self._driver.obstacle_to_images:
            raise BuildFailed(
                INTERNAL_PLATFORM_ERROR,
                f"{INTERNAL_PLATFORM_ERROR}: images cannot be built on this machine: {self._driver.obstacle_to_images}",
            )
        layer = os.path.join(folder, "context")
        place = build_steps.lay_context(layer, owner=self._driver.owner)
        entries = build_artifact.unpack(artifact, place, max_bytes=self._disk_bytes, owner=self._driver.owner)
        scripts = self._read(entries, place)
        content = "1 file" if len(entries) == 1 else f"{len(entries)} files and directories"
        log(f"Building {spec.image_name} {spec.version}: {content}")
        site = build_steps.Site(
            base=self._driver.image_base(),
            cells=self._cells,
            layers=self._layers,
            context=Context(entries),
            context_layer=layer,
            egress_allow=spec.egress_allow,
            open_gate=self._way_out,
            log=log,
        )
        names = site.carry_out(scripts)
        config = _configure(scripts[-1], spec)
        snapshot = self._try_out(config, names, spec=spec, site=site)
        return Built(names, config, Sizes(self._layers.size(names), snapshot))

    def _read(self, entries: Mapping[str, build_artifact.Entry], place: str) -> list[dockerfile_actions.Script]:
        entry = entries.get(_DOCKERFILE)
        if entry is None or entry.kind != build_artifact.FILE:
            raise BuildFailed(
                ARCHIVE_DOCKERFILE_NOT_FOUND,
                f"{ARCHIVE_DOCKERFILE_NOT_FOUND}: there is no file {_DOCKERFILE} at the root of the archive.",
            )
        with open(os.path.join(place, _DOCKERFILE), "rb") as reader:
            data = reader.read(dockerfile.MAX_BYTES + 1)
        if len(data) > dockerfile.MAX_BYTES:
            raise dockerfile.DockerfileError(1, f"the file has more than {dockerfile.MAX_BYTES} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise dockerfile.DockerfileError(line, "the file is not written in UTF-8") from error
        path = self._driver.image_environment()["PATH"]
        return dockerfile_actions.evaluate(dockerfile_stages.plan(dockerfile.parse(text)), path=path)

    def _try_out(self, config: RunConfig, names: Sequence[str], *, spec: BuildSpec, site: build_steps.Site) -> int:
        """Start a VM as the image's VMs will be, and ask whether it is ready and valid; the bytes that it wrote."""
        site.log(f"Starting {' '.join(config.command)}")
        step = build_cells.Step(
            config.command,
            self._layers.paths(names),
            environment={**platform_environment(spec.image_arn, spec.version), **config.environment},
            workdir=config.workdir,
            memory_mib=spec.memory_mib,
            egress=bool(spec.egress_allow),
        )
        try:
            with self._cells.start(step) as cell:
                way = site.open_way(cell.machine)
                try:
                    return self._ask(cell, config, step=step, log=site.log)
                finally:
                    if way is not None:
                        way.close()
        except hooks.HookError as error:
            raise BuildFailed(CONTAINER_BUILD_FAILED, error.message) from error
        except errors.LocalCloudError as error:
            site.log(error.message)
            raise BuildFailed(CONTAINER_BUILD_FAILED, _NOT_STARTED) from error

    def _ask(self, cell: build_cells.Cell, config: RunConfig, *, step: build_cells.Step, log: Log) -> int:
        try:
            for hook in ("ready", "validate"):
                hooks.await_image_hook(cell.machine, hook, config=config.hooks)
            return measure(os.path.join(cell.folder, LAYER_NAME))
        except errors.LocalCloudError as error:
            cell.machine.stop()
            ended = cell.machine.ended
            if ended is None or ended.reason == interface.STOPPED:
                raise
            raise errors.LocalCloudError(f"The main process {build_steps.tell_end(ended, step)}") from error
        finally:
            cell.machine.stop()  # what it printed is complete then
            cell.tell(lambda line: log(f"  {line}"))


_DOCKERFILE = "Dockerfile"
_NOT_BUILT = "The container image build failed."
_NOT_STARTED = "Failed to start container"


def _configure(script: dockerfile_actions.Script, spec: BuildSpec) -> RunConfig:
    if not script.command:
        raise BuildFailed(CONTAINER_BUILD_FAILED, f"{_NOT_STARTED}: the Dockerfile has neither CMD nor ENTRYPOINT")
    return RunConfig(
        command=script.command,
        environment={**script.environment, **spec.environment},
        workdir=script.workdir,
        exposed=tuple(dict.fromkeys(script.exposed)),
        hooks=hooks.parse_config(spec.hooks),
    )


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Whatever ends a build, as the service tells it."""
    try:
        yield
    except (dockerfile.DockerfileError, build_steps.StepFailedError) as error:
        ended = error.ended if isinstance(error, build_steps.StepFailedError) else None
        code = DISK_STORAGE_FULL if ended is not None and ended.reason == interface.DISK else CONTAINER_BUILD_FAILED
        raise BuildFailed(code, f"{_NOT_BUILT} Line {error.line}: {error.message}.") from error
    except build_artifact.TooLargeError as error:
        raise BuildFailed(DISK_STORAGE_FULL, f"{DISK_STORAGE_FULL}: {error}.") from error
    except build_artifact.ArtifactError as error:
        raise BuildFailed(ARCHIVE_INVALID, f"{ARCHIVE_INVALID}: {error}.") from error
    except build_cells.ClosedError as error:
        raise BuildFailed(INTERNAL_PLATFORM_ERROR, f"{INTERNAL_PLATFORM_ERROR}: the local cloud is ending.") from error
    except errors.VmnestError as error:
        if isinstance(error, BuildFailed):
            raise
        raise BuildFailed(INTERNAL_PLATFORM_ERROR, f"{INTERNAL_PLATFORM_ERROR}: {error.message}") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise BuildFailed(DISK_STORAGE_FULL, f"{DISK_STORAGE_FULL}: {error}.") from error


__all__ = ["BuildFailed", "BuildSpec", "Builder", "Built", "RunConfig", "Sizes"]
