"""What sandboxes use, now or for a while: the local cloud's, and one whose answers come from a script."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.cloud import LocalCloud, open_cloud, work_in
from tests.support.figures import BROKEN, TOLD, OpenMeasured
from tests.support.planes import NAME
from vmnest import errors, registry
from vmnest.ops import lifecycle, metrics, sandboxes
from vmnest.sandbox import Sandbox

# -- the local cloud ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud, pytest.MonkeyPatch.context() as patch:
        work_in(cloud, patch)
        sandboxes.create_sandbox(name="web")
        yield cloud
        Sandbox.get("web").terminate()


def test_a_local_sandbox_tells_its_figures_and_sleeps_on_when_it_is_suspended(
    cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_in(cloud, monkeypatch)
    Sandbox.get("web").exec("sh", ["-c", "sleep 60 >/dev/null 2>&1 & head -c 30000000 /dev/zero > /work/big"])
    data: Any = metrics.sandbox_metrics(name="web")
    assert json.loads(json.dumps(data)) == data
    assert (data["name"], data["target"], data["state"]) == ("web", "local", "RUNNING")
    figures = data["agent"]["figures"]
    # It sees the memory of this machine, and has what a local sandbox has by default.
    assert 0 < figures["memory"]["used"] < figures["memory"]["total"] <= 2048 * 2**20
    assert figures["memory"]["available"] <= figures["memory"]["total"] - figures["memory"]["used"]
    # And its disk, of which it may use a part; what it uses of that nobody has counted.
    assert figures["disk"]["total"] <= 8 * 2**30
    assert figures["disk"]["used"] is None or figures["disk"]["used"] >= 30_000_000
    assert figures["load"] is None
    assert figures["processes"] >= 2
    assert 0 <= figures["cpu_percent"] <= 100
    assert data["cloudwatch"] == {"figures": None, "reason": "the local cloud has no CloudWatch", "code": None}
    assert data["metrics"]["source"] == "agent"

    lifecycle.stop_sandbox(name="web")
    everything: Any = metrics.all_metrics(local=True)
    (one,) = everything["sandboxes"]
    assert (one["state"], one["agent"]["figures"], one["agent"]["code"]) == ("SUSPENDED", None, "suspended")
    assert Sandbox.get("web").refresh() == "SUSPENDED"
    assert metrics.all_metrics(local=False)["sandboxes"] == []


# -- a script ----------------------------------------------------------------------------------------------------------


def test_a_name_that_is_not_recorded_is_not_found(measured: OpenMeasured) -> None:
    measured(TOLD)
    for ask in (metrics.sandbox_metrics, metrics.watch_sandbox, metrics.sandbox_metrics_stream):
        with pytest.raises(errors.SandboxNotFoundError):
            ask(name="nobody")
    with pytest.raises(errors.SandboxNotFoundError, match="that one is on AWS"):
        metrics.sandbox_metrics(name=NAME, local=True)


def test_of_all_of_them_those_that_fail_have_an_error_of_their_own(measured: OpenMeasured) -> None:
    measured(TOLD)
    records = registry.open_default()
    records.put(registry.Record("begun", region="us-east-1"))
    records.put(registry.Record("moon", microvm_id="microvm-3", target="moon"))
    found: Any = metrics.all_metrics()
    told = {each["name"]: (each["state"], each.get("error", {}).get("code")) for each in found["sandboxes"]}
    assert told == {"web": ("RUNNING", None), "begun": ("LAUNCHING", None), "moon": ("UNKNOWN", "unsupported")}
    on_aws: Any = metrics.all_metrics(local=False)
    assert [each["name"] for each in on_aws["sandboxes"]] == ["web", "begun"]


def test_samples_come_once_an_interval_until_the_sandbox_has_ended(
    measured: OpenMeasured, fake_clock: FakeClock
) -> None:
    on = measured(TOLD, TOLD, BROKEN, TOLD)
    samples: Any = metrics.watch_sandbox(name=NAME, interval=5, clock=fake_clock)
    seen = []
    for sample in samples:
        seen.append((sample["state"], "error" in sample, sample["time"][17:23]))
        if len(seen) == 4:
            on.control.state = "TERMINATED"
    running = [("RUNNING", False, "00.000"), ("RUNNING", False, "05.000"), ("RUNNING", True, "10.000")]
    assert seen == [*running, ("RUNNING", False, "15.000"), ("TERMINATED", False, "20.000")]
    assert fake_clock.sleeps == [5.0] * 4
    assert len(on.asked) == 4


def test_a_sample_that_takes_longer_than_the_interval_moves_those_that_follow(
    measured: OpenMeasured, fake_clock: FakeClock
) -> None:
    slow = dataclasses.replace(TOLD, before=lambda: fake_clock.advance(7))
    measured(TOLD, slow, TOLD)
    samples = metrics.watch_sandbox(name=NAME, interval=5, clock=fake_clock)
    assert [sample["time"][17:19] for sample in itertools.islice(samples, 4)] == ["00", "12", "12", "17"]  # type: ignore[index]


class TickingClock(FakeClock):
    """Time passes with each look at it."""

    def monotonic(self) -> float:
        self.advance(0.25)
        return super().monotonic()


def test_time_that_passes_while_the_wait_is_worked_out_makes_no_wait_negative(measured: OpenMeasured) -> None:
    measured(TOLD)
    clock = TickingClock()
    samples = metrics.watch_sandbox(name=NAME, interval=0.1, clock=clock)
    assert len(list(itertools.islice(samples, 5))) == 5
    assert min(clock.sleeps) >= 0


def test_the_first_look_of_a_watch_fails_as_a_single_one_does(measured: OpenMeasured) -> None:
    measured(BROKEN)
    with pytest.raises(errors.AgentError):
        next(metrics.watch_sandbox(name=NAME))


def test_a_sandbox_that_is_suspended_while_it_is_watched_is_not_woken(
    measured: OpenMeasured, fake_clock: FakeClock
) -> None:
    on = measured(TOLD)
    samples: Any = metrics.watch_sandbox(name=NAME, clock=fake_clock)
    assert next(samples)["state"] == "RUNNING"
    on.control.state = "SUSPENDED"
    assert [next(samples)["state"] for _ in range(3)] == ["SUSPENDED"] * 3
    on.control.state = "RUNNING"
    assert next(samples)["agent"]["figures"]["processes"] == 5
    assert len(on.asked) == 2


def test_who_watches_all_sees_new_ones_and_ends_when_there_are_none(
    measured: OpenMeasured, fake_clock: FakeClock
) -> None:
    measured(TOLD)
    records = registry.open_default()
    samples: Any = metrics.watch_all(clock=fake_clock)

    def names() -> list[str]:
        return [each["name"] for each in next(samples)["sandboxes"]]

    assert names() == ["web"]
    records.put(registry.Record("new", region="us-east-1"))
    assert names() == ["web", "new"]
    records.remove("web")
    assert names() == ["new"]
    records.remove("new")
    assert names() == []
    assert list(samples) == []


@pytest.mark.parametrize("interval", [0, 0.05, -1, float("nan"), float("inf"), True])
def test_an_interval_in_which_nothing_can_be_measured_is_refused_at_once(
    measured: OpenMeasured, interval: float
) -> None:
    measured(TOLD)
    for watch in (metrics.watch_all, lambda **given: metrics.watch_sandbox(name=NAME, **given)):
        with pytest.raises(errors.UsageError, match="interval"):
            watch(interval=interval)


def test_a_series_has_so_many_samples_with_their_numbers(measured: OpenMeasured) -> None:
    measured(TOLD)
    data: Any = metrics.sandbox_metrics_stream(name=NAME, samples=2, interval_ms=100)
    assert (data["name"], data["remaining"], data["continue_after_ms"]) == (NAME, 0, None)
    assert [each["sample"] for each in data["samples"]] == [0, 1]
    for each in data["samples"]:
        assert each["at"] == each["time"]
        assert each["metrics"]["CPUUtilization"] == 12.5


def test_a_series_ends_with_its_sandbox(measured: OpenMeasured) -> None:
    measured(TOLD).control.state = "TERMINATED"
    data: Any = metrics.sandbox_metrics_stream(name=NAME, samples=60, interval_ms=10**6)
    assert [each["state"] for each in data["samples"]] == ["TERMINATED"]
    assert data["remaining"] == 0


def test_a_series_that_would_take_too_long_says_how_it_goes_on(measured: OpenMeasured) -> None:
    measured(TOLD)
    clock, told = FakeClock(), []
    series = {"name": NAME, "interval_ms": 10_000, "patience": 45, "on_sample": told.append, "clock": clock}
    data: Any = metrics.sandbox_metrics_stream(samples=6, **series)  # type: ignore[arg-type]
    assert (len(data["samples"]), data["remaining"], data["continue_after_ms"]) == (5, 1, 10_000)
    assert told == [1, 2, 3, 4, 5]
    assert clock.sleeps == [10, 10, 10, 10]
    data = metrics.sandbox_metrics_stream(name=NAME, interval_ms=60_000, patience=45)
    assert (len(data["samples"]), data["remaining"]) == (1, 4)


@pytest.mark.parametrize(
    "given",
    [{"samples": 0}, {"samples": 61}, {"samples": True}, {"samples": "5"}, {"interval_ms": -1}, {"interval_ms": "5"}],
    ids=str,
)
def test_a_series_without_bounds_is_refused(measured: OpenMeasured, given: dict[str, Any]) -> None:
    measured(TOLD)
    with pytest.raises(errors.UsageError, match=next(iter(given))):
        metrics.sandbox_metrics_stream(name=NAME, **given)
