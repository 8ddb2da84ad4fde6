"""The commands of the checkout: what they say when they cannot work."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SCRIPTS = ("tools/try", "tools/test", "tools/vendor", "tools/bench/run", ".ci/run", "tools/environment.sh")
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


@pytest.mark.parametrize("script", ["tools/try", "tools/test", "tools/vendor", "tools/bench/run"])
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


def make_node_modules(folder: Path, *, path: str) -> subprocess.CompletedProcess[str]:
    """What ``tools/test --all`` does for the site ``page`` of a checkout in ``folder``."""
    lines = f"ROOT={folder}; . {ROOT}/tools/environment.sh; ensure_node_modules page"
    return subprocess.run(
        ["sh", "-euc", lines, "test"], env={"PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a site, and a npm that counts its installs."""
    site, programs = tmp_path / "checkout" / "tests" / "sites" / "page", tmp_path / "bin"
    site.mkdir(parents=True)
    programs.mkdir()
    for name in ("package.json", "package-lock.json"):
        (site / name).write_text("{}")
    for name, line in {"node": "echo v18.20.4", "npm": 'mkdir -p "$3/node_modules" && echo >>"$0.log"'}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    return tmp_path / "checkout"


def test_node_modules_are_made_once_and_again_when_others_are_listed(checkout: Path) -> None:
    programs = checkout.parent / "bin"
    path = f"{programs}:{os.environ['PATH']}"
    for installs in (1, 1):
        assert make_node_modules(checkout, path=path).returncode == 0
        assert len((programs / "npm.log").read_text()) == installs
    (checkout / "tests" / "sites" / "page" / "package-lock.json").write_text('{"packages": {}}')
    assert make_node_modules(checkout, path=path).returncode == 0
    assert len((programs / "npm.log").read_text()) == 2
    assert (checkout / ".tools" / "page" / "node_modules").is_dir()


def test_an_install_of_node_modules_that_failed_is_not_taken_for_whole(checkout: Path) -> None:
    npm = checkout.parent / "bin" / "npm"
    path = f"{npm.parent}:{os.environ['PATH']}"
    working = npm.read_text()
    npm.write_text("#!/bin/sh\nmkdir -p $3/node_modules\nexit 1\n")
    failed = make_node_modules(checkout, path=path)
    assert failed.returncode == 1
    assert "npm could not install" in failed.stderr
    npm.write_text(working)
    assert make_node_modules(checkout, path=path).returncode == 0
    assert (npm.parent / "npm.log").exists()


def test_without_npm_it_says_what_is_needed(checkout: Path, bare_path: Path) -> None:
    done = make_node_modules(checkout, path=str(bare_path))
    assert done.returncode == 1
    assert "needs node and npm on PATH (Debian and Ubuntu: apt-get install nodejs npm)" in done.stderr
