"""Where the tests find the repository and the independent parties that ``tools/test`` installs beside it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools"
UPSTREAM_PYTHON = TOOLS / "upstream" / "bin" / "python"
AWS_CLI = TOOLS / "awscli" / "bin" / "aws"
