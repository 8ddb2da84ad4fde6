"""The program that copies files into an image, here over plain folders."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support import skips
from tests.support.paths import find_python
from vmnest.local import build_inside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What the context is."""
    context = tmp_path / "context"
    (context / "dir" / "sub").mkdir(parents=True)
    (context / "dir" / "sub").chmod(0o711)
    (context / "run.sh").write_text("run")
    (context / "run.sh").chmod(0o755)
    os.utime(context / "run.sh", (1_000_000_000,) * 2)
    (context / "dir" / "file").write_text("file")
    (context / "dir" / "link").symlink_to("../nowhere")
    return context


def copy(root: Path, sources: list[str], target: Path, **changes: Any) -> int:
    request = {"is_folder": False, "mode": None, "unpacks": False, **changes}
    request |= {"do": "copy", "sources": [[name, name] for name in sources], "target": str(target)}
    return build_inside.main(json.dumps(request), root=str(root))


def test_a_file_is_copied_with_its_mode_and_time(root: Path, tmp_path: Path) -> None:
    assert copy(root, ["run.sh"], tmp_path / "new" / "it") == 0
    made = tmp_path / "new" / "it"
    assert made.read_text() == "run"
    assert made.stat().st_mode & 0o777 == 0o755
    assert made.stat().st_mtime == 1_000_000_000


def test_into_a_directory_it_goes_under_its_name(root: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert copy(root, ["run.sh"], tmp_path / "there") == 0
    assert copy(root, ["run.sh"], tmp_path / "new", is_folder=True) == 0
    assert (tmp_path / "there" / "run.sh").exists()
    assert (tmp_path / "new" / "run.sh").exists()


def test_of_a_directory_the_content_is_copied(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "sub").mkdir(parents=True)
    (target / "sub" / "kept").touch()
    assert copy(root, ["dir"], target) == 0
    assert (target / "file").read_text() == "file"
    assert os.readlink(target / "link") == "../nowhere"
    assert (target / "sub" / "kept").exists()


def test_a_new_directory_has_the_mode_of_its_source(root: Path, tmp_path: Path) -> None:
    assert copy(root, ["dir"], tmp_path / "target") == 0
    assert (tmp_path / "target" / "sub").stat().st_mode & 0o777 == 0o711


def test_a_mode_holds_for_all(root: Path, tmp_path: Path) -> None:
    assert copy(root, ["dir"], tmp_path / "target", mode=0o750) == 0
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "target").rglob("*") if not path.is_symlink()}
    assert modes == {0o750}


def test_what_is_there_is_replaced_and_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    (tmp_path / "it").symlink_to("other")
    assert copy(root, ["run.sh"], tmp_path / "it") == 0
    assert (tmp_path / "it").read_text() == "run"
    assert (tmp_path / "other").read_text() == "other"


def test_a_directory_is_never_replaced(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "target" / "file").mkdir(parents=True)
    assert copy(root, ["dir"], tmp_path / "target") == 1
    assert capsys.readouterr().out == f"{tmp_path}/target/file is a directory: no file can take its place\n"


def test_a_file_in_the_way_is_named(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert copy(root, ["run.sh"], tmp_path / "file" / "x") == 1
    assert copy(root, ["dir"], tmp_path / "file") == 1
    assert build_inside.main(json.dumps({"do": "make", "path": str(tmp_path / "file")})) == 1
    out = capsys.readouterr().out
    assert out == f"{tmp_path}/file is there, and no directory\n" * 3


def test_a_directory_is_made(tmp_path: Path) -> None:
    for _ in range(2):
        assert build_inside.main(json.dumps({"do": "make", "path": str(tmp_path / "a" / "b")})) == 0
    assert (tmp_path / "a" / "b").is_dir()


def test_a_special_file_is_refused(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "dir" / "pipe")
    assert copy(root, ["dir"], tmp_path / "target") == 1


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_an_archive_is_unpacked_if_it_is_to_be(root: Path, tmp_path: Path, compression: str) -> None:
    with tarfile.open(root / "a.tar", f"w:{compression}") as archive:
        member = tarfile.TarInfo("in/side")
        member.size, member.mode = 1, 0o700
        archive.addfile(member, io.BytesIO(b"x"))
    assert copy(root, ["a.tar"], tmp_path / "out", unpacks=True) == 0
    assert (tmp_path / "out" / "in" / "side").stat().st_mode & 0o777 == 0o700
    assert copy(root, ["a.tar"], tmp_path / "plain") == 0
    assert tarfile.is_tarfile(tmp_path / "plain")


def test_what_is_no_archive_is_copied(root: Path, tmp_path: Path) -> None:
    assert copy(root, ["run.sh"], tmp_path / "out", unpacks=True) == 0
    assert (tmp_path / "out").read_text() == "run"


def test_things_are_gathered_under_the_numbers_of_their_patterns(root: Path, tmp_path: Path) -> None:
    (root / "to_dir").symlink_to("dir")
    patterns = [f"{root}/*.sh", f"{root}/dir/", f"{root}/to_dir"]
    out = tmp_path / "out"
    assert build_inside.main(json.dumps({"do": "gather", "patterns": patterns}), root=str(out)) == 0
    assert {str(path.relative_to(out)) for path in out.glob("*/*")} == {"0/run.sh", "1/dir", "2/to_dir"}
    assert (out / "2" / "to_dir" / "file").read_text() == "file"


def test_what_is_not_there_cannot_be_gathered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = json.dumps({"do": "gather", "patterns": [f"{tmp_path}/x"]})
    assert build_inside.main(request, root=str(tmp_path / "out")) == 1
    assert capsys.readouterr().out == f"there is no {tmp_path}/x\n"


def test_it_runs_as_a_program_on_the_oldest_python(tmp_path: Path) -> None:
    python = find_python("3.9")
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: 3.9")
    source = Path(build_inside.__file__).read_text(encoding="utf-8")
    request = json.dumps({"do": "make", "path": str(tmp_path / "made")})
    subprocess.run([python, "-I", "-S", "-c", source, request], check=True)
    assert (tmp_path / "made").is_dir()
