"""Hints in a model's words."""

from __future__ import annotations

import pytest

from vmnest.mcp.tools import wording

PROPERTIES = {"region": {"type": "string"}, "egress_connector": {"type": "string"}, "local": {"type": "boolean"}}


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (None, None),
        ("Try again in a moment.", "Try again in a moment."),
        ("Pass --region, or set IT.", "Pass region, or set IT."),
        ("Name it with --egress-connector.", "Name it with egress_connector."),
        ("Use AWS (without --local).", "Use AWS (without local: true)."),
        ("Wait longer (--timeout).", "Wait longer (--timeout)."),
        ("Destroy it: vmnest infra destroy --region x", "Destroy it: vmnest infra destroy --region x"),
        ("Then vmnest infra up, or use --local.", "Then vmnest infra up, or use local: true."),
    ],
)
def test_an_option_is_the_argument_of_that_name_where_there_is_one(hint, told):
    assert wording.reword(hint, PROPERTIES) == told


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("Remove it first: vmnest rm web", "Remove it first: vmnest rm web\nAs a tool: sandbox_remove."),
        ("vmnest --local image ls lists them.", "vmnest --local image ls lists them. As a tool: image_list."),
        (
            "vmnest ls shows them, vmnest rm ends.",
            "vmnest ls shows them, vmnest rm ends. As a tool: sandbox_list, sandbox_remove.",
        ),
        ("vmnest rm web (MCP: sandbox_remove)", "vmnest rm web (MCP: sandbox_remove)"),
        ("vmnest local status tells it.", "vmnest local status tells it."),
    ],
)
def test_beside_a_command_stands_the_tool_that_does_the_same(hint, told):
    assert wording.reword(hint, PROPERTIES) == told


def test_it_names_only_tools_that_there_are():
    from vmnest.mcp.tools import table

    assert set(wording._TOOLS.values()) <= set(table.load())
