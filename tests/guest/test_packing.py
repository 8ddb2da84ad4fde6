"""Packing: what GNU tar and ``tarfile`` make of it, and what happens to files that change, hide or never end."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from guest.agentd import archives, packing
from tests.support import trees


def pack(root: Path, *exclude: bytes) -> bytes:
    return b"".join(packing.pack(os.fsencode(root), exclude=exclude))


def read(data: bytes) -> tuple[dict[bytes, archives.Member], dict[bytes, str]]:
    """Members and remarks by their paths."""
    items = list(archives.Reader([data]).members())
    members = {item.name.rstrip(b"/"): item for item in items if isinstance(item, archives.Member)}
    return members, {item.path: item.reason for item in items if isinstance(item, archives.Note)}


def names(data: bytes) -> list[bytes]:
    return sorted(read(data)[0])


def notes(data: bytes) -> dict[bytes, str]:
    return read(data)[1]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_gnu_tar_unpacks_it_to_the_same_tree(tmp_path: Path) -> None:
    trees.build(tmp_path / "source")
    (tmp_path / "copy").mkdir()
    command = ["tar", "-x", "-p", "-f", "-", "-C", str(tmp_path / "copy")]
    done = subprocess.run(command, input=pack(tmp_path / "source"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert trees.look(tmp_path / "copy") == trees.look(tmp_path / "source")


def test_tarfile_reads_the_same_names(tmp_path: Path) -> None:
    trees.build(tmp_path / "source")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path / "source")), encoding="utf-8") as archive:
        seen = {os.fsencode(name) for name in archive.getnames()}
    assert seen == {b".", *trees.look(tmp_path / "source")}


def test_directories_come_before_what_is_in_them_and_the_order_is_the_same_each_time(tmp_path: Path) -> None:
    trees.build(tmp_path / "source")
    data = pack(tmp_path / "source")
    assert pack(tmp_path / "source") == data
    seen: set[bytes] = {b""}
    for name in (name for name in read(data)[0] if name != b"."):
        assert os.path.dirname(name) in seen
        seen.add(name)


def test_the_root_itself_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir(mode=0o700)
    ((name, member),) = read(pack(tmp_path / "source"))[0].items()
    assert (name, member.kind, member.mode) == (b".", archives.DIRECTORY, 0o700)


def test_a_root_that_is_a_link_is_followed_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "inner").symlink_to("/etc")
    (tmp_path / "link").symlink_to("source")
    members, _ = read(pack(tmp_path / "link"))
    assert (members[b"inner"].kind, members[b"inner"].target) == (archives.SYMBOLIC_LINK, b"/etc")
    assert len(members) == 2


@pytest.mark.parametrize("name", ["file", "none"])
def test_a_root_that_is_no_directory_is_an_error_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    before = open_descriptors()
    with pytest.raises(OSError, match=r"No such file|Not a directory"):
        packing.pack(os.fsencode(tmp_path / name))
    assert open_descriptors() == before


def test_a_pattern_that_cannot_be_used_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pattern"):
        packing.pack(os.fsencode(tmp_path), exclude=[b""])


def test_what_is_excluded_is_left_out_with_all_that_is_in_it(tmp_path: Path) -> None:
    for path in ("a/.git/x", "a/keep", "b.pyc", "build/x", "c/build/x"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert names(pack(tmp_path, b".git", b"*.pyc", b"/build/")) == [
        b".",
        b"a",
        b"a/keep",
        b"c",
        b"c/build",
        b"c/build/x",
    ]


def test_what_is_no_file_is_told_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        data = pack(tmp_path)
    assert names(data) == [b".", b"file"]
    assert notes(data) == {b"fifo": "a named pipe", b"socket": "a socket"}


def test_devices_are_told() -> None:
    assert notes(pack(Path("/dev"), b"/*/", b"[!nz]*"))[b"null"] == "a device"


def test_file_systems_of_the_kernel_are_left_out_below_another(tmp_path: Path) -> None:
    data = b"".join(packing.pack(b"/", exclude=[b"/[!ps]*", b"/s[!y]*", b"/p[!r]*"]))
    assert notes(data) == {b"proc": packing.OF_THE_KERNEL, b"sys": packing.OF_THE_KERNEL}


def test_further_names_of_a_file_are_links_to_the_first(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    for name in ("b", "c"):
        os.link(tmp_path / "a", tmp_path / name)
    members, _ = read(pack(tmp_path))
    assert [(members[name].kind, members[name].target) for name in (b"a", b"b", b"c")] == [
        (archives.FILE, b""),
        (archives.HARD_LINK, b"a"),
        (archives.HARD_LINK, b"a"),
    ]


def test_only_names_that_are_still_to_come_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MAX_REMEMBERED_LINKS", 2)
    (tmp_path / "source").mkdir()
    for name in "abcd":
        (tmp_path / "source" / name).write_text(name)
        os.link(tmp_path / "source" / name, tmp_path / "source" / f"{name}2")
        os.link(tmp_path / "source" / name, tmp_path / f"outside-{name}")
    packed = packing.pack(os.fsencode(tmp_path / "source"))
    members, _ = read(b"".join(packed))
    kinds = [members[name].kind for name in (b"a2", b"b2", b"c2", b"d2")]
    # Where there is no room to remember a name, its file is packed once more.
    assert kinds == [archives.HARD_LINK, archives.HARD_LINK, archives.FILE, archives.FILE]


def test_the_last_name_of_a_file_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MAX_REMEMBERED_LINKS", 1)
    for name in "abcd":
        (tmp_path / name).write_text(name)
        os.link(tmp_path / name, tmp_path / f"{name}2")
    members, _ = read(pack(tmp_path))
    assert [members[name].target for name in (b"a2", b"b2", b"c2", b"d2")] == [b"a", b"b", b"c", b"d"]


def test_a_name_outside_of_the_tree_makes_no_link(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "outside").write_text("content")
    os.link(tmp_path / "outside", tmp_path / "source" / "a")
    assert read(pack(tmp_path / "source"))[0][b"a"].kind == archives.FILE


def test_a_file_that_grows_has_the_length_of_its_beginning_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 2_000_000)
    packed = packing.pack(os.fsencode(tmp_path))
    parts = [next(packed)]
    with open(path, "ab") as stream:
        stream.write(b"more")
    parts += packed
    members, told = read(b"".join(parts))
    assert members[b"log"].size == 2_000_000
    assert told == {b"log": packing.CHANGED}


def test_a_file_that_shrinks_is_filled_up_and_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 2_000_000)
    (tmp_path / "next").write_bytes(b"next")
    packed = packing.pack(os.fsencode(tmp_path))
    parts = [next(packed)]
    os.truncate(path, 1_000_000)
    parts += packed
    data = b"".join(parts)
    members, told = read(data)
    assert members[b"log"].size == 2_000_000
    assert members[b"next"].size == 4
    assert told == {b"log": packing.CUT_SHORT}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        stream = archive.extractfile("log")
        assert stream is not None
        assert stream.read() == b"x" * 1_000_000 + bytes(1_000_000)


def test_a_file_that_is_written_in_place_is_told(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 2_000_000)
    packed = packing.pack(os.fsencode(tmp_path))
    parts = [next(packed)]
    with open(path, "r+b") as stream:
        stream.write(b"y")
    os.utime(path, ns=(1, 1))  # the clock of the file system may not have gone on since
    parts += packed
    assert notes(b"".join(parts)) == {b"data": packing.CHANGED}


def test_what_vanishes_between_look_and_reading_is_told_and_the_rest_is_packed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 2_000_000)
    (tmp_path / "b").touch()
    (tmp_path / "c").symlink_to("x")
    (tmp_path / "d").mkdir()
    (tmp_path / "e").mkdir()
    (tmp_path / "z").touch()
    packed = packing.pack(os.fsencode(tmp_path))
    parts = [next(packed)]
    for name in ("b", "c"):
        (tmp_path / name).unlink()
    (tmp_path / "d").rmdir()
    (tmp_path / "d").symlink_to("e")  # what became a link is not entered
    parts += packed
    members, told = read(b"".join(parts))
    assert sorted(members) == [b".", b"a", b"d", b"e", b"z"]
    assert members[b"d"].kind == archives.SYMBOLIC_LINK
    assert told == {b"b": "no such file or directory", b"c": "no such file or directory"}


def test_a_directory_that_becomes_a_link_while_it_waits_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "source" / "a").mkdir(parents=True)
    (tmp_path / "source" / "a" / "large").write_bytes(b"x" * 2_000_000)
    (tmp_path / "source" / "b").mkdir()
    packed = packing.pack(os.fsencode(tmp_path / "source"))
    parts = [next(packed)]  # in the middle of a: b has been seen
    (tmp_path / "source" / "b").rmdir()
    (tmp_path / "source" / "b").symlink_to("/etc")
    parts += packed
    members, told = read(b"".join(parts))
    assert sorted(members) == [b".", b"a", b"a/large"]
    assert told == {b"b": "not a directory"}


def test_a_file_that_becomes_a_pipe_is_told_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap() -> None:
        (tmp_path / "f").unlink()
        os.mkfifo(tmp_path / "f")

    (tmp_path / "f").write_text("x")
    (tmp_path / "g").write_text("x")
    trees.before_opening(monkeypatch, b"f", swap)
    members, told = read(pack(tmp_path))
    assert sorted(members) == [b".", b"g"]
    assert told == {b"f": packing.CHANGED}


def test_a_file_that_becomes_a_link_is_told_and_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap() -> None:
        (tmp_path / "f").unlink()
        (tmp_path / "f").symlink_to("/etc/passwd")

    (tmp_path / "f").write_text("x")
    trees.before_opening(monkeypatch, b"f", swap)
    members, told = read(pack(tmp_path))
    assert sorted(members) == [b"."]
    assert told == {b"f": "too many levels of symbolic links"}


def test_what_may_not_be_read_is_told_and_the_rest_is_packed(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "secret").touch(mode=0o000)
    (tmp_path / "open").touch(mode=0o644)
    tmp_path.chmod(0o755)
    packed = packing.pack(os.fsencode(tmp_path))
    with trees.without_rights():
        data = b"".join(packed)
    (tmp_path / "closed").chmod(0o700)
    assert names(data) == [b".", b"open"]
    assert notes(data) == {b"closed": "permission denied", b"secret": "permission denied"}


def test_each_member_is_announced(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("12345")
    told: list[tuple[bytes, int]] = []
    for _ in packing.pack(os.fsencode(tmp_path), on_member=lambda path, size: told.append((path, size))):
        """Read to the end."""
    assert told == [(b".", 0), (b"d", 0), (b"d/f", 5)]


def test_small_members_share_a_block(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / str(number)).touch()
    assert len(list(packing.pack(os.fsencode(tmp_path)))) <= 3


@pytest.mark.parametrize("blocks", [0, 1, 100])
def test_whoever_stops_early_gives_everything_back(tmp_path: Path, blocks: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "large").write_bytes(bytes(3_000_000))
    before = open_descriptors()
    packed = packing.pack(os.fsencode(tmp_path))
    for _ in range(blocks):
        next(packed, None)
    packed.close()
    packed.close()
    assert open_descriptors() == before
    assert list(packed) == []


def test_memory_stays_flat(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        for _ in packing.pack(os.fsencode(tmp_path)):
            """Read to the end."""
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_what_is_open_is_given_back_at_the_end(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert b"".join(packing.pack(os.fsencode(tmp_path)))
    assert os.listdir("/proc/self/fd") == before


def test_a_name_in_an_open_directory_is_packed_and_no_link(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").touch()
    (tmp_path / "link").symlink_to("in")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert names(b"".join(packing.pack(b"in", dir_fd=folder))) == [b".", b"f"]
        with pytest.raises(NotADirectoryError):
            packing.pack(b"link", dir_fd=folder)
    finally:
        os.close(folder)
