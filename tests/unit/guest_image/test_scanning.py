"""Any machine packs the same entries in the same order; what is left out, or leads outside, is told."""

import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vmnest import errors
from vmnest.guest_image import scanning


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    return tmp_path


def names(path: Path) -> list[str]:
    return [entry.name for entry in scanning.scan(str(path)).entries]


def test_all_is_there_in_one_order_with_empty_directories(tree: Path):
    for name in ("b", "a/deep/er", "empty", "é"):
        (tree / name).mkdir(parents=True)
    (tree / "a" / "x").write_text("x")
    (tree / "a.b").write_text("x")
    assert names(tree) == ["Dockerfile", "a", "a.b", "a/deep", "a/deep/er", "a/x", "b", "empty", "é"]


def test_links_are_links_and_are_not_followed(tree: Path):
    (tree / "d").mkdir()
    (tree / "link").symlink_to("d")
    (tree / "dangling").symlink_to("nowhere")
    (tree / "loop").symlink_to(".")
    found = {entry.name: entry for entry in scanning.scan(str(tree)).entries}
    assert {name: entry.target for name, entry in found.items() if entry.target} == {
        "link": "d",
        "dangling": "nowhere",
        "loop": ".",
    }
    assert stat.S_ISLNK(found["link"].mode)


@pytest.mark.parametrize(
    ("name", "target", "leaves"),
    [
        ("a", "/etc/passwd", True),
        ("a", "../x", True),
        ("d/a", "../x", False),
        ("d/a", "../../x", True),
        ("d/a", "../d/../d/b", False),
        ("a", "d/../../x", True),
        ("a", "..x", False),
    ],
)
def test_a_link_out_of_the_directory_is_told(tree: Path, name, target, leaves):
    (tree / "d").mkdir()
    (tree / name).symlink_to(target)
    warnings = scanning.scan(str(tree)).warnings
    assert bool(warnings) == leaves
    assert all(name in warning and target in warning for warning in warnings)


def test_what_is_neither_file_nor_link_nor_directory_is_left_out_and_told(tree: Path):
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tree / "s"))
        found = scanning.scan(str(tree))
    assert [entry.name for entry in found.entries] == ["Dockerfile"]
    assert found.warnings == ("pipe is a FIFO, and is left out", "s is a socket, and is left out")


def test_dockerignore_counts(tree: Path):
    (tree / "node_modules" / "a").mkdir(parents=True)
    (tree / "node_modules" / "a" / "index.js").write_text("x")
    (tree / "keep.log").write_text("x")
    (tree / "a.log").write_text("x")
    (tree / ".dockerignore").write_text("node_modules\n*.log\n!keep.log\n")
    assert names(tree) == [".dockerignore", "Dockerfile", "keep.log"]


def test_what_is_taken_back_has_its_directories(tree: Path):
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "keep").write_text("x")
    (tree / "a" / "b" / "drop").write_text("x")
    (tree / ".dockerignore").write_text("a\n!a/b/keep\n")
    assert names(tree) == [".dockerignore", "Dockerfile", "a", "a/b", "a/b/keep"]


def test_what_is_excluded_is_not_looked_into(tree: Path):
    (tree / "secret").mkdir()
    os.mkfifo(tree / "secret" / "pipe")
    (tree / "secret" / os.fsdecode(b"\xff")).write_text("x")
    (tree / ".dockerignore").write_text("secret\n")
    assert scanning.scan(str(tree)).warnings == ()


def test_a_name_that_is_no_utf8_is_an_error_with_a_way_out(tree: Path):
    (tree / os.fsdecode(b"caf\xe9")).write_text("x")
    with pytest.raises(errors.GuestImageError, match=r"'caf\\udce9' is no UTF-8") as caught:
        scanning.scan(str(tree))
    assert ".dockerignore" in str(caught.value.hint)


def test_a_directory_deeper_than_the_interpreter_recurses(tree: Path):
    try:
        subprocess.run(["mkdir", "-p", tree / "/".join(["d"] * 1200)], check=True)
        assert len(names(tree)) == 1201
    finally:
        subprocess.run(["rm", "-r", tree / "d"], check=True)  # shutil.rmtree recurses, too


def test_a_directory_without_a_dockerfile_is_refused(tmp_path: Path):
    (tmp_path / "Dockerfile").mkdir()
    with pytest.raises(errors.GuestImageError, match="no file Dockerfile"):
        scanning.scan(str(tmp_path))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[a"], ids=["no-utf8", "nonsense"])
def test_a_dockerignore_that_cannot_be_read_is_an_error(tree: Path, content):
    (tree / ".dockerignore").write_bytes(content)
    with pytest.raises(errors.GuestImageError, match="dockerignore"):
        scanning.scan(str(tree))


@pytest.mark.parametrize(
    "make",
    [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")],
    ids=["directory", "fifo", "dangling"],
)
def test_a_dockerignore_that_is_no_file_excludes_nothing_silently(tree: Path, make: Callable[[Path], None]):
    make(tree / ".dockerignore")
    with pytest.raises(errors.GuestImageError, match=r"\.dockerignore is no regular file"):
        names(tree)
