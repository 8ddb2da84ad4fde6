"""What sandboxes use, now or for a while. A suspended one is never woken for a figure; what is not known is null."""

from __future__ import annotations

from .. import errors, registry
from ..deadline import SYSTEM_CLOCK, Deadline, check_seconds
from ..wire import names
from . import crowd, gauges, moments, sandboxes, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..deadline import Clock
    from ..registry import Record

__all__ = [
    "ASK_SECONDS",
    "INTERVAL_SECONDS",
    "all_metrics",
    "sandbox_metrics",
    "sandbox_metrics_stream",
    "watch_all",
    "watch_sandbox",
]

ASK_SECONDS = 30.0
SAMPLE_SECONDS = 5.0  # while it is watched, no look at a sandbox takes longer
INTERVAL_SECONDS = 2.0
SHORTEST_INTERVAL_SECONDS = 0.1  # an agent measures nothing over less
MOST_SAMPLES = 60
MOST_AT_A_TIME = 32  # most of the time that they take, they wait
ENDED_STATES = (*names.ENDED_STATES, views.GONE)


def sandbox_metrics(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """Tell what a sandbox uses just now: CPU, memory, disk, network, processes. A suspended one is not woken for it.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        timeout: Seconds that asking may take.
    """
    return _gauge(name, local=local, region=region).measure(timeout=timeout)


def all_metrics(
    *, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """Tell what each sandbox uses just now. One that cannot be asked has an error; suspended ones are not woken.

    Args:
        local: True: only those on this machine; False: only those on AWS.
        region: AWS region to ask, instead of the recorded ones.
        timeout: Seconds that asking may take.
    """
    return _Crowd(local=local, region=region).measure(timeout=timeout)


def sandbox_metrics_stream(
    *,
    name: str,
    samples: int = 5,
    interval_ms: int = 60_000,
    local: bool | None = None,
    region: str | None = None,
    patience: float | None = None,
    on_sample: Callable[[int], object] = lambda count: None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, object]:
    """Collect some samples of what a sandbox uses, and tell them together. That it is asked keeps it awake.

    ``remaining`` says how many are still to be taken, from ``continue_after_ms`` on, by whoever asks again.

    Args:
        name: The sandbox.
        samples: How many: 1 to 60. They are fewer if it ends before.
        interval_ms: Milliseconds from one to the next, at least 100.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        patience: Take no sample that could not be there within so many seconds; the first one in any case.
        on_sample: Told how many are there.
        clock: The time.
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or not 1 <= samples <= MOST_SAMPLES:
        raise errors.UsageError(f"samples must be a number from 1 to {MOST_SAMPLES}: {samples!r}")
    interval = check_seconds(interval_ms, name="interval_ms") / 1000
    deadline = Deadline(patience, clock=clock)
    taken: list[dict[str, object]] = []
    remaining = samples
    for sample in watch_sandbox(name=name, interval=interval, local=local, region=region, clock=clock):
        taken.append({"sample": len(taken), "at": sample["time"], **sample})
        remaining = 0 if sample["state"] in ENDED_STATES else samples - len(taken)
        on_sample(len(taken))
        if not remaining or deadline.clamp(interval + SAMPLE_SECONDS) < interval + SAMPLE_SECONDS:
            break
    later = interval_ms if remaining else None
    return {"name": name, "samples": taken, "remaining": remaining, "continue_after_ms": later}


def watch_sandbox(
    *,
    name: str,
    interval: float = INTERVAL_SECONDS,
    local: bool | None = None,
    region: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[dict[str, object]]:
    """Samples of what a sandbox uses, until it has ended. After the first one a failure is a part of a sample.

    Args:
        name: The sandbox.
        interval: Seconds from one to the next.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        clock: The time.
    """
    gauge = _gauge(name, local=local, region=region, clock=clock)
    return _samples(
        lambda: gauge.measure(timeout=ASK_SECONDS),
        lambda: gauge.try_measure(timeout=SAMPLE_SECONDS),
        is_last=lambda sample: sample["state"] in ENDED_STATES,
        interval=interval,
        clock=clock,
    )


def watch_all(
    *,
    interval: float = INTERVAL_SECONDS,
    local: bool | None = None,
    region: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[dict[str, object]]:
    """Samples of what all sandboxes use, new ones included, as long as there are any. See ``watch_sandbox``.

    Args:
        interval: Seconds from one sample to the next.
        local: True: only those on this machine; False: only those on AWS.
        region: AWS region to ask, instead of the recorded ones.
        clock: The time.
    """
    crew = _Crowd(local=local, region=region, clock=clock)
    return _samples(
        lambda: crew.measure(timeout=ASK_SECONDS),
        lambda: crew.measure(timeout=SAMPLE_SECONDS),
        is_last=lambda sample: not sample["sandboxes"],
        interval=interval,
        clock=clock,
    )


def _gauge(name: str, *, local: bool | None, region: str | None, clock: Clock = SYSTEM_CLOCK) -> gauges.Gauge:
    record = sandboxes.require(name, local=local)
    return gauges.Gauge(record, cloudwatch=gauges.CloudWatch(region=region), region=region, clock=clock)


class _Crowd:
    """All sandboxes that are recorded, each with a gauge that stays while it is there."""

    def __init__(self, *, local: bool | None, region: str | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._local = local
        self._region = region
        self._clock = clock
        self._cloudwatch = gauges.CloudWatch(region=region)
        self._gauges: dict[tuple[str, str | None], gauges.Gauge] = {}

    def measure(self, *, timeout: float) -> dict[str, object]:
        """What all of them use now."""
        before = self._gauges
        self._gauges = {}
        for record in registry.open_default().all():
            if record.is_within(self._local, self._region):
                key = (record.name, record.microvm_id)
                self._gauges[key] = before.get(key) or self._build(record)
        measured = crowd.map_parallel(
            lambda gauge: gauge.try_measure(timeout=timeout), list(self._gauges.values()), largest=MOST_AT_A_TIME
        )
        return {"time": moments.from_epoch(self._clock.time(), fractions=True), "sandboxes": measured}

    def _build(self, record: Record) -> gauges.Gauge:
        return gauges.Gauge(record, cloudwatch=self._cloudwatch, region=self._region, clock=self._clock)


def _samples(
    first: Callable[[], dict[str, object]],
    following: Callable[[], dict[str, object]],
    *,
    is_last: Callable[[dict[str, object]], bool],
    interval: float,
    clock: Clock,
) -> Iterator[dict[str, object]]:
    """One sample each interval. One that takes longer than that moves those that follow."""
    if check_seconds(interval, name="interval") < SHORTEST_INTERVAL_SECONDS:
        raise errors.UsageError(f"the interval must be {SHORTEST_INTERVAL_SECONDS:g} s or more: {interval:g}")

    def take() -> Iterator[dict[str, object]]:
        due = clock.monotonic()
        sample = first()
        while True:
            yield sample
            if is_last(sample):
                return
            now = clock.monotonic()
            due = max(due + interval, now)
            clock.sleep(due - now)
            sample = following()

    return take()
