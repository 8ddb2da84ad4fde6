"""CloudWatch's figures of a MicroVM: what is asked for, and what is made of the answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs

import pytest

from tests.support.control import Controls
from tests.support.peers import Answer, Request
from vmnest import errors
from vmnest.aws import credentials, service
from vmnest.control import metrics
from vmnest.control.metrics import Figure

NOW = datetime(2026, 11, 30, 12, 0, 30, tzinfo=timezone.utc)
Ask = Callable[..., tuple[dict[str, Figure | None], list[dict[str, str]]]]


@pytest.fixture
def ask(controls: Controls) -> Ask:
    def ask(*script: Answer) -> tuple[dict[str, Figure | None], list[dict[str, str]]]:
        made = controls(*script)
        caller = service.Service(
            metrics.SERVICE,
            endpoint=made.peer.url,
            region="us-east-1",
            credentials=credentials.StaticSource(credentials.build("AKIDEXAMPLE", "secret")),
            transport=made.service._transport,
            clock=made.clock,
        )
        found = metrics.latest(caller, "microvm-1", deadline=made.deadline(), now=NOW)
        return found, [form(request) for request in made.peer.requests]

    return ask


def form(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.body.decode()).items()}


def points(*members: str) -> Answer:
    """An answer with these data points, as XML."""
    inner = "".join(f"<member>{each}</member>" for each in members)
    body = (
        '<GetMetricStatisticsResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/">'
        f"<GetMetricStatisticsResult><Datapoints>{inner}</Datapoints><Label>x</Label></GetMetricStatisticsResult>"
        "</GetMetricStatisticsResponse>"
    )
    return Answer(200, body.encode(), headers=[("Content-Type", "text/xml")])


def point(minute: int, average: object, *, unit: str = "Percent") -> str:
    at = f"2026-11-30T11:{minute:02}:00Z"
    return f"<Timestamp>{at}</Timestamp><Average>{average}</Average><Unit>{unit}</Unit>"


def refusal(status: int, code: str) -> Answer:
    body = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
    return Answer(status, body.encode(), headers=[("Content-Type", "text/xml")])


def test_each_metric_of_the_microvm_is_asked_for_around_now(ask: Ask) -> None:
    _, requests = ask(points(), points())
    assert [request["MetricName"] for request in requests] == ["CPUUtilization", "MemoryUtilization"]
    for request in requests:
        assert request["Namespace"] == "AWS/LambdaMicroVMs"
        assert request["Dimensions.member.1.Name"] == "MicrovmId"
        assert request["Dimensions.member.1.Value"] == "microvm-1"
        assert (request["Period"], request["Statistics.member.1"]) == ("60", "Average")
        begin, end = (datetime.fromisoformat(request[name].replace("Z", "+00:00")) for name in ("StartTime", "EndTime"))
        # A clock that is off by ten minutes, either way, still sees what the last ten minutes brought.
        for error in (timedelta(minutes=-10), timedelta(0), timedelta(minutes=10)):
            assert begin <= NOW + error - timedelta(minutes=10)
            assert NOW + error <= end


def test_the_latest_of_several_counts_in_whatever_order_they_come(ask: Ask) -> None:
    found, _ = ask(points(point(50, 1.5), point(52, 3.25), point(51, 2.5)), points(point(40, 7)))
    at = NOW.replace(hour=11, minute=52, second=0)
    assert found == {
        "CPUUtilization": Figure(3.25, "Percent", at),
        "MemoryUtilization": Figure(7.0, "Percent", at.replace(minute=40)),
    }


def test_what_there_is_none_of_is_none_and_no_zero(ask: Ask) -> None:
    found, _ = ask(points(), points(point(40, 0)))
    assert found["CPUUtilization"] is None
    assert found["MemoryUtilization"] is not None
    assert found["MemoryUtilization"].value == 0.0


def test_a_point_that_is_no_figure_is_passed_over(ask: Ask) -> None:
    odd = ("<Timestamp>2026-11-30T11:59:00Z</Timestamp>", "<Average>5</Average>", point(58, "NaN"), point(57, "INF"))
    found, _ = ask(points(*odd, point(56, 4)), points(*odd))
    assert found["CPUUtilization"] is not None
    assert found["CPUUtilization"].value == 4.0
    assert found["MemoryUtilization"] is None


def test_who_may_not_read_figures_is_told(ask: Ask) -> None:
    with pytest.raises(errors.AccessDeniedError):
        ask(refusal(403, "AccessDenied"))


def test_throttling_is_waited_out(ask: Ask) -> None:
    found, requests = ask(refusal(400, "Throttling"), points(point(50, 1)), points())
    assert found["CPUUtilization"] is not None
    assert len(requests) == 3


def test_a_page_of_a_gateway_is_no_figure(ask: Ask) -> None:
    page = Answer(200, b"<html>hello</html>", headers=[("Content-Type", "text/html")])
    with pytest.raises(errors.AnswerInvalidError):
        ask(page)
