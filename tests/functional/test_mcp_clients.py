"""The official SDKs drive our server, with a real local sandbox behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import MCP1_PYTHON, MCP2_PYTHON, ROOT

WAIT_SECONDS = 120.0
PROGRAM = ROOT / "tests" / "support" / "mcp_client.py"
MODES = {
    "auto": (MCP2_PYTHON, "2026-07-28", -32602),
    "2026-07-28": (MCP2_PYTHON, "2026-07-28", -32602),
    "legacy": (MCP2_PYTHON, "2025-11-25", -32002),
    "v1": (MCP1_PYTHON, "2025-11-25", -32002),
}


@pytest.mark.parametrize("mode", MODES)
def test_an_official_client_works_in_a_sandbox(shared_cloud: LocalCloud, tmp_path: Path, mode: str) -> None:
    python, version, missing = MODES[mode]
    if not python.exists():
        pytest.skip(f"needs {python}, which tools/test --all makes")
    told = drive(python, mode, shared_cloud, tmp_path)
    assert told["version"] == version  # "auto" falls back without a word where it does not like what it finds
    assert {"sandbox_create", "sandbox_exec_poll", "runtime_check", "image_build"} <= set(told["tools"])
    assert told["more"] is None
    assert len(told["resources"]) == 6
    assert told["missing"] == missing
    assert told["state"] == "RUNNING"
    assert told["exec"] == [3, "out\n", "err\n"]
    assert told["read"] == "ä\u2028\n"
    assert told["session"] == ["fed\n", 0]
    assert told.get("cancelled", mode == "v1") is True
    assert told["parallel"] == list(range(8))
    assert told["error"] == [True, "sandbox_not_found"]
    assert told["forward"] == "ä\u2028\n"
    assert told["removed"] is True


def drive(python: Path, mode: str, cloud: LocalCloud, folder: Path) -> dict[str, Any]:
    """What the program tells."""
    server = {
        "AGENT_SANDBOX_LOCAL_DIR": cloud.folder,
        "AGENT_SANDBOX_STATE": str(folder / "state.json"),
        "AGENT_SANDBOX_INFRA_STATE": str(folder / "infra.json"),
        "AGENT_SANDBOX_TARGET": "local",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [python, PROGRAM, mode, sys.executable, "-m", "vmnest.mcp"],
        cwd=folder,
        env={**os.environ, "MCP_SERVER_ENV": json.dumps(server)},
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told
