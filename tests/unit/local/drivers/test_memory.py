"""The watch over a sandbox's memory, over files that look like its /proc; with sandboxes, see the tests of limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local.drivers import memory

MIB = 2**20
KIB = 2**10


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[int]:
    """A descriptor of ``tmp_path``, which stands for a sandbox's /proc."""
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def process(folder: Path, pid: int, *, anonymous: int = 0, shared: int = 0, swapped: int = 0, tables: int = 0) -> None:
    """Files of a process, alone with its pages; sizes in KiB."""
    place = folder / str(pid)
    place.mkdir(exist_ok=True)
    (place / "fd").mkdir(exist_ok=True)
    (place / "status").write_text(
        f"Name:\tVmSwap: 999999 kB\nVmRSS:\t  99999999 kB\nRssAnon:\t  {anonymous} kB\nRssFile:\t 88888888 kB\n"
        f"RssShmem:\t  {shared} kB\nVmSwap:\t  {swapped} kB\nVmPTE:\t  {tables} kB\n"
    )
    set_pages(folder, pid, anonymous=anonymous, shared=shared, swapped=swapped)


def set_pages(folder: Path, pid: int, *, anonymous: int, shared: int, swapped: int = 0) -> None:
    """What each page counted once makes, in KiB."""
    (folder / str(pid) / "smaps_rollup").write_text(
        f"00400000-7ffff000 ---p 00000000 00:00 0 [rollup]\nRss: 99999999 kB\nPss: 99999999 kB\n"
        f"Pss_Anon:  {anonymous} kB\nPss_File: 88888888 kB\nPss_Shmem: {shared} kB\nSwapPss: {swapped} kB\n"
    )


def watch(proc: int, limit: int = 64 * MIB, folders: tuple[int, ...] = ()) -> memory.MemoryWatch:
    return memory.MemoryWatch(proc, limit=limit, folders=folders, now=0)


def test_what_all_processes_have_in_memory_is_summed_up(proc: int, tmp_path: Path) -> None:
    one = watch(proc)
    process(tmp_path, 2, anonymous=20 * KIB)
    process(tmp_path, 3, anonymous=20 * KIB, swapped=10 * KIB)
    assert not one.step(1)
    process(tmp_path, 4, anonymous=15 * KIB)
    assert one.step(2)


def test_a_process_cannot_lie_by_its_name(proc: int, tmp_path: Path) -> None:
    """The kernel escapes nothing but its own line ends in it."""
    for pid, name in enumerate([b"\rVmSwap: -99999", b"\rVmSwap: x", b"\rVmSwap:"], start=2):
        process(tmp_path, pid, anonymous=30 * KIB)
        status = tmp_path / str(pid) / "status"
        status.write_bytes(b"Name:\t" + name + b"\n" + status.read_bytes())
    assert watch(proc).step(1)


def test_page_tables_count(proc: int, tmp_path: Path) -> None:
    process(tmp_path, 2, anonymous=40 * KIB, tables=30 * KIB)
    assert watch(proc).step(1)


def test_process_1_is_ours(proc: int, tmp_path: Path) -> None:
    process(tmp_path, 1, anonymous=100 * KIB)
    assert not watch(proc).step(1)


def test_pages_that_processes_share_count_once(proc: int, tmp_path: Path) -> None:
    one = watch(proc)
    for pid in range(2, 12):
        process(tmp_path, pid, anonymous=10 * KIB, shared=30 * KIB)
        set_pages(tmp_path, pid, anonymous=KIB, shared=3 * KIB)
    assert not one.step(1)
    process(tmp_path, 2, anonymous=40 * KIB)
    assert one.step(1000)


def test_a_process_that_ends_meanwhile_is_nothing(proc: int, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "self").mkdir()
    assert not watch(proc).step(1)


def test_files_in_memory_count(proc: int, tmp_path: Path) -> None:
    """Of whatever file system the descriptor is of: here, one that has more than that in use."""
    found = os.fstatvfs(proc)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize  # and something for the files themselves
    process(tmp_path, 2)
    assert watch(proc, limit=used // 2, folders=(proc,)).step(1)


def test_files_without_a_name_count_once_however_many_hold_them(proc: int, tmp_path: Path) -> None:
    file = os.memfd_create("x")
    for _ in range(40):
        os.write(file, b"x" * MIB)
    for pid in (2, 3):
        process(tmp_path, pid)
        (tmp_path / str(pid) / "fd" / "5").symlink_to(f"/proc/self/fd/{file}")
        (tmp_path / str(pid) / "fd" / "6").symlink_to("/nowhere")
        (tmp_path / str(pid) / "fd" / "7").symlink_to(__file__)
    one = watch(proc)
    assert not one.step(61)
    assert one._unnamed == 40 * MIB
    process(tmp_path, 4, anonymous=30 * KIB)
    assert one.step(62)
    os.close(file)


def test_the_less_is_free_the_sooner_it_looks_again(proc: int, tmp_path: Path) -> None:
    one = watch(proc, limit=1024 * MIB)
    process(tmp_path, 2, anonymous=800 * KIB)
    assert not one.step(1)
    assert 0.3 < one.due - 1 < 0.6
    process(tmp_path, 2, anonymous=1020 * KIB)
    assert not one.step(2)
    assert 0.04 < one.due - 2 < 0.06


def test_while_nothing_changes_it_looks_more_rarely(proc: int, tmp_path: Path) -> None:
    one = watch(proc)
    process(tmp_path, 2, anonymous=40 * KIB)
    one.step(1)
    first = one.due - 1
    one.step(2)
    assert one.due - 2 == pytest.approx(4 * first)


def test_counting_each_page_takes_a_small_share_of_the_time(proc: int, tmp_path: Path) -> None:
    one = watch(proc)
    process(tmp_path, 2, anonymous=100 * KIB)
    set_pages(tmp_path, 2, anonymous=KIB, shared=0)
    assert not one.step(1)
    rest = one._rest_until
    assert rest > 1
    set_pages(tmp_path, 2, anonymous=100 * KIB, shared=0)
    assert not one.step((1 + rest) / 2)
    assert one.step(rest)


def test_it_counts_again_soon_when_more_came_than_was_free(proc: int, tmp_path: Path) -> None:
    """Else a program that made a count take long could do as it likes until the next."""
    one = watch(proc)
    process(tmp_path, 2, anonymous=100 * KIB)
    set_pages(tmp_path, 2, anonymous=KIB, shared=0)
    assert not one.step(1)
    soon = one._short_rest_until
    assert 1 < soon < one._rest_until
    process(tmp_path, 3, anonymous=62 * KIB)
    assert not one.step(soon)
    process(tmp_path, 3, anonymous=64 * KIB)
    assert not one.step((1 + soon) / 2)
    assert one.step(soon)


def test_what_a_count_has_no_time_for_counts_in_full(
    proc: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_COUNT_SECONDS", 0.0)
    process(tmp_path, 2, anonymous=100 * KIB)
    set_pages(tmp_path, 2, anonymous=KIB, shared=0)
    assert watch(proc).step(1)


@given(st.integers(0, 2**40), st.integers(1, 2**40))
def test_the_next_look_is_neither_at_once_nor_far_away(used: int, limit: int) -> None:
    pause = memory.plan_pause(limit - used, steady=False)
    assert 0.05 <= pause <= 1
    assert pause <= memory.plan_pause(limit - used, steady=True) <= 1
