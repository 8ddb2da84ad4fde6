"""The life of a sandbox, through tools."""

from __future__ import annotations

import pytest

from tests.support.mcp_tools import Tools
from vmnest import registry


def test_a_sandbox_is_made_looked_at_suspended_resumed_and_ended(local_tools: Tools) -> None:
    made = local_tools.data("sandbox_create", name="web", labels={"a": "b"}, memory=512)
    assert (made["name"], made["state"], made["target"]) == ("web", "RUNNING", "local")
    assert local_tools.data("sandbox_list", labels={"a": "b"})["count"] == 1
    assert local_tools.data("sandbox_list", labels={"a": "c"}) == {"sandboxes": [], "count": 0}
    assert local_tools.data("sandbox_stop", name="web")["state"] == "SUSPENDED"
    assert local_tools.data("sandbox_status", name="web")["state"] == "SUSPENDED"
    assert local_tools.data("sandbox_wait", name="web", target="suspended")["reached_target"] is True
    assert local_tools.data("sandbox_wait", name="web", timeout=0.1)["reached_target"] is False
    assert local_tools.data("sandbox_start", name="web")["state"] == "RUNNING"
    (listed,) = local_tools.data("sandbox_status")["sandboxes"]
    assert listed["name"] == "web"
    inspected = local_tools.data("sandbox_inspect", name="web")
    assert inspected["microvm"]["microvmId"] == made["microvm_id"]
    removed = local_tools.data("sandbox_remove", name="web")
    assert (removed["removed"], removed["was_there"]) == (True, True)
    assert local_tools.data("sandbox_list")["count"] == 0


def test_a_name_in_use_and_a_name_that_is_none_are_told_apart(local_tools: Tools) -> None:
    local_tools.data("sandbox_create", name="web")
    error = local_tools.error("sandbox_create", name="web")
    assert error["code"] == "name_in_use"
    assert error["hint"]
    assert local_tools.error("sandbox_create", name="../web")["code"] == "usage"
    assert local_tools.error("sandbox_create")["message"] == "the argument name is missing"
    assert local_tools.data("sandbox_create", name="web", replace=True)["state"] == "RUNNING"


def test_a_sandbox_that_nobody_hears_of_does_not_stay(local_tools: Tools) -> None:
    from vmnest.mcp.calls import CancelledError

    call = local_tools.open()
    call.cancel()
    with pytest.raises(CancelledError):
        local_tools.call("sandbox_create", within=call, name="web")
    assert registry.open_default().all() == []


@pytest.mark.parametrize(
    "tool", ["sandbox_start", "sandbox_stop", "sandbox_inspect", "sandbox_remove", "sandbox_wait", "sandbox_status"]
)
def test_a_name_that_is_not_recorded_is_not_found(local_tools: Tools, tool: str) -> None:
    assert local_tools.error(tool, name="nobody")["code"] == "sandbox_not_found"


def test_an_unknown_state_is_refused(tools: Tools) -> None:
    assert "must be one of running" in str(tools.error("sandbox_wait", name="web", target="happy")["message"])
