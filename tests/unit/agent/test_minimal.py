"""Files through the base contract and the tools of an image."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.agent import Agent
from tests.support.cutting import Cutter, open_client
from tests.support.minimal import FOR_FILES, bare_client, base_contract
from vmnest import errors
from vmnest._guest.agentd import trees
from vmnest.agent import minimal
from vmnest.agent.client import AgentClient
from vmnest.agent.entries import Skipped, Transfer
from vmnest.agent.files import RemoteFiles
from vmnest.agent.minimal import PART_BYTES, MinimalFiles
from vmnest.agent.sources import Source, from_data

LARGE = random.Random(3).randbytes(PART_BYTES + 70_001)
NAMES = ("plain", "a b", "-x", "%2F", "new\nline\n", "é", "\udcff", "back\\slash\\n", "quote'\"")


@pytest.fixture
def files(base_client: AgentClient) -> MinimalFiles:
    return MinimalFiles(base_client)


def read(files: MinimalFiles | RemoteFiles, path: Path | str, **part: int) -> bytes:
    with files.open(str(path), **part) as reading:  # type: ignore[arg-type] # offset and length
        data = b"".join(reading.pieces())
        assert reading.expected == len(data)
        return data


def left_over() -> list[str]:
    return [name for name in os.listdir(minimal.FOLDER) if name.startswith(".vmnest-")]


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    before = set(left_over())
    yield
    assert set(left_over()) <= before
    assert list(tmp_path.rglob(".vmnest-*")) == []


# -- content -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_is_written_and_read(files: MinimalFiles, tmp_path: Path, name: str) -> None:
    path = tmp_path / "new folder" / name
    data = bytes(range(256)) * 10
    assert files.write(str(path), from_data(data)) == len(data)
    assert path.read_bytes() == data
    assert read(files, path) == data


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, len(LARGE)])
def test_a_file_of_any_size_arrives_whole(files: MinimalFiles, tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    assert files.write(str(path), from_data(iter([LARGE[:size]]))) == size
    assert path.read_bytes() == LARGE[:size]
    assert read(files, path) == LARGE[:size]


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (0, None),
        (5, 10),
        (65_535, 2),
        (70_000, PART_BYTES),
        (len(LARGE) - 1, 5),
        (len(LARGE), 1),
        (10**9, None),
        (7, 0),
    ],
)
def test_any_part_is_what_a_slice_is(files: MinimalFiles, tmp_path: Path, offset: int, length: int | None) -> None:
    (tmp_path / "f").write_bytes(LARGE)
    expected = LARGE[offset:] if length is None else LARGE[offset : offset + length]
    with files.open(str(tmp_path / "f"), offset=offset, length=length) as reading:
        assert b"".join(reading.pieces()) == expected
        assert (reading.size, reading.expected) == (len(LARGE), len(expected))


def test_files_of_proc_are_read_to_their_end(files: MinimalFiles) -> None:
    assert b"Name:" in read(files, "/proc/self/status")


def test_mode_and_owner_of_a_file_that_is_replaced_stay(files: MinimalFiles, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(0o640)
    if os.geteuid() == 0:
        os.chown(tmp_path / "f", 1234, 4321)
    files.write(str(tmp_path / "f"), from_data(b"new"))
    status = (tmp_path / "f").stat()
    assert status.st_mode & 0o7777 == 0o640
    assert os.geteuid() != 0 or (status.st_uid, status.st_gid) == (1234, 4321)


def test_a_mode_that_is_asked_for_is_set(files: MinimalFiles, tmp_path: Path) -> None:
    files.write(str(tmp_path / "f"), from_data(b"#!"), mode=0o751)
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o751
    with files.open(str(tmp_path / "f")) as reading:
        assert reading.mode == 0o751


def test_a_new_file_has_the_mode_that_files_have_there(files: MinimalFiles, tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    files.write(str(tmp_path / "f"), from_data(b"new"))
    assert (tmp_path / "f").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_on_its_way_is_for_nobody_else(files: MinimalFiles, tmp_path: Path) -> None:
    modes: list[int] = []

    def watching() -> Iterator[bytes]:
        yield LARGE
        temporary = [*tmp_path.glob(".vmnest-*"), *Path(minimal.FOLDER).glob(".vmnest-*.part")]
        modes.extend(path.stat().st_mode & 0o777 for path in temporary)

    files.write(str(tmp_path / "f"), from_data(watching()))
    assert len(modes) >= 2
    assert set(modes) == {0o600}


def test_a_link_stays_and_what_it_leads_to_is_written(files: MinimalFiles, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    os.symlink("sub/target", tmp_path / "link")
    files.write(str(tmp_path / "link"), from_data(b"x"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "sub" / "target").read_bytes() == b"x"


def test_what_is_no_regular_file_is_neither_read_nor_written(files: MinimalFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(errors.NotAFileError):
            files.open(str(path))
        with pytest.raises(errors.NotAFileError):
            files.write(str(path), from_data(b"x"))
    with pytest.raises(errors.NotAFileError):
        files.write(f"{tmp_path}/new/", from_data(b"x"))


def test_what_cannot_be_has_its_own_errors(files: MinimalFiles, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.RemoteFileNotFoundError):
        files.open(str(tmp_path / "absent"))
    for below in ("file/x", "file/x/y"):
        with pytest.raises(errors.RemoteNotADirectoryError):
            files.write(str(tmp_path / below), from_data(b"x"))


def test_a_file_that_changes_while_it_is_read_is_an_error(files: MinimalFiles, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(LARGE)
    with files.open(str(path)) as reading:
        pieces = reading.pieces()
        next(pieces)
        path.write_bytes(LARGE[:100])
        with pytest.raises(errors.FileChangedError):
            list(pieces)


def test_data_that_break_off_leave_the_old_file(files: MinimalFiles, tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield LARGE
        raise ZeroDivisionError

    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        files.write(str(tmp_path / "f"), from_data(failing()))
    assert (tmp_path / "f").read_bytes() == b"old"


@pytest.mark.parametrize("after", [100, 30_000, 5_000_000])
def test_a_write_goes_on_after_a_cut(shared_agent: Agent, tmp_path: Path, after: int) -> None:
    with (
        base_contract(shared_agent.port) as url,
        Cutter(int(url.rpartition(":")[2])) as cutter,
        open_client(cutter.url) as client,
    ):
        cutter.cut_requests(after)
        assert MinimalFiles(client).write(str(tmp_path / "f"), from_data(LARGE)) == len(LARGE)
        assert cutter.count == 1
    assert (tmp_path / "f").read_bytes() == LARGE


@pytest.mark.parametrize("after", [10, 400, 5_000_000])
def test_a_read_goes_on_after_a_cut(shared_agent: Agent, tmp_path: Path, after: int) -> None:
    (tmp_path / "f").write_bytes(LARGE)
    with (
        base_contract(shared_agent.port) as url,
        Cutter(int(url.rpartition(":")[2])) as cutter,
        open_client(cutter.url) as client,
    ):
        cutter.cut_answers(after)
        assert read(MinimalFiles(client), tmp_path / "f") == LARGE
        assert cutter.count == 1


def test_a_file_where_the_parts_lie_meanwhile_is_a_file_like_any_other(files: MinimalFiles) -> None:
    path = f"{minimal.FOLDER}/vmnest-test-{os.getpid()}"
    try:
        files.write(path, from_data(LARGE))
        assert read(files, path) == LARGE
    finally:
        os.unlink(path)


# -- without tools -----------------------------------------------------------------------------------------------------


def test_without_a_shell_whole_files_still_move(tmp_path: Path) -> None:
    with bare_client(tmp_path, tools=[]) as client:
        files = MinimalFiles(client)
        path = tmp_path / "new" / "f"
        assert files.write(str(path), from_data(LARGE)) == len(LARGE)
        assert path.read_bytes() == LARGE
        assert read(files, path, offset=5, length=10) == LARGE[5:15]
        with pytest.raises(errors.RemoteFileNotFoundError):
            files.open(str(tmp_path / "absent"))


def test_without_a_shell_a_mode_cannot_be_set(tmp_path: Path) -> None:
    with bare_client(tmp_path, tools=[]) as client, pytest.raises(errors.UnsupportedError, match="'files'"):
        MinimalFiles(client).write(str(tmp_path / "f"), from_data(b"x"), mode=0o600)


def test_without_a_shell_more_than_a_request_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimal, "WHOLE_BYTES", 1000)
    with bare_client(tmp_path, tools=[]) as client, pytest.raises(errors.RequestTooLargeError, match="1000 bytes"):
        MinimalFiles(client).write(str(tmp_path / "f"), from_data(bytes(1001)))
    assert not (tmp_path / "f").exists()


def test_without_tar_a_tree_names_the_feature(tmp_path: Path) -> None:
    with bare_client(tmp_path, tools=FOR_FILES) as client:
        files = MinimalFiles(client)
        for call in (
            lambda: files.read_tree(str(tmp_path), list),
            lambda: files.write_tree(
                str(tmp_path / "new"), Source(lambda: trees.pack(os.fsencode(tmp_path / "tools")))
            ),
        ):
            with pytest.raises(errors.UnsupportedError, match=r"'tree'.* tar "):
                call()
    assert not (tmp_path / "new").exists()


def test_the_tools_that_files_need_are_these(tmp_path: Path) -> None:
    with bare_client(tmp_path, tools=FOR_FILES) as client:
        files = MinimalFiles(client)
        path, other = str(tmp_path / "d" / "f"), str(tmp_path / "d" / "g")
        files.write(path, from_data(LARGE), mode=0o600)
        files.copy(path, other)
        files.rename(other, path)
        files.chmod(path, 0o644)
        assert files.stat(path, sha256=True).size == len(LARGE)
        assert [entry.name for entry in files.list(str(tmp_path / "d"))] == ["f"]
        files.remove(str(tmp_path / "d"), recursive=True)
        assert not files.exists(path)


# -- trees -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "sub" / ("n" * 200)).mkdir(parents=True)
    (top / "sub" / ("n" * 200) / "f.o").write_bytes(b"x" * 1000)
    (top / "sub" / "é\n").write_bytes(LARGE)
    Path(os.fsdecode(os.fsencode(top) + b"/\xff")).write_bytes(b"1")
    (top / "empty").mkdir()
    (top / "run").write_bytes(b"#!")
    (top / "run").chmod(0o755)
    os.symlink("sub", top / "link")
    os.symlink("nowhere", top / "dangling")
    os.link(top / "run", top / "same")
    os.mkfifo(top / "fifo")
    return top


def snapshot(top: Path) -> dict[str, tuple[object, ...]]:
    """Everything that a tree keeps."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        content: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(top))] = (status.st_mode, int(status.st_mtime), content)
    return found


def unpack(folder: Path) -> Callable[[Iterator[bytes]], trees.Summary]:
    return lambda pieces: trees.unpack(pieces, os.fsencode(folder))


def test_a_tree_goes_in_and_comes_back_as_it_was(files: MinimalFiles, tree: Path, tmp_path: Path) -> None:
    told = files.write_tree(str(tmp_path / "in"), Source(lambda: trees.pack(os.fsencode(tree))))
    assert told == Transfer(4, 4, 3, len(LARGE) + 1003, (Skipped("fifo", "a named pipe"),))
    summary = files.read_tree(str(tmp_path / "in"), unpack(tmp_path / "out"))
    assert (summary.files, summary.links, summary.skipped) == (4, 3, [])
    (tree / "fifo").unlink()
    assert snapshot(tmp_path / "in") == snapshot(tree)
    assert snapshot(tmp_path / "out") == snapshot(tree)


def test_what_is_excluded_does_not_come(files: MinimalFiles, tree: Path, tmp_path: Path) -> None:
    summary = files.read_tree(str(tree), unpack(tmp_path / "out"), exclude=["*.o", "/empty", "é*"])
    assert summary.skipped == [(b"fifo", "a named pipe")]
    names = {path.name for path in (tmp_path / "out").rglob("*")}
    assert not names & {"f.o", "empty", "é\n"}
    assert "n" * 200 in names


def test_a_tree_that_is_none_has_its_own_error(files: MinimalFiles, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.RemoteFileNotFoundError):
        files.read_tree(str(tmp_path / "absent"), list)
    with pytest.raises(errors.RemoteNotADirectoryError):
        files.read_tree(str(tmp_path / "file"), list)


def test_what_tar_complains_about_is_told_with_its_file() -> None:
    said = (
        "tar: ./closed: Cannot open: Permission denied\n"
        "tar: ./log: file changed as we read it\n"
        "tar: can't open './other': Permission denied\n"
        "tar: Exiting with failure status due to previous errors\n"
    )
    assert minimal.complaints(said) == [
        Skipped("closed", "Cannot open: Permission denied"),
        Skipped("log", "file changed as we read it"),
        Skipped("other", "Permission denied"),
    ]


def test_a_complaint_of_any_kind_is_taken_apart_at_once() -> None:
    assert minimal.complaints("tar: './" * 8000) == []
    assert minimal.complaints("tar: './a'" * 8000) == []
    assert len(minimal.complaints("tar: ./" * 8000)) == 1


# -- the file system ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["base contract", "routes"])
def either(request: pytest.FixtureRequest, base_client: AgentClient, agent_client: AgentClient) -> object:
    """Whatever does it: the outcome is the same."""
    return MinimalFiles(base_client) if request.param == "base contract" else RemoteFiles(agent_client)


Either = MinimalFiles | RemoteFiles


def test_directories_are_made(either: Either, tmp_path: Path) -> None:
    either.mkdir(f"{tmp_path}/a/b/c/")
    either.mkdir(f"{tmp_path}/a/b")
    either.mkdir(f"{tmp_path}/private", parents=False, mode=0o700)
    assert (tmp_path / "private").stat().st_mode & 0o7777 == 0o700
    with pytest.raises(errors.RemoteFileExistsError):
        either.mkdir(f"{tmp_path}/a/b", exist_ok=False)
    with pytest.raises(errors.RemoteFileNotFoundError):
        either.mkdir(f"{tmp_path}/x/y", parents=False)
    (tmp_path / "file").touch()
    with pytest.raises(errors.RemoteFileExistsError):
        either.mkdir(f"{tmp_path}/file")


def test_things_are_removed(either: Either, tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "file").touch()
    os.symlink("d", tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.DirectoryNotEmptyError):
        either.remove(f"{tmp_path}/d")
    for name in ("link", "file", "fifo", "d/e"):
        either.remove(f"{tmp_path}/{name}")
    assert (tmp_path / "d").is_dir()
    (tmp_path / "d" / "-rf").touch()
    either.remove(f"{tmp_path}/d", recursive=True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.RemoteFileNotFoundError):
        either.remove(f"{tmp_path}/d", recursive=True)
    either.remove(f"{tmp_path}/d", missing_ok=True)


def test_things_are_copied(either: Either, tmp_path: Path) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "run").write_bytes(b"#!")
    (tmp_path / "d" / "run").chmod(0o755)
    os.symlink("run", tmp_path / "d" / "link")
    either.copy(f"{tmp_path}/d/run", f"{tmp_path}/new/run")
    assert (tmp_path / "new" / "run").stat().st_mode & 0o777 == 0o755
    either.copy(f"{tmp_path}/d", f"{tmp_path}/new", recursive=True)
    assert os.readlink(tmp_path / "new" / "link") == "run"
    assert (tmp_path / "new" / "sub").is_dir()
    with pytest.raises(errors.NotAFileError):
        either.copy(f"{tmp_path}/d", f"{tmp_path}/other")
    with pytest.raises(errors.RemoteFileExistsError):
        either.copy(f"{tmp_path}/d/run", f"{tmp_path}/new/run", overwrite=False)
    with pytest.raises(errors.RemoteFileNotFoundError):
        either.copy(f"{tmp_path}/absent", f"{tmp_path}/other")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.NotAFileError):
        either.copy(f"{tmp_path}/fifo", f"{tmp_path}/other")
    with pytest.raises(errors.NotAFileError):
        either.copy(f"{tmp_path}/d/run", f"{tmp_path}/new")


def test_things_are_renamed(either: Either, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "full" / "x").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.RemoteFileExistsError):
        either.rename(f"{tmp_path}/a", f"{tmp_path}/b", overwrite=False)
    either.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert (tmp_path / "b").read_bytes() == b"a"
    with pytest.raises(errors.RemoteFileNotFoundError):
        either.rename(f"{tmp_path}/a", f"{tmp_path}/c")
    with pytest.raises(errors.NotAFileError):
        either.rename(f"{tmp_path}/b", f"{tmp_path}/empty")
    with pytest.raises(errors.DirectoryNotEmptyError):
        either.rename(f"{tmp_path}/empty", f"{tmp_path}/full")
    with pytest.raises(errors.RemoteNotADirectoryError):
        either.rename(f"{tmp_path}/empty", f"{tmp_path}/b")
    either.rename(f"{tmp_path}/full", f"{tmp_path}/empty")
    assert (tmp_path / "empty" / "x").is_dir()
    os.symlink("empty", tmp_path / "link")
    either.rename(f"{tmp_path}/b", f"{tmp_path}/link")
    assert (tmp_path / "link").read_bytes() == b"a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "link"]


@pytest.mark.parametrize("path", ["/", "//", ".", "..", "/tmp/..", "/tmp/./", "x/.."])
def test_what_is_no_name_in_a_directory_is_neither_removed_nor_renamed(either: Either, path: str) -> None:
    with pytest.raises(errors.AgentError):
        either.remove(path, recursive=True)
    with pytest.raises(errors.AgentError):
        either.rename(path, "/tmp/other")
    assert os.path.isdir("/tmp")


def test_a_slash_behind_a_link_does_not_stand_for_what_it_leads_to(either: Either, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").touch()
    os.symlink("d", tmp_path / "link")
    either.rename(f"{tmp_path}/link/", f"{tmp_path}/other/")
    either.remove(f"{tmp_path}/other//", recursive=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["d", "f"]
    either.mkdir(f"{tmp_path}/x//")


@pytest.mark.parametrize("destination", ["d", "d/", "d/sub", "./d/sub/../other"])
def test_a_directory_is_not_copied_into_itself(either: Either, tmp_path: Path, destination: str) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    with pytest.raises(errors.BadArgumentError):
        either.copy(f"{tmp_path}/d", f"{tmp_path}/{destination}", recursive=True)


def test_permissions_are_set(either: Either, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").touch()
    either.chmod(f"{tmp_path}/d", 0o700)
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o700
    either.chmod(f"{tmp_path}/d", 0o750, recursive=True)
    assert {path.stat().st_mode & 0o7777 for path in (tmp_path / "d", tmp_path / "d" / "f")} == {0o750}
    with pytest.raises(errors.RemoteFileNotFoundError):
        either.chmod(f"{tmp_path}/absent", 0o644)


def test_what_is_there_is_known(either: Either, tmp_path: Path) -> None:
    os.symlink("nowhere", tmp_path / "link")
    assert either.exists(f"{tmp_path}/link")
    assert either.exists(str(tmp_path))
    assert not either.exists(f"{tmp_path}/nowhere")
    assert not either.exists(f"{tmp_path}/link/x")
    assert [entry.name for entry in either.scan(str(tmp_path))] == ["link"]
