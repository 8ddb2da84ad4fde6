"""Archives for the tar of an image, and from it. The independent party is Python's tarfile."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest._guest.agentd import archives, trees
from vmnest.agent import tarballs
from vmnest.agent.entries import Skipped, Transfer

LONG = "n" * 150 + "é"
PATHS = st.lists(st.text("ab\udcff", min_size=1, max_size=90).filter(lambda name: name not in (".", "..")), min_size=1)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "sub" / LONG / "below").mkdir(parents=True)
    (top / "sub" / LONG / "file").write_bytes(b"x" * 1000)
    (top / "run").write_bytes(b"#!")
    (top / "run").chmod(0o755)
    os.link(top / "run", top / "same")
    os.symlink(f"sub/{LONG}/file", top / "link")
    os.mkfifo(top / "fifo")
    return top


def packed(folder: Path) -> trees.Packing:
    return trees.pack(os.fsencode(folder))


def outgoing(folder: Path) -> tuple[bytes, Transfer]:
    out = tarballs.Outgoing()
    return b"".join(out.pieces(packed(folder))), out.transfer


def unpacked(archive: bytes, *, exclude: tuple[bytes, ...] = (), skipped: tuple[Skipped, ...] = ()) -> list[str]:
    """The names in an archive of an image's tar, as they come through."""
    data = b"".join(tarballs.to_packed([archive], exclude=exclude, skipped=skipped))
    return tarfile.open(fileobj=io.BytesIO(data)).getnames()


def with_tarfile(*members: tarfile.TarInfo, kind: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return file.getvalue()


def member(name: str, *, kind: bytes = tarfile.REGTYPE, size: int = 0, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, target
    return info


def gnu_headers(archive: bytes) -> list[tuple[bytes, bytes]]:
    """Type and content of each of GNU's records."""
    found, at = [], 0
    while any(archive[at : at + 512]):
        kind, size = archive[at + 156 : at + 157], int(archive[at + 124 : at + 135], 8)
        if kind in b"LK":
            found.append((kind, archive[at + 512 : at + 512 + size]))
        at += 512 + size + -size % 512
    return found


# -- to the image ------------------------------------------------------------------------------------------------------


def test_what_goes_to_the_image_holds_the_whole_tree(tree: Path, tmp_path: Path) -> None:
    archive, _ = outgoing(tree)
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        reader.extractall(tmp_path / "copy", filter="fully_trusted")
    copy = tmp_path / "copy"
    assert (copy / "sub" / LONG / "file").read_bytes() == b"x" * 1000
    assert (copy / "run").stat().st_mode & 0o777 == 0o755
    assert (copy / "run").samefile(copy / "same")
    assert os.readlink(copy / "link") == f"sub/{LONG}/file"
    assert (copy / "sub" / LONG / "below").is_dir()
    assert not (copy / "fifo").exists()


def test_long_names_have_gnus_records_too(tree: Path) -> None:
    archive, _ = outgoing(tree)
    records = gnu_headers(archive)
    assert (b"L", f"sub/{LONG}/file\0".encode()) in records
    assert (b"L", f"sub/{LONG}/below/\0".encode()) in records
    assert (b"K", f"sub/{LONG}/file\0".encode()) in records


def test_remarks_stay_here(tree: Path) -> None:
    archive, transfer = outgoing(tree)
    assert b"VMNEST" not in archive
    assert transfer.skipped == (Skipped("fifo", "a named pipe"),)


def test_what_is_sent_is_counted(tree: Path) -> None:
    _, transfer = outgoing(tree)
    assert transfer[:4] == (2, 4, 2, 1002)


def test_another_attempt_is_counted_anew(tree: Path) -> None:
    out = tarballs.Outgoing()
    next(iter(out.pieces(packed(tree))))
    list(out.pieces(packed(tree)))
    assert out.transfer == outgoing(tree)[1]


def test_what_leads_out_of_the_directory_does_not_go_to_the_image() -> None:
    archive = with_tarfile(
        member("a/b", kind=tarfile.SYMTYPE, target="../../etc"),
        member("c", kind=tarfile.SYMTYPE, target="/etc"),
        member("a/d", kind=tarfile.SYMTYPE, target="../f"),
        member("e", kind=tarfile.CHRTYPE),
        member("f"),
    )
    out = tarballs.Outgoing()
    sent = archives.Reader(list(out.pieces([archive]))).members()
    assert [item.name for item in sent if isinstance(item, archives.Member)] == [b"a/d", b"f"]
    assert out.transfer.skipped == (
        Skipped("a/b", trees.LEADS_OUT),
        Skipped("c", trees.LEADS_OUT),
        Skipped("e", "a device"),
    )


@pytest.mark.parametrize(
    "bad",
    [member("../x"), member("/x"), member("x/../y"), member("x", kind=tarfile.LNKTYPE, target="../../etc/passwd")],
    ids=lambda bad: f"{bad.name} {bad.linkname}",
)
def test_names_that_lead_out_of_the_directory_refuse_the_whole(bad: tarfile.TarInfo) -> None:
    with pytest.raises(trees.UnsafeMemberError):
        list(tarballs.Outgoing().pieces([with_tarfile(bad)]))


# -- from the image ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_any_format_comes_through(kind: int) -> None:
    archive = with_tarfile(member("./", kind=tarfile.DIRTYPE), member("./a/b", size=700), kind=kind)
    assert [os.path.normpath(name) for name in unpacked(archive)] == [".", "a/b"]


def test_long_names_of_gnu_come_through() -> None:
    name = "./" + "d" * 120 + "/" + "f" * 120
    assert unpacked(with_tarfile(member(name, size=3))) == [name]


def test_what_is_excluded_is_left_out_with_all_that_is_in_it() -> None:
    archive = with_tarfile(
        member("./", kind=tarfile.DIRTYPE),
        member("./keep/", kind=tarfile.DIRTYPE),
        member("./keep/a.o", size=600),
        member("./keep/a.c", size=600),
        member("./build/", kind=tarfile.DIRTYPE),
        member("./build/x/y", size=600),
        member("./keep/build", size=1),
    )
    names = unpacked(archive, exclude=(b"*.o", b"/build"))
    assert [os.path.normpath(name) for name in names] == [".", "keep", "keep/a.c", "keep/build"]


def test_what_cannot_be_moved_becomes_a_remark() -> None:
    archive = with_tarfile(member("./p", kind=tarfile.FIFOTYPE), member("./d", kind=tarfile.CHRTYPE), member("./f"))
    assert unpacked(archive) == ["./f"]
    data = b"".join(tarballs.to_packed([archive], exclude=()))
    notes = [item.path for item in archives.Reader([data]).members() if isinstance(item, archives.Note)]
    assert notes == [b"p", b"d"]


def test_what_the_tool_left_out_is_told_first(tmp_path: Path) -> None:
    archive = with_tarfile(member("./f", size=3))
    pieces = tarballs.to_packed([archive], exclude=(), skipped=[Skipped("x\udcff", "permission denied")])
    summary = trees.unpack(pieces, os.fsencode(tmp_path / "out"))
    assert summary.skipped == [(b"x\xff", "permission denied")]
    assert summary.files == 1


@pytest.mark.parametrize("count", [0, 1, 511, 512, 900])
def test_an_archive_that_broke_off_is_an_error(count: int) -> None:
    archive = with_tarfile(member("./f", size=1000))
    with pytest.raises(trees.ArchiveError):
        list(tarballs.to_packed([archive[:count]], exclude=()))


@given(PATHS)
def test_names_are_bytes_both_ways(names: list[str]) -> None:
    name = "/".join(names)
    archive = with_tarfile(member(name, size=5))
    (found,) = archives.Reader(list(tarballs.to_packed([archive], exclude=()))).members()
    assert isinstance(found, archives.Member)
    assert found.name == name.encode("utf-8", "surrogateescape")
