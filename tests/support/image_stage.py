"""Images over a builder that does what a test says."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

from vmnest import deadline
from vmnest.local import account, builder, built, faults, image_builds, image_records, image_store, images, records

ARN = "arn:aws:lambda:us-east-1:000000000000:microvm-image:"
BASE = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
ROLE = "arn:aws:iam::000000000000:role/build"
BUCKET = "artifacts"
INTERNET = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS"
CREATED_AT = 1_000_000_000.5

SETTINGS = {"baseImageArn": BASE, "buildRoleArn": ROLE, "codeArtifact": {"uri": f"s3://{BUCKET}/code.zip"}}


def make_built(*layers: str, **members: object) -> built.Built:
    """What a build made of these layers."""
    config = {"command": ("python3", "serve.py"), "environment": {"A": "1"}, "workdir": "/app", **members}
    return built.Built(
        layers, config=built.RunConfig(**config), sizes=built.Sizes(code_install_bytes=10, disk_snapshot_bytes=2)
    )


class ScriptedBuilder:
    """Makes one layer a version, named after it. ``gate`` and ``sweep_gate``, once cleared, hold work back.

    Attributes:
        failures: By image name, what its builds raise.
        specs: What was built.
        artifacts: The bytes that came with it.
        swept: What was in use at each sweep.
        most: How many builds were there at once, at most.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.sweep_gate = threading.Event()
        self.sweep_gate.set()
        self.failures: dict[str, Exception] = {}
        self.sweep_failure: Exception | None = None
        self.specs: list[builder.BuildSpec] = []
        self.artifacts: list[bytes] = []
        self.swept: list[list[str]] = []
        self.most = 0
        self._lock = threading.Lock()
        self._now = 0
        self._is_closed = False

    def wait_for(self, is_so: Callable[[], object]) -> None:
        """Wait until something that the builder's threads bring about is so."""
        end = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < end
            time.sleep(0.002)

    def build(self, artifact: BinaryIO, *, spec: builder.BuildSpec, log: builder.Log) -> built.Built:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.specs.append(spec)
            self.artifacts.append(artifact.read())
        try:
            log("Step 1")
            assert self.gate.wait(20)
            if self._is_closed:
                raise builder.BuildFailed(builder.INTERNAL_PLATFORM_ERROR, "ended")
            if spec.image_name in self.failures:
                raise self.failures[spec.image_name]
            return make_built(f"{spec.image_name}-{spec.version}", "base")
        finally:
            with self._lock:
                self._now -= 1

    def sweep(self, in_use: Sequence[str]) -> None:
        assert self.sweep_gate.wait(20)
        self.swept.append(list(in_use))
        if self.sweep_failure is not None:
            raise self.sweep_failure

    def close(self) -> None:
        self._is_closed = True
        self.gate.set()
        self.sweep_gate.set()


class Objects:
    """A bucket of artifacts."""

    def __init__(self) -> None:
        self.known = {(BUCKET, "code.zip"): b"zip"}

    def open_object(self, name: str, key: str, /) -> BinaryIO:
        if name != BUCKET:
            raise faults.no_such_bucket(name)
        if (name, key) not in self.known:
            raise faults.no_such_key(key)
        return io.BytesIO(self.known[name, key])


class Logs:
    """Keeps lines by group and stream."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], list[str]] = {}

    def write(self, group: str, stream: str, lines: Sequence[tuple[float, str]]) -> None:
        self.lines.setdefault((group, stream), []).extend(text for _, text in lines)


class ImageStage:
    """Images in a folder, and what stands around them.

    Attributes:
        roles: ARNs of the roles that there are.
        connectors: States of the account's own connectors, by ARN.
        live: What MicroVMs were started with that have not ended, unless ``live`` says so.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        live: Callable[[], Sequence[records.Spec]] | None = None,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
    ) -> None:
        self.builder = ScriptedBuilder()
        self.objects = Objects()
        self.logs = Logs()
        self.roles = {ROLE}
        self.live: list[records.Spec] = []
        self.connectors: dict[str, str] = {}
        self.tags = account.Tags(str(folder))
        self.store = image_store.Store(str(folder))
        self.workshop = image_builds.Workshop(self.builder, self.objects, logs=self.logs, clock=clock)
        self.images = images.Images(
            self.store,
            self.workshop,
            images.Neighbours(
                self.tags,
                role_exists=lambda arn: arn in self.roles,
                live=live or (lambda: list(self.live)),
                connector_state=self.connectors.get,
            ),
            created_at=CREATED_AT,
            clock=clock,
        )

    def arn(self, name: str) -> str:
        """The ARN of the image of that name."""
        return ARN + name

    def wait_settled(self, name: str) -> image_records.Image | None:
        """The image once no change of it is under way; None if it is gone."""
        end = time.monotonic() + 20
        while (image := self.images.find(ARN + name)) is not None and image.is_changing:
            assert time.monotonic() < end, image
            time.sleep(0.002)
        return image

    def close(self) -> None:
        """End what is under way."""
        self.images.close()


def together(count: int, act: Callable[[int], object]) -> None:
    """``act(number)`` in that many threads at the same moment. A refusal is an answer; anything else is raised."""
    barrier, wrong = threading.Barrier(count), []

    def one(number: int) -> None:
        barrier.wait(20)
        try:
            act(number)
        except faults.Fault:
            return
        except Exception as error:  # the last line of a thread
            wrong.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
