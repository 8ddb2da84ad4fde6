"""The pulse of a call."""

from __future__ import annotations

import threading

from tests.support.mcp_tools import Tools
from vmnest.mcp.tools import pulse


def test_it_tells_that_a_call_goes_on_to_whoever_wants_to_hear_it(monkeypatch, tools: Tools) -> None:
    monkeypatch.setattr(pulse, "PERIOD_SECONDS", 0.001)
    told = threading.Event()
    call = tools.open(progress=True)
    progress = call.progress
    monkeypatch.setattr(call, "progress", lambda *args, **more: (progress(*args, **more), told.set()))
    with pulse.Pulse(call, "starting"):
        assert told.wait(30)
    (first, *_) = tools.notes
    assert first["params"]["message"] == "starting"


def test_nobody_else_costs_a_thread(tools: Tools) -> None:
    before = threading.active_count()
    with pulse.Pulse(tools.open(), "starting"):
        assert threading.active_count() == before
