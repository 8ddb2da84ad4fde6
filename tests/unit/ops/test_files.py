"""The files of a sandbox as other programs are shown them."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import pytest

from vmnest import errors
from vmnest.agent.entries import Entry
from vmnest.ops import files
from vmnest.sandbox.files import Files


class MemoryFiles:
    """The few things that these verbs ask of ``Files``, over a dict of contents and a list of entries."""

    def __init__(self, *entries: Entry, contents: dict[str, bytes] | None = None) -> None:
        self.entries = {entry.path: entry for entry in entries}
        self.contents = contents or {}
        self.changed: list[tuple[str, int]] = []

    def stat(self, path: str) -> Entry:
        return self.entries[path]

    def scan(self, path: str, *, depth: int) -> Iterator[Entry]:
        return (entry for entry in self.entries.values() if entry.path.startswith(path + "/"))

    def chmod(self, path: str, mode: int) -> None:
        self.changed.append((path, mode))

    def read(self, path: str, *, limit: int) -> bytes:
        return self.contents[path]

    def open_read(self, path: str) -> BinaryIO:
        return io.BytesIO(self.contents[path])


def opened(*entries: Entry, **contents: Any) -> tuple[Files, MemoryFiles]:
    found = MemoryFiles(*entries, **contents)
    return cast("Files", found), found


def test_an_entry_is_described_with_bits_in_octal_and_a_time_as_text() -> None:
    name = os.fsdecode(b"\xff")
    entry = Entry(name, f"/d/{name}", "file", size=3, mode=0o4640, mtime=1.5, uid=7, gid=8, sha256="00")
    described = files.describe(entry)
    assert described == {
        "name": "\udcff",
        "path": "/d/\udcff",
        "type": "file",
        "size": 3,
        "mode": "4640",
        "modified_at": "1970-01-01T00:00:01.500000Z",
        "uid": 7,
        "gid": 8,
        "sha256": "00",
    }
    assert json.loads(json.dumps(described)) == described
    assert files.describe(Entry("l", "l", "link", target="x", error="gone"))["target"] == "x"


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("nan"), float("inf")])
def test_a_time_that_is_none_is_null(seconds: float) -> None:
    assert files.describe(Entry("f", "f", mtime=seconds))["modified_at"] is None


def test_content_is_text_or_base64() -> None:
    found, _ = opened(contents={"t": "naïve\n".encode(), "b": b"\xff\0"})
    assert files.read_file(found, path="t") == {"path": "t", "bytes": 7, "encoding": "utf-8", "content": "naïve\n"}
    binary = files.read_file(found, path="b")
    assert (binary["encoding"], base64.b64decode(str(binary["content"]))) == ("base64", b"\xff\0")


def test_content_comes_in_pieces() -> None:
    data = bytes(files.BLOCK_BYTES + 1)
    found, _ = opened(contents={"f": data, "empty": b""})
    pieces = list(files.stream_file(found, path="f"))
    assert [len(piece) for piece in pieces] == [files.BLOCK_BYTES, 1]
    assert list(files.stream_file(found, path="empty")) == []


def add_execute(entry: Entry) -> int:
    return entry.mode | 0o100


TREE = (
    Entry("d", "d", "directory", mode=0o600),
    Entry("a", "d/a", "file", mode=0o600),
    Entry("b", "d/b", "file", mode=0o700),
    Entry("l", "d/l", "link", mode=0o600, target="a"),
    Entry("e", "d/e", "directory", mode=0o600),
)


def test_permissions_depend_on_what_they_were_from_the_leaves_up() -> None:
    found, made = opened(*TREE)
    files.change_mode(found, path="d", change=add_execute, recursive=True)
    assert made.changed == [("d/e", 0o700), ("d/a", 0o700), ("d", 0o700)]


@pytest.mark.parametrize(("path", "recursive"), [("d", False), ("d/a", True)])
def test_only_what_is_named_is_changed(path: str, recursive: bool) -> None:
    found, made = opened(*TREE)
    files.change_mode(found, path=path, change=add_execute, recursive=recursive)
    assert made.changed == [(path, 0o700)]


def test_what_cannot_be_seen_is_told_once_the_rest_is_changed() -> None:
    found, made = opened(*TREE, Entry("x", "d/x", "directory", mode=0o700, error="permission denied"))
    with pytest.raises(errors.RemoteFileError, match="d/x in the sandbox: permission denied"):
        files.change_mode(found, path="d", change=add_execute, recursive=True)
    assert ("d", 0o700) in made.changed


def test_a_name_that_nobody_knows_is_an_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    find: Callable[..., Files] = files.open_files
    with pytest.raises(errors.SandboxNotFoundError):
        find(name="nobody")
