"""Equal content makes equal bytes, whatever the threads and times; Python's zipfile unpacks them."""

import os
import random
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest

from vmnest import errors
from vmnest.guest_image import compression, packing, scanning


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    return tmp_path


def packed(path: Path, **options: int) -> bytes:
    with packing.pack(str(path), **options) as package:  # type: ignore[arg-type]
        data = package.file.read()
        assert len(data) == package.size
        return data


def digest(path: Path) -> str:
    with packing.pack(str(path)) as package:
        return package.digest


def fill(tree: Path, *, order: int = 1) -> None:
    rng = random.Random(7)
    contents = {
        "run.sh": b"#!/bin/sh\n",
        "big.bin": rng.randbytes(3 * compression.PIECE_BYTES + 17),
        "big.txt": b"all work and no play " * 200_000,
        "exact.txt": b"x" * compression.PIECE_BYTES,
        "two.txt": b"y" * (2 * compression.PIECE_BYTES),
        "mixed": rng.randbytes(compression.PIECE_BYTES) + bytes(compression.PIECE_BYTES) + b"end",
        "empty": b"",
        **{f"d/{number:03}.txt": rng.randbytes(rng.randrange(3000)) for number in range(300)},
    }
    (tree / "d").mkdir()
    for name in sorted(contents)[::order]:
        (tree / name).write_bytes(contents[name])
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("run.sh")
    (tree / "hollow").mkdir()


def test_another_program_unpacks_what_was_packed(tree: Path, tmp_path_factory: pytest.TempPathFactory):
    fill(tree)
    place = tmp_path_factory.mktemp("out")
    (place / "x.zip").write_bytes(packed(tree))
    with zipfile.ZipFile(place / "x.zip") as found:
        assert found.testzip() is None
        for info in found.infolist():
            source = tree / info.filename
            assert info.external_attr >> 16 == source.lstat().st_mode
            if stat.S_ISREG(source.lstat().st_mode):
                assert found.read(info) == source.read_bytes()
        assert found.read("link") == b"run.sh"
        assert len(found.infolist()) == len(scanning.scan(str(tree)).entries)


def test_more_than_a_build_has_room_for_is_refused_before_it_is_packed(tree: Path, tmp_path: Path, monkeypatch):
    def refuse(**_options: object) -> None:
        raise AssertionError("it is being packed")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    (tree / "Dockerfile").write_text("FROM scratch\n")
    with open(tree / "large", "wb") as file:
        file.truncate(8 * 2**30)  # takes no room
    with pytest.raises(errors.GuestImageError, match=r"8\.0 GiB, more than the disk of a build"):
        packing.pack(str(tree))


def test_the_same_content_makes_the_same_bytes_whatever_the_threads(tree: Path):
    fill(tree)
    assert packed(tree, threads=1) == packed(tree, threads=4)


def test_times_and_the_order_of_making_do_not_count(tree: Path, tmp_path_factory: pytest.TempPathFactory):
    other = tmp_path_factory.mktemp("other")
    (other / "Dockerfile").write_text("FROM scratch\n")
    fill(tree)
    fill(other, order=-1)
    for path in other.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)
    assert packed(tree) == packed(other)


def test_the_digest_is_of_the_content_and_not_of_the_compressor(tree: Path, monkeypatch: pytest.MonkeyPatch):
    fill(tree)
    with packing.pack(str(tree)) as first:
        monkeypatch.setattr(compression, "choose", lambda: compression.Codec("zlib", compression._make_zlib))
        with packing.pack(str(tree)) as second:
            assert first.file.read() != second.file.read()
            assert first.digest == second.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "a").write_text("2"),
        lambda tree: (tree / "a").chmod(0o755),
        lambda tree: (tree / "a").rename(tree / "b"),
        lambda tree: (tree / "new").mkdir(),
        lambda tree: ((tree / "link").unlink(), (tree / "link").symlink_to("b")),
        lambda tree: (tree / "big").write_bytes(bytes(2 * compression.PIECE_BYTES) + b"2"),
    ],
    ids=["data", "mode", "name", "directory", "link", "end-of-a-large-file"],
)
def test_every_change_of_the_content_changes_the_digest(tree: Path, change):
    (tree / "a").write_text("1")
    (tree / "a").chmod(0o644)
    (tree / "link").symlink_to("a")
    (tree / "big").write_bytes(bytes(2 * compression.PIECE_BYTES) + b"1")
    before = digest(tree)
    change(tree)
    assert digest(tree) != before


def test_what_was_packed_is_told(tree: Path):
    (tree / "agentd").mkdir()
    (tree / "agentd" / "serve.py").write_text("x" * 10)
    (tree / "tool").write_bytes(b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00" + bytes(50))
    os.mkfifo(tree / "pipe")
    seen: list[tuple[int, int]] = []
    with packing.pack(str(tree), on_progress=lambda done, total: seen.append((done, total))) as package:
        assert package.has_agent
        assert package.machines == {"X86_64": ("tool",)}
        assert package.dockerfile == "FROM scratch\n"
        assert package.warnings == ("pipe is a FIFO, and is left out",)
        assert package.content_size == 13 + 10 + 70
    assert seen[-1] == (93, 93)


def test_the_zip_is_gone_once_the_package_is_closed(tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory):
    place = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with packing.pack(str(tree)) as package:
        file = package.file
    assert file.closed
    assert list(place.iterdir()) == []


def test_a_file_that_cannot_be_read_is_named(tree: Path):
    # For root everything can be read: something that vanished between the look and the reading stands in.
    (tree / "gone").write_text("x")
    entry = next(entry for entry in scanning.scan(str(tree)).entries if entry.name == "gone")
    (tree / "gone").unlink()
    with pytest.raises(errors.GuestImageError, match=r"cannot read .*gone: No such file"):
        list(packing._read(entry))


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/passwd", path)], ids=["fifo", "link"])
def test_what_takes_a_files_place_is_neither_followed_nor_waited_for(tree: Path, make):
    (tree / "swapped").write_text("x")
    entry = next(entry for entry in scanning.scan(str(tree)).entries if entry.name == "swapped")
    (tree / "swapped").unlink()
    make(tree / "swapped")
    with pytest.raises(errors.GuestImageError, match="swapped"):
        list(packing._read(entry))


def test_a_file_that_grew_is_packed_as_it_was_read(tree: Path):
    (tree / "grown").write_bytes(b"1" * 10)
    entry = next(entry for entry in scanning.scan(str(tree)).entries if entry.name == "grown")
    (tree / "grown").write_bytes(b"2" * 2_000_000)
    pieces = list(packing._read(entry))
    assert sum(len(piece.data) for piece in pieces) == 2_000_000
    assert [piece.is_last for piece in pieces] == [False, True]


def test_no_room_for_the_zip_is_an_error_with_a_way_out(tree: Path, monkeypatch: pytest.MonkeyPatch):
    (tree / "noise").write_bytes(random.Random(1).randbytes(300_000))
    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_options: full)
        with pytest.raises(errors.LocalFileError, match="No space left") as caught:
            packing.pack(str(tree))
    assert "TMPDIR" in str(caught.value.hint)
