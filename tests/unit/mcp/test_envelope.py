"""What tools answer."""

from __future__ import annotations

import base64
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


def line_bytes(result):
    return len(json.dumps(result["content"])) + len(json.dumps(result["structuredContent"]))


@pytest.mark.parametrize("char", ["x", "\0", "é", "😀", "\ud800"], ids=ascii)
def test_an_answer_that_is_too_long_for_some_clients_keeps_the_ends_of_its_texts(char):
    text = f"begin{char * 1_000_000}end"
    streams = {name: envelope.cap_text(text, most=len(text)) for name in ("stdout", "stderr")}
    total = streams["stdout"]["total_bytes"]
    result = envelope.build_success({"exit_code": 0, **streams, "more": [streams["stdout"]]})
    assert line_bytes(result) < 4 << 20
    data = result["structuredContent"]["data"]
    assert data["exit_code"] == 0
    for cut in (data["stdout"], data["stderr"], *data["more"]):
        assert cut["text"].startswith("begin")
        assert cut["text"].endswith("end")
        assert (cut["truncated"], cut["total_bytes"]) == (True, total)
        assert 50_000 < cut["returned_bytes"] < total
        assert cut["text"].count("left out") == 1
        assert f"[... {total - cut['returned_bytes']} bytes are left out here ...]" in cut["text"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


@given(st.characters(exclude_categories=[]))
def test_no_character_costs_more_than_is_counted_on(char):
    assert line_bytes(envelope.build_success({"a": char * 100})) < envelope.MOST_COST * 100 + 200


def test_an_answer_that_cannot_be_cut_says_so():
    result = envelope.build_success({"names": ["x" * 100] * 50_000})
    assert result["structuredContent"]["error"]["code"] == "answer_too_large"
    assert result["isError"] is True


def test_of_what_is_no_text_the_beginning_is_kept():
    bytes_ = {"text": "QUJD" * 2_000_000, "encoding": "base64", "total_bytes": 9_000_000, "truncated": False}
    result = envelope.build_success({"stdout": bytes_})
    assert line_bytes(result) < 4 << 20
    cut = result["structuredContent"]["data"]["stdout"]
    kept = base64.b64decode(cut["text"])
    assert kept == b"ABC" * (len(kept) // 3)
    assert cut["returned_bytes"] == cut["left_out_at"] == len(kept) > 1_000_000
    assert (cut["truncated"], cut["total_bytes"]) == (True, 9_000_000)


@given(st.dictionaries(st.text(), st.text()))
def test_data_are_measured_as_they_go_out(data):
    assert 0 <= line_bytes(envelope.build_success(data)) - envelope.measure(data) < 100


@pytest.mark.parametrize("returns", ["The sandbox.", ""])
def test_the_schema_of_an_answer_is_an_object(returns):
    schema = envelope.build_schema(returns)
    assert schema["type"] == "object"
    assert schema["required"] == ["ok"]
