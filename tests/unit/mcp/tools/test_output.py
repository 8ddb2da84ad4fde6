"""Output, shaped for models."""

from __future__ import annotations

import base64

import pytest

from vmnest import errors
from vmnest.mcp.tools import output


def test_a_whole_stream_is_as_it_is():
    assert output.shape_stream("é") == {"text": "é", "truncated": False, "total_bytes": 2, "returned_bytes": 2}


def test_what_is_missing_is_told_where_it_is_missing():
    shaped = output.shape_stream("aé", missing={"position": 1, "bytes": 5})
    assert shaped["text"] == "a\n[... 5 bytes are left out here ...]\né"
    assert (shaped["truncated"], shaped["total_bytes"], shaped["returned_bytes"]) == (True, 8, 3)


def test_what_is_no_text_is_left_as_base64():
    text = base64.b64encode(b"\xff\xfe").decode()
    assert output.shape_stream(text, encoding="base64") == {
        "text": text,
        "encoding": "base64",
        "truncated": False,
        "total_bytes": 2,
        "returned_bytes": 2,
    }
    shaped = output.shape_stream(text, encoding="base64", missing={"position": 1, "bytes": 5})
    assert (shaped["text"], shaped["encoding"], shaped["truncated"]) == (text, "base64", True)
    assert (shaped["total_bytes"], shaped["returned_bytes"], shaped["left_out_at"]) == (7, 2, 1)


def test_the_limit_of_output_has_a_limit(monkeypatch):
    assert output.resolve_limit(None) == 20_000
    assert output.resolve_limit(1) == 1
    with pytest.raises(errors.UsageError, match="1048576"):
        output.resolve_limit(2_000_000)
    monkeypatch.setenv("AGENT_SANDBOX_MCP_MAX_OUTPUT_BYTES", "100")
    assert output.resolve_limit(None) == 100
    with pytest.raises(errors.UsageError, match="100"):
        output.resolve_limit(101)


def test_the_usual_timeout_is_a_setting(monkeypatch):
    assert output.default_timeout() == 120.0
    monkeypatch.setenv("AGENT_SANDBOX_MCP_DEFAULT_TIMEOUT_MS", "1500")
    assert output.default_timeout() == 1.5
