"""Ways down a tree: by descriptors, through no link, however the tree changes meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from guest.agentd.descents import Descent


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def identify(place: Descent) -> tuple[int, int]:
    status = os.fstat(place.descriptor)
    return status.st_dev, status.st_ino


def identity(path: Path) -> tuple[int, int]:
    return path.stat().st_dev, path.stat().st_ino


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / "d").mkdir()
    (root / "e").mkdir()
    (root / "f").touch()
    (tmp_path / "outside" / "b").mkdir(parents=True)
    return root


@pytest.fixture
def place(tree: Path) -> Iterator[Descent]:
    before = open_descriptors()
    with Descent(os.fsencode(tree)) as descent:
        yield descent
    assert open_descriptors() == before


def test_it_moves_anywhere_in_the_tree(tree: Path, place: Descent) -> None:
    for way in ("a/b/c", "a/b", "a/d", "a/d", "", "e", "a/b/c", "e", "a"):
        names = way.encode().split(b"/") if way else []
        place.move(names)
        assert identify(place) == identity(tree / way)
        assert place.names == tuple(names)


def test_it_holds_two_descriptors_at_most(place: Descent) -> None:
    before = open_descriptors()
    place.move([b"a", b"b", b"c"])
    assert open_descriptors() == before + 1


def test_leaving_tells_the_name(place: Descent) -> None:
    place.move([b"a", b"b"])
    assert (place.leave(), place.leave(), place.names) == (b"b", b"a", ())


def test_leaving_costs_the_same_however_deep_it_is(tmp_path: Path) -> None:
    with Descent(os.fsencode(tmp_path)) as place:
        for _ in range(3000):
            os.mkdir(b"d", dir_fd=place.descriptor)
            place.enter(b"d")
        steps = 0

        def count_steps(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal steps
            steps += event == "line"
            return count_steps

        before = sys.gettrace()
        sys.settrace(count_steps)
        try:
            while place.names:
                os.rmdir(place.leave(), dir_fd=place.descriptor)
        finally:
            sys.settrace(before)
    assert steps < 3000 * 100


def test_names_come_in_order(place: Descent) -> None:
    assert place.list_names() == [b"a", b"e", b"f"]


@pytest.mark.parametrize("name", [b"f", b"link", b"dangling"])
def test_what_is_no_directory_is_not_entered(tree: Path, place: Descent, name: bytes) -> None:
    (tree / "link").symlink_to("a")
    (tree / "dangling").symlink_to("nowhere")
    with pytest.raises(NotADirectoryError):
        place.move([name])
    assert place.names == ()


def test_where_the_way_ends_it_stays(tree: Path, place: Descent) -> None:
    with pytest.raises(FileNotFoundError):
        place.move([b"a", b"b", b"none", b"x"])
    assert place.names == (b"a", b"b")
    assert identify(place) == identity(tree / "a" / "b")


def test_the_root_may_be_named_by_a_link(tree: Path) -> None:
    (tree.parent / "link").symlink_to("root")
    with Descent(os.fsencode(tree.parent / "link")) as place:
        assert identify(place) == identity(tree)


def test_the_way_back_from_a_directory_that_was_moved_is_from_the_root(tree: Path, place: Descent) -> None:
    place.move([b"a", b"b", b"c"])
    (tree / "a" / "b" / "c").rename(tree.parent / "outside" / "b" / "c")  # ".." leads out of the tree now
    place.move([b"a", b"b"])
    assert identify(place) == identity(tree / "a" / "b")


def test_a_directory_that_became_a_link_leads_nowhere(tree: Path, place: Descent) -> None:
    place.move([b"a", b"b", b"c"])
    (tree / "a").rename(tree / "moved")
    (tree / "a").symlink_to(tree.parent / "outside")
    (tree / "moved" / "b" / "c").rename(tree / "e" / "c")
    with pytest.raises(NotADirectoryError):
        place.move([b"a", b"b"])
    assert identify(place) == identity(tree)


def test_no_tree_is_too_deep(tmp_path: Path) -> None:
    depth = 2500  # beyond the longest path, and beyond the number of open files
    with Descent(os.fsencode(tmp_path)) as place:
        for _ in range(depth):
            os.mkdir(b"d", dir_fd=place.descriptor)
            place.enter(b"d")
        assert len(place.names) == depth
        while place.names:
            os.rmdir(place.leave(), dir_fd=place.descriptor)
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_is_closing_once(tree: Path) -> None:
    place = Descent(os.fsencode(tree))
    place.move([b"a"])
    place.close()
    place.close()


def test_a_name_in_an_open_directory_leads_there_and_through_no_link(tree: Path) -> None:
    folder = os.open(tree, os.O_RDONLY)
    try:
        tree.rename(tree.parent / "moved")
        with Descent(b"a", dir_fd=folder) as place:
            place.move([b"b"])
            assert identify(place) == identity(tree.parent / "moved" / "a" / "b")
        (tree.parent / "moved" / "link").symlink_to("a")
        with pytest.raises(NotADirectoryError):
            Descent(b"link", dir_fd=folder)
    finally:
        os.close(folder)
