"""A sandbox on AWS whose agent and whose CloudWatch answer from scripts, for whoever asks what it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.planes import OpenPlanes, Planes
from tests.support.scripted import Answer, Received, ScriptedServer, Step, answer, json_answer
from vmnest.ops import gauges

MIB = 2**20
FIGURES: dict[str, object] = {
    "cpus": 2.0,
    "cpu_percent": 12.5,
    "load": [0.5, 0.25, 0.0],
    "memory": {"total": 512 * MIB, "used": 128 * MIB, "available": 300 * MIB},
    "disk": {"total": 4000, "used": 1000, "free": 2900},
    "network": {"received": 7, "sent": 0},
    "processes": 5,
    "uptime": 61.25,
}
TOLD = json_answer(200, FIGURES)
NO_STATS = json_answer(404, {"detail": "Not Found"})  # what a web framework says that has no such route
BROKEN = json_answer(500, {"detail": "\x1b[31mbroken", "code": "internal"})


def cloudwatch_answer(*values: float) -> Answer:
    """A figure for each minute from 12:00 on."""
    points = "".join(
        f"<member><Timestamp>2026-11-30T12:{minute:02}:00Z</Timestamp><Average>{value}</Average>"
        "<Unit>Percent</Unit></member>"
        for minute, value in enumerate(values)
    )
    inner = f"<GetMetricStatisticsResult><Datapoints>{points}</Datapoints></GetMetricStatisticsResult>"
    return answer(200, f"<GetMetricStatisticsResponse>{inner}</GetMetricStatisticsResponse>", kind="text/xml")


def refused(request: Received) -> Answer:
    """CloudWatch's word to whoever may not read figures."""
    error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
    return answer(403, error, kind="text/xml")


class Measured:
    """The sandbox's two planes, and CloudWatch."""

    def __init__(self, planes: Planes, cloudwatch: ScriptedServer) -> None:
        self.planes = planes
        self.control = planes.control
        self.cloudwatch = cloudwatch
        self.environ = {**planes.environ, "AWS_ENDPOINT_URL_CLOUDWATCH": cloudwatch.url}

    @property
    def asked(self) -> list[str]:
        """What its agent was asked for."""
        return [request.target for request in self.planes.data.requests]


OpenMeasured = Callable[..., Measured]


@pytest.fixture
def measured(planes: OpenPlanes, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenMeasured]:
    """Opens one whose agent gives these answers, the last one again and again; this process works with it.

    The first look at a sandbox is one request, as those that follow are.
    """
    monkeypatch.setattr(gauges, "SPAN_SECONDS", 0.0)
    with ExitStack() as stack:

        def start(*agent: Step, cloudwatch: Step | None = None) -> Measured:
            server = stack.enter_context(ScriptedServer(cloudwatch or cloudwatch_answer(), repeat_last=True))
            made = Measured(planes(*agent, repeat_last=True), server)
            for name, value in made.environ.items():
                monkeypatch.setenv(name, value)
            return made

        yield start
