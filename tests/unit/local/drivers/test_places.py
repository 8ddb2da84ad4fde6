"""Where control groups can be made: of the kernel's tables, over trees of files that look like groups, and really."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cells
from vmnest.local.drivers import cgroups, kernel, places

V1 = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
)
V2 = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
OTHER = "23 1 0:21 / / rw - ext4 /dev/root rw\n24 23 0:22 / /my\\040disk rw - tmpfs none rw\n"
PART = "1 0 0:1 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
SPACED = "1 0 0:1 / /my\\040groups rw - cgroup2 cgroup2 rw\n"
V1_PATHS = "9:name=systemd:/x\n6:freezer:/f\n4:memory:/m/n\n1:cpu,cpuacct:/\n"
ROLES = ("memory", "cpu", "freezer")


def everywhere(group: str) -> dict[str, tuple[int, str]]:
    """The unified hierarchy's group for all."""
    return dict.fromkeys(ROLES, (2, group))


@pytest.mark.parametrize(
    ("mounts", "membership", "expected"),
    [
        pytest.param(
            OTHER + V1,
            V1_PATHS,
            {
                "cpu": (1, "/sys/fs/cgroup/cpu,cpuacct"),
                "memory": (1, "/sys/fs/cgroup/memory/m/n"),
                "freezer": (1, "/sys/fs/cgroup/freezer/f"),
            },
            id="version 1",
        ),
        pytest.param(
            V1 + V2,
            V1_PATHS + "0::/u\n",
            {
                "cpu": (1, "/sys/fs/cgroup/cpu,cpuacct"),
                "memory": (1, "/sys/fs/cgroup/memory/m/n"),
                "freezer": (2, "/sys/fs/cgroup/unified/u"),
            },
            id="both",
        ),
        pytest.param(
            OTHER + V2,
            "0::/user.slice/a\n",
            everywhere("/sys/fs/cgroup/unified/user.slice/a"),
            id="version 2",
        ),
        pytest.param(V2, f"0::/a/{places._OURS}\n", everywhere("/sys/fs/cgroup/unified/a"), id="moved down before"),
        pytest.param(PART, "0::/docker/x/y\n", everywhere("/sys/fs/cgroup/y"), id="a part is mounted"),
        pytest.param(PART, "0::/docker/xy\n", {}, id="another part is mounted"),
        pytest.param(V2, "0::/../other\n", {}, id="outside of our namespace"),
        pytest.param(SPACED, "0::/\n", everywhere("/my groups"), id="a name with a space"),
        pytest.param(V1, "", {}, id="in no group"),
        pytest.param(OTHER, "", {}, id="no groups"),
    ],
)
def test_our_own_groups_are_found(mounts: str, membership: str, expected: dict[str, tuple[int, str]]) -> None:
    assert places.find_own(mounts, membership) == expected


def test_our_own_groups_are_found_here() -> None:
    own = places.find_own(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    for _, group in own.values():
        assert str(os.getpid()) in Path(group, "cgroup.procs").read_text().split()


# -- version 2, on paper -----------------------------------------------------------------------------------------------


def make_unified(folder: Path, *, enabled: str = "", processes: str = "") -> Path:
    """Files that look like a group."""
    folder.mkdir()
    (folder / "cgroup.procs").write_text(processes)
    (folder / "cgroup.subtree_control").write_text(enabled)
    return folder


def test_the_place_is_below_our_own_group_where_that_hands_controllers_on(tmp_path: Path) -> None:
    own = make_unified(tmp_path / "own")
    make_unified(own / "mine")
    found = places.make_places(dict.fromkeys(ROLES, (2, str(own))), name="mine", uid=None)
    assert found == dict.fromkeys(ROLES, (2, str(own / "mine")))
    assert (own / "mine" / "cgroup.subtree_control").read_text().startswith("+")


def test_memory_is_handed_on_first_or_nothing_is(tmp_path: Path) -> None:
    own = make_unified(tmp_path / "own")
    (own / "cgroup.subtree_control").unlink()
    os.mkfifo(own / "cgroup.subtree_control")
    reader = os.open(own / "cgroup.subtree_control", os.O_RDONLY | os.O_NONBLOCK)
    assert places._try_enable(str(own), ["memory", "cpu"])
    assert os.read(reader, 100) == b"+memory+cpu"
    places.make_places(dict.fromkeys(ROLES, (2, str(own))), name="mine", uid=None)
    assert os.read(reader, 100).startswith(b"+memory+cpu")
    places.make_places({"cpu": (2, str(own)), "freezer": (2, str(own))}, name="mine", uid=None)
    assert os.read(reader, 100) == b""
    os.close(reader)


def test_without_a_controller_for_memory_there_is_a_place_for_freezing(tmp_path: Path) -> None:
    own = make_unified(tmp_path / "own")
    (own / "cgroup.subtree_control").unlink()
    (tmp_path / "cgroup.subtree_control").write_text("pids")
    found = places.make_places(dict.fromkeys(ROLES, (2, str(own))), name="mine", uid=None)
    assert "memory" not in found
    assert found["freezer"] == (2, str(own / "mine"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_uses_the_group_above_as_it_is_where_our_own_has_processes(tmp_path: Path) -> None:
    above = make_unified(tmp_path / "above", enabled="memory pids")
    own = make_unified(above / "own")
    (own / "cgroup.subtree_control").unlink()
    make_unified(above / "mine")
    found = places.make_places(dict.fromkeys(ROLES, (2, str(own))), name="mine", uid=None)
    assert found["memory"] == (2, str(above / "mine"))
    assert (above / "cgroup.subtree_control").read_text() == "memory pids"


def test_the_processes_of_a_delegated_group_move_down(tmp_path: Path) -> None:
    own = make_unified(tmp_path / "own", processes="12\n34\n")
    below = make_unified(own / places._OURS)
    os.setxattr(own, "user.delegate", b"1")
    assert places._is_delegated(str(own))
    assert places._move_down(str(own))
    assert (below / "cgroup.procs").read_text() == "34"  # each was written at the file's start


def test_a_group_that_was_not_handed_over_is_left_alone(tmp_path: Path) -> None:
    assert not places._is_delegated(str(make_unified(tmp_path / "own")))


# -- really ------------------------------------------------------------------------------------------------------------

UNIFIED = Path("/sys/fs/cgroup/unified")


if os.access(UNIFIED, os.W_OK):  # not skipped: no machine that CI may have need have it

    def test_a_delegated_group_can_hand_controllers_on_once_its_processes_moved_down() -> None:
        """With whatever controller this machine has there."""
        controllers = (UNIFIED / "cgroup.controllers").read_text().split()
        own = UNIFIED / f"vmnest-test-{os.getpid()}"
        own.mkdir()
        before = (UNIFIED / "cgroup.subtree_control").read_text().split()
        sleeper = subprocess.Popen(["/bin/sleep", "1000"])
        try:
            kernel.write(str(UNIFIED / "cgroup.subtree_control"), f"+{controllers[0]}")
            kernel.write(str(own / "cgroup.procs"), str(sleeper.pid))
            with pytest.raises(OSError, match="busy"):
                kernel.write(str(own / "cgroup.subtree_control"), f"+{controllers[0]}")
            places._move_down(str(own))
            kernel.write(str(own / "cgroup.subtree_control"), f"+{controllers[0]}")
        finally:
            sleeper.kill()
            sleeper.wait()
            cgroups.remove_groups([str(own / places._OURS)])
            if controllers[0] not in before:
                kernel.write(str(UNIFIED / "cgroup.subtree_control"), f"-{controllers[0]}")
        assert not own.exists()


@pytest.fixture
def some_places() -> Iterator[places.Places]:
    """Places as the daemon has them here; none as a plain user, mostly."""
    name = f"vmnest-test-{os.getpid()}-places"
    found = places.Places(cells.find_groups(), name=name, uid=None)
    yield found
    cgroups.remove_groups(found.list_groups("one"))
    assert not [group for group in found.list_groups("x") if os.path.exists(group)]
    cgroups.remove_groups(found.list_groups("one"))


def test_groups_are_made_for_the_roles_that_are_asked_for(some_places: places.Places) -> None:
    found = some_places.reserve("one", roles=["memory"])
    assert set(found) <= {"memory"}
    groups = cgroups.list_groups(found, "one")
    assert all(os.path.isdir(group) for group in groups)
    assert set(groups) <= set(some_places.list_groups("one"))


def test_a_place_that_went_with_its_last_group_is_made_again(some_places: places.Places) -> None:
    groups = cgroups.list_groups(some_places.reserve("one", roles=ROLES), "one")
    cgroups.remove_groups(groups)
    assert not [group for group in groups if os.path.exists(os.path.dirname(group))]
    assert all(os.path.isdir(group) for group in cgroups.list_groups(some_places.reserve("one", roles=ROLES), "one"))


def test_a_group_that_was_left_is_made_anew(some_places: places.Places) -> None:
    """Its VM's folder was removed, and a new folder has the number of the old."""
    found = some_places.reserve("one", roles=ROLES)
    sleeper = subprocess.Popen(["/bin/sleep", "1000"])
    for group in cgroups.list_groups(found, "one"):
        kernel.write(f"{group}/cgroup.procs", str(sleeper.pid))
    assert some_places.reserve("one", roles=ROLES) == found
    if found:
        assert sleeper.wait(10) == -9
    sleeper.kill()
    sleeper.wait()


def test_empty_groups_are_swept_away_and_others_stay(some_places: places.Places) -> None:
    groups = cgroups.list_groups(some_places.reserve("one", roles=ROLES), "one")
    sleeper = subprocess.Popen(["/bin/sleep", "1000"])
    for group in groups:
        kernel.write(f"{group}/cgroup.procs", str(sleeper.pid))
    some_places.sweep()
    assert all(os.path.isdir(group) for group in groups)
    sleeper.kill()
    sleeper.wait()
    while any(os.path.exists(group) for group in groups):  # the last process leaves a moment after its end
        some_places.sweep()
    assert not [group for group in groups if os.path.exists(os.path.dirname(group))]


def test_to_move_ourselves_to_where_we_are_changes_nothing(some_places: places.Places) -> None:
    before = Path("/proc/self/cgroup").read_text()
    some_places.list_groups("one")
    some_places.hasten()
    assert Path("/proc/self/cgroup").read_text() == before


def test_places_of_a_folder_have_its_name(tmp_path: Path) -> None:
    one = places.Places.of_folder(str(tmp_path), uid=None)
    assert one._name == places.Places.of_folder(str(tmp_path), uid=None)._name
    (tmp_path / "other").mkdir()
    assert one._name != places.Places.of_folder(str(tmp_path / "other"), uid=None)._name
