"""A control plane in memory, at the seam below ``Sandbox``: MicroVMs whose endpoint is whatever server a test has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from vmnest import errors, registry, settings
from vmnest.aws.credentials import Secret
from vmnest.control.images import Image, ImageVersion
from vmnest.control.microvms import MicroVM, MicroVMSummary, RunSpec
from vmnest.control.tokens import Token
from vmnest.deadline import Deadline
from vmnest.sandbox import Sandbox, making, wishes
from vmnest.wire import names

MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)
ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"

WISH = wishes.Wish(
    name="demo",
    image="demo",
    image_version=None,
    execution_role_arn=None,
    idle_policy=None,
    maximum_duration_seconds=28_800,
    ingress=(),
    egress=("arn:egress",),
    run_payload=None,
    cpus=None,
    memory_mib=None,
    agent_port=8080,
    labels={"team": "a"},
)


Names = list[str]  # which in a class with a method ``list`` has another name


class FakeMicroVMs:
    """``failures`` maps a method's name to errors that its next calls raise, one each.

    ``upcoming`` are states that MicroVMs pass into, one with each look at one of them.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.calls: Names = []
        self.specs: list[RunSpec] = []
        self.known: dict[str, MicroVM] = {}
        self.failures: dict[str, list[BaseException]] = {}
        self.upcoming: Names = []
        self.lose_answer_of_run = False
        self._by_token: dict[str, str] = {}

    def run(self, spec: RunSpec, *, deadline: Deadline) -> MicroVM:
        self.specs.append(spec)
        self._begin("run")
        microvm_id = self._by_token.setdefault(spec.client_token, f"microvm-{len(self._by_token) + 1}")
        if microvm_id not in self.known:
            self.known[microvm_id] = MicroVM(
                microvm_id=microvm_id,
                state=names.PENDING,
                endpoint=self.endpoint,
                image_arn=spec.image_arn,
                image_version=spec.image_version or "1.0",
                started_at=MOMENT,
                max_duration_seconds=spec.maximum_duration_seconds,
                raw={"microvmId": microvm_id, "endpoint": self.endpoint},
            )
        if self.lose_answer_of_run:
            self.lose_answer_of_run = False
            raise errors.ReadTimeoutError("no answer")
        return self.known[microvm_id]

    def get(self, microvm_id: str, *, deadline: Deadline) -> MicroVM:
        self._begin("get")
        if microvm_id not in self.known:
            raise errors.MicroVMNotFoundError(f"MicroVM not found: {microvm_id}")
        if self.upcoming:
            self.change(microvm_id, state=self.upcoming.pop(0))
        return self.known[microvm_id]

    def list(self, *, image_arn: str | None = None, deadline: Deadline) -> Iterator[MicroVMSummary]:
        self._begin("list")
        for microvm in self.known.values():
            if microvm.image_arn == image_arn:
                yield MicroVMSummary(
                    microvm.microvm_id, microvm.state, microvm.image_arn, microvm.image_version, microvm.started_at
                )

    def suspend(self, microvm_id: str, *, deadline: Deadline) -> None:
        self._begin("suspend")
        self.change(microvm_id, state=names.SUSPENDED)

    def resume(self, microvm_id: str, *, deadline: Deadline) -> None:
        self._begin("resume")
        self.change(microvm_id, state=names.RUNNING)

    def terminate(self, microvm_id: str, *, deadline: Deadline) -> bool:
        self._begin("terminate")
        if microvm_id not in self.known:
            return False
        self.change(microvm_id, state=names.TERMINATED, state_reason="Success.")
        return True

    def change(self, microvm_id: str, **members: object) -> None:
        self.known[microvm_id] = self.known[microvm_id]._replace(**members)  # type: ignore[arg-type]

    @property
    def alive(self) -> Names:
        return [microvm.microvm_id for microvm in self.known.values() if not microvm.ended]

    def _begin(self, name: str) -> None:
        self.calls.append(name)
        waiting = self.failures.get(name)
        if waiting:
            raise waiting.pop(0)


class FakeImages:
    def __init__(self, versions: Mapping[str, int | None]) -> None:
        self._versions = versions

    def resolve(self, image: str, *, deadline: Deadline) -> str:
        if image.startswith("arn:"):
            return image
        if image != "demo":
            raise errors.ImageNotFoundError(f"no image named {image!r}")
        return ARN

    def get(self, image_arn: str, *, deadline: Deadline) -> Image:
        return Image(
            image_arn=image_arn,
            name="demo",
            state="CREATED",
            created_at=MOMENT,
            latest_active_version=max(self._versions, default=None),
        )

    def version(self, image_arn: str, image_version: str, *, deadline: Deadline) -> ImageVersion:
        memory = self._versions[image_version]
        return ImageVersion(image_arn, image_version, "SUCCESSFUL", "ACTIVE", memory_mib=memory)


class FakeControl:
    """The whole of it. ``mints`` counts the tokens."""

    def __init__(self, endpoint: str, *, versions: Mapping[str, int | None] | None = None) -> None:
        self.microvms = FakeMicroVMs(endpoint)
        self.images = FakeImages({"1.0": 2048} if versions is None else versions)
        self.mints: list[tuple[str, tuple[int, ...]]] = []

    def mint_token(self, microvm_id: str, ports: Sequence[int], *, deadline: Deadline) -> Token:
        self.mints.append((microvm_id, tuple(ports)))
        secret = Secret(f"token-{len(self.mints)}")
        return Token(secret, tuple(ports), 4e9, ((names.PROXY_AUTH_HEADER, secret),))


class FakePlace:
    """A target whose control plane is ``control``."""

    def __init__(
        self, control: FakeControl, *, kind: str = settings.TARGET_AWS, environ: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.region = "us-east-1"
        self.environ = environ or {}
        self.made = 0
        self._control = control
        self.on_control: Callable[[], object] = lambda: None

    @property
    def is_local(self) -> bool:
        return self.kind == settings.TARGET_LOCAL

    def check_isolation(self, *, deadline: Deadline) -> None:
        """It isolates well enough."""

    def control(self, *, deadline: Deadline, start: bool = True) -> FakeControl:
        self.made += 1
        self.on_control()
        return self._control


def make_sandbox(
    control: FakeControl,
    records: registry.Registry,
    *,
    environ: Mapping[str, str] | None = None,
    timeout: float = 30,
    replace: bool = False,
    **wish: Any,
) -> Sandbox:
    """A sandbox whose MicroVM ``control`` runs."""
    place: Any = FakePlace(control, environ=environ)
    deadline = Deadline(timeout)
    return Sandbox(making.make(WISH._replace(**wish), place=place, records=records, deadline=deadline, replace=replace))


def cut_off(sandbox: Sandbox, control: FakeControl, records: registry.Registry) -> None:
    """Make the record that of a launch whose client died before it had the answer."""
    spec = control.microvms.specs[0]
    launch = {**spec._asdict(), "idle_policy": None if spec.idle_policy is None else spec.idle_policy._asdict()}
    records.put(sandbox.record.replace(microvm_id=None, endpoint=None, launch=launch), replace=True)
    control.microvms.calls.clear()
