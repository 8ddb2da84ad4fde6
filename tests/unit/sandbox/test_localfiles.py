"""Files of this machine: what is read, and what takes their place."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmnest import errors
from vmnest.agent.sources import PIECE_BYTES
from vmnest.sandbox import localfiles
from vmnest.sandbox.localfiles import LocalFile, Place, replacing


def path_of(path: Path) -> bytes:
    return os.fsencode(path)


@pytest.mark.parametrize("path", ["a\udcff", b"a\xff", Path("a"), "-"], ids=repr)
def test_a_path_has_any_form(path: Any) -> None:
    assert localfiles.to_bytes(path) == os.fsencode(path)


@pytest.mark.parametrize("path", ["", "a\0b", b"a\0b", None, 3, "\ud800"], ids=repr)
def test_what_can_be_no_path_is_refused(path: Any) -> None:
    with pytest.raises(errors.UsageError, match="no path"):
        localfiles.to_bytes(path)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_file_is_read_as_often_as_wanted(tmp_path: Path) -> None:
    data = os.urandom(PIECE_BYTES * 2 + 5)
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "f").chmod(0o4751)
    file = LocalFile(path_of(tmp_path / "f"))
    assert (file.size, file.mode) == (len(data), 0o751)
    assert [len(piece) for piece in file.pieces()] == [PIECE_BYTES, PIECE_BYTES, 5]
    assert b"".join(file.pieces()) == data
    assert not file.has_changed


def test_a_file_that_does_not_tell_its_size_is_sent_to_its_end(tmp_path: Path) -> None:
    file = LocalFile(b"/proc/version")
    assert file.size is None
    assert b"".join(file.pieces()) == Path("/proc/version").read_bytes() != b""
    assert not file.has_changed
    (tmp_path / "empty").touch()
    assert LocalFile(path_of(tmp_path / "empty")).size == 0


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    os.symlink("f", tmp_path / "link")
    assert b"".join(LocalFile(path_of(tmp_path / "link")).pieces()) == b"abc"


def test_a_file_that_grows_keeps_the_size_it_had_and_is_noted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * PIECE_BYTES * 2)
    file = LocalFile(path_of(tmp_path / "f"))
    pieces = file.pieces()
    first = next(pieces)
    with open(tmp_path / "f", "ab") as more:
        more.write(b"y" * 100)
    assert len(first) + sum(map(len, pieces)) == PIECE_BYTES * 2
    assert file.has_changed


def test_a_file_that_shrinks_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * PIECE_BYTES * 2)
    pieces = LocalFile(path_of(tmp_path / "f")).pieces()
    next(pieces)
    os.truncate(tmp_path / "f", 10)
    with pytest.raises(errors.LocalFileError, match=r"shorter.*/f "):
        list(pieces)


def test_nothing_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * PIECE_BYTES * 2)
    before = len(os.listdir("/proc/self/fd"))
    pieces = LocalFile(path_of(tmp_path / "f")).pieces()
    next(pieces)
    pieces.close()  # type: ignore[attr-defined] # it is a generator
    assert len(os.listdir("/proc/self/fd")) == before


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
    for path in (tmp_path / "fifo", tmp_path / "socket", Path("/dev/zero"), tmp_path):
        with pytest.raises(errors.LocalFileError, match=r"no regular file|a directory"):
            LocalFile(path_of(path))


def test_what_became_a_fifo_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = LocalFile(path_of(tmp_path / "f"))
    (tmp_path / "f").unlink()
    os.mkfifo(tmp_path / "f")
    with pytest.raises(errors.LocalFileError, match="no regular file"):
        list(file.pieces())


def test_what_is_not_there_has_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(errors.LocalFileNotFoundError, match="absent"):
        LocalFile(path_of(tmp_path / "absent"))
    with pytest.raises(errors.LocalFileNotFoundError):
        localfiles.is_directory(path_of(tmp_path / "absent"))
    (tmp_path / "f").touch()
    with pytest.raises(errors.LocalFileError):
        LocalFile(path_of(tmp_path / "f" / "below"))


def test_a_directory_is_known_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").touch()
    os.symlink("d", tmp_path / "link")
    assert localfiles.is_directory(path_of(tmp_path / "d"))
    assert localfiles.is_directory(path_of(tmp_path / "link"))
    assert not localfiles.is_directory(path_of(tmp_path / "f"))


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    with replacing(path_of(path), mode=mode) as file:
        file.write(data)


def test_a_new_file_has_its_directory_made_and_the_mode_without_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "new" / "f", b"abc", mode=0o777)
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "f").read_bytes() == b"abc"
    assert stat.S_IMODE((tmp_path / "new" / "f").stat().st_mode) == 0o750


def test_nobody_sees_a_file_before_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with replacing(path_of(tmp_path / "f"), mode=0o644) as file:
        file.write(b"new")
        assert (tmp_path / "f").read_bytes() == b"old"
        assert (file.count, file.digest()) == (3, hashlib.sha256(b"new").hexdigest())
    assert (tmp_path / "f").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["f"]


def break_off(file: localfiles.NewFile) -> None:
    file.write(b"new")
    raise ZeroDivisionError


def test_after_an_exception_the_old_file_is_there_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path_of(tmp_path / "f"), mode=0o644) as file:
        break_off(file)
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    os.symlink("sub/f", tmp_path / "link")
    write(tmp_path / "link", b"abc")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "sub" / "f").read_bytes() == b"abc"


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "d").mkdir()
    for path in (tmp_path / "fifo", tmp_path / "d", Path("/dev/null")):
        with pytest.raises(errors.LocalFileError):
            write(path, b"x")
    with pytest.raises(errors.LocalFileError, match="slash"), replacing(path_of(tmp_path) + b"/new/", mode=0o644):
        raise AssertionError("it was opened")
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


def test_what_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(errors.LocalFileError, match="this machine"):
        write(tmp_path / "f" / "below", b"x")


@pytest.mark.parametrize(
    ("filename", "shown"),
    [
        (None, "/d/f"),
        (b"/d/f", "/d/f"),
        (b"/d/.vmnest-0123", "/d/f"),
        (".agentd-0123", "/d/f"),
        (7, "/d/f"),
        (b"below", "/d/f/below"),
        ("/d/f/below", "/d/f/below"),
        (b"/other", "/other"),
    ],
    ids=repr,
)
def test_an_error_names_what_the_caller_knows(filename: Any, shown: str) -> None:
    error = OSError(13, "Permission denied", filename)
    with pytest.raises(errors.LocalFileError) as caught, localfiles.translated(b"/d/f"):
        raise error
    assert caught.value.message == f"Permission denied: {shown} (on this machine)"


def test_an_error_of_the_sandbox_passes_through(tmp_path: Path) -> None:
    with pytest.raises(errors.FileChangedError), replacing(path_of(tmp_path / "f"), mode=0o644):
        raise errors.FileChangedError("x")
    assert os.listdir(tmp_path) == []


# -- measuring ---------------------------------------------------------------------------------------------------------


def test_a_tree_is_measured_without_links_and_what_is_excluded(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "sub" / "b.o").write_bytes(b"x" * 200)
    (tmp_path / "sub" / "deep" / "c").write_bytes(b"x" * 3000)
    os.link(tmp_path / "a", tmp_path / "sub" / "same")
    os.symlink("a", tmp_path / "link")
    os.symlink(".", tmp_path / "loop")
    os.mkfifo(tmp_path / "fifo")
    assert localfiles.measure(path_of(tmp_path)) == 3210
    assert localfiles.measure(path_of(tmp_path), exclude=[b"*.o"]) == 3010
    assert localfiles.measure(path_of(tmp_path), exclude=[b"/sub"]) == 10


def test_what_cannot_be_seen_counts_nothing(tmp_path: Path) -> None:
    assert localfiles.measure(path_of(tmp_path / "absent")) == 0


# -- names in open directories -----------------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    """A directory that is open and was moved away; in its place is a link to another one, which has all names."""
    (tmp_path / "was").mkdir()
    (tmp_path / "outside").mkdir()
    for name in ("f", "new", "link"):
        (tmp_path / "outside" / name).write_bytes(b"secret")
    descriptor = os.open(tmp_path / "was", os.O_RDONLY)
    (tmp_path / "was").rename(tmp_path / "is")
    (tmp_path / "was").symlink_to("outside")
    yield descriptor
    os.close(descriptor)


def test_a_name_in_an_open_directory_leads_nowhere_else(opened: int, tmp_path: Path) -> None:
    folder = tmp_path / "is"
    (folder / "f").write_bytes(b"mine")
    assert b"".join(LocalFile(Place(b"f", folder=opened, shown=b"/was/f")).pieces()) == b"mine"
    with replacing(Place(b"f", folder=opened), mode=0o644) as file:
        file.write(b"next")
    with replacing(Place(b"new", folder=opened), mode=0o600) as file:
        file.write(b"new")
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == {"f": b"next", "new": b"new"}
    assert (folder / "new").stat().st_mode & 0o777 == 0o600
    assert localfiles.is_directory(Place(b".", folder=opened))
    assert {each.read_bytes() for each in (tmp_path / "outside").iterdir()} == {b"secret"}


def test_a_name_in_an_open_directory_is_never_followed(opened: int, tmp_path: Path) -> None:
    (tmp_path / "is" / "link").symlink_to(tmp_path / "outside" / "f")
    (tmp_path / "is" / "folder").symlink_to(tmp_path / "outside")
    place = Place(b"link", folder=opened, shown=b"/was/link")
    with pytest.raises(errors.LocalFileError, match="/was/link on this machine is no regular file"):
        LocalFile(place)
    with pytest.raises(errors.LocalFileError, match="no regular file"), replacing(place, mode=0o644):
        pass
    assert not localfiles.is_directory(Place(b"folder", folder=opened))


def test_a_file_that_is_swapped_for_a_link_is_not_followed(opened: int, tmp_path: Path) -> None:
    (tmp_path / "is" / "f").write_bytes(b"mine")
    file = LocalFile(Place(b"f", folder=opened, shown=b"/was/f"))
    (tmp_path / "is" / "f").unlink()
    (tmp_path / "is" / "f").symlink_to(tmp_path / "outside" / "f")
    with pytest.raises(errors.LocalFileError, match="/was/f "):
        list(file.pieces())


def test_a_link_that_comes_in_between_is_replaced_not_followed(opened: int, tmp_path: Path) -> None:
    with replacing(Place(b"new", folder=opened), mode=0o644) as file:
        (tmp_path / "is" / "new").symlink_to(tmp_path / "outside" / "new")
        file.write(b"mine")
    assert (tmp_path / "is" / "new").read_bytes() == b"mine"
    assert not (tmp_path / "is" / "new").is_symlink()
    assert (tmp_path / "outside" / "new").read_bytes() == b"secret"


def test_an_error_about_a_name_in_an_open_directory_tells_the_path(opened: int) -> None:
    with pytest.raises(errors.LocalFileNotFoundError, match=r": /was/absent \(on"):
        LocalFile(Place(b"absent", folder=opened, shown=b"/was/absent"))


def test_directories_need_a_system_that_opens_files_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    localfiles.check_trees()
    monkeypatch.setattr(os, "supports_dir_fd", set())
    with pytest.raises(errors.UnsupportedError, match="cannot be copied"):
        localfiles.check_trees()
