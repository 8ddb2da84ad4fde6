"""Runs builds of images in threads, and removes layers that no image needs any more.

A build is under way until what it made is recorded: layers that a build has just made belong to no image yet. So
layers are swept only while no build is under way; a build that begins meanwhile waits, and a sweep that finds one is
made up for when the last one has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timezone
from typing import BinaryIO, Protocol

from .. import deadline, errors
from . import builder, faults, image_rules, workers
from .built import Built
from .image_records import Image, Outcome, Version

_LOG = logging.getLogger(__name__)

S3_NO_SUCH_BUCKET = "S3_NO_SUCH_BUCKET"
S3_NO_SUCH_KEY = "S3_NO_SUCH_KEY"
_S3_CODES = {faults.S3_NO_SUCH_BUCKET: S3_NO_SUCH_BUCKET, faults.S3_NO_SUCH_KEY: S3_NO_SUCH_KEY}
REASON_INTERRUPTED = f"{builder.INTERNAL_PLATFORM_ERROR}: the local cloud ended during the build."
REASON_FAULT = f"{builder.INTERNAL_PLATFORM_ERROR}: the daemon's log has the reason."


class Builder(Protocol):
    """See ``builder.Builder``."""

    def build(self, artifact: BinaryIO, *, spec: builder.BuildSpec, log: builder.Log) -> Built: ...

    def sweep(self, in_use: Sequence[str]) -> None: ...

    def close(self) -> None: ...


class Artifacts(Protocol):
    """Where artifacts are fetched from: see ``buckets.Store``."""

    def open_object(self, name: str, key: str, /) -> BinaryIO: ...


class Logs(Protocol):
    """Where the log of a build goes: see ``logs.Logs``."""

    def write(self, group: str, stream: str, lines: Iterable[tuple[float, str]]) -> None: ...


class Workshop:
    """Builds and sweeps. Thread-safe.

    Args:
        maker: Builds.
        artifacts: Where artifacts are fetched from.
        logs: Where what a build says goes; None: nowhere.
        clock: Time of day for the log.
    """

    def __init__(
        self,
        maker: Builder,
        artifacts: Artifacts,
        *,
        logs: Logs | None = None,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
    ) -> None:
        self._maker = maker
        self._artifacts = artifacts
        self._logs = logs
        self._clock = clock
        self._work = workers.Workers()
        self._changed = threading.Condition()  # guards all below
        self._under_way = 0
        self._is_sweeping = False
        self._is_due: Callable[[], Collection[str]] | None = None
        self._is_closed = False

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        """Begin to do ``work`` in a thread that ``close`` waits for.

        Raises:
            RuntimeError: no thread is to be had.
        """
        self._work.spawn(name, work)

    def build(
        self,
        image: Image,
        version: Version,
        *,
        record: Callable[[Outcome], None],
        egress_allow: tuple[str, ...] = builder.INTERNET,
    ) -> None:
        """Build a version; what came of it is handed to ``record``, whatever it is. RUN may reach ``egress_allow``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_sweeping)
            self._under_way += 1
        try:
            record(self._outcome(image, version, egress_allow))
        finally:
            with self._changed:
                self._under_way -= 1
                due = self._is_due if self._under_way == 0 else None
        if due is not None:
            self.sweep(due)

    def sweep(self, in_use: Callable[[], Collection[str]]) -> None:
        """Remove the layers that are not in use, now or when no build is under way. ``in_use`` is asked when it is so.

        What goes wrong is logged: the next sweep finds the same layers.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._is_sweeping)
            if self._under_way or self._is_closed:
                self._is_due = in_use
                return
            self._is_due = None
            self._is_sweeping = True
        try:
            self._maker.sweep(sorted(in_use()))
        except (errors.VmnestError, OSError):
            _LOG.exception("layers could not be removed")
        finally:
            with self._changed:
                self._is_sweeping = False
                self._changed.notify_all()

    def close(self) -> None:
        """End the builds that are under way, and wait for everything that was begun."""
        with self._changed:
            self._is_closed = True
        self._maker.close()
        self._work.join()

    # -- one build -----------------------------------------------------------------------------------------------------

    def _outcome(self, image: Image, version: Version, egress_allow: tuple[str, ...]) -> Outcome:
        log = self._open_log(image, version)
        try:
            with self._fetch(version) as artifact:
                spec = _spec(image, version, egress_allow)
                return Outcome(self._maker.build(artifact, spec=spec, log=log))
        except builder.BuildFailed as failed:
            return Outcome(reason=REASON_INTERRUPTED if self._is_closed else failed.reason)
        except faults.Fault as fault:
            code = _S3_CODES.get(fault.error_type, fault.error_type)
            return Outcome(reason=f"{code}: {fault.message}")
        except Exception:  # a fault of ours; the version must not stay as it is for ever
            _LOG.exception("the build of %s %s failed", image.name, version.label)
            return Outcome(reason=REASON_INTERRUPTED if self._is_closed else REASON_FAULT)

    def _fetch(self, version: Version) -> BinaryIO:
        return self._artifacts.open_object(
            *image_rules.parse_artifact(image_rules.mapping(version.settings, "codeArtifact"))
        )

    def _open_log(self, image: Image, version: Version) -> builder.Log:
        logs, logging_settings = self._logs, image_rules.mapping(version.settings, "logging")
        if logs is None or "disabled" in logging_settings:
            return _say_nothing
        configured = image_rules.mapping(logging_settings, "cloudWatch")
        group = str(configured.get("logGroup") or f"/aws/lambda-microvms/{image.name}")
        day = datetime.fromtimestamp(version.created_at, timezone.utc)
        # As of the ephemeral VMs that the service builds in.
        stream = f"{day:%Y/%m/%d}[{version.label}]microvm-{version.builds[0].build_id}"
        stream = str(configured.get("logStream") or stream)

        def write(line: str) -> None:
            logs.write(group, stream, [(self._clock.time(), line)])

        return write


def _say_nothing(line: str) -> None:
    """Of a build whose log nobody wants."""


def _spec(image: Image, version: Version, egress_allow: tuple[str, ...]) -> builder.BuildSpec:
    settings = version.settings
    environment = image_rules.mapping(settings, "environmentVariables")
    return builder.BuildSpec(
        image_name=image.name,
        image_arn=image.arn,
        version=version.label,
        environment={key: str(value) for key, value in environment.items()},
        hooks=image_rules.mapping(settings, "hooks") or None,
        memory_mib=image_rules.memory_mib(settings),
        egress_allow=egress_allow,
    )
