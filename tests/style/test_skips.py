"""The rule of ``tools/test --all``: see tests/support/skips.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import skips
from tests.support.paths import ROOT

SAMPLE = """
import pytest

def test_that_runs():
    pass

def test_without_the_tool():
    pytest.skip("no such tool")

def test_without_kvm():
    pytest.skip("needs KVM: /dev/kvm is absent")

@pytest.mark.xfail(reason="known")
def test_that_fails_as_expected():
    assert False
"""


def run_sample(folder: Path, *, all_must_run: bool) -> str:
    (folder / "test_sample.py").write_text(SAMPLE)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), skips.VARIABLE: "1" if all_must_run else "0"}
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.skips", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1]


def test_a_skip_stays_a_skip_by_default(tmp_path: Path) -> None:
    assert "1 passed, 2 skipped, 1 xfailed" in run_sample(tmp_path, all_must_run=False)


def test_a_skip_is_a_failure_when_all_must_run_unless_its_reason_is_allowed(tmp_path: Path) -> None:
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed" in run_sample(tmp_path, all_must_run=True)


@pytest.mark.parametrize("reason", ["needs KVM: no /dev/kvm", "Skipped: needs another Python: 3.9", "needs AWS"])
def test_what_cannot_be_installed_may_be_missing(reason: str) -> None:
    assert not skips.must_run(reason)
