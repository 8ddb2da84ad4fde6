"""The commands of the checkout: what they say when they cannot work."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SCRIPTS = ("tools/try", "tools/test", "tools/bench/run", ".ci/run", "tools/environment.sh")
NEEDED_TO_START = ("sh", "dirname", "basename")


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A folder for PATH with what a script needs before it looks for Python."""
    for name in NEEDED_TO_START:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    return tmp_path


def put_python(folder: Path, *, answer: str) -> None:
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\n{answer}\n")
    python.chmod(0o755)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_faultless_shell(script: str) -> None:
    done = subprocess.run(["sh", "-n", ROOT / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert script.endswith(".sh") or os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize("script", ["tools/try", "tools/test", "tools/bench/run"])
def test_without_a_python_it_says_what_is_needed(script: str, bare_path: Path) -> None:
    done = subprocess.run([ROOT / script], env={"PATH": str(bare_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs Python 3.10 or later" in done.stderr
    assert "Found: none" in done.stderr


def test_an_older_python_is_named(bare_path: Path) -> None:
    put_python(bare_path, answer="exit 1")
    done = subprocess.run(
        [ROOT / "tools" / "try"], env={"PATH": str(bare_path)}, capture_output=True, text=True, check=False
    )
    assert "Found: python3 (older)" in done.stderr


def test_a_python_without_venv_is_named_with_the_remedy(bare_path: Path) -> None:
    put_python(bare_path, answer="case $2 in *ensurepip*) exit 1 ;; esac")
    done = subprocess.run(
        [ROOT / "tools" / "try"], env={"PATH": str(bare_path)}, capture_output=True, text=True, check=False
    )
    assert "apt-get install python3-venv" in done.stderr
