"""The table of resources."""

from __future__ import annotations

import json

from vmnest.mcp import resources
from vmnest.mcp.resources import Resource


def test_a_resource_is_described_and_read_as_json(monkeypatch):
    row = Resource("here", title="Here", description="What is here.", read=lambda: {"a": "é"})
    monkeypatch.setattr(resources, "RESOURCES", (row,))
    assert resources.describe() == [
        {
            "uri": "agent-sandbox://here",
            "name": "here",
            "title": "Here",
            "description": "What is here.",
            "mimeType": "application/json",
        }
    ]
    (content,) = resources.read("agent-sandbox://here") or []
    assert (content["uri"], content["mimeType"]) == ("agent-sandbox://here", "application/json")
    assert json.loads(content["text"]) == {"a": "é"}
    assert resources.read("agent-sandbox://not") is None
