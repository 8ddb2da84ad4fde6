"""The plan of what a sandbox sees. That it is carried out is seen by the tests of isolation."""

from __future__ import annotations

import marshal
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cells import Room
from vmnest.local.drivers import mounts, probe


def test_a_plan_survives_the_way_to_the_supervisor() -> None:
    plan = mounts.Plan(
        folder="/f", skeleton="/s", writable=mounts.DISK, visible=("/usr",), staged=("/x",), plain=("/nix/store",),
        prefix="/p", masked=("/p/lib",), layers=("/l",), disk_bytes=1, shared_memory_bytes=2,
    )  # fmt: skip
    wire = marshal.loads(marshal.dumps(plan.to_wire()))
    assert mounts.Plan.from_wire(wire).to_wire() == plan.to_wire()


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0")), min_size=2, max_size=2, unique=True))
def test_no_two_directories_share_a_layer(parts: list[str]) -> None:
    first, second = (os.path.normpath("/" + part) for part in parts)
    names = [mounts.layer_name(path) for path in (first, second)]
    assert all("/" not in name for name in names)
    assert (first.strip("/") == second.strip("/")) == (names[0] == names[1])


def test_the_roots_own_layer_is_no_directorys() -> None:
    assert mounts.layer_name("/%root") != "%root"


def test_a_tree_is_copied_with_its_modes_and_links(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "open").mkdir(parents=True)
    (source / "open").chmod(0o1777)
    (source / "open" / "file").write_text("text")
    (source / "open" / "file").chmod(0o640)
    (source / "link").symlink_to("open")
    target.mkdir()
    mounts._copy_tree(str(source), str(target))
    assert (target / "open").stat().st_mode & 0o7777 == 0o1777
    assert (target / "open" / "file").read_text() == "text"
    assert (target / "open" / "file").stat().st_mode & 0o777 == 0o640
    assert os.readlink(target / "link") == "open"


def test_every_step_has_a_remedy() -> None:
    assert {name for name, _ in mounts.STEPS} <= set(probe.REMEDIES)


def test_directories_of_the_host_can_be_changed_inside(room: Room) -> None:
    if room.cell.writable == mounts.BIND:
        pytest.skip("no overlays here")
    program = """
import os, shutil
os.mkdir("/usr/lib/new")
os.rmdir("/usr/lib/new")
victim = next(entry.path for entry in os.scandir("/usr/share") if entry.is_dir() and os.listdir(entry.path))
shutil.rmtree(victim)
os.mkdir(victim)
print(os.listdir(victim))
"""
    machine = room.start_python(program)
    assert room.over.wait(30)
    assert room.console(machine) == "[]\n"
