"""What of the host is visible, and the skeletons over it."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vmnest import errors
from vmnest.local.drivers import layers, namespace
from vmnest.local.drivers.rubbish import Rubbish

STATE = "/somewhere/state"


def test_programs_and_settings_are_visible() -> None:
    view = layers.view_host((), folder=STATE)
    assert {"/usr", "/etc"} <= set(view.visible)
    assert not set(view.visible) & {"/", "/home", "/root", "/var", "/tmp", "/run"}


def test_links_at_the_top_stay_links() -> None:
    view = layers.view_host((), folder=STATE)
    for path, target in view.links:
        assert os.readlink(path) == target
        assert path not in view.visible


def test_further_directories_are_staged(tmp_path: Path) -> None:
    view = layers.view_host((str(tmp_path),), folder=STATE)
    assert view.visible[-1] == str(tmp_path)
    assert view.staged == (str(tmp_path),)


def test_a_directory_inside_another_visible_one_is_not_shown_twice(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    view = layers.view_host(("/usr/share", str(tmp_path / "inner"), str(tmp_path) + "/"), folder=STATE)
    assert view.staged == (str(tmp_path),)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/", "it is the root"),
        ("relative", "it is no absolute path"),
        ("/no/such/directory", "there is no such directory"),
        ("/etc/passwd", "there is no such directory"),
        ("/proc", "a sandbox has a /proc of its own"),
        ("/sys/kernel", "a sandbox has a /sys of its own"),
        ("/dev/shm", "a sandbox has a /dev of its own"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_reason(path: str, reason: str) -> None:
    with pytest.raises(errors.SettingError) as caught:
        layers.view_host((path,), folder=STATE)
    assert caught.value.message == f"AGENT_SANDBOX_LOCAL_VISIBLE: {path!r} cannot be shown in a sandbox: {reason}"


def test_the_state_folder_is_never_shown(tmp_path: Path) -> None:
    state = tmp_path / "home" / "state"
    (state / "vms").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(state.parent)
    for path in (tmp_path, state.parent, state, state / "vms", link):
        with pytest.raises(errors.SettingError, match="vmnest's own state"):
            layers.view_host((str(path),), folder=str(state))


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [("/a", "/a", True), ("/a", "/a/b", True), ("/a", "/ab", False), ("/", "/a", True), ("/a/b", "/a", False)],
)
def test_containment_is_by_whole_names(folder: str, path: str, expected: bool) -> None:
    assert layers.contains(folder, path) == expected


class Shelf:
    """Skeletons of a small view."""

    def __init__(self, cell: namespace.Cell, folder: Path) -> None:
        self.seen = folder / "seen"
        (self.seen / "inner").mkdir(parents=True)
        self.seen.chmod(0o755)
        for parent in (folder, folder.parent):
            parent.chmod(0o755)
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        self.cell = replace(
            cell,
            folder=str(self.state),
            rubbish=Rubbish(str(self.state), runtime=cell.runtime),
            view=layers.View((str(self.seen),), links=(), plain=(), staged=()),
        )

    def skeletons(self) -> layers.Skeletons:
        cell = self.cell
        return layers.Skeletons(
            cell.folder,
            runtime=cell.runtime,
            rubbish=cell.rubbish,
            view=cell.view,
            uid=cell.uid,
            interpreter=cell.interpreter,
        )

    def names(self) -> list[str]:
        return sorted(os.listdir(self.state / "skeleton"))


@pytest.fixture
def shelf(cell: namespace.Cell, tmp_path: Path) -> Iterator[Shelf]:
    return Shelf(cell, tmp_path)


def test_a_skeleton_is_made_once_and_found_again(shelf: Shelf) -> None:
    first = shelf.skeletons()
    first.begin()
    path = first.ensure()
    made = os.stat(path).st_ctime_ns
    again = shelf.skeletons()
    again.begin()
    assert (again.ensure(), os.stat(path).st_ctime_ns) == (path, made)
    assert first.ensure() == path


def test_a_change_of_the_host_makes_a_new_one_while_the_old_one_serves(shelf: Shelf) -> None:
    skeletons = shelf.skeletons()
    old = skeletons.ensure()
    (shelf.seen / "more").mkdir()
    current = skeletons.ensure()
    while current == old:
        current = skeletons.ensure()
    assert len(shelf.names()) == 2


def test_an_outdated_one_is_removed_unless_it_is_in_use(shelf: Shelf) -> None:
    old = shelf.skeletons().ensure()
    (shelf.seen / "more").mkdir()
    holder = os.open(old, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_SH)
    skeletons = shelf.skeletons()
    skeletons.begin()
    skeletons.ensure()
    assert os.path.isdir(old)
    os.close(holder)
    shelf.skeletons().begin()
    assert not os.path.isdir(old)


def test_two_drivers_of_a_folder_do_not_disturb_each_other(shelf: Shelf) -> None:
    first, second = shelf.skeletons(), shelf.skeletons()
    first.begin()
    second.begin()
    assert first.ensure() == second.ensure()
    assert len(shelf.names()) == 1


def test_closing_gives_up_a_build(shelf: Shelf) -> None:
    skeletons = shelf.skeletons()
    skeletons.begin()
    skeletons.close()
    assert shelf.names() == []


def test_a_start_does_not_touch_what_the_worker_of_a_killed_daemon_still_makes(shelf: Shelf) -> None:
    killed = shelf.skeletons()
    killed.begin()
    build = killed._building
    assert build is not None
    os.kill(build._worker.pid, signal.SIGSTOP)
    os.close(build._lock)  # as the kernel does for the daemon
    held = not layers.is_unused(build.target)
    os.kill(build._worker.pid, signal.SIGCONT)
    build._worker.wait()
    build._lock = os.open(os.devnull, os.O_RDONLY)
    killed.close()
    assert held


def test_a_build_that_fails_says_why_and_leaves_nothing(shelf: Shelf) -> None:
    shelf.cell = replace(shelf.cell, view=replace(shelf.cell.view, links=(("/no/such/place", "x"),)))
    skeletons = shelf.skeletons()
    with pytest.raises(errors.LocalCloudError, match="No such file"):
        skeletons.ensure()
    assert shelf.names() == []
