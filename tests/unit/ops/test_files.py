"""The files of a sandbox as other programs are shown them."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent import Agent
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.agent.entries import Entry
from vmnest.ops import files
from vmnest.sandbox.files import Files
from vmnest.transport import Transport


@pytest.fixture(scope="module")
def agent_files(shared_agent: Agent) -> Iterator[Files]:
    """The files of an agent on this machine, whose working directory is the test's to look at."""
    transport = Transport(environ={})
    client = AgentClient(shared_agent.url, headers=lambda _refused: [], transport=transport, port=shared_agent.port)
    shared_agent.workdir.mkdir(exist_ok=True)
    yield Files(lambda _deadline: client)
    transport.close()


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
        "modified_at": "1970-01-01T00:00:01.500+00:00",
        "uid": 7,
        "gid": 8,
        "sha256": "00",
    }
    assert json.loads(json.dumps(described)) == described
    assert files.describe(Entry("l", "l", "link", target="x", error="gone"))["target"] == "x"


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("nan"), float("inf")])
def test_a_time_that_is_none_is_null(seconds: float) -> None:
    assert files.describe(Entry("f", "f", mtime=seconds))["modified_at"] is None


def test_content_is_text_or_base64(agent_files: Files, shared_agent: Agent) -> None:
    (shared_agent.workdir / "t").write_text("naïve\n")
    (shared_agent.workdir / "b").write_bytes(b"\xff\0")
    text = files.read_file(agent_files, path="t")
    assert text == {"path": "t", "bytes": 7, "encoding": "utf-8", "content": "naïve\n"}
    binary = files.read_file(agent_files, path="b")
    assert (binary["encoding"], base64.b64decode(str(binary["content"]))) == ("base64", b"\xff\0")
    with pytest.raises(errors.RemoteFileError, match="larger than 6 bytes"):
        files.read_file(agent_files, path="t", limit=6)


def test_content_comes_in_pieces(agent_files: Files, shared_agent: Agent) -> None:
    (shared_agent.workdir / "f").write_bytes(bytes(files.BLOCK_BYTES + 1))
    (shared_agent.workdir / "empty").touch()
    pieces = list(files.stream_file(agent_files, path="f"))
    assert max(map(len, pieces)) <= files.BLOCK_BYTES
    assert b"".join(pieces) == bytes(files.BLOCK_BYTES + 1)
    assert list(files.stream_file(agent_files, path="empty")) == []


def add_execute(entry: Entry) -> int:
    return entry.mode | 0o100


@pytest.mark.parametrize(
    ("path", "recursive", "changed"),
    [("d", True, {"d", "d/a", "d/e", "d/e/b"}), ("d", False, {"d"}), ("d/a", True, {"d/a"})],
    ids=["all of a directory", "a directory alone", "a file"],
)
def test_permissions_depend_on_what_they_were(
    agent_files: Files, shared_agent: Agent, tmp_path: Path, path: str, recursive: bool, changed: set[str]
) -> None:
    root = shared_agent.workdir / tmp_path.name
    (root / "d" / "e").mkdir(parents=True)
    (tmp_path / "out").touch(mode=0o600)
    for name in ("d/a", "d/e/b"):
        (root / name).touch()
    (root / "d" / "out").symlink_to(tmp_path / "out")
    for found in (root / "d", *(root / "d").rglob("*")):
        if not found.is_symlink():
            found.chmod(0o600)
    files.change_mode(agent_files, path=f"{tmp_path.name}/{path}", change=add_execute, recursive=recursive)
    modes = {name: (root / name).stat().st_mode & 0o777 for name in ("d", "d/a", "d/e", "d/e/b")}
    assert {name for name, mode in modes.items() if mode == 0o700} == changed
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    shutil.rmtree(root)


def test_a_name_that_nobody_knows_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    with pytest.raises(errors.SandboxNotFoundError):
        files.open_files(name="nobody")
