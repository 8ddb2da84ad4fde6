"""Files and trees between this machine and a sandbox, against the real agent."""

from __future__ import annotations

import io
import os
import random
import socket
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.cutting import Cutter, open_client
from tests.support.scripted import Answer, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.agent.entries import Skipped, Transfer
from vmnest.sandbox.files import Files
from vmnest.sandbox.localfiles import Place
from vmnest.sandbox.transfer import Progress

DATA = random.Random(5).randbytes(1_000_000)
HEALTHY = json_answer(200, {"status": "ok", "version": "1", "features": ["files", "tree", "fs"]})


def files_of(client: AgentClient) -> Files:
    return Files(lambda _deadline: client)


@pytest.fixture
def files(agent_client: AgentClient) -> Files:
    return files_of(agent_client)


@pytest.fixture
def cut_files(cut_client: AgentClient) -> Files:
    return files_of(cut_client)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder of the sandbox, which is this machine's as well."""
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


class Watch:
    """What a transfer told of its progress."""

    def __init__(self) -> None:
        self.seen: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        self.seen.append(progress)

    def check(self, *, total: int | None, moved: int) -> None:
        counts = [progress.bytes for progress in self.seen]
        assert counts == sorted(counts)
        assert {progress.total for progress in self.seen} == {total}
        assert counts[-1] == moved


# -- one file ----------------------------------------------------------------------------------------------------------


def test_a_file_goes_to_exactly_that_path_with_its_mode(files: Files, here: Path, there: Path) -> None:
    (here / "run").write_bytes(DATA)
    (here / "run").chmod(0o751)
    watch = Watch()
    told = files.upload(here / "run", f"{there}/new/name", progress=watch)
    assert told == Transfer(files=1, bytes=len(DATA))
    assert (there / "new" / "name").read_bytes() == DATA
    assert (there / "new" / "name").stat().st_mode & 0o7777 == 0o751
    watch.check(total=len(DATA), moved=len(DATA))


def test_a_file_comes_to_exactly_that_path_with_its_mode(files: Files, here: Path, there: Path) -> None:
    (there / "run").write_bytes(DATA)
    (there / "run").chmod(0o755)
    watch = Watch()
    told = files.download(f"{there}/run", here / "new" / "name", progress=watch)
    assert told == Transfer(files=1, bytes=len(DATA))
    assert (here / "new" / "name").read_bytes() == DATA
    assert (here / "new" / "name").stat().st_mode & 0o100
    watch.check(total=len(DATA), moved=len(DATA))


@pytest.mark.parametrize("form", [str, bytes, Path], ids=["text", "bytes", "path"])
def test_local_paths_have_any_form(files: Files, here: Path, there: Path, form: type) -> None:
    local: Any = os.fsencode(here / "f") if form is bytes else form(here / "f")
    files.write(f"{there}/f", b"abc")
    files.download(f"{there}/f", local)
    files.upload(local, f"{there}/g")
    assert (there / "g").read_bytes() == b"abc"


def test_an_empty_file_goes_both_ways(files: Files, here: Path, there: Path) -> None:
    (here / "f").touch()
    assert files.upload(here / "f", f"{there}/f").bytes == 0
    assert files.download(f"{there}/f", here / "g").bytes == 0
    assert (here / "g").read_bytes() == b""


def test_a_file_that_grows_on_its_way_is_sent_as_it_was_and_told(files: Files, here: Path, there: Path) -> None:
    (here / "log").write_bytes(DATA)

    def append(progress: Progress) -> None:
        with open(here / "log", "ab") as log:
            log.write(b"more\n")

    told = files.upload(here / "log", f"{there}/log", progress=append)
    assert told.skipped == (Skipped(str(here / "log"), "changed while it was read"),)
    assert (there / "log").read_bytes() == DATA


def test_a_file_that_shrinks_on_its_way_leaves_the_old_one(files: Files, here: Path, there: Path) -> None:
    (here / "f").write_bytes(DATA)
    (there / "f").write_bytes(b"old")
    with pytest.raises(errors.LocalFileError, match=r"here/f "):
        files.upload(here / "f", f"{there}/f", progress=lambda _: os.truncate(here / "f", 10))
    assert (there / "f").read_bytes() == b"old"


@pytest.mark.parametrize("after", [0, 100, 500_000])
def test_an_upload_is_repeated_after_a_cut(
    cut_files: Files, cutter: Cutter, here: Path, there: Path, after: int
) -> None:
    (here / "f").write_bytes(DATA)
    cut_files.exists("x")
    cutter.cut_requests(after, after)
    assert cut_files.upload(here / "f", f"{there}/f").bytes == len(DATA)
    assert (there / "f").read_bytes() == DATA
    assert cutter.count == 2


@pytest.mark.parametrize("after", [0, 100, 600_000])
def test_a_download_goes_on_after_a_cut(cut_files: Files, cutter: Cutter, here: Path, there: Path, after: int) -> None:
    (there / "f").write_bytes(DATA)
    cut_files.exists("x")
    cutter.cut_answers(after, 200_000)
    assert cut_files.download(f"{there}/f", here / "f").bytes == len(DATA)
    assert (here / "f").read_bytes() == DATA
    assert os.listdir(here) == ["f"]


def part(status: bytes, headers: bytes, body: bytes, *, length: int, cut: bool) -> Answer:
    head = b'HTTP/1.1 %b\r\nContent-Length: %d\r\nETag: "1"\r\n%b\r\n' % (status, length, headers)
    return Answer([head + body], cut=cut)


def test_what_came_in_parts_is_compared_with_what_is_there(here: Path) -> None:
    stat = json_answer(200, {"name": "f", "path": "f", "type": "file", "sha256": "0" * 64})
    steps = (
        HEALTHY,
        part(b"200 OK", b"", b"ab", length=4, cut=True),
        part(b"206 Partial", b"Content-Range: bytes 2-3/4\r\n", b"XX", length=2, cut=False),
        stat,
    )
    (here / "f").write_bytes(b"old")
    with (
        ScriptedServer(*steps) as server,
        open_client(server.url) as client,
        pytest.raises(errors.ChecksumMismatchError),
    ):
        files_of(client).download("f", here / "f")
    assert (here / "f").read_bytes() == b"old"
    assert os.listdir(here) == ["f"]


def test_a_missing_file_changes_nothing_here(files: Files, here: Path, there: Path) -> None:
    (here / "f").write_bytes(b"old")
    with pytest.raises(errors.RemoteFileNotFoundError):
        files.download(f"{there}/absent", here / "f")
    with pytest.raises(errors.RemoteFileNotFoundError):
        files.download(f"{there}/absent", here / "new" / "f")
    assert (here / "f").read_bytes() == b"old"
    assert os.listdir(here) == ["f"]


def test_nothing_but_files_and_directories_is_moved(files: Files, here: Path, there: Path) -> None:
    for folder in (here, there):
        os.mkfifo(folder / "fifo")
    with pytest.raises(errors.LocalFileError):
        files.upload(here / "fifo", f"{there}/f")
    with pytest.raises(errors.LocalFileNotFoundError):
        files.upload(here / "absent", f"{there}/f")
    with pytest.raises(errors.NotAFileError):
        files.download(f"{there}/fifo", here / "f")
    files.write(f"{there}/f", b"x")
    with pytest.raises(errors.LocalFileError, match="directory"):
        files.download(f"{there}/f", here)
    assert os.listdir(here) == ["fifo"]


def test_a_file_does_not_go_into_a_directory_by_itself(files: Files, here: Path, there: Path) -> None:
    (here / "f").write_bytes(b"x")
    with pytest.raises(errors.NotAFileError) as caught:
        files.upload(here / "f", str(there))
    assert "exactly the path" in (caught.value.hint or "")
    assert os.listdir(there) == []


# -- trees -------------------------------------------------------------------------------------------------------------


def make_tree(top: Path) -> None:
    (top / "sub" / ("n" * 250)).mkdir(parents=True)
    (top / "sub" / ("n" * 250) / "deep").write_bytes(DATA)
    (top / "sub" / "new\nline é").write_bytes(b"1")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff\xfe")).write_bytes(b"22")
    (top / "empty").mkdir(mode=0o750)
    (top / ".hidden").write_bytes(b"333")
    (top / "run").write_bytes(b"#!")
    (top / "run").chmod(0o755)
    os.link(top / "run", top / "same")
    os.symlink("sub", top / "link")
    os.symlink("nowhere" * 30, top / "dangling")
    os.utime(top / "run", ns=(10**9, 1_234_567_890_123_456_789))


def snapshot(top: Path, *, was_cut: bool = False) -> dict[bytes, tuple[object, ...]]:
    """All that a tree keeps; after a cut, directories that are there already keep their times."""
    found: dict[bytes, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(os.fsencode(top)):
        for name in folders + names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if os.path.islink(path):
                content: object = os.readlink(path)
            else:
                content = Path(os.fsdecode(path)).read_bytes() if os.path.isfile(path) else None
            found[os.path.relpath(path, os.fsencode(top))] = (
                status.st_mode,
                0 if was_cut and content is None else status.st_mtime_ns,
                status.st_nlink if os.path.isfile(path) else 0,
                content,
            )
    return found


def await_no_temporaries(top: Path) -> None:
    """Wait until the agent has found out that a request was cut, and has removed what it had begun to write."""
    end = time.monotonic() + 30
    while any(name.startswith(".agentd-") for _, _, names in os.walk(top) for name in names):
        assert time.monotonic() < end
        time.sleep(0.01)


TREE = Transfer(files=5, directories=4, links=3, bytes=len(DATA) + 8)


def test_a_tree_goes_in_and_comes_back_as_it_was(files: Files, here: Path, there: Path) -> None:
    make_tree(here / "tree")
    watch = Watch()
    assert files.upload(here / "tree", f"{there}/new/copy", progress=watch) == TREE
    watch.check(total=TREE.bytes, moved=TREE.bytes)
    assert snapshot(there / "new" / "copy") == snapshot(here / "tree")
    watch = Watch()
    assert files.download(f"{there}/new/copy", here / "new" / "back", progress=watch) == TREE
    watch.check(total=None, moved=TREE.bytes)
    assert snapshot(here / "new" / "back") == snapshot(here / "tree")


def test_what_else_is_in_a_directory_stays(files: Files, here: Path, there: Path) -> None:
    make_tree(here / "tree")
    for folder in (there / "copy", here / "back"):
        folder.mkdir()
        (folder / "else").write_bytes(b"else")
        (folder / "run").write_bytes(b"old")
    files.upload(here / "tree", f"{there}/copy")
    files.download(f"{there}/copy", here / "back")
    assert (here / "back" / "else").read_bytes() == b"else"
    assert (here / "back" / "run").read_bytes() == b"#!"


@pytest.mark.parametrize("keep_partial", [True, False])
def test_what_came_of_a_tree_that_is_given_up_stays_or_goes(
    files: Files, here: Path, there: Path, keep_partial: bool
) -> None:
    (there / "tree").mkdir()
    for name in ("a", "b", "c"):
        (there / "tree" / name).write_bytes(DATA)

    def give_up(progress: Progress) -> None:
        if progress.bytes > len(DATA):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        files.download(f"{there}/tree", here / "back", progress=give_up, keep_partial=keep_partial)
    assert (here / "back" / "a").exists() is keep_partial
    assert (here / "back").exists() is keep_partial


@pytest.mark.parametrize(
    ("exclude", "gone"),
    [
        (["*.o"], {"a.o", "sub/b.o", "sub/build/c.o"}),
        (["build"], {"sub/build", "sub/build/c.o"}),
        (["/a.o", "sub/**/c.o"], {"a.o", "sub/build/c.o"}),
        (["sub/"], {"sub", "sub/b.o", "sub/build", "sub/build/c.o"}),
    ],
    ids=["names", "directories by name", "paths", "directories alone"],
)
def test_what_is_excluded_is_left_out_either_way(
    files: Files, here: Path, there: Path, exclude: list[str], gone: set[str]
) -> None:
    (here / "tree" / "sub" / "build").mkdir(parents=True)
    for name in ("a.o", "keep", "sub/b.o", "sub/build/c.o"):
        (here / "tree" / name).write_bytes(b"x")
    everything = {str(path.relative_to(here / "tree")) for path in (here / "tree").rglob("*")}
    files.upload(here / "tree", f"{there}/copy", exclude=exclude)
    assert {str(path.relative_to(there / "copy")) for path in (there / "copy").rglob("*")} == everything - gone
    files.download(str(here / "tree"), here / "back", exclude=exclude)
    assert {str(path.relative_to(here / "back")) for path in (here / "back").rglob("*")} == everything - gone


@pytest.mark.parametrize("wrong", ["*.o", [""], [3], b"x", ["x" * 5000], ["\ud800"]], ids=lambda each: ascii(each)[:20])
def test_patterns_that_cannot_be_meant_are_refused(files: Files, here: Path, there: Path, wrong: Any) -> None:
    for call in (files.upload, files.download):
        with pytest.raises(errors.UsageError, match="exclude"):
            call(str(here), str(there), exclude=wrong)


def test_what_cannot_be_moved_is_left_out_and_told(files: Files, here: Path, there: Path) -> None:
    (here / "tree").mkdir()
    os.mkfifo(here / "tree" / "fifo")
    os.symlink("../..", here / "tree" / "out")
    (here / "tree" / "f").touch()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(here / "tree" / "socket"))
        told = files.upload(here / "tree", f"{there}/copy")
        back = files.download(str(here / "tree"), here / "back")
    assert sorted(each.path for each in told.skipped) == ["fifo", "out", "socket"]
    assert told.skipped == back.skipped
    assert os.listdir(here / "back") == ["f"]


def test_a_file_that_changes_in_a_tree_is_told(files: Files, here: Path, there: Path) -> None:
    (here / "tree").mkdir()
    (here / "tree" / "log").write_bytes(DATA)

    def append(progress: Progress) -> None:
        with open(here / "tree" / "log", "ab") as log:
            log.write(b"more\n")

    told = files.upload(here / "tree", f"{there}/copy", progress=append)
    assert told.skipped == (Skipped("log", "changed while it was read"),)


@pytest.mark.parametrize("after", [0, 100, 700_000])
def test_a_tree_is_sent_again_after_a_cut(
    cut_files: Files, cutter: Cutter, here: Path, there: Path, after: int
) -> None:
    make_tree(here / "tree")
    cut_files.exists("x")
    cutter.cut_requests(after)
    assert cut_files.upload(here / "tree", f"{there}/copy") == TREE
    await_no_temporaries(there)
    assert snapshot(there / "copy", was_cut=True) == snapshot(here / "tree", was_cut=True)


@pytest.mark.parametrize("after", [0, 100, 700_000])
def test_a_tree_is_fetched_again_after_a_cut(
    cut_files: Files, cutter: Cutter, here: Path, there: Path, after: int
) -> None:
    make_tree(there / "tree")
    cut_files.exists("x")
    cutter.cut_answers(after)
    assert cut_files.download(f"{there}/tree", here / "copy") == TREE
    assert snapshot(here / "copy", was_cut=True) == snapshot(there / "tree", was_cut=True)


def hostile(*members: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    info.size = 1 if kind == tarfile.REGTYPE else 0
    return info


def download_archive(archive: bytes, target: Path) -> Transfer:
    not_a_file = json_answer(400, {"detail": "x", "code": "not_a_file"})
    folder = json_answer(200, {"name": "t", "path": "t", "type": "directory"})
    steps = (HEALTHY, not_a_file, folder, answer(200, archive, kind="application/x-tar"))
    with ScriptedServer(*steps) as server, open_client(server.url) as client:
        return files_of(client).download("t", target)


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out"])
def test_a_hostile_archive_is_refused(here: Path, name: str) -> None:
    with pytest.raises(errors.UnsafePathError):
        download_archive(hostile(member(name)), here / "t")
    assert not (here / "out").exists()


def test_links_of_a_hostile_archive_lead_nowhere(here: Path) -> None:
    (here / "secret").write_bytes(b"secret")
    archive = hostile(
        member("up", tarfile.SYMTYPE, "../.."),
        member("up/out"),
        member("abs", tarfile.SYMTYPE, "/etc"),
        member("hard", tarfile.LNKTYPE, "sub"),
        member("device", tarfile.CHRTYPE),
    )
    told = download_archive(archive, here / "t")
    assert {each.path for each in told.skipped} >= {"up", "abs", "hard", "device"}
    assert not (here.parent / "out").exists()
    assert (here / "secret").read_bytes() == b"secret"


def test_an_archive_that_is_none_is_the_agents_fault(here: Path) -> None:
    with pytest.raises(errors.AgentAnswerError):
        download_archive(b"x" * 5000, here / "t")


def test_a_directory_cannot_come_to_where_a_file_is(files: Files, here: Path, there: Path) -> None:
    (here / "f").touch()
    (there / "tree").mkdir()
    (there / "f").touch()
    with pytest.raises(errors.LocalFileError):
        files.download(f"{there}/tree", here / "f")
    with pytest.raises(errors.RemoteFileError):
        files.upload(there / "tree", f"{there}/f")


def test_the_links_of_a_loop_are_links(files: Files, here: Path, there: Path) -> None:
    (here / "tree").mkdir()
    os.symlink(".", here / "tree" / "loop")
    assert files.upload(here / "tree", f"{there}/copy") == Transfer(directories=1, links=1)
    assert os.readlink(there / "copy" / "loop") == "."


# -- from one sandbox to another ---------------------------------------------------------------------------------------


@pytest.fixture
def other(start_agent: Callable[..., Agent]) -> Iterator[Files]:
    with open_client(start_agent().url) as client:
        yield files_of(client)


def test_a_tree_goes_from_one_sandbox_to_another(files: Files, other: Files, there: Path) -> None:
    make_tree(there / "tree")
    watch = Watch()
    assert files.send_tree(f"{there}/tree", other, f"{there}/copy", progress=watch) == TREE
    assert snapshot(there / "copy") == snapshot(there / "tree")
    assert watch.seen[-1].bytes > TREE.bytes


@pytest.mark.parametrize("after", [100, 700_000])
def test_a_tree_between_sandboxes_begins_again_after_a_cut(
    cut_files: Files, cutter: Cutter, other: Files, there: Path, after: int
) -> None:
    make_tree(there / "tree")
    cut_files.exists("x")
    cutter.cut_answers(after)
    assert cut_files.send_tree(f"{there}/tree", other, f"{there}/copy") == TREE
    assert snapshot(there / "copy", was_cut=True) == snapshot(there / "tree", was_cut=True)


def test_a_small_tree_that_broke_off_on_its_way_is_not_taken_for_a_whole_one(
    cut_files: Files, cutter: Cutter, other: Files, there: Path
) -> None:
    (there / "tree").mkdir()
    (there / "tree" / "f").write_bytes(b"x" * 300_000)
    cut_files.exists("x")
    cutter.cut_answers(200_000)
    assert cut_files.send_tree(f"{there}/tree", other, f"{there}/copy").files == 1
    assert (there / "copy" / "f").read_bytes() == b"x" * 300_000


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (b"no archive at all".ljust(2048, b"."), errors.AgentAnswerError),
        (b"", errors.AgentAnswerError),
        (tarfile.TarInfo("../x").tobuf() + bytes(1024), errors.UnsafePathError),
    ],
    ids=["nonsense", "nothing", "names that lead out"],
)
def test_what_no_tree_should_be_is_the_fault_of_the_sandbox_that_sent_it(
    base_client: AgentClient, there: Path, tree: bytes, expected: type[errors.VmnestError]
) -> None:
    with (
        ScriptedServer(HEALTHY, answer(200, tree)) as server,
        open_client(server.url) as client,
        pytest.raises(expected, match="origin: "),
    ):
        files_of(client).send_tree("origin", files_of(base_client), f"{there}/copy")
    assert not any(path.name == "x" for path in there.parent.rglob("*"))


def test_trees_go_both_ways_between_open_directories(files: Files, here: Path, there: Path) -> None:
    (here / "in" / "sub").mkdir(parents=True)
    (here / "in" / "sub" / "f").write_bytes(b"x")
    (here / "link").symlink_to(there)
    folder = os.open(here, os.O_RDONLY)
    try:
        watch = Watch()
        told = files.upload(Place(b"in", folder=folder), f"{there}/tree", progress=watch)
        assert (told.files, told.directories) == (1, 2)
        watch.check(total=None, moved=1)
        assert files.download(f"{there}/tree", Place(b"out", folder=folder)).files == 1
        assert (here / "out" / "sub" / "f").read_bytes() == b"x"
        with pytest.raises(errors.LocalFileError, match="/shown "):
            files.download(f"{there}/tree", Place(b"link", folder=folder, shown=b"/shown"))
    finally:
        os.close(folder)
    assert os.listdir(there) == ["tree"]
