"""Artifacts, as made by people and by enemies."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.artifacts import add, link, make_zip
from vmnest.local import build_artifact
from vmnest.local.build_artifact import FILE, FOLDER, LINK

MIB = 1 << 20


def unpack(made: io.BytesIO, target: Path, *, max_bytes: int = MIB) -> dict[str, build_artifact.Entry]:
    target.mkdir(exist_ok=True)
    return build_artifact.unpack(made, str(target), max_bytes=max_bytes)


def test_files_directories_and_links_keep_what_they_are(tmp_path: Path) -> None:
    members = {
        "run.sh": ("#!/bin/sh\n", stat.S_IFREG | 0o755),
        "secret": ("x", stat.S_IFREG | 0o600),
        "sub/": ("", stat.S_IFDIR | 0o750),
        "sub/deep/file": b"\0\xff",
        "link": link("sub/deep"),
        "dangling": link("/etc/shadow"),
        "unreadable": ("x", stat.S_IFREG),
    }
    entries = unpack(make_zip(members), tmp_path / "t")
    kinds = {path: (entry.kind, entry.mode) for path, entry in entries.items()}
    assert kinds == {
        "run.sh": (FILE, 0o755),
        "secret": (FILE, 0o600),
        "sub": (FOLDER, 0o750),
        "sub/deep": (FOLDER, 0o755),
        "sub/deep/file": (FILE, 0o644),
        "link": (LINK, 0o777),
        "dangling": (LINK, 0o777),
        "unreadable": (FILE, 0o644),
    }
    assert entries["dangling"].content == "/etc/shadow"
    assert (tmp_path / "t/sub/deep/file").read_bytes() == b"\0\xff"
    assert (tmp_path / "t/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "t/sub").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "t/run.sh").stat().st_mtime == 1577934246
    assert os.readlink(tmp_path / "t/link") == "sub/deep"


def test_modes_of_other_systems_mean_nothing(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        member = zipfile.ZipInfo("a")
        member.create_system, member.external_attr = 0, 0o120777 << 16
        archive.writestr(member, "x")
    assert unpack(made, tmp_path / "t")["a"] == build_artifact.Entry(
        FILE, 0o644, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    )


def test_names_are_cleaned(tmp_path: Path) -> None:
    assert set(unpack(make_zip({"./a//b": "", "./": "", "c": ""}), tmp_path / "t")) == {"a", "a/b", "c"}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "..", "a/.."])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(build_artifact.ArtifactError):
        unpack(make_zip({name: "x"}), tmp_path / "t")
    assert sorted(os.listdir(tmp_path)) == ["t"]


@pytest.mark.parametrize("target", ["..", "/tmp", "b"])
def test_nothing_is_written_through_a_link(tmp_path: Path, target: str) -> None:
    for members in ({"a": link(target), "a/x": "x"}, {"a/x": "x", "a": link(target)}):
        folder = tmp_path / str(len(os.listdir(tmp_path)))
        with pytest.raises(build_artifact.ArtifactError):
            unpack(make_zip(members), folder)
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "members",
    [
        {"a": "x", "a/b": "x"},
        {"a/b": "x", "a": "x"},
        {"a": ("x", stat.S_IFIFO | 0o644)},
        {"a": ("x", stat.S_IFCHR | 0o644)},
        {"a": link("")},
        {"a": link("x" * 5000)},
        {".": link("/etc")},
        {"x" * 300: ""},
        {"x/" * 3000 + "y": ""},
    ],
)
def test_what_cannot_be_there_is_refused(tmp_path: Path, members: dict[str, str]) -> None:
    with pytest.raises(build_artifact.ArtifactError):
        unpack(make_zip(members), tmp_path / "t")


def test_a_name_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        add(archive, "a", "x")
        with pytest.warns(UserWarning, match="Duplicate"):
            add(archive, "a", "y")
    with pytest.raises(build_artifact.ArtifactError, match="twice"):
        unpack(made, tmp_path / "t")


def test_a_directory_may_be_told_after_what_is_in_it(tmp_path: Path) -> None:
    entries = unpack(make_zip({"a/b": "x", "a/": ("", stat.S_IFDIR | 0o711)}), tmp_path / "t")
    assert entries["a"].mode == 0o711


def test_a_bomb_is_given_up_when_it_exceeds_its_limit(tmp_path: Path) -> None:
    made = make_zip({"a": bytes(MIB // 2), "b": bytes(MIB)})
    with pytest.raises(build_artifact.TooLargeError):
        unpack(made, tmp_path / "t")
    assert sum(path.stat().st_size for path in (tmp_path / "t").iterdir()) <= MIB


def test_a_link_is_not_read_for_longer_than_a_target_can_be(tmp_path: Path) -> None:
    # Were all of it read, that would be more than may be unpacked, which is told otherwise.
    with pytest.raises(build_artifact.ArtifactError, match="no usable target"):
        unpack(make_zip({"a": link("x" * (16 * MIB))}), tmp_path / "t")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_what_is_unpacked_in_bounded_pieces_is_taken(tmp_path: Path, method: int) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("a", "x")
    with pytest.raises(build_artifact.ArtifactError, match="compressed in a way"):
        unpack(made, tmp_path / "t")


def test_more_entries_than_a_disk_can_bear_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_artifact, "MAX_ENTRIES", 3)
    with pytest.raises(build_artifact.TooLargeError, match="4 entries"):
        unpack(make_zip(dict.fromkeys("abcd", "")), tmp_path / "t")


def test_a_directory_of_a_zip_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_artifact, "MAX_DIRECTORY_BYTES", 1000)
    unpack(make_zip(dict.fromkeys("abcdefgh", "")), tmp_path / "small")
    many = make_zip({f"{number}": "" for number in range(30)})
    with pytest.raises(build_artifact.TooLargeError, match="directory has more than 1000 bytes"):
        unpack(many, tmp_path / "large")


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip at all" * 100])
def test_what_is_no_zip_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(build_artifact.ArtifactError):
        unpack(io.BytesIO(content), tmp_path / "t")


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    made = make_zip({"a": "x"})
    raw = bytearray(made.getvalue())
    raw[6] |= 1  # the flag of the local header
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(build_artifact.ArtifactError, match="encrypted"):
        unpack(io.BytesIO(bytes(raw)), tmp_path / "t")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_damage_is_told_as_such_or_does_not_matter(tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(make_zip({"a": "some text " * 50, "b/c": "x", "d": link("a")}).getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path / str(len(os.listdir(tmp_path)))
    try:
        entries = unpack(io.BytesIO(bytes(raw)), folder)
    except build_artifact.ArtifactError:
        return
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert found == set(entries)
