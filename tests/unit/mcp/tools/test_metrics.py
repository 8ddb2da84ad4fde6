"""What sandboxes use, through tools."""

from __future__ import annotations

import pytest

from tests.support.figures import TOLD, OpenMeasured
from tests.support.mcp_tools import Tools
from tests.support.planes import NAME
from vmnest.mcp.calls import CancelledError


def test_one_and_all_are_measured(measured: OpenMeasured, tools: Tools) -> None:
    measured(TOLD)
    one = tools.data("sandbox_metrics", name=NAME)
    assert (one["state"], one["metrics"]["CPUUtilization"]) == ("RUNNING", 12.5)
    everything = tools.data("sandbox_metrics_all")["sandboxes"]
    assert [each["name"] for each in everything] == [NAME]
    assert tools.error("sandbox_metrics", name="nobody")["code"] == "sandbox_not_found"


def test_samples_are_told_as_they_come(measured: OpenMeasured, tools: Tools) -> None:
    measured(TOLD)
    call = tools.open(progress=True)
    data = tools.data("sandbox_metrics_stream", within=call, name=NAME, samples=2, interval_ms=100)
    assert [each["sample"] for each in data["samples"]] == [0, 1]
    assert (data["remaining"], data["continue_after_ms"]) == (0, None)
    params = tools.notes[0]["params"]
    assert isinstance(params, dict)
    assert (params["progress"], params["total"], params["message"]) == (1, 2, "1 of 2 samples")


def test_a_minute_is_not_waited_for(measured: OpenMeasured, tools: Tools) -> None:
    measured(TOLD)
    data = tools.data("sandbox_metrics_stream", name=NAME)
    assert (len(data["samples"]), data["remaining"], data["continue_after_ms"]) == (1, 4, 60_000)
    assert tools.error("sandbox_metrics_stream", name=NAME, samples=61)["code"] == "usage"


def test_a_cancelled_series_ends_with_its_next_sample(measured: OpenMeasured, tools: Tools) -> None:
    measured(TOLD)
    call = tools.open()
    call.cancel()
    with pytest.raises(CancelledError):
        tools.call("sandbox_metrics_stream", within=call, name=NAME, samples=60, interval_ms=100)
