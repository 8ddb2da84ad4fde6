"""What tools answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.mcp import envelope


def test_data_go_out_as_text_and_as_structured_content():
    result = envelope.build_success({"name": "wëb"})
    assert result["structuredContent"] == {"ok": True, "data": {"name": "wëb"}}
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert result["isError"] is False


def test_a_failure_says_what_to_do():
    result = envelope.build_failure(errors.SandboxNotFoundError("no sandbox named 'x'", hint="Make one."))
    assert result["isError"] is True
    assert result["structuredContent"]["error"] == {
        "code": "sandbox_not_found",
        "message": "no sandbox named 'x'",
        "hint": "Make one.",
        "retryable": False,
    }
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_short_text_is_whole():
    assert envelope.cap_text("é") == {"text": "é", "truncated": False, "total_bytes": 2, "returned_bytes": 2}


def test_of_long_text_the_beginning_and_the_end_are_kept():
    capped = envelope.cap_text("a" * 50 + "é" * 50, most=10)
    assert capped == {
        "text": "aaaaa\n[... 135 bytes are left out here ...]\nééééé",
        "truncated": True,
        "total_bytes": 150,
        "returned_bytes": 15,
    }


@given(st.text(), st.integers(1, 50))
def test_what_is_kept_is_never_more_than_wanted(text, most):
    capped = envelope.cap_text(text, most=most)
    assert capped["truncated"] == (len(text) > most)
    assert capped["returned_bytes"] <= capped["total_bytes"]


@pytest.mark.parametrize("returns", ["The sandbox.", ""])
def test_the_schema_of_an_answer_is_an_object(returns):
    schema = envelope.build_schema(returns)
    assert schema["type"] == "object"
    assert schema["required"] == ["ok"]
