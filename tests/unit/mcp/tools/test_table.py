"""The table of tools, and what hosts accept of it."""

from __future__ import annotations

import re

import pytest

from vmnest.mcp import jsonrpc
from vmnest.mcp.tools import table

TOOLS = table.load()
# Some hosts put a prefix of theirs before a name, and allow 64 characters in all; some allow no dots.
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
MOST_BYTES = 40_000


def test_the_whole_list_stays_small():
    assert len(jsonrpc.to_line([tool.describe() for tool in TOOLS.values()])) <= MOST_BYTES


@pytest.mark.parametrize("name", ["sandbox_create", "sandbox_remove", "sandbox_fs_write", "image_remove"])
def test_what_may_take_the_place_of_something_is_told_as_destructive(name):
    assert TOOLS[name].describe()["annotations"]["destructiveHint"] is True


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_one_that_every_host_takes(name):
    described = TOOLS[name].describe()
    assert NAME.fullmatch(name)
    assert described["title"] == described["annotations"]["title"]
    assert 20 <= len(described["description"]) <= 1000
    assert described["outputSchema"]["properties"]["data"]["description"]
    schema = described["inputSchema"]
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "not", "$ref"} & set(schema)
    for parameter, kind in schema["properties"].items():
        assert isinstance(kind["type"], str), parameter
        assert kind["description"], parameter
        assert kind["type"] != "array" or kind["items"], parameter
