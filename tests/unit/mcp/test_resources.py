"""The table of resources."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mcp_tools import Tools
from tests.support.paths import ROOT
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


@pytest.mark.parametrize("row", resources.RESOURCES, ids=lambda row: row.uri)
def test_every_resource_can_be_read_where_there_is_nothing_yet(row: Resource, local_tools: Tools) -> None:
    (content,) = resources.read(row.uri) or []
    told = json.loads(str(content["text"]))
    assert {
        "agent-sandbox://runtime": lambda: told["target"] == "local" and told["checks"],
        "agent-sandbox://infra": lambda: told["ready"] is True,
        "agent-sandbox://sandboxes": lambda: told == {"sandboxes": [], "count": 0},
        "agent-sandbox://images": lambda: "local" in [image["name"] for image in told["images"]],
        "agent-sandbox://policy": lambda: told["host_path_policy"] == "allowlist",
        "agent-sandbox://schemas/sandbox-create": lambda: told["required"] == ["name"],
    }[row.uri]()


def test_the_policy_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_MCP_HOST_PATHS", str(tmp_path))
    monkeypatch.setenv("AGENT_SANDBOX_MCP_MAX_OUTPUT_BYTES", "5")
    (content,) = resources.read("agent-sandbox://policy") or []
    assert json.loads(str(content["text"])) == {
        "host_path_policy": "allowlist",
        "host_paths": [str(tmp_path)],
        "enable_dangerous": False,
        "max_output_bytes": 5,
        "default_timeout_ms": 120_000,
    }


def test_to_list_them_loads_nothing_that_is_slow() -> None:
    program = "import sys; from vmnest.mcp import resources; resources.describe(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"vmnest.ops.doctor", "vmnest.ops.images", "vmnest.mcp.tools", "urllib3"} & set(loaded.stdout.split())
