"""MCP's tools, called in this process against a local cloud that the tests of a module share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from vmnest.mcp.calls import Call
from vmnest.mcp.eras import Era
from vmnest.mcp.jsonrpc import Request
from vmnest.mcp.tools import table

ERA = Era("2025-11-25", is_modern=False)


class Tools:
    """Calls tools as a client does, and looks into their envelopes."""

    def __init__(self) -> None:
        self.notes: list[dict[str, object]] = []

    def open(self, *, progress: bool = False) -> Call:
        """A call that a test holds, to cancel it or to see what it tells."""
        meta = {"progressToken": "t"} if progress else {}
        return Call(Request(1, "tools/call", {"_meta": meta}), era=ERA, send=self.notes.append)

    def call(self, tool: str, /, *, within: Call | None = None, **arguments: object) -> dict[str, object]:
        """The whole envelope."""
        result = table.load()[tool].call(arguments, within or self.open())
        content, envelope = result["content"], result["structuredContent"]
        assert isinstance(content, list)
        assert isinstance(envelope, dict)
        assert json.loads(content[0]["text"]) == envelope
        assert result["isError"] is not envelope["ok"]
        return envelope

    def data(self, tool: str, /, *, within: Call | None = None, **arguments: object) -> dict[str, object]:
        """What a tool answers that does what it shall."""
        envelope = self.call(tool, within=within, **arguments)
        assert envelope["ok"], envelope
        data = envelope["data"]
        assert isinstance(data, dict)
        return data

    def error(self, tool: str, /, **arguments: object) -> dict[str, object]:
        """Why a tool did not."""
        error = self.call(tool, **arguments)["error"]
        assert isinstance(error, dict)
        return error


@pytest.fixture
def tools() -> Tools:
    """Calls tools."""
    return Tools()


@pytest.fixture
def local_tools(
    shared_cloud: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: Tools
) -> Iterator[Tools]:
    """Tools that work with the module's local cloud, and names of the test's own; its sandboxes end with it."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AGENT_SANDBOX_INFRA_STATE", str(tmp_path / "infra.json"))
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
    yield tools
    from vmnest.ops import removal

    removal.remove_sandboxes(everything=True, force=True)
