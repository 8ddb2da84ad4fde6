"""The MCP server under the names of PyPI's ``vmnest[mcp]`` 0.1.2: what worked with that one works with this one.

``vectors/mcp/upstream.json`` has what its ``tools/list`` and ``resources/list`` answer: names, parameters, which of
them are required. This server may have more of all, but requires nothing more.
"""

from __future__ import annotations

import json

import pytest

from tests.support.paths import ROOT
from vmnest.mcp import resources
from vmnest.mcp.tools import table

UPSTREAM = json.loads((ROOT / "tests" / "vectors" / "mcp" / "upstream.json").read_text())
TOOLS = table.load()
# What is taken here is at least what was taken there.
WIDER = {("integer", "number")}


@pytest.mark.parametrize("name", UPSTREAM["tools"])
def test_a_tool_takes_what_it_took(name: str) -> None:
    described = TOOLS[name].describe()
    schema = described["inputSchema"]
    assert isinstance(schema, dict)
    wanted = UPSTREAM["tools"][name]
    assert set(wanted) <= set(schema["properties"])
    assert set(schema.get("required", ())) <= {each for each, facts in wanted.items() if facts["required"]}
    for parameter, facts in wanted.items():
        kind = schema["properties"][parameter]["type"]
        assert kind == facts["type"] or (facts["type"], kind) in WIDER, parameter


def test_its_resources_are_there() -> None:
    assert [each["uri"] for each in resources.describe()] == UPSTREAM["resources"]
