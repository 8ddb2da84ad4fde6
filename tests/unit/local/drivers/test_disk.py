"""The watch over what a sandbox writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cells import Room
from vmnest.local.drivers import Ended, disk, mounts

MIB = 2**20


@pytest.fixture
def layer(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def total(layer: int) -> int:
    return max(disk.measure(layer, namespace=0), default=0)


def test_an_empty_layer_is_nothing(layer: int) -> None:
    assert total(layer) == 0


def test_files_at_any_depth_count_by_their_blocks(layer: int, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * MIB)
    (tmp_path / "a" / "link").symlink_to("/")
    with (tmp_path / "sparse").open("wb") as writer:
        writer.truncate(1000 * MIB)
    assert MIB <= total(layer) < 2 * MIB


def test_a_file_with_two_names_counts_once(layer: int, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * MIB)
    os.link(tmp_path / "one", tmp_path / "two")
    assert MIB <= total(layer) < 1.5 * MIB


def test_empty_files_cost_something(layer: int, tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert total(layer) >= 100 * 512


def test_what_lies_deeper_than_a_path_can_be_long_is_too_much(layer: int, tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        there = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(here)
    assert total(layer) > 2**60


def test_the_watch_measures_when_the_disk_filled_up(layer: int, tmp_path: Path) -> None:
    watch = disk.DiskWatch(layer, limit=4 * MIB, namespace=0, now=100.0)
    assert watch.due == 101.0
    assert not watch.step(101.0)
    assert watch.due == 102.0
    (tmp_path / "file").write_bytes(b"x" * 64 * MIB)
    # Others free and fill this file system too: at the latest after a minute it is measured whatever they do.
    assert any(watch.step(102.0 + second) for second in range(100))


def test_within_its_limit_a_layer_is_left_alone(layer: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * MIB)
    watch = disk.DiskWatch(layer, limit=64 * MIB, namespace=0, now=100.0)
    assert not any(watch.step(100.0 + second) for second in range(1, 200))


def test_a_walk_that_took_long_is_followed_by_another_within_a_minute(
    layer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a program with millions of files could fill the disk meanwhile."""
    monkeypatch.setattr(disk, "_SLICE_SECONDS", -1.0)  # one entry a step
    for number in range(10):
        (tmp_path / str(number)).touch()
    watch = disk.DiskWatch(layer, limit=64 * MIB, namespace=0, now=100.0)
    now = 200.0
    while not watch.step(now) and watch._measured_at < now:
        now += 100
    assert now > 1000
    (tmp_path / "file").write_bytes(b"x" * 128 * MIB)
    assert any(watch.step(now + second) for second in range(60, 80))


def test_a_walk_can_be_cut_between_any_two_descriptors(layer: int) -> None:
    """Programs can have millions, and a supervisor that goes through them all at once would do nothing else."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    before = len(list(disk.measure(layer, namespace=namespace)))
    with contextlib.ExitStack() as opened:
        for _ in range(400):
            opened.enter_context(open(os.devnull, "rb"))
        # Others open and close some of their own meanwhile, but not by the hundred.
        assert len(list(disk.measure(layer, namespace=namespace))) > before + 200


def needs_disk(room: Room) -> None:
    if room.cell.writable != mounts.DISK:
        pytest.skip("the writable layer is not on disk here")


@pytest.mark.parametrize("after", ["", "os.unlink('/work/f%d' % number)"], ids=["named", "deleted and open"])
def test_a_vm_that_writes_too_much_is_ended(room: Room, after: str) -> None:
    needs_disk(room)
    program = f"""
import os, time
held = []
for number in range(20):
    held.append(open('/work/f%d' % number, 'wb'))
    held[-1].write(b'x' * {8 * MIB})
    held[-1].flush()
    {after or "pass"}
time.sleep(1000)
"""
    room.start_python(program, disk_bytes=64 * MIB)
    assert room.over.wait(30)
    assert room.ends == [Ended(None, 9, "disk")]


def test_one_file_cannot_outgrow_the_disk(room: Room) -> None:
    program = f"""
written = 0
try:
    with open('/work/file', 'wb', buffering=0) as writer:
        while True:
            written += writer.write(b'x' * {MIB})
except OSError as error:
    print(error.errno, written // {MIB})
"""
    machine = room.start_python(program, disk_bytes=16 * MIB)
    assert room.over.wait(30)
    assert room.console(machine) == "27 16\n"
