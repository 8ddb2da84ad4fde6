"""A copy that cannot be written to, for a user without a home folder, or with one that cannot be written to either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cli import bare_environ
from tests.support.vendored import DEPENDENCIES, open_folder, vendor

# In a mount namespace of its own a folder can be read only, also by root.
NAMESPACE = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-r", "-m")
SCRIPT = """
for folder in "$HOME" "$project"; do
    mount --bind "$folder" "$folder"
    mount -o remount,ro,bind "$folder"
done
vmnest() { "$python" -S -m vmnest "$@"; }
if echo >"$HOME/file"; then exit 9; fi 2>/dev/null
vmnest --local run -- echo from a home that cannot be written to
unset HOME
vmnest --local run -- echo from no home
vmnest local down --force
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {
        **bare_environ(folder / "home"),
        "AGENT_SANDBOX_LOCAL_DIR": str(folder / "state"),
        "python": sys.executable,
        "project": str(folder / "project"),
        "PYTHONPATH": f"{folder}/project:{DEPENDENCIES}",
    }
    command = [*NAMESPACE, "sh", "-euc", SCRIPT]
    return subprocess.run(command, cwd="/", env=environ, capture_output=True, text=True, timeout=120, check=False)


def list_all(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_copy_works_where_it_can_write_nothing_of_its_own() -> None:
    with open_folder() as folder:
        assert vendor(folder / "project").returncode == 0
        before = list_all(folder / "project"), list_all(folder / "home")
        done = run(folder)
        assert (list_all(folder / "project"), list_all(folder / "home")) == before
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["from a home that cannot be written to", "from no home"]
    assert "there is no home folder that can be written to" in done.stderr
