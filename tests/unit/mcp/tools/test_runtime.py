"""What sandboxes need, through tools."""

from __future__ import annotations

from tests.support.mcp_tools import Tools


def test_this_machine_is_ready_and_nothing_is_to_be_done(local_tools: Tools) -> None:
    told = local_tools.data("runtime_check")
    assert (told["ready"], told["target"]) == (True, "local")
    assert {"id", "verdict", "detail", "remedy"} <= set(told["checks"][0])
    steps = local_tools.data("runtime_install", local=True)
    assert steps["ready"] is True
    assert not any(each["required"] for each in steps["steps"])
