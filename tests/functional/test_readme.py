"""The manual's first examples do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import ROOT

TEXT = (ROOT / "README.rst").read_text(encoding="utf-8")
HERE = TEXT[TEXT.index("On this machine\n---") : TEXT.index("On AWS\n---")]


def blocks(kind: str) -> list[str]:
    """The literal blocks of the part about local sandboxes, without their indentation."""
    found = re.findall(rf"^\.\. code-block:: {kind}\n\n((?: {{4}}.*\n|\n)+)", HERE, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in found]


@pytest.fixture
def environ(shared_cloud: LocalCloud, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder,
        "AGENT_SANDBOX_STATE": str(tmp_path / "state.json"),
        "PYTHONPATH": str(ROOT),
    }


def test_the_python_example_sorts_numbers_in_a_sandbox(environ: dict[str, str]) -> None:
    (example,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", example], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0 1\n2\n3\n\n", "")


def test_the_command_lines_work_one_after_another(environ: dict[str, str]) -> None:
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines() if line[:2] == "$ "]
    program = sys.executable + " -m vmnest "
    script = "set -e\n" + "\n".join(re.sub(r"^vmnest ", program, line) for line in lines)
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.splitlines()
    assert answers[:2] == ["hello", "demo"]
    assert "5" in answers  # the size of /work/file
    assert answers[-1] == "demo"
