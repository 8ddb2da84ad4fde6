"""Unpacking: what is in an archive, or in the folder, leads nowhere else."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import archives, folders, packing, unpacking
from guest.agentd.archives import ArchiveError, Member, Note
from guest.agentd.unpacking import LEADS_OUT, UnsafeMemberError, leads_out
from tests.support import trees

Item = tuple[Member, bytes]


def file(name: bytes, content: bytes = b"", *, mode: int = 0o644, mtime_ns: int = 0) -> Item:
    return Member(name, mode=mode, size=len(content), mtime_ns=mtime_ns), content


def folder(name: bytes, *, mode: int = 0o755, mtime_ns: int = 0) -> Item:
    return Member(name, kind=archives.DIRECTORY, mode=mode, mtime_ns=mtime_ns), b""


def link(name: bytes, target: bytes) -> Item:
    return Member(name, kind=archives.SYMBOLIC_LINK, target=target), b""


def hard_link(name: bytes, target: bytes) -> Item:
    return Member(name, kind=archives.HARD_LINK, target=target), b""


def encode(items: Iterable[Item]) -> bytes:
    parts = []
    for member, content in items:
        parts += [archives.encode_member(member), content, archives.padding(len(content))]
    return b"".join([*parts, archives.END])


def unpack(root: Path, *items: Item) -> unpacking.Summary:
    return unpacking.unpack([encode(items)], os.fsencode(root))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where to unpack. Beside it is what nobody may touch."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("mine")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _nothing_outside(tmp_path: Path) -> Iterator[None]:
    yield
    if (tmp_path / "outside").exists():
        assert (tmp_path / "outside" / "file").read_text() == "mine"
        assert os.listdir(tmp_path / "outside") == ["file"]
        assert sorted(os.listdir(tmp_path)) in (["outside", "root"], ["link", "outside", "root"])


def leftovers(root: Path) -> list[str]:
    return [name for _, folders, names in os.walk(root) for name in (*folders, *names) if name.startswith(".agentd")]


# -- what is kept


def test_what_gnu_tar_packs_arrives_the_same(tmp_path: Path) -> None:
    trees.build(tmp_path / "source")
    for form in ("--format=posix", "--format=gnu"):
        command = ["tar", "-c", form, "-f", "-", "-C", str(tmp_path / "source"), "."]
        data = subprocess.run(command, capture_output=True, check=True).stdout
        copy = tmp_path / form
        summary = unpacking.unpack([data], os.fsencode(copy))
        assert summary.skipped == []
        times = form == "--format=posix"  # the other one has whole seconds
        assert trees.look(copy, times=times) == trees.look(tmp_path / "source", times=times)


def test_the_summary_counts(root: Path) -> None:
    items = folder(b"d"), file(b"d/f", b"123"), file(b"g", b"4"), link(b"l", b"g"), hard_link(b"h", b"g")
    summary = unpack(root, *items)
    assert (summary.files, summary.directories, summary.links, summary.bytes) == (2, 1, 2, 4)
    assert (summary.skipped, summary.untold) == ([], 0)


def test_a_missing_root_is_made_and_gets_what_the_archive_says_of_it(root: Path) -> None:
    unpack(root / "new" / "deep", folder(b"./", mode=0o700, mtime_ns=5 * 10**9), file(b"./f", b"x"))
    assert mode_of(root / "new" / "deep") == 0o700
    assert (root / "new" / "deep").stat().st_mtime == 5
    assert (root / "new" / "deep" / "f").read_text() == "x"


def test_directories_that_were_there_keep_their_permissions(root: Path) -> None:
    root.chmod(0o750)
    (root / "d").mkdir()
    (root / "d").chmod(0o1777)
    unpack(root, folder(b"./", mode=0o700), folder(b"d", mode=0o700), file(b"d/f"))
    assert (mode_of(root), mode_of(root / "d")) == (0o750, 0o1777)


def test_a_root_may_be_named_by_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("root")
    unpack(tmp_path / "link", file(b"f", b"x"))
    assert (root / "f").read_text() == "x"


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_root_that_is_no_directory_is_an_error(root: Path, make: Callable[[Path], object]) -> None:
    make(root / "x")
    with pytest.raises(OSError, match=r"No such file|Not a directory"):
        unpack(root / "x", file(b"f"))


def test_a_new_directory_may_be_read_only(root: Path) -> None:
    root.chmod(0o777)
    root.parent.chmod(0o755)
    data = encode([folder(b"d", mode=0o555, mtime_ns=7 * 10**9), file(b"d/f", b"x"), folder(b"d/e", mode=0o500)])
    tree = unpacking._Tree(os.fsencode(root), keeps_all_links=False)
    with trees.without_rights(), tree:
        reader = archives.Reader([data])
        for item in reader.members():
            assert isinstance(item, Member)
            tree.add(item, reader.content())
    assert tree.summary.skipped == []
    assert (mode_of(root / "d"), mode_of(root / "d" / "e")) == (0o555, 0o500)
    assert (root / "d").stat().st_mtime == 7
    (root / "d").chmod(0o755)


def test_parents_that_the_archive_leaves_out_are_made(root: Path) -> None:
    unpack(root, file(b"a/b/f", b"x"), folder(b"a/b", mode=0o700), file(b"a/b/g"))
    assert (root / "a" / "b" / "f").read_text() == "x"
    assert mode_of(root / "a" / "b") == 0o700  # its own turn may come later
    assert mode_of(root / "a") == 0o777 & ~_umask()


def test_permissions_do_not_depend_on_the_umask(root: Path) -> None:
    old = os.umask(0o077)
    try:
        unpack(root, file(b"f", mode=0o777), folder(b"d", mode=0o777))
    finally:
        os.umask(old)
    assert (mode_of(root / "f"), mode_of(root / "d")) == (0o777, 0o777)


def test_bits_that_give_the_rights_of_another_are_dropped(root: Path) -> None:
    unpack(root, file(b"f", mode=0o6755), folder(b"d", mode=0o7755))
    assert (mode_of(root / "f"), mode_of(root / "d")) == (0o755, 0o755)


def test_a_group_that_is_passed_on_stays_passed_on(root: Path) -> None:
    root.chmod(0o2755)
    unpack(root, folder(b"d", mode=0o700))
    assert mode_of(root / "d") == 0o2700


def test_an_old_file_is_replaced_and_keeps_its_owner(root: Path) -> None:
    (root / "f").write_text("old")
    if os.geteuid() == 0:
        os.chown(root / "f", 1234, 2345)
    before = (root / "f").stat()
    with open(root / "f") as reading:
        unpack(root, file(b"f", b"new", mode=0o751))
        assert reading.read() == "old"
    after = (root / "f").stat()
    assert (root / "f").read_text() == "new"
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert mode_of(root / "f") == 0o751


def test_a_link_is_replaced_not_followed(root: Path) -> None:
    (root / "f").symlink_to("../outside/file")
    unpack(root, file(b"f", b"new"))
    assert not (root / "f").is_symlink()


def test_links_replace_files_and_links(root: Path) -> None:
    (root / "a").touch()
    (root / "b").symlink_to("x")
    (root / "c").touch()
    unpack(root, file(b"f", b"1"), link(b"a", b"f"), link(b"b", b"f"), hard_link(b"c", b"f"), hard_link(b"f", b"f"))
    assert os.readlink(root / "a") == os.readlink(root / "b") == "f"
    assert (root / "f").stat().st_nlink == 2
    assert leftovers(root) == []


def test_remarks_of_the_packer_are_in_the_summary(root: Path) -> None:
    data = archives.encode_note(Note(b"p", "a named pipe")) + encode([file(b"f")])
    assert unpacking.unpack([data], os.fsencode(root)).skipped == [(b"p", "a named pipe")]


def test_each_member_is_announced(root: Path) -> None:
    told: list[tuple[bytes, int]] = []
    data = encode([folder(b"d"), file(b"d/f", b"123")])
    unpacking.unpack([data], os.fsencode(root), on_member=lambda path, size: told.append((path, size)))
    assert told == [(b"d", 0), (b"d/f", 3)]


# -- what is refused


@pytest.mark.parametrize("name", [b"../x", b"/x", b"a/../../x", b"a/..", b"..", b"./../x", b"//x", b"", b"."])
@pytest.mark.parametrize("make", [file, lambda name: link(name, b"f"), lambda name: hard_link(name, b"f")])
def test_a_name_outside_refuses_the_archive(root: Path, name: bytes, make: Callable[[bytes], Item]) -> None:
    with pytest.raises(UnsafeMemberError) as caught:
        unpack(root, file(b"f"), make(name))
    assert caught.value.code == "unsafe_path"
    assert os.listdir(root) == ["f"]


@pytest.mark.parametrize("name", [b"../x", b"/x", b"a/../../x", b".."])
def test_a_directory_outside_refuses_the_archive(root: Path, name: bytes) -> None:
    with pytest.raises(UnsafeMemberError):
        unpack(root, folder(name))


@pytest.mark.parametrize("target", [b"../outside/file", b"/etc/passwd", b"a/../../outside/file", b""])
def test_a_hard_link_outside_is_not_made(root: Path, target: bytes) -> None:
    try:
        summary = unpack(root, hard_link(b"h", target))
    except UnsafeMemberError:
        assert target
    else:
        assert summary.skipped == [(b"h", "a hard link to what is no file")]
    assert os.listdir(root) == []


@pytest.mark.parametrize(
    ("target", "depth", "expected"),
    [
        (b"x", 0, False),
        (b"x/y", 0, False),
        (b".", 0, False),
        (b"./x//y", 0, False),
        (b"../x", 1, False),
        (b"..", 1, False),
        (b"../../x", 2, False),
        (b"./../x", 1, False),
        (b"..x/y", 0, False),
        (b"/", 5, True),
        (b"/etc", 5, True),
        (b"..", 0, True),
        (b"../x", 0, True),
        (b"../../x", 1, True),
        (b"x/..", 5, True),  # x may be, or become, a link to a place further up
        (b"x/../../y", 5, True),
        (b"../x/../y", 5, True),
    ],
)
def test_where_a_link_may_lead(target: bytes, depth: int, expected: bool) -> None:
    assert leads_out(target, depth=depth) is expected


def test_links_that_lead_out_are_left_out_and_told(root: Path) -> None:
    summary = unpack(root, link(b"a", b"../outside"), link(b"b", b"/etc"), link(b"c", b"nowhere"), file(b"f", b"x"))
    assert summary.skipped == [(b"a", LEADS_OUT), (b"b", LEADS_OUT)]
    assert sorted(os.listdir(root)) == ["c", "f"]


def test_links_that_lead_out_are_kept_in_an_archive_of_our_own(root: Path) -> None:
    data = encode([link(b"a", b"/etc")])
    unpacking.unpack([data], os.fsencode(root), keeps_all_links=True)
    assert os.readlink(root / "a") == "/etc"


def test_no_member_goes_through_a_link_of_the_archive(root: Path) -> None:
    summary = unpack(
        root,
        folder(b"d"),
        link(b"l", b"d"),
        file(b"l/x", b"1"),
        folder(b"l/y"),
        link(b"l/z", b"x"),
        hard_link(b"l/h", b"l/x"),
        hard_link(b"h", b"l/x"),
        folder(b"l"),
    )
    assert [path for path, _ in summary.skipped] == [b"l/x", b"l/y", b"l/z", b"l/h", b"h", b"l"]
    assert {reason for _, reason in summary.skipped} == {"not a directory"}
    assert os.listdir(root / "d") == []


@pytest.mark.parametrize("target", ["../outside", "/etc", "inside"])
def test_no_member_goes_through_a_link_that_was_there(root: Path, target: str) -> None:
    (root / "inside").mkdir()
    (root / "l").symlink_to(target)
    summary = unpack(root, file(b"l/file", b"yours"), file(b"f", b"x"))
    assert summary.skipped == [(b"l/file", "not a directory")]
    assert (root / "f").read_text() == "x"


def test_no_chain_of_links_leads_out(root: Path) -> None:
    # Each of them is harmless by its text; together they would go up once more than there are directories.
    unpack(
        root,
        folder(b"a/b"),
        link(b"a/b/up", b".."),
        link(b"a/b/top", b"../.."),
        link(b"chain", b"a/b/up/b/up/b/top"),
        link(b"out", b"chain/../outside"),
        link(b"out2", b"a/b/top/../outside"),
    )
    assert sorted(os.listdir(root)) == ["a", "chain"]
    assert (root / "chain").resolve() == root.resolve()


NAMES = st.sampled_from([b"a", b"b", b"..", b".", b""])
WAYS = st.lists(NAMES, min_size=1, max_size=6).map(b"/".join)
HOSTILE = st.one_of(
    st.builds(file, WAYS, st.just(b"yours")),
    st.builds(folder, WAYS),
    st.builds(link, WAYS, WAYS),
    st.builds(hard_link, WAYS, WAYS),
)


@given(st.lists(HOSTILE, max_size=12))
@settings(deadline=None)
def test_whatever_an_archive_holds_it_stays_inside(tmp_path_factory: pytest.TempPathFactory, items: list[Item]) -> None:
    base = tmp_path_factory.mktemp("hostile")
    for name in ("a", "b"):
        (base / name).write_text("mine")
    (base / "root").mkdir()
    try:
        unpack(base / "root", *items)
    except UnsafeMemberError:
        """The whole of it was refused."""
    assert sorted(os.listdir(base)) == ["a", "b", "root"]
    assert (base / "a").read_text() == (base / "b").read_text() == "mine"
    assert (base / "a").stat().st_nlink == 1
    for folder_path, below, names in os.walk(base / "root"):
        for name in (*below, *names):
            place = Path(folder_path, name)
            try:
                resolved = place.resolve(strict=True)
            except (FileNotFoundError, RuntimeError, NotADirectoryError, OSError):
                continue  # dangling, or a loop
            assert resolved.is_relative_to((base / "root").resolve()), (place, os.readlink(place))
    assert leftovers(base) == []


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_not_made(root: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.devmajor, info.devminor = kind, 1, 3
    summary = unpacking.unpack([info.tobuf() + encode([file(b"f", b"x")])], os.fsencode(root))
    assert [path for path, _ in summary.skipped] == [b"x"]
    # The same words as those of a packer: what no copy has.
    assert {reason for _, reason in summary.skipped} <= packing.NO_FILES
    assert os.listdir(root) == ["f"]


def test_a_file_with_a_map_of_holes_is_left_out(root: Path, tmp_path: Path) -> None:
    with open(tmp_path / "root" / "sparse", "wb") as stream:
        stream.truncate(1_000_000)
        stream.seek(500_000)
        stream.write(b"x")
    command = ["tar", "-c", "-S", "--format=posix", "-f", "-", "-C", str(root), "sparse"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    (root / "sparse").unlink()
    summary = unpacking.unpack([data], os.fsencode(root))
    assert [reason for _, reason in summary.skipped] == ["a file with holes, in a form that is not understood"]
    assert os.listdir(root) == []


# -- what goes wrong


def test_what_cannot_take_its_place_is_told_and_the_rest_is_unpacked(root: Path) -> None:
    (root / "d" / "full").mkdir(parents=True)
    (root / "f").touch()
    summary = unpack(
        root,
        file(b"d", b"x" * 2000),
        link(b"d", b"f"),
        hard_link(b"d", b"f"),
        folder(b"f"),
        file(b"f/below", b"x"),
        file(b"y" * 256, b"x"),
        hard_link(b"h", b"none"),
        file(b"last", b"x"),
    )
    assert [(path[:8], reason) for path, reason in summary.skipped] == [
        (b"d", "is a directory"),
        (b"d", "is a directory"),
        (b"d", "is a directory"),
        (b"f", "not a directory"),
        (b"f/below", "not a directory"),
        (b"y" * 8, "file name too long"),
        (b"h", "no such file or directory"),
    ]
    assert (root / "last").read_text() == "x"
    assert leftovers(root) == []


def test_the_list_of_what_was_left_out_is_bounded(root: Path) -> None:
    summary = unpack(root, *(link(b"%d" % number, b"/") for number in range(unpacking.MAX_TOLD + 5)))
    assert (len(summary.skipped), summary.untold) == (unpacking.MAX_TOLD, 5)


def test_every_cut_is_an_error_and_leaves_no_half_file(root: Path) -> None:
    data = encode([folder(b"d", mode=0o500), file(b"d/f", b"x" * 600), file(b"g", b"y")])
    for end in range(0, len(data), 100):
        with pytest.raises(ArchiveError, match="too early"):
            unpacking.unpack([data[:end]], os.fsencode(root / str(end)))
        for name, content in (("d/f", b"x" * 600), ("g", b"y")):
            if (root / str(end) / name).exists():
                assert (root / str(end) / name).read_bytes() == content
        if (root / str(end) / "d").exists():
            assert mode_of(root / str(end) / "d") == 0o500
    assert leftovers(root) == []


def test_what_breaks_the_stream_comes_through_and_leaves_no_half_file(root: Path) -> None:
    class GoneError(Exception):
        """The sender went away."""

    def pieces() -> Iterator[bytes]:
        yield encode([file(b"f", b"x" * 5000)])[:3000]
        raise GoneError

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(GoneError):
        unpacking.unpack(pieces(), os.fsencode(root))
    assert os.listdir(root) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_ends_the_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (root / "f").write_text("old")
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        unpack(root, file(b"f", b"new"), file(b"g", b"new"))
    monkeypatch.undo()
    assert [(path.name, path.read_text()) for path in root.iterdir()] == [("f", "old")]


def test_a_link_that_is_planted_between_two_members_leads_nowhere(root: Path, tmp_path: Path) -> None:
    data = [encode([folder(b"d"), file(b"d/a", b"x")])[:-1024], encode([file(b"d/file", b"yours")])]

    def pieces() -> Iterator[bytes]:
        yield data[0] + encode([file(b"e/z")])[:-1024]
        (root / "d").rename(root / "moved")
        (root / "d").symlink_to("../outside")
        yield data[1]

    summary = unpacking.unpack(pieces(), os.fsencode(root))
    assert (b"d/file", "not a directory") in summary.skipped


def test_a_directory_that_is_moved_out_while_it_is_filled_takes_nothing_along(root: Path, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield encode([file(b"d/e/x", b"1")])[:-1024]
        (root / "d" / "e").rename(tmp_path / "link")
        yield encode([file(b"d/y", b"2")])

    unpacking.unpack(pieces(), os.fsencode(root))
    assert sorted(os.listdir(root / "d")) == ["y"]
    assert os.listdir(tmp_path / "link") == ["x"]


def test_memory_stays_flat(root: Path) -> None:
    def pieces() -> Iterator[bytes]:
        for number in range(1000):
            yield encode([folder(b"%d" % number), file(b"%d/f" % number), link(b"l%d" % number, b"x")])[:-1024]
        yield archives.encode_member(Member(b"large", size=64 * 2**20))
        for _ in range(64):
            yield bytes(2**20)
        yield archives.END

    tracemalloc.start()
    try:
        summary = unpacking.unpack(pieces(), os.fsencode(root))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (summary.files, summary.directories, summary.links) == (1001, 1000, 1000)
    assert peak < 4 * 2**20


def test_memory_stays_flat_however_deep_the_archive_goes(root: Path) -> None:
    tracemalloc.start()
    try:
        summary = unpack(root, file(b"d/" * 4000 + b"f"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        folders.remove(os.fsencode(root / "d"), recursive=True)  # deeper than shutil can go
    assert summary.files == 1
    assert peak < 4 * 2**20


def test_tarfile_finds_the_test_archives_well_formed() -> None:
    with tarfile.open(fileobj=io.BytesIO(encode([folder(b"d"), file(b"d/f", b"x"), link(b"l", b"t")]))) as archive:
        assert archive.getnames() == ["d", "d/f", "l"]


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_a_name_in_an_open_directory_is_filled_and_no_link(root: Path) -> None:
    root.mkdir(exist_ok=True)
    (root / "outside").mkdir()
    (root / "link").symlink_to("outside")
    archive = encode([folder(b".", mode=0o700), file(b"f", b"x")])
    place = os.open(root, os.O_RDONLY)
    try:
        unpacking.unpack([archive], b"new", dir_fd=place)
        assert (mode_of(root / "new"), (root / "new" / "f").read_bytes()) == (0o700, b"x")
        (root / "old").mkdir(mode=0o755)
        unpacking.unpack([archive], b"old", dir_fd=place)
        assert mode_of(root / "old") == 0o755
        with pytest.raises(NotADirectoryError):
            unpacking.unpack([archive], b"link", dir_fd=place)
    finally:
        os.close(place)
    assert os.listdir(root / "outside") == []
