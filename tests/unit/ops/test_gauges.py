"""Measuring a sandbox, whatever its agent, its state and CloudWatch have to say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.figures import (
    BROKEN,
    FIGURES,
    NO_STATS,
    TOLD,
    Measured,
    OpenMeasured,
    cloudwatch_answer,
    refused,
)
from tests.support.planes import MICROVM_ID, NAME
from tests.support.scripted import SILENT, Answer, Received, answer, json_answer
from vmnest import errors, registry
from vmnest.ops import gauges, views


class Scene:
    """A sandbox on AWS, and what measures it."""

    def __init__(self, measured: Measured, clock: FakeClock) -> None:
        self.planes = measured.planes
        self.cloudwatch = measured.cloudwatch
        self.clock = clock
        self._measured = measured
        self._shared = gauges.CloudWatch(region=None)
        self.gauge = self.build(registry.open_default().require(NAME))

    def build(self, record: registry.Record) -> gauges.Gauge:
        return gauges.Gauge(record, cloudwatch=self._shared, region=None, clock=self.clock)

    def measure(self) -> Any:
        data = self.gauge.measure(timeout=10)
        assert json.loads(json.dumps(data)) == data
        return data

    @property
    def asked(self) -> list[str]:
        """What the agent was asked for."""
        return self._measured.asked


OpenScene = Callable[..., Scene]


@pytest.fixture
def scene(measured: OpenMeasured, fake_clock: FakeClock) -> OpenScene:
    """Opens the scene with an agent's answers; one that is asked for more gives the last one again."""
    return lambda *agent, **options: Scene(measured(*agent, **options), fake_clock)


def test_figures_stand_under_the_name_of_their_source(scene: OpenScene) -> None:
    on = scene(TOLD, cloudwatch=cloudwatch_answer(3, 7))
    data = on.measure()
    assert (data["name"], data["target"], data["microvm_id"], data["state"]) == (NAME, "aws", MICROVM_ID, "RUNNING")
    assert data["time"] == "2027-01-15T08:00:00.000+00:00"
    memory, disk = ({**FIGURES[name], "percent": 25.0} for name in ("memory", "disk"))  # type: ignore[dict-item]
    assert data["agent"] == {"figures": {**FIGURES, "memory": memory, "disk": disk}, "reason": None, "code": None}
    figure = {"value": 7.0, "unit": "Percent", "time": "2026-11-30T12:01:00+00:00"}
    expected = {"CPUUtilization": figure, "MemoryUtilization": figure}
    assert data["cloudwatch"] == {"figures": expected, "reason": None, "code": None}
    assert data["metrics"] == {"CPUUtilization": 12.5, "MemoryUtilization": 25.0, "source": "agent"}


def test_the_first_share_of_the_cpus_is_that_of_a_moment_and_the_next_that_since_then(
    scene: OpenScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = scene(json_answer(200, {**FIGURES, "cpu_percent": 90}), TOLD)
    monkeypatch.setattr(gauges, "SPAN_SECONDS", 0.01)
    assert on.measure()["agent"]["figures"]["cpu_percent"] == 12.5
    assert on.asked == ["/v1/stats"] * 2
    on.measure()
    assert on.asked == ["/v1/stats"] * 3


@pytest.mark.parametrize("state", ["SUSPENDED", "SUSPENDING", "TERMINATING", "TERMINATED"])
def test_a_sandbox_that_does_not_run_is_neither_asked_nor_woken(scene: OpenScene, state: str) -> None:
    on = scene(TOLD)
    on.planes.control.state = state
    data = on.measure()
    assert data["state"] == state
    assert data["agent"]["figures"] is None
    assert data["agent"]["code"] == ("suspended" if state.startswith("SUSP") else "microvm_ended")
    assert (state if state.startswith("TERM") else state.lower()[:-3]) in data["agent"]["reason"]
    assert data["metrics"] == {"CPUUtilization": None, "MemoryUtilization": None, "source": None}
    assert on.asked == []
    assert set(on.planes.control.calls) == {"get"}


def test_cloudwatch_tells_of_one_that_is_suspended(scene: OpenScene) -> None:
    on = scene(TOLD, cloudwatch=cloudwatch_answer(3))
    on.planes.control.state = "SUSPENDED"
    assert on.measure()["metrics"] == {"CPUUtilization": 3.0, "MemoryUtilization": 3.0, "source": "cloudwatch"}


def test_where_cloudwatch_has_nothing_there_is_no_figure_and_a_reason(scene: OpenScene) -> None:
    data = scene(TOLD).measure()
    assert data["cloudwatch"] == {"figures": None, "reason": "CloudWatch has no figures of it", "code": None}


def test_a_metric_of_which_cloudwatch_has_nothing_is_null_beside_one_of_which_it_has(scene: OpenScene) -> None:
    def one(request: Received) -> Answer:
        return cloudwatch_answer(*([5] if b"MetricName=MemoryUtilization" in request.body else []))

    figures = scene(TOLD, cloudwatch=one).measure()["cloudwatch"]["figures"]
    assert figures["CPUUtilization"] is None
    assert figures["MemoryUtilization"]["value"] == 5.0


def test_that_cloudwatch_refuses_is_a_reason_and_no_failure(scene: OpenScene) -> None:
    data = scene(TOLD, cloudwatch=refused).measure()
    assert data["agent"]["figures"]["processes"] == 5
    assert (data["cloudwatch"]["figures"], data["cloudwatch"]["code"]) == (None, "access_denied")
    assert "GetMetricStatistics" in data["cloudwatch"]["reason"]


def test_cloudwatch_is_asked_once_a_minute(scene: OpenScene) -> None:
    on = scene(TOLD)
    for _ in range(3):
        on.measure()
        on.clock.advance(25)
    assert len(on.cloudwatch.requests) == 2
    on.measure()
    assert len(on.cloudwatch.requests) == 4


def test_an_agent_without_the_feature_is_a_reason_and_no_failure(scene: OpenScene) -> None:
    on = scene(NO_STATS)
    for _ in range(2):
        data = on.measure()
        assert (data["state"], data["agent"]["figures"], data["agent"]["code"]) == ("RUNNING", None, "unsupported")
        assert "does not tell what it uses" in data["agent"]["reason"]
    assert on.asked == ["/v1/stats"]


HOSTILE: dict[str, Answer] = {
    "no object": json_answer(200, [1]),
    "a page": answer(200, "<html>", kind="text/html"),
    "nothing in it": json_answer(200, {}),
    "an error": BROKEN,
}


@pytest.mark.parametrize("wrong", HOSTILE.values(), ids=list(HOSTILE))
def test_an_agent_that_fails_is_a_failure_unless_cloudwatch_knows_something(scene: OpenScene, wrong: Answer) -> None:
    on = scene(wrong)
    with pytest.raises(errors.AgentError) as caught:
        on.gauge.measure(timeout=10)
    assert "\x1b" not in caught.value.message
    data = on.gauge.try_measure(timeout=10)
    assert data["error"] == caught.value.to_wire()
    assert data["state"] == "RUNNING"
    assert data["agent"] == {"figures": None, "reason": caught.value.message, "code": caught.value.code}


def test_an_agent_that_never_answers_is_a_failure_in_time(scene: OpenScene) -> None:
    on = scene(SILENT)
    begun = time.monotonic()
    with pytest.raises(errors.VmnestError) as caught:
        on.gauge.measure(timeout=0.3)
    assert time.monotonic() - begun < 20  # of the 60 that an answer may take elsewhere
    assert caught.value.retryable
    assert on.gauge.try_measure(timeout=0.3)["state"] == "RUNNING"


def test_a_failure_of_the_agent_is_a_reason_where_cloudwatch_knows_something(scene: OpenScene) -> None:
    data = scene(BROKEN, cloudwatch=cloudwatch_answer(1)).measure()
    assert (data["agent"]["code"], data["metrics"]["source"]) == ("agent_error", "cloudwatch")


def test_members_that_are_nonsense_are_null(scene: OpenScene) -> None:
    odd = {"cpus": -1, "cpu_percent": 1e9, "load": "x", "memory": [], "disk": {"total": -5}, "processes": 3}
    data = scene(json_answer(200, odd)).measure()
    assert data["agent"]["figures"] == {
        "cpus": None,
        "cpu_percent": None,
        "load": None,
        "memory": {"total": None, "used": None, "available": None, "percent": None},
        "disk": {"total": None, "used": None, "free": None, "percent": None},
        "network": {"received": None, "sent": None},
        "processes": 3,
        "uptime": None,
    }
    assert data["metrics"] == {"CPUUtilization": None, "MemoryUtilization": None, "source": None}


def test_a_state_that_cannot_be_seen_is_a_failure(scene: OpenScene) -> None:
    on = scene(TOLD, cloudwatch=cloudwatch_answer(1))
    on.planes.control.broken = json_answer(403, {"message": "no"})
    data = on.gauge.try_measure(timeout=10)
    assert data["state"] == "UNKNOWN"
    assert data["error"]["code"] == "access_denied"
    with pytest.raises(errors.AccessDeniedError):
        on.gauge.measure(timeout=10)
    assert on.asked == []
    on.planes.control.broken = None
    assert on.measure()["state"] == "RUNNING"


def test_a_microvm_that_the_service_has_forgotten_is_gone(scene: OpenScene) -> None:
    on = scene(TOLD)
    on.planes.control.broken = json_answer(404, {"message": "MicroVM not found"})
    data = on.measure()
    assert (data["state"], data["agent"]["figures"], data["agent"]["code"]) == (views.GONE, None, "microvm_not_found")


def test_a_launch_that_was_cut_off_is_not_completed_for_a_figure(scene: OpenScene) -> None:
    on = scene(TOLD)
    record = registry.open_default().require(NAME).replace(microvm_id=None, endpoint=None)
    data = on.build(record).measure(timeout=10)
    assert (data["state"], data["microvm_id"]) == (views.LAUNCHING, None)
    assert on.planes.control.calls == []
    assert on.cloudwatch.requests == []


def test_a_target_that_is_not_known_is_a_failure(scene: OpenScene) -> None:
    on = scene(TOLD)
    record = registry.open_default().require(NAME).replace(target="moon")
    assert on.build(record).try_measure(timeout=10)["state"] == "UNKNOWN"
    with pytest.raises(errors.UnsupportedError):
        on.build(record).measure(timeout=10)
