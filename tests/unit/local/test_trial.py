"""One sandbox without a daemon."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.cloud import living_processes
from tests.support.paths import ROOT
from vmnest import errors
from vmnest.local import trial


def test_a_sandbox_is_made_and_nothing_of_it_stays(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    found = trial.run(str(folder), environ={})
    assert (found["driver"], found["isolation"]) == ("namespace", "namespace")
    assert found["writable"] in ("disk", "memory", "bind")
    assert str(found["interpreter"]).startswith("/")
    assert isinstance(found["limits"], list)
    assert set(found["limits"]) <= {"memory", "cpu", "freezer"}
    assert os.listdir(tmp_path) == []
    assert living_processes(str(tmp_path)) == []


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "probe-of-a-daemon").mkdir()
    trial.run(str(tmp_path), environ={})
    assert os.listdir(tmp_path) == ["probe-of-a-daemon"]


@pytest.mark.parametrize(
    ("variable", "value", "kind"),
    [
        ("AGENT_SANDBOX_LOCAL_VISIBLE", "/nope", errors.SettingError),
        ("AGENT_SANDBOX_LOCAL_ISOLATION", "everything", errors.SettingError),
        ("AGENT_SANDBOX_LOCAL_ISOLATION", "vm", errors.IsolationUnavailableError),
    ],
)
def test_a_setting_that_no_daemon_would_start_with_is_refused(
    tmp_path: Path, variable: str, value: str, kind: type[errors.VmnestError]
) -> None:
    with pytest.raises(kind, match=value):
        trial.run(str(tmp_path), environ={variable: value})
    assert os.listdir(tmp_path) == []


def test_a_place_where_nothing_can_be_made_is_named() -> None:
    with pytest.raises(errors.LocalCloudError, match="cannot write /proc"):
        trial.run("/proc/vmnest", environ={})


def test_whoever_interrupts_it_leaves_nothing_behind(tmp_path: Path) -> None:
    def be_interrupted() -> None:
        with trial._make_place(str(tmp_path)) as place:
            Path(place, "rubbish", "deep").mkdir(parents=True)
            raise SystemExit

    with pytest.raises(SystemExit):
        be_interrupted()
    assert os.listdir(tmp_path) == []


def test_the_place_goes_once_the_remover_is_done_in_it(tmp_path: Path) -> None:
    heap = tmp_path / "place" / "rubbish"
    heap.mkdir(parents=True)
    remover = os.open(heap, os.O_RDONLY)
    fcntl.flock(remover, fcntl.LOCK_EX)
    thread = threading.Thread(target=trial._remove, args=[str(tmp_path / "place")])
    thread.start()
    try:
        thread.join(0.2)
        assert heap.is_dir()
    finally:
        os.close(remover)
        thread.join(20)
    assert os.listdir(tmp_path) == []


def test_what_is_missing_is_written_by_the_program_with_its_remedy(tmp_path: Path) -> None:
    program = f"{sys.executable} -m vmnest.local --folder {tmp_path} --trial"
    line = f"echo 0 > /proc/sys/user/max_user_namespaces && exec {program}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", line], cwd=ROOT, capture_output=True, check=False
    )
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["details"]["step"]) == ("isolation_unavailable", "user-namespace")
    assert "sudo sysctl -w user.max_user_namespaces=" in error["hint"]
    assert os.listdir(tmp_path) == []
