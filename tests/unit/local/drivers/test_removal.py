"""Removal of trees that a hostile program made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmnest.local.drivers import removal


def test_a_tree_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "file").write_text("x")
    (top / "link").symlink_to("/etc")
    os.mkfifo(top / "a" / "b" / "pipe")
    removal.remove_tree(str(top))
    assert not top.exists()
    assert Path("/etc/passwd").exists()


def test_nothing_there_is_fine(tmp_path: Path) -> None:
    removal.remove_tree(str(tmp_path / "nothing"))


def test_directories_of_mode_0_go(tmp_path: Path) -> None:
    """overlayfs leaves one as ``work/work``."""
    deep = tmp_path / "top" / "work" / "work"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    deep.chmod(0)
    deep.parent.chmod(0)
    removal.remove_tree(str(tmp_path / "top"))
    assert not (tmp_path / "top").exists()


def test_a_tree_deeper_than_a_path_can_be_long_goes(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("top", dir_fd=here)
    for _ in range(3000):
        there = os.open("top" if here is None else os.listdir(here)[0], os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
        os.mkdir("d", dir_fd=here)
    os.close(here)
    removal.remove_tree(str(tmp_path / "top"))
    assert os.listdir(tmp_path) == []


def test_a_name_that_removal_itself_would_use_is_no_trouble(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for name in (".going-1", ".going-2", "a/b/c", "a/d"):
        (top / name).mkdir(parents=True)
    removal.remove_tree(str(top))
    assert not top.exists()


def test_a_link_in_place_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="link"):
        removal.remove_tree(str(tmp_path / "link"))
    assert (tmp_path / "precious" / "file").exists()


names = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)


@settings(max_examples=30)
@given(st.lists(st.tuples(names, st.sampled_from([0, 0o500, 0o755])), max_size=12))
def test_any_tree_goes(tmp_path_factory: pytest.TempPathFactory, folders: list[tuple[list[str], int]]) -> None:
    top = tmp_path_factory.mktemp("any") / "top"
    top.mkdir()
    for parts, _ in folders:
        top.joinpath(*parts).mkdir(parents=True, exist_ok=True)
    for parts, mode in sorted(folders, reverse=True):
        top.joinpath(*parts).chmod(mode)
    removal.remove_tree(str(top))
    assert not top.exists()
