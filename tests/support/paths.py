"""Where the tests find the repository and the independent parties that ``tools/test`` installs beside it."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools"
UPSTREAM_PYTHON = TOOLS / "upstream" / "bin" / "python"
AWS_CLI = TOOLS / "awscli" / "bin" / "aws"
MINISTACK_PYTHON = TOOLS / "ministack" / "bin" / "python"
MCP2_PYTHON = TOOLS / "mcp2" / "bin" / "python"  # the MCP SDK that knows both eras
MCP1_PYTHON = TOOLS / "mcp1" / "bin" / "python"  # the one that knows the older only
MCP_MODULES = TOOLS / "mcp" / "node_modules"  # inspector, conformance suite and client for node


def find_python(version: str) -> str | None:
    """Another Python (``"3.9"``) that starts: from PATH, else from pyenv's usual place."""
    on_path = shutil.which(f"python{version}")
    of_pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    for python in filter(None, (on_path, *map(str, of_pyenv))):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None
