"""Measuring what a sandbox uses, once or again and again. Each figure stands under the name of its source.

Two sources are asked at a time. The agent in a sandbox that runs knows most, and now. CloudWatch knows little and late,
but also of a sandbox that is suspended or has ended; the local cloud has none. A source without figures says why.
"""

from __future__ import annotations

from .. import errors, settings
from .. import target as targets
from ..deadline import SYSTEM_CLOCK, Deadline
from ..wire import names
from . import crowd, moments, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent.stats import Stats
    from ..aws.service import Service
    from ..control.metrics import Figure
    from ..deadline import Clock
    from ..registry import Record
    from ..sandbox import Sandbox

__all__ = ["AGENT", "CLOUDWATCH", "CloudWatch", "Gauge"]

AGENT, CLOUDWATCH = "agent", "cloudwatch"
SPAN_SECONDS = 0.5  # the first share of the CPUs that is told is that over this time
GLANCE_SECONDS = 5.0  # a look that would only explain a failure
CLOUDWATCH_SECONDS = 10.0  # nobody waits long for figures that are rarely there
_LAUNCHING = "it is being started, or whoever started it was cut off"
_NO_CLOUDWATCH = "the local cloud has no CloudWatch"
_NO_FIGURES = "CloudWatch has no figures of it"
# What says why there are no figures, and is no failure.
_REASONS = (errors.SandboxSuspendedError, errors.MicroVMEndedError, errors.UnsupportedError)


class Reading:
    """What a source says.

    Attributes:
        figures: As JSON has them; None if there are none.
        reason: Why there are none.
        code: The same as the code of an error, if it is one.
        failure: The error, if asking failed.
    """

    __slots__ = ("code", "failure", "figures", "reason")

    def __init__(
        self,
        figures: dict[str, object] | None = None,
        *,
        reason: str | None = None,
        because: errors.VmnestError | None = None,
        is_failure: bool = False,
    ) -> None:
        self.figures = figures
        self.reason = reason if because is None else because.message
        self.code = None if because is None else because.code
        self.failure = because if is_failure else None

    def to_json(self) -> dict[str, object]:
        """As ``--json`` shows it."""
        return {"figures": self.figures, "reason": self.reason, "code": self.code}


class Gauge:
    """Measures one sandbox, for one thread at a time.

    Args:
        record: The sandbox's.
        cloudwatch: Shared by all gauges.
        region: AWS region to ask, instead of the recorded one.
        clock: The time.
    """

    def __init__(
        self, record: Record, *, cloudwatch: CloudWatch, region: str | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.record = record
        self._cloudwatch = cloudwatch
        self._region = region
        self._clock = clock
        self._sandbox: Sandbox | None = None
        self._state: str = names.UNKNOWN
        self._kept: tuple[float, Reading] | None = None  # what CloudWatch said, and when

    def measure(self, *, timeout: float) -> dict[str, object]:
        """What it uses now.

        Raises:
            errors.VmnestError: its state cannot be seen, or its agent cannot be asked and nobody else knows.
        """
        data, failure = self._measure(timeout)
        if failure is not None:
            raise failure
        return data

    def try_measure(self, *, timeout: float) -> dict[str, object]:
        """The same; an error becomes a part of it."""
        data, failure = self._measure(timeout)
        return data if failure is None else {**data, "error": failure.to_wire()}

    def _measure(self, timeout: float) -> tuple[dict[str, object], errors.VmnestError | None]:
        agent, cloudwatch = crowd.map_parallel(lambda ask: ask(timeout), (self._ask_agent, self._ask_cloudwatch))
        data: dict[str, object] = {
            "name": self.record.name,
            "target": self.record.target,
            "microvm_id": self.record.microvm_id,
            "state": self._state,
            "time": moments.from_epoch(self._clock.time(), fractions=True),
            AGENT: agent.to_json(),
            CLOUDWATCH: cloudwatch.to_json(),
            "metrics": _summarize(agent, cloudwatch),
        }
        is_told = cloudwatch.figures is not None and self._state != names.UNKNOWN
        return data, None if is_told else agent.failure

    def _ask_agent(self, timeout: float) -> Reading:
        if self.record.microvm_id is None:  # to ask would launch it
            self._state = views.LAUNCHING
            return Reading(reason=_LAUNCHING)
        try:
            sandbox, span = self._find()
            found = sandbox.stats(over=span, timeout=timeout)
        except errors.MicroVMNotFoundError as error:
            self._state = views.GONE
            return Reading(because=error)
        except errors.VmnestError as error:
            self._state = self._look_again(error)
            return Reading(because=error, is_failure=self._sandbox is None or not isinstance(error, _REASONS))
        self._state = sandbox.state
        return Reading(_describe(found))

    def _find(self) -> tuple[Sandbox, float]:
        """The sandbox, and over which time its CPUs are to be measured."""
        if self._sandbox is not None:
            return self._sandbox, 0.0  # since it was measured before
        from ..sandbox import Sandbox

        self._sandbox = Sandbox.from_record(self.record, region=self._region)
        return self._sandbox, SPAN_SECONDS

    def _look_again(self, error: errors.VmnestError) -> str:
        """The state after an error, which tells of it, or came with no look at it."""
        if self._sandbox is None:
            return names.UNKNOWN
        if isinstance(error, _REASONS):
            return self._sandbox.state
        try:
            return self._sandbox.refresh(timeout=GLANCE_SECONDS)
        except errors.VmnestError:
            return names.UNKNOWN

    def _ask_cloudwatch(self, timeout: float) -> Reading:
        if self.record.target != settings.TARGET_AWS:
            return Reading(reason=_NO_CLOUDWATCH)
        if self.record.microvm_id is None:
            return Reading(reason=_LAUNCHING)
        from ..control import metrics

        now = self._clock.monotonic()
        if self._kept is None or now - self._kept[0] >= metrics.PERIOD_SECONDS:
            deadline = Deadline(min(timeout, CLOUDWATCH_SECONDS))
            self._kept = now, self._cloudwatch.read(self.record, deadline=deadline)
        return self._kept[1]


class CloudWatch:
    """CloudWatch in each region that is asked. Safe for threads."""

    def __init__(self, *, region: str | None) -> None:
        import threading

        self._region = region
        self._services: dict[str, Service] = {}
        self._lock = threading.Lock()  # to load it is dear: one thread does it, while the others wait

    def read(self, record: Record, *, deadline: Deadline) -> Reading:
        """What it has of a sandbox. That it cannot be asked is a reason, and no failure."""
        from ..control import metrics

        assert record.microvm_id is not None
        try:
            found = metrics.latest(self._service(record, deadline), record.microvm_id, deadline=deadline)
        except errors.VmnestError as error:
            return Reading(because=error)
        if not any(found.values()):
            return Reading(reason=_NO_FIGURES)
        return Reading({name: None if each is None else _figure(each) for name, each in found.items()})

    def _service(self, record: Record, deadline: Deadline) -> Service:
        from ..control import metrics

        place = targets.resolve(local=False, region=self._region or record.region, arn=record.image_arn)
        with self._lock:
            if place.region not in self._services:
                self._services[place.region] = place.service(metrics.SERVICE, deadline=deadline)
            return self._services[place.region]


def _describe(stats: Stats) -> dict[str, object]:
    return {
        "cpus": stats.cpus,
        "cpu_percent": stats.cpu_percent,
        "load": None if stats.load is None else list(stats.load),
        "memory": {**stats.memory._asdict(), "percent": _rounded(stats.memory.percent)},
        "disk": {**stats.disk._asdict(), "percent": _rounded(stats.disk.percent)},
        "network": stats.network._asdict(),
        "processes": stats.processes,
        "uptime": stats.uptime,
    }


def _figure(figure: Figure) -> dict[str, object]:
    return {"value": figure.value, "unit": figure.unit, "time": moments.to_iso(figure.at)}


def _summarize(agent: Reading, cloudwatch: Reading) -> dict[str, object]:
    """The two shares that everybody asks for, all of one source."""
    from ..control.metrics import METRICS

    live = agent.figures or {}
    memory = live.get("memory")
    shares = (live.get("cpu_percent"), memory.get("percent") if isinstance(memory, dict) else None)
    if shares != (None, None):
        return {**dict(zip(METRICS, shares, strict=True)), "source": AGENT}
    said = cloudwatch.figures or {}
    figures = {name: each.get("value") if isinstance(each := said.get(name), dict) else None for name in METRICS}
    return {**figures, "source": CLOUDWATCH if said else None}


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 1)
