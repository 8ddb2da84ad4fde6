"""The commands of the checkout: what they say when they cannot work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
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


@pytest.mark.parametrize(
    "words",
    [("try", "--help"), ("readme_tables.py", "--chek"), ("check_layers.py", "/nonexistent")],
    ids=lambda words: words[0],
)
def test_what_a_script_does_not_know_is_refused_before_it_does_anything(words: tuple[str, ...]) -> None:
    before = (ROOT / "README.rst").stat().st_mtime_ns
    command = [ROOT / "tools" / words[0], *words[1:]]
    if words[0].endswith(".py"):
        command.insert(0, Path(sys.executable))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0] in done.stderr
    assert (ROOT / "README.rst").stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_breaks_the_trial_off_leaves_no_local_cloud_behind(tmp_path: Path, number: int) -> None:
    scripts, programs = tmp_path / "checkout" / "tools", tmp_path / "checkout" / ".tools" / "try" / "bin"
    temporary = tmp_path / "temporary"
    for folder in (scripts, programs, temporary):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "try", scripts)
    (scripts / "environment.sh").write_text(
        "TOOLS=$ROOT/.tools COMPAT=; find_python() { :; }; ensure_environment() { :; }\n"
    )
    (programs / "vmnest").write_text(
        '#!/bin/sh\ncase $* in *down*) echo "$*" >>"$0.log" ;; *) echo began; exec sleep 60 ;; esac\n'
    )
    (programs / "vmnest").chmod(0o755)
    with subprocess.Popen(
        [scripts / "try"],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert "began\n" in iter(process.stdout.readline, "")
        assert list(temporary.iterdir())
        os.killpg(process.pid, number)  # as a terminal does
        assert process.wait(30) == 128 + number
    assert (programs / "vmnest.log").read_text() == "-q local down --force\n"
    assert not list(temporary.iterdir())


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
