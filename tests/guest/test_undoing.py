"""What an unpacking that fails takes back, and what it leaves."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from guest.agentd import archives, unpacking
from guest.agentd.archives import Member


class BrokenError(Exception):
    """Whoever sends gives up."""


def member(name: bytes, content: bytes = b"", **settings: object) -> bytes:
    """One member of an archive."""
    head = archives.encode_member(Member(name, size=len(content), **settings))  # type: ignore[arg-type]
    return head + content + archives.padding(len(content))


def folder(name: bytes, *, mode: int = 0o755) -> bytes:
    return member(name, kind=archives.DIRECTORY, mode=mode)


def link(name: bytes, target: bytes) -> bytes:
    return member(name, kind=archives.SYMBOLIC_LINK, target=target)


TREE = [
    folder(b"./", mode=0o700),
    member(b"top", b"new"),
    folder(b"closed", mode=0o500),
    member(b"closed/a", b"a"),
    folder(b"closed/deep", mode=0o500),
    member(b"closed/deep/b", b"b"),
    member(b"closed/hard", kind=archives.HARD_LINK, target=b"top"),
    link(b"link", b"top"),
    member(b"top", b"newer"),
    member(b"deep/of/itself", b"c"),
    member(b"last", b"d"),
]


def unpack(root: Path, pieces: Iterable[bytes], *, undoes: bool = True) -> None:
    """Unpack what breaks off."""

    def breaking() -> Iterator[bytes]:
        yield from pieces
        raise BrokenError

    with pytest.raises(BrokenError):
        unpacking.unpack(breaking(), os.fsencode(root), undoes=undoes)


def tell(root: Path) -> dict[str, str]:
    """Names of all that is there, with the content of files."""
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() and not path.is_symlink() else ""
        for path in root.rglob("*")
    }


def test_of_a_new_directory_nothing_is_left(tmp_path: Path) -> None:
    unpack(tmp_path / "new", TREE)
    assert os.listdir(tmp_path) == []


def test_a_file_that_broke_off_goes_with_the_others(tmp_path: Path) -> None:
    pieces = [*TREE, archives.encode_member(Member(b"half", size=1000)), b"x" * 500]
    unpack(tmp_path / "new", pieces)
    assert os.listdir(tmp_path) == []


def test_a_new_name_in_a_directory_that_is_held_open_goes_too(tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(archives.ArchiveError):
            unpacking.unpack(TREE, b"new", dir_fd=held, undoes=True)  # it has no end
    finally:
        os.close(held)
    assert os.listdir(tmp_path) == []


def test_what_was_there_stays_and_what_was_replaced_stays_replaced(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "mine").write_text("mine")
    (tmp_path / "top").write_text("old")
    (tmp_path / "link").write_text("old")
    (tmp_path / "empty").mkdir()
    unpack(tmp_path, [*TREE, folder(b"empty")])
    assert tell(tmp_path) == {"closed": "", "closed/mine": "mine", "top": "newer", "link": "", "empty": ""}


def test_what_others_have_made_meanwhile_stays(tmp_path: Path) -> None:
    root = tmp_path / "new"

    def pieces() -> Iterator[bytes]:
        yield from TREE
        yield member(b"end", b"e")
        (root / "deep" / "of" / "theirs").write_text("theirs")
        (root / "last").unlink()
        (root / "keep").write_text("")  # so that the number is not given again
        (root / "last").write_text("theirs")

    unpack(root, pieces())
    left = tell(root)
    assert left.pop("keep") == ""
    assert left == {"deep": "", "deep/of": "", "deep/of/theirs": "theirs", "last": "theirs"}


def test_no_link_that_was_planted_meanwhile_leads_elsewhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "new", tmp_path / "outside"
    (outside / "of").mkdir(parents=True)
    (outside / "of" / "itself").write_text("mine")

    def pieces() -> Iterator[bytes]:
        yield from TREE
        (root / "deep").rename(tmp_path / "away")
        (root / "deep").symlink_to(outside)

    unpack(root, pieces())
    assert (outside / "of" / "itself").read_text() == "mine"


def test_by_default_what_has_come_is_kept(tmp_path: Path) -> None:
    unpack(tmp_path / "new", TREE, undoes=False)
    assert (tmp_path / "new" / "deep" / "of" / "itself").read_text() == "c"


def test_what_ends_well_is_whole(tmp_path: Path) -> None:
    summary = unpacking.unpack([*TREE, archives.END], os.fsencode(tmp_path / "new"), undoes=True)
    assert (summary.files, summary.links, summary.skipped) == (6, 2, [])
    assert (tmp_path / "new" / "closed" / "hard").read_text() == "new"
