"""What systems do differently. The ways of other systems are taken here as well: they are plain files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest import systems

TAKE = "import sys; from vmnest import systems; print(systems.FileLock(sys.argv[1]).try_take())"


@pytest.fixture(params=[True, False], ids=["flock", "without flock"], autouse=True)
def has_flock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(systems, "HAS_FLOCK", request.param)
    return bool(request.param)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state.lock")


def test_a_lock_is_one_holders_until_it_lets_go(path: str) -> None:
    first, second = systems.FileLock(path), systems.FileLock(path)
    assert first.try_take()
    assert not second.try_take()
    assert systems.is_locked(path)
    second.release()
    assert systems.is_locked(path)
    first.release()
    assert second.try_take()
    second.release()
    second.release()
    assert not systems.is_locked(path)


def test_a_lock_can_be_taken_again(path: str) -> None:
    lock = systems.FileLock(path)
    for _ in range(2):
        assert lock.try_take()
        lock.release()


def test_its_file_is_nobody_elses_and_leaves_no_descriptor_open(path: str) -> None:
    lock = systems.FileLock(path)
    count = len(os.listdir("/proc/self/fd"))
    assert lock.try_take()
    assert [entry.stat().st_mode & 0o777 for entry in Path(path).parent.iterdir()] == [0o600]
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == count


def test_a_place_that_is_not_there_is_an_error(path: str) -> None:
    lock = systems.FileLock(f"{path}/below")
    with pytest.raises(FileNotFoundError):
        lock.try_take()
    lock.release()


def test_another_process_is_kept_out(path: str, has_flock: bool) -> None:
    lock = systems.FileLock(path)
    assert lock.try_take()
    program = TAKE if has_flock else TAKE.replace("; print", "; systems.HAS_FLOCK = False; print")
    command = [sys.executable, "-c", program, path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lock.release()
    assert done.stdout == "False\n"


def test_we_are_who_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert systems.user_id() == os.geteuid()
    monkeypatch.delattr(os, "geteuid")
    assert systems.user_id() is None
