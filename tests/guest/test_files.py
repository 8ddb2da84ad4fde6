"""Whole files: regular ones only, written entire or not at all."""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import files
from guest.agentd.errors import PeerGoneError, RequestError
from tests.support import trees


def read(path: str | Path) -> bytes:
    content = files.open_file(os.fsencode(path))
    try:
        data = b"".join(content.pieces())
        assert len(data) == content.size
        return data
    finally:
        content.close()


def refusal(path: str | Path, *, write: bool = False) -> RequestError:
    def attempt() -> object:
        return files.write_file(os.fsencode(path), [b"x"]) if write else files.open_file(os.fsencode(path))

    with pytest.raises(RequestError) as caught:
        attempt()
    return caught.value


@pytest.fixture(params=["directory", "fifo", "socket", "device"])
def odd_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Something with a name that is no regular file."""
    path = tmp_path / "odd"
    with socket.socket(socket.AF_UNIX) as listener:
        if request.param == "directory":
            path.mkdir()
        elif request.param == "fifo":
            os.mkfifo(path)
        elif request.param == "socket":
            listener.bind(str(path))
        else:
            path = Path("/dev/zero")
        yield path


# -- reading


@pytest.mark.parametrize("size", [0, 1, 4096, 2**20, 2**20 + 1, 3_000_000])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    assert read(tmp_path / "f") == data


@pytest.mark.parametrize("path", ["/proc/self/status", "/proc/cpuinfo"])
def test_a_file_that_does_not_know_its_size_is_read_whole(path: str) -> None:
    assert os.stat(path).st_size == 0
    assert len(read(path)) > 100


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "l").symlink_to("f")
    assert read(tmp_path / "l") == b"x"


def test_what_is_no_regular_file_is_refused_at_once(odd_file: Path) -> None:
    error = refusal(odd_file)
    assert (error.status, error.code) == (400, "not_a_file")
    assert str(odd_file) in error.detail


@pytest.mark.parametrize("make_link", [False, True])
def test_a_missing_file_is_a_404(tmp_path: Path, make_link: bool) -> None:
    if make_link:
        (tmp_path / "f").symlink_to("nowhere")
    error = refusal(tmp_path / "f")
    assert (error.status, error.code) == (404, "file_not_found")


@pytest.mark.parametrize(
    ("name", "code"), [("file/below", "not_a_directory"), ("x" * 300, "file_error"), ("loop", "file_error")]
)
def test_any_other_refusal_of_the_system_is_a_400(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    error = refusal(tmp_path / name)
    assert (error.status, error.code) == (400, code)


def test_a_file_that_grows_is_read_up_to_its_size_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * 2_000_000)
    content = files.open_file(os.fsencode(path))
    with open(path, "ab") as stream:
        stream.write(b"b" * 100)
    assert b"".join(content.pieces()) == b"a" * 2_000_000
    content.close()


def test_a_file_that_shrinks_is_an_error_rather_than_a_short_answer(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * 2_000_000)
    content = files.open_file(os.fsencode(path))
    os.truncate(path, 10)
    with pytest.raises(OSError, match="shorter"):
        list(content.pieces())
    content.close()


def test_refused_files_are_closed(odd_file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        refusal(odd_file)
    assert len(os.listdir("/proc/self/fd")) == before


# -- writing


@given(st.lists(st.binary(max_size=50), max_size=5))
@settings(deadline=None)
def test_what_is_written_is_what_is_read(pieces: list[bytes]) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"vmnest-test-{os.getpid()}"
    try:
        assert files.write_file(os.fsencode(path), pieces).count == sum(map(len, pieces))
        assert path.read_bytes() == b"".join(pieces)
    finally:
        path.unlink(missing_ok=True)


def test_parents_are_made(tmp_path: Path) -> None:
    files.write_file(os.fsencode(tmp_path / "a" / "b" / "c"), [b"x"])
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"


def test_an_existing_file_keeps_its_mode_and_owner(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    if os.getuid() == 0:
        os.chown(path, 12345, 54321)
    path.chmod(0o751)
    before = path.stat()
    files.write_file(os.fsencode(path), [b"new"])
    after = path.stat()
    assert path.read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    files.write_file(os.fsencode(tmp_path / "f"), [b"x"])
    (tmp_path / "g").touch()
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == stat.S_IMODE((tmp_path / "g").stat().st_mode)


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "f").write_text("old")
    (tmp_path / "l").symlink_to("dir/f")
    (tmp_path / "new").symlink_to("dir/g")
    files.write_file(os.fsencode(tmp_path / "l"), [b"1"])
    files.write_file(os.fsencode(tmp_path / "new"), [b"2"])
    assert (tmp_path / "l").is_symlink()
    assert (tmp_path / "dir" / "f").read_text() == "1"
    assert (tmp_path / "dir" / "g").read_text() == "2"


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    first_written, may_go_on = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"new "
        first_written.set()
        assert may_go_on.wait(10)
        yield b"content"

    writer = threading.Thread(target=files.write_file, args=(os.fsencode(path), pieces()))
    writer.start()
    assert first_written.wait(10)
    assert path.read_text() == "old"
    may_go_on.set()
    writer.join()
    assert path.read_text() == "new content"


def test_a_write_that_breaks_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise RequestError(400, "bad_argument", "the other half is missing")

    with pytest.raises(RequestError, match="other half"):
        files.write_file(os.fsencode(path), pieces())
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_no_write_goes_to_what_is_no_regular_file(odd_file: Path) -> None:
    error = refusal(odd_file, write=True)
    assert (error.status, error.code) == (400, "not_a_file")


def test_a_name_that_ends_with_a_slash_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    for name in ("new", "old"):
        assert refusal(f"{tmp_path}/{name}/", write=True).code == "not_a_file"
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("name", "code"),
    [("file/below", "not_a_directory"), ("file/a/b", "not_a_directory"), ("x" * 300, "file_error")],
)
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / "file").touch()
    error = refusal(tmp_path / name, write=True)
    assert (error.status, error.code) == (400, code)


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    files.write_file(os.fsencode(tmp_path / ("x" * 255)), [b"x"])
    assert [len(entry.name) for entry in tmp_path.iterdir()] == [255]


def test_a_file_in_a_folder_that_is_closed_to_us_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_text("a longer old content")
    inode = path.stat().st_ino

    def refuse(target: bytes) -> tuple[int, bytes]:
        raise PermissionError(13, "Permission denied")

    # Tests may run as root, whom no mode stops.
    monkeypatch.setattr(files, "_create_beside", refuse)
    assert files.write_file(os.fsencode(path), [b"new"]).count == 3
    assert path.read_text() == "new"
    assert path.stat().st_ino == inode
    assert refusal(tmp_path / "g", write=True).code == "permission_denied"


# -- what a write may be told


def test_a_mode_and_a_time_are_set(tmp_path: Path) -> None:
    written = files.write_file(os.fsencode(tmp_path / "f"), [b"x"], mode=0o2751, mtime_ns=5)
    status = (tmp_path / "f").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o2751, 5)
    assert (written.count, written.mode) == (1, 0o2751)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_nothing_that_is_there_is_replaced_when_it_must_not(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "f")
    with pytest.raises(RequestError) as caught:
        files.write_file(os.fsencode(tmp_path / "f"), [b"x"], overwrite=False)
    assert (caught.value.status, caught.value.code) == (409, "file_exists")


def test_of_many_writers_that_must_not_replace_one_wins(tmp_path: Path) -> None:
    outcomes: list[str] = []
    ready = threading.Barrier(8)

    def pieces(number: int) -> Iterator[bytes]:
        ready.wait(10)  # all of them have seen that there is no such file
        yield b"%d" % number

    def write(number: int) -> None:
        try:
            files.write_file(os.fsencode(tmp_path / "f"), pieces(number), overwrite=False)
            outcomes.append(str(number))
        except RequestError as error:
            outcomes.append(error.code)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert outcomes.count("file_exists") == 7
    assert (tmp_path / "f").read_text() in outcomes
    assert os.listdir(tmp_path) == ["f"]


def test_what_does_not_pass_its_check_is_never_seen(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")

    def refuse() -> None:
        assert (tmp_path / "f").read_text() == "old"
        raise RequestError(409, "checksum_mismatch", "another content")

    with pytest.raises(RequestError, match="another content"):
        files.write_file(os.fsencode(tmp_path / "f"), [b"new"], check=refuse)
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EPERM])
def test_what_a_rename_cannot_reach_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    # A mount point, or a file of another user in a folder with the sticky bit.
    (tmp_path / "f").write_text("a longer old content")

    def rename(source: bytes, target: bytes) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "rename", rename)
    written = files.write_file(os.fsencode(tmp_path / "f"), iter([b"n", b"ew"]), mode=0o640)
    assert (written.count, written.mode) == (3, 0o640)
    assert (tmp_path / "f").read_text() == "new"
    assert os.listdir(tmp_path) == ["f"]


def test_a_write_in_place_waits_until_its_content_is_whole() -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise PeerGoneError

    with tempfile.TemporaryDirectory() as folder:  # not below a folder that only we may enter
        path = Path(folder, "f")
        path.write_text("old")
        path.chmod(0o666)
        Path(folder).chmod(0o555)
        with trees.without_rights():
            with pytest.raises(PeerGoneError):
                files.write_file(os.fsencode(path), broken())
            assert path.read_text() == "old"
            assert files.write_file(os.fsencode(path), iter([b"n", b"ew"])).count == 3
        assert path.read_text() == "new"
        Path(folder).chmod(0o755)


def test_a_full_disk_has_an_answer_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "f").write_text("old")
    monkeypatch.setattr(os, "write", write)
    error = refusal(tmp_path / "f", write=True)
    monkeypatch.undo()
    assert (error.status, error.code) == (507, "no_space")
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


# -- parts


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_part_is_read(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    content = files.open_file(os.fsencode(tmp_path / "f"))
    try:
        for start, end in ((0, size), (0, 0), (3, 7), (size // 2, size), (size - 1, size)):
            assert b"".join(content.pieces(start, end)) == data[start:end]
        assert b"".join(content.pieces(4)) == data[4:]
    finally:
        content.close()


def test_a_small_file_that_never_stops_growing_is_read_up_to_its_size_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1000)
    true_read = os.read

    def read_on(descriptor: int, count: int) -> bytes:
        with open(tmp_path / "f", "ab") as stream:
            stream.write(b"y" * count)
        return true_read(descriptor, count)

    monkeypatch.setattr(os, "read", read_on)
    assert read(tmp_path / "f") == b"x" * 1000


def test_a_file_that_says_it_is_empty_and_never_ends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").touch()
    monkeypatch.setattr(os, "read", lambda descriptor, count: bytes(count))
    error = refusal(tmp_path / "f")
    assert (error.status, error.code) == (400, "file_error")


def test_a_file_that_would_wait_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_nothing(descriptor: int, count: int) -> bytes:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    (tmp_path / "f").touch()
    monkeypatch.setattr(os, "read", read_nothing)  # as /proc/kmsg does, which tests must not read
    error = refusal(tmp_path / "f")
    assert (error.status, error.code) == (400, "file_error")


# -- names


def test_a_rename_that_must_not_replace_works_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: bytes, target: bytes, *, follow_symlinks: bool) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    (tmp_path / "f").write_text("x")
    (tmp_path / "g").write_text("old")
    monkeypatch.setattr(os, "link", link)
    with pytest.raises(FileExistsError):
        files.rename_exclusively(os.fsencode(tmp_path / "f"), os.fsencode(tmp_path / "g"))
    files.rename_exclusively(os.fsencode(tmp_path / "f"), os.fsencode(tmp_path / "h"))
    assert (tmp_path / "h").read_text() == "x"
    assert sorted(os.listdir(tmp_path)) == ["g", "h"]


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.ENOENT, 404, "file_not_found"),
        (errno.EEXIST, 409, "file_exists"),
        (errno.ENOTDIR, 400, "not_a_directory"),
        (errno.ENOTEMPTY, 409, "directory_not_empty"),
        (errno.EISDIR, 400, "not_a_file"),
        (errno.EACCES, 400, "permission_denied"),
        (errno.EPERM, 400, "permission_denied"),
        (errno.EROFS, 400, "permission_denied"),
        (errno.ENOSPC, 507, "no_space"),
        (errno.EDQUOT, 507, "no_space"),
        (errno.ENAMETOOLONG, 400, "file_error"),
        (errno.EMFILE, 503, "overloaded"),
    ],
)
def test_each_refusal_of_the_system_has_its_answer(number: int, status: int, code: str) -> None:
    with pytest.raises(RequestError) as caught, files.translated(b"/a/\xff\n"):
        raise OSError(number, os.strerror(number))
    assert (caught.value.status, caught.value.code) == (status, code)
    assert number == errno.EMFILE or caught.value.detail.endswith(": /a/\\xff\n")
