"""A tool: described, and called."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.mcp.calls import Call
from vmnest.mcp.eras import Era
from vmnest.mcp.jsonrpc import Request
from vmnest.mcp.tools.tool import Tool

CALL = Call(Request(1, "tools/call", {}), era=Era("2025-11-25", is_modern=False), send=print)


def greet(*, name: str, times: int = 1, call: Call) -> dict[str, object]:
    """Greet somebody.

    Args:
        name: Who it is.
        times: How often.

    Returns:
        The greeting.
    """
    call.check()
    if name == "nobody":
        raise errors.SandboxNotFoundError("there is nobody", hint="See vmnest ls, or leave out --name.")
    if name in ("urllib3", "vmnest.nobody"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return {"greeting": f"hello {name} " * times}


TOOL = Tool(greet, title="Greet", reads=True)


def test_it_is_described_for_models_and_for_hosts():
    assert TOOL.describe() == {
        "name": "greet",
        "title": "Greet",
        "description": "Greet somebody.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Who it is."},
                "times": {"type": "integer", "default": 1, "description": "How often."},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "ok": {"type": "boolean"},
                "data": {"type": "object", "description": "The greeting."},
            },
            "required": ["ok"],
        },
        "annotations": {
            "title": "Greet",
            "readOnlyHint": True,
            "openWorldHint": False,
        },
    }


def test_of_what_changes_something_all_is_told():
    hints = Tool(greet, title="Greet", destroys=True).describe()["annotations"]
    assert hints == {
        "title": "Greet",
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": False,
    }


def test_its_data_come_in_an_envelope():
    result = TOOL.call({"name": "web", "times": "2"}, CALL)
    assert result["structuredContent"] == {"ok": True, "data": {"greeting": "hello web hello web "}}


def test_a_failure_is_a_result_that_the_model_reads():
    for arguments, code in (({"name": "nobody"}, "sandbox_not_found"), ({}, "usage"), ({"name": "x", "y": 1}, "usage")):
        result = TOOL.call(arguments, CALL)
        assert result["isError"] is True
        assert result["structuredContent"]["error"]["code"] == code


def test_a_hint_is_in_words_of_tools():
    told = TOOL.call({"name": "nobody"}, CALL)["structuredContent"]["error"]["hint"]
    assert told == "See vmnest ls, or leave out name. As a tool: sandbox_list."


def test_the_model_reads_which_library_is_missing():
    result = TOOL.call({"name": "urllib3"}, CALL)
    assert result["isError"]
    error = result["structuredContent"]["error"]
    assert (error["code"], error["message"]) == ("dependency_missing", "urllib3 is not installed, which this needs")


def test_a_fault_of_ours_is_no_result():
    with pytest.raises(ModuleNotFoundError):
        TOOL.call({"name": "vmnest.nobody"}, CALL)
