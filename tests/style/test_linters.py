"""Format, lint and types, on everything that git knows of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import skips
from tests.support.paths import ROOT, find_python

GUEST = ROOT / "guest" / "agentd"


def run_tool(name: str, *arguments: str, **environ: str) -> None:
    command = [str(Path(sys.executable).with_name(name)), *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_has_nothing_to_say() -> None:
    run_tool("ruff", "check", "--quiet", ".")


def test_the_format_is_ruffs() -> None:
    run_tool("ruff", "format", "--quiet", "--check", ".")


def test_the_types_of_the_library_are_strict() -> None:
    run_tool("mypy", "--no-error-summary")


def test_the_types_of_the_guest_are_strict_when_it_is_a_package_at_the_top_level(tmp_path: Path) -> None:
    # As inside an image. mypy knows Pythons from 3.10 on; ruff's target, vermin and the test below hold it to 3.9.
    (tmp_path / "agentd").symlink_to(GUEST)
    run_tool("mypy", "--no-error-summary", "--strict", "--config-file", "", str(tmp_path / "agentd"))


def test_the_types_of_the_tools_are_strict() -> None:
    run_tool("mypy", "--no-error-summary", "tools/check_layers.py", "tools/readme_tables.py", "tools/vendoring.py")
    # A folder that Python runs is a source root: its modules import each other by their plain names.
    run_tool("mypy", "--no-error-summary", "tools/bench", MYPYPATH="tools/bench")


def test_the_guest_uses_nothing_newer_than_python_3_9() -> None:
    run_tool("vermin", "--target=3.9-", "--violations", "--eval-annotations", "--no-tips", str(GUEST))


def test_python_3_9_compiles_the_guest_and_imports_it(tmp_path: Path) -> None:
    python = find_python("3.9")
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: 3.9")
    shutil.copytree(GUEST, tmp_path / "agentd")
    names = ", ".join(f"agentd.{path.stem}" for path in sorted(GUEST.glob("*.py")) if not path.stem.startswith("__"))
    program = f"import sys; sys.path.insert(0, '.'); import {names}"
    done = subprocess.run([python, "-I", "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == 0
