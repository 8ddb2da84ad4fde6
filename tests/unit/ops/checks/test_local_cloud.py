"""What sandboxes on this machine need."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.checks import by_id, make_context
from tests.support.cloud import LocalCloud
from vmnest import rendezvous
from vmnest.ops.checks import Check, local_cloud


def look(folder: Path | str, **environ: str) -> dict[str, Check]:
    """All that is said of the local cloud in a folder."""
    context = make_context({"AGENT_SANDBOX_LOCAL_DIR": str(folder), **environ})
    return by_id(each for probe in local_cloud.PROBES for each in probe(context))


def test_a_sandbox_is_tried_where_nothing_runs_and_nothing_is_made(tmp_path: Path) -> None:
    found = look(tmp_path / "new")
    assert {name for name, each in found.items() if each.verdict not in ("ok", "warning")} == set()
    assert found["local.isolation"].data["driver"] == "namespace"
    assert found["local.isolation"].detail.startswith("by namespace: a sandbox was made, used and removed in ")
    assert found["local.daemon"].data == {"running": False, "orphaned": False}
    assert found["local.overlay"].data["writable"] == found["local.isolation"].data["writable"]
    assert found["local.limits"].data["enforced"] in ("cgroup", "watch")
    assert found["local.folder"].detail == f"not made yet; it will be {tmp_path}/new"
    assert found["local.settings"].detail == f"AGENT_SANDBOX_LOCAL_DIR={tmp_path}/new"
    assert "a sandbox may write 8.0 GiB" in found["local.disk"].detail
    assert os.listdir(tmp_path) == []


def test_a_daemon_that_runs_is_asked(local_cloud: LocalCloud) -> None:
    found = look(local_cloud.folder)
    assert {name for name, each in found.items() if each.verdict != "ok"} == {"local.limits"}
    assert found["local.daemon"].data["pid"] == local_cloud.process.pid
    assert found["local.daemon"].detail.endswith(f"{local_cloud.url}, no sandbox")
    assert found["local.overlay"].verdict == "ok"
    assert found["local.overlay"].detail.endswith("as the local cloud has it")
    assert (found["local.limits"].verdict, "while none runs" in found["local.limits"].detail) == ("skipped", True)
    assert found["local.isolation"].data == {"isolation": "namespace", "driver": "namespace"}
    demanding = look(local_cloud.folder, AGENT_SANDBOX_LOCAL_ISOLATION="vm", AGENT_SANDBOX_LOCAL_DISK="1GiB")
    assert demanding["local.isolation"].verdict == "failed"
    assert "demands vm" in demanding["local.isolation"].detail
    assert demanding["local.daemon"].verdict == "warning"
    assert "AGENT_SANDBOX_LOCAL_DISK is not in force" in demanding["local.daemon"].detail
    assert "vmnest local down" in (demanding["local.daemon"].remedy or "")


def test_a_daemon_that_hangs_is_told_with_its_process(local_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmnest.ops.checks.local_cloud._ASK_SECONDS", 0.3)
    pid = local_cloud.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        found = look(local_cloud.folder)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (found["local.daemon"].verdict, "local.isolation" in found) == ("failed", False)
    assert f"kill -9 {pid}" in (found["local.daemon"].remedy or "")


def test_what_a_killed_daemon_left_is_told(tmp_path: Path) -> None:
    (tmp_path / rendezvous.VMS_FOLDER / "microvm-1").mkdir(parents=True)
    found = look(tmp_path)["local.daemon"]
    assert (found.verdict, found.data) == ("warning", {"running": False, "orphaned": True})
    assert (found.remedy or "").split("\n") == [
        "Take them over: vmnest local up",
        "Or end them: vmnest local down --force",
    ]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AGENT_SANDBOX_LOCAL_DISK", "much"), ("AGENT_SANDBOX_LOCAL_ISOLATION", "complete")],
)
def test_a_bad_setting_is_told_once_and_nothing_tried(tmp_path: Path, variable: str, value: str) -> None:
    found = look(tmp_path, **{variable: value})
    assert (found["local.settings"].verdict, variable in found["local.settings"].detail) == ("failed", True)
    assert variable in (found["local.settings"].remedy or "")
    assert found["local.isolation"].verdict == "skipped"
    assert found["local.disk"].verdict == "ok"


def test_what_the_trial_refuses_has_the_trials_remedy(tmp_path: Path) -> None:
    found = look(tmp_path, AGENT_SANDBOX_LOCAL_VISIBLE="/nope")["local.isolation"]
    assert (found.verdict, "'/nope' cannot be shown" in found.detail) == ("failed", True)
    assert "absolute paths" in (found.remedy or "")


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = look(tmp_path / "file")
    assert (found["local.folder"].verdict, found["local.daemon"].verdict) == ("failed", "failed")
    assert "is not a directory" in found["local.folder"].detail
    assert "AGENT_SANDBOX_LOCAL_DIR" in (found["local.folder"].remedy or "")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    found = look(tmp_path / "link")["local.folder"]
    assert (found.verdict, "symbolic link" in found.detail) == ("failed", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_of_somebody_else_is_told(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    found = look(tmp_path)["local.folder"]
    assert (found.verdict, found.detail) == ("failed", f"{tmp_path} belongs to uid 12345, not to us (0)")


def test_keys_that_are_damaged_or_open_to_others_are_told(tmp_path: Path) -> None:
    keys = tmp_path / rendezvous.KEYS_FILE
    keys.write_text("{")
    keys.chmod(0o644)
    found = look(tmp_path)["local.folder"]
    assert found.verdict == "failed"
    assert (found.remedy or "").split("\n") == [
        "Run vmnest local down and remove the file: new keys are made.",
        f"chmod 600 {keys}",
    ]


@pytest.mark.parametrize(
    ("writable", "verdict"), [("disk", "ok"), ("memory", "warning"), ("bind", "warning"), ("tape", "unknown")]
)
def test_ways_of_keeping_writes_are_judged(writable: str, verdict: str) -> None:
    found = local_cloud._judge_writes(writable)
    assert (found.verdict, found.data) == (verdict, {"writable": writable})
    assert (found.remedy is None) == (verdict == "ok")


@pytest.mark.parametrize(
    ("limits", "verdict"), [(["cpu", "memory"], "ok"), (["freezer"], "warning"), ([], "warning"), (None, "warning")]
)
def test_limits_that_the_kernel_does_not_hold_are_a_warning(limits: object, verdict: str) -> None:
    found = local_cloud._judge_limits(limits)
    assert found.verdict == verdict
    assert found.data["enforced"] == ("cgroup" if verdict == "ok" else "watch")
    assert ("Delegate=yes" in (found.remedy or "")) == (verdict == "warning")


def test_another_system_than_linux_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cloud, "_is_linux", lambda: False)
    monkeypatch.setattr(local_cloud.daemon.require_linux, "__defaults__", ("darwin",))
    found = look(tmp_path)
    assert list(found) == ["local.system", "local.settings"]
    assert found["local.system"].verdict == "failed"
    assert "darwin" in found["local.system"].detail
    assert "Use AWS" in (found["local.system"].remedy or "")
