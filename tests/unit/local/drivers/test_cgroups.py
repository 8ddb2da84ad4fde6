"""The control groups of a VM: over files that look like groups of either version, and in groups of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cells
from vmnest.local.drivers import cgroups, places

MIB = 2**20
V1_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control", "cgroup.event_control"),
    "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us"),
    "freezer": ("freezer.state",),
}
V2_FILES = (
    "memory.max", "memory.swap.max", "memory.oom.group", "memory.events", "cpu.max", "cgroup.freeze", "cgroup.events",
)  # fmt: skip


def make_files(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*names, "cgroup.procs"):
        (folder / name).touch()


def paper_group(top: Path, version: int, *, without: str = "") -> cgroups.Group:
    """A group of files; its places are directories of ``top``."""
    found = {}
    for role in (cgroups.MEMORY, cgroups.CPU, cgroups.FREEZER):
        place = top if version == 2 else top / role
        make_files(place / "vm", V2_FILES if version == 2 else V1_FILES[role])
        found[role] = (version, str(place))
    for path in top.rglob(without or "nothing"):
        path.unlink()
    return cgroups.Group(found, "vm")


def close(group: cgroups.Group) -> None:
    for descriptor in group.descriptors():
        os.close(descriptor)


def test_limits_of_version_2_are_those_of_the_manual(tmp_path: Path) -> None:
    group = paper_group(tmp_path, 2)
    group.open(memory_bytes=64 * MIB, cpus=1.5)
    texts = {path.name: path.read_text() for path in (tmp_path / "vm").iterdir()}
    assert texts["memory.max"] == str(64 * MIB)
    assert texts["memory.swap.max"] == "0"
    assert texts["memory.oom.group"] == "1"
    assert texts["cpu.max"] == "150000 100000"
    group.freeze()
    assert (tmp_path / "vm" / "cgroup.freeze").read_text() == "1"
    assert not group.is_frozen()
    (tmp_path / "vm" / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert group.is_frozen()
    group.thaw()
    assert (tmp_path / "vm" / "cgroup.freeze").read_text() == "0"
    close(group)


def test_limits_of_version_1_are_those_of_the_manual(tmp_path: Path) -> None:
    group = paper_group(tmp_path, 1)
    group.open(memory_bytes=64 * MIB, cpus=0.001)
    memory, cpu = tmp_path / "memory" / "vm", tmp_path / "cpu" / "vm"
    assert (memory / "memory.limit_in_bytes").read_text() == str(64 * MIB)
    assert (memory / "memory.memsw.limit_in_bytes").read_text() == str(64 * MIB)
    assert len((memory / "cgroup.event_control").read_text().split()) == 2
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "1000"  # the least that the kernel takes
    group.freeze()
    assert (tmp_path / "freezer" / "vm" / "freezer.state").read_text() == "FROZEN"
    assert group.is_frozen()
    group.thaw()
    assert (tmp_path / "freezer" / "vm" / "freezer.state").read_text() == "THAWED"
    close(group)


def test_a_freezer_of_version_1_that_is_stuck_is_asked_again(tmp_path: Path) -> None:
    group = paper_group(tmp_path, 1)
    group.open(memory_bytes=64 * MIB, cpus=None)
    state = tmp_path / "freezer" / "vm" / "freezer.state"
    group.freeze()
    state.write_text("FREEZING\n")
    assert not group.is_frozen()
    assert state.read_text().startswith("FROZEN")
    close(group)


def test_a_machine_without_swap_accounting_has_limits_all_the_same(tmp_path: Path) -> None:
    for version, name in ((1, "memory.memsw.limit_in_bytes"), (2, "memory.swap.max")):
        group = paper_group(tmp_path / str(version), version, without=name)
        group.open(memory_bytes=64 * MIB, cpus=None)
        assert cgroups.MEMORY in group.roles
        close(group)


@pytest.mark.parametrize(
    ("version", "missing", "role"),
    [
        (1, "memory.limit_in_bytes", "memory"),
        (2, "memory.max", "memory"),
        (2, "cpu.max", "cpu"),
        (2, "cgroup.freeze", "freezer"),
    ],
)
def test_what_cannot_be_set_is_given_up_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int, missing: str, role: str
) -> None:
    group = paper_group(tmp_path, version, without=missing)
    group.open(memory_bytes=64 * MIB, cpus=1)
    assert set(group.roles) == {"memory", "cpu", "freezer"} - {role}
    assert f"no control group for {role}" in capsys.readouterr().err
    close(group)


@pytest.mark.parametrize(
    ("version", "name", "text", "expected"),
    [
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 0\n", False),
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True),
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", False),
        (2, "memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n", False),
        (2, "memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 1\n", True),
    ],
)
def test_only_a_kill_of_its_own_says_that_memory_ran_out(
    tmp_path: Path, version: int, name: str, text: str, expected: bool
) -> None:
    group = paper_group(tmp_path, version)
    group.open(memory_bytes=64 * MIB, cpus=None)
    next(tmp_path.rglob(name)).write_text(text)
    assert group.has_run_out == expected
    assert group.alarm is not None
    group.hear_alarm()
    close(group)


def test_without_a_group_for_memory_there_is_no_alarm(tmp_path: Path) -> None:
    group = cgroups.Group({}, "vm")
    group.open(memory_bytes=MIB, cpus=1)
    assert group.alarm is None
    assert not group.has_run_out


def test_groups_are_called_after_their_folder(tmp_path: Path) -> None:
    for name in ("a/vm", "b/vm"):
        (tmp_path / name).mkdir(parents=True)
    names = {cgroups.name_group(str(tmp_path / name)) for name in ("a/vm", "b/vm")}
    assert len(names) == 2
    assert all(name.startswith("vm-") for name in names)


# -- really ------------------------------------------------------------------------------------------------------------


WAYS = [way for way in cells.list_ways() if way != cells.SIGNALS]


@pytest.fixture(params=WAYS)
def real(request: pytest.FixtureRequest) -> Iterator[tuple[cgroups.Group, subprocess.Popen[bytes]]]:
    """A process in groups of this machine."""
    own = cells.find_groups()
    if request.param == cells.GROUPS_OF_VERSION_1:
        own[cgroups.FREEZER] = (1, "/sys/fs/cgroup/freezer")
    some = places.Places(own, name=f"vmnest-test-{os.getpid()}-cgroups", uid=None)
    group = cgroups.Group(some.reserve("vm", roles=own), "vm")
    group.open(memory_bytes=64 * MIB, cpus=1)
    sleeper = subprocess.Popen(["/bin/sleep", "1000"])
    group.attach(sleeper.pid)
    yield group, sleeper
    groups = some.list_groups("vm")
    cgroups.end_processes(groups)
    sleeper.wait()
    cgroups.remove_groups(groups)
    close(group)
    assert not [path for path in groups if os.path.exists(os.path.dirname(path))]


def test_a_process_is_in_all_groups(real: tuple[cgroups.Group, subprocess.Popen[bytes]]) -> None:
    group, sleeper = real
    for _, path in group.roles.values():
        assert Path(path, "cgroup.procs").read_text().split() == [str(sleeper.pid)]
    assert set(group.roles) == {"memory", "cpu", "freezer"}


def test_what_is_frozen_can_be_killed_and_removed(real: tuple[cgroups.Group, subprocess.Popen[bytes]]) -> None:
    group, sleeper = real
    group.freeze()
    while not group.is_frozen():
        assert sleeper.poll() is None
    cgroups.end_processes(path for _, path in group.roles.values())
    assert sleeper.wait(10) == -9
    group.remove()
    assert not [path for _, path in group.roles.values() if os.path.exists(path)]


def test_a_process_that_has_ended_takes_the_groups_with_it(
    real: tuple[cgroups.Group, subprocess.Popen[bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    group, sleeper = real
    sleeper.kill()
    sleeper.wait()
    group.attach(sleeper.pid)
    assert "refused" in capsys.readouterr().err
    assert group.roles == {}


def test_a_group_in_use_stays_and_that_is_told(
    real: tuple[cgroups.Group, subprocess.Popen[bytes]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, _ = real
    monkeypatch.setattr(cgroups, "_REMOVE_SECONDS", 0.01)
    group.remove()
    assert "stays" in capsys.readouterr().err


if not WAYS:  # not skipped: a machine that lends us no groups is as good a machine for all else
    del (
        test_a_process_is_in_all_groups,
        test_what_is_frozen_can_be_killed_and_removed,
        test_a_process_that_has_ended_takes_the_groups_with_it,
        test_a_group_in_use_stays_and_that_is_told,
    )


def test_groups_that_are_not_there_need_no_end(tmp_path: Path) -> None:
    cgroups.end_processes([str(tmp_path / "none")])
    cgroups.remove_groups([str(tmp_path / "place" / "none")])
    assert os.listdir(tmp_path) == []
