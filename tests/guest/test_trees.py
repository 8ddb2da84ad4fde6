"""Trees from one end to the other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import trees
from tests.support import skips
from tests.support import trees as sample
from tests.support.paths import ROOT, find_python

NAMES = st.binary(min_size=1, max_size=40).map(lambda data: data.replace(b"\0", b"0").replace(b"/", b"1"))
WAYS = st.lists(NAMES.filter(lambda name: name not in (b".", b"..")), min_size=1, max_size=4).map(b"/".join)


def copy(source: Path, target: Path, *, step: int | None = None) -> trees.Summary:
    data = trees.pack(os.fsencode(source))
    if step is None:
        return trees.unpack(data, os.fsencode(target))
    whole = b"".join(data)
    return trees.unpack((whole[start : start + step] for start in range(0, len(whole), step)), os.fsencode(target))


@pytest.mark.parametrize("step", [None, 1000, 4097])
def test_a_tree_arrives_as_it_was(tmp_path: Path, step: int | None) -> None:
    sample.build(tmp_path / "source")
    summary = copy(tmp_path / "source", tmp_path / "copy", step=step)
    assert summary.skipped == []
    assert sample.look(tmp_path / "copy") == sample.look(tmp_path / "source")
    assert (tmp_path / "copy" / "second name").samefile(tmp_path / "copy" / "folder" / "secret")


def test_a_tree_arrives_over_an_older_one(tmp_path: Path) -> None:
    sample.build(tmp_path / "source")
    copy(tmp_path / "source", tmp_path / "copy")
    (tmp_path / "copy" / "folder" / "program").write_text("changed")
    (tmp_path / "copy" / "folder" / "empty" / "more").touch()
    before = sample.look(tmp_path / "source")
    # Directories that were there keep their times, which the test itself has changed.
    assert copy(tmp_path / "source", tmp_path / "copy").skipped == []
    after = sample.look(tmp_path / "copy")
    assert after.pop(b"folder/empty/more")
    files = {path: seen for path, seen in before.items() if seen[2] is not None}
    assert {path: seen for path, seen in after.items() if seen[2] is not None} == files
    assert set(after) == set(before)


@given(st.dictionaries(WAYS, st.binary(max_size=600), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_names_and_contents_arrive(tmp_path_factory: pytest.TempPathFactory, contents: dict[bytes, bytes]) -> None:
    base = tmp_path_factory.mktemp("trees")
    source = os.fsencode(base / "source")
    os.mkdir(source)
    for way, content in contents.items():
        path = os.path.join(source, way)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # one of them is the folder of another
    assert copy(base / "source", base / "copy").skipped == []
    assert sample.look(base / "copy") == sample.look(base / "source")
    shutil.rmtree(base)


def test_what_was_left_out_is_told_at_the_other_end(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "fifo \udcff")
    (tmp_path / "source" / "out").symlink_to("/etc")
    summary = copy(tmp_path / "source", tmp_path / "copy")
    assert summary.skipped == [(b"fifo \xff", "a named pipe"), (b"out", trees.LEADS_OUT)]
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_tree_of_any_depth_arrives(tmp_path: Path) -> None:
    depth = 1000  # the paths are longer than the system takes in one piece
    folder = os.open(tmp_path, os.O_RDONLY)
    for name in [b"source", *[b"deep"] * depth]:
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("bottom", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    summary = copy(tmp_path / "source", tmp_path / "copy")
    assert (summary.files, summary.directories) == (1, depth + 1)
    for name in ("source", "copy"):
        subprocess.run(["rm", "-r", str(tmp_path / name)], check=True)


def test_a_folder_of_many_files_arrives_with_few_descriptors(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(3000):
        (tmp_path / "source" / f"{number}").mkdir() if number % 3 else (tmp_path / "source" / f"{number}").touch()
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from agentd import trees; import os;"
        "trees.unpack(trees.pack(os.fsencode(sys.argv[2])), os.fsencode(sys.argv[3]))"
    )
    command = ["prlimit", "--nofile=16", sys.executable, "-I", "-c", program]
    folders = [str(ROOT / "guest"), str(tmp_path / "source"), str(tmp_path / "copy")]
    subprocess.run([*command, *folders], check=True)
    assert len(os.listdir(tmp_path / "copy")) == 3000


def test_the_oldest_python_of_a_guest_does_the_same(tmp_path: Path) -> None:
    python = find_python("3.9")
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: 3.9")
    sample.build(tmp_path / "source")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from agentd import trees; import os;"
        "trees.unpack(trees.pack(os.fsencode(sys.argv[2])), os.fsencode(sys.argv[3]))"
    )
    folders = [str(ROOT / "guest"), str(tmp_path / "source"), str(tmp_path / "copy")]
    subprocess.run([python, "-I", "-c", program, *folders], check=True)
    assert sample.look(tmp_path / "copy") == sample.look(tmp_path / "source")


def test_the_host_imports_the_same() -> None:
    from vmnest._guest.agentd import trees as at_the_host

    assert at_the_host.__all__ == trees.__all__
