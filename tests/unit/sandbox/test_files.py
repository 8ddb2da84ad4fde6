"""Files of a sandbox, against the real agent."""

from __future__ import annotations

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.cutting import open_client
from tests.support.minimal import base_contract
from tests.support.scripted import SILENT, Answer, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.deadline import SYSTEM_CLOCK
from vmnest.sandbox.files import Files


@pytest.fixture
def files(agent_client: AgentClient) -> Files:
    return Files(lambda _deadline: agent_client)


def test_all_byte_values_come_back_as_written(files: Files, tmp_path: Path) -> None:
    data = bytes(range(256)) * 100
    path = tmp_path / "new folder" / "a+b%20 -é"
    assert files.write(str(path), data) == len(data)
    assert path.read_bytes() == data
    assert files.read(str(path)) == data


def test_text_is_written_and_read_as_utf8(files: Files, tmp_path: Path) -> None:
    path = str(tmp_path / "text")
    assert files.write(path, "é\r\n日") == 7
    assert files.read_text(path) == "é\r\n日"


def test_reading_text_is_strict(files: Files, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"ab\xff")
    with pytest.raises(errors.RemoteFileError, match="at byte 2"):
        files.read_text(str(tmp_path / "binary"))
    assert files.read_text(str(tmp_path / "binary"), encoding="latin-1") == "abÿ"


def test_a_relative_path_begins_at_the_agents_working_directory(files: Files, shared_agent: Agent) -> None:
    files.write("sub/file", b"x")
    assert (shared_agent.workdir / "sub" / "file").read_bytes() == b"x"


def test_a_relative_path_begins_at_the_directory_that_is_set(agent_client: AgentClient, tmp_path: Path) -> None:
    workdir, here = tmp_path / "work", tmp_path / "here"
    here.mkdir()
    files = Files(lambda _deadline: agent_client, environ={"AGENT_SANDBOX_WORKDIR": str(workdir)})
    assert files.list() == []  # it was made
    files.write("a", b"1")
    files.copy("a", "b")
    files.rename("b", "sub")
    files.chmod("sub", 0o600)
    assert [files.stat("sub").mode, files.exists("b"), files.read(str(workdir / "a"))] == [0o600, False, b"1"]
    assert [entry.name for entry in files.scan(".")] == ["a", "sub"]
    files.remove("sub")
    files.mkdir("sub")
    with files.open_write("sub/c") as file:
        file.write(b"2")
    files.download(".", str(here))
    files.upload(str(here), "back")
    files.send_tree("back", files, "again")
    assert (workdir / "again" / "sub" / "c").read_bytes() == b"2"


@pytest.mark.parametrize("is_set", [False, True], ids=["the agent's", "one that is set"])
def test_the_working_directory_itself_is_not_removed_or_renamed(
    agent_client: AgentClient, tmp_path: Path, is_set: bool
) -> None:
    environ = {"AGENT_SANDBOX_WORKDIR": str(tmp_path / "work")} if is_set else {}
    files = Files(lambda _deadline: agent_client, environ=environ)
    with pytest.raises(errors.AgentError, match="must not end with"):
        files.remove(".", recursive=True)
    with pytest.raises(errors.AgentError, match="must not end with"):
        files.rename(".", str(tmp_path / "elsewhere"))


def test_a_limit_refuses_a_larger_file(files: Files, tmp_path: Path) -> None:
    path = str(tmp_path / "ten")
    files.write(path, b"0123456789")
    assert files.read(path, limit=10) == b"0123456789"
    with pytest.raises(errors.RemoteFileError, match="larger than 9"):
        files.read(path, limit=9)


def test_what_cannot_be_read_or_written_has_its_own_errors(files: Files, tmp_path: Path) -> None:
    with pytest.raises(errors.RemoteFileNotFoundError):
        files.read(str(tmp_path / "absent"))
    with pytest.raises(errors.NotAFileError):
        files.read(str(tmp_path))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.RemoteFileError):
        files.write(str(tmp_path / "file" / "below"), b"")


def test_a_part_of_a_file_is_read(files: Files, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    path = str(tmp_path / "f")
    assert files.read(path, offset=3, length=4) == b"3456"
    assert files.read(path, offset=8) == b"89"
    assert files.read(path, offset=100) == b""
    assert files.read(path, offset=2, length=3, limit=3) == b"234"
    with pytest.raises(errors.RemoteFileError, match="larger than 2"):
        files.read(path, offset=2, length=3, limit=2)


@pytest.mark.parametrize("part", [{"offset": -1}, {"length": -1}, {"offset": 1.5}, {"length": True}], ids=str)
def test_a_part_that_can_be_none_is_refused(files: Files, part: Any) -> None:
    with pytest.raises(errors.UsageError, match="number of bytes"):
        files.read("f", **part)


def test_anything_that_gives_bytes_is_written(files: Files, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    for data in (b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc", [b"a", b"bc"], io.BytesIO(b"abc")):
        assert files.write(path, data) == 3
        assert files.read(path) == b"abc"


def test_the_mode_of_a_file_is_kept_or_set(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "f"
    files.write(str(path), b"1", mode=0o640)
    files.write(str(path), b"2")
    assert path.stat().st_mode & 0o7777 == 0o640
    with pytest.raises(errors.UsageError, match="mode"):
        files.write(str(path), b"3", mode=0o10000)


def test_a_file_is_a_stream_to_read(files: Files, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"line 1\nline 2\n")
    with files.open_read(str(tmp_path / "f"), offset=5) as file:
        assert list(file) == [b"1\n", b"line 2\n"]
    with pytest.raises(errors.RemoteFileNotFoundError):
        files.open_read(str(tmp_path / "absent"))


def test_a_file_is_a_stream_to_write(files: Files, tmp_path: Path) -> None:
    with files.open_write(str(tmp_path / "new" / "f"), mode=0o600) as file:
        file.write(b"ab")
        file.write(b"c")
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new" / "f").read_bytes() == b"abc"
    assert (tmp_path / "new" / "f").stat().st_mode & 0o7777 == 0o600


def test_a_stream_that_cannot_be_committed_says_so(files: Files, tmp_path: Path) -> None:
    file = files.open_write(str(tmp_path))
    file.write(b"abc")
    with pytest.raises(errors.NotAFileError):
        file.close()


def test_one_stream_goes_into_another(files: Files, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    files.write(str(tmp_path / "a"), data)
    with files.open_read(str(tmp_path / "a")) as source:
        files.write(str(tmp_path / "b"), source)
    assert (tmp_path / "b").read_bytes() == data


def test_a_directory_is_listed_at_once_or_bit_by_bit(files: Files, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f").touch()
    (tmp_path / ".hidden").touch()
    assert [entry.name for entry in files.list(str(tmp_path))] == [".hidden", "sub"]
    assert [entry.path for entry in files.scan(str(tmp_path), depth=2)] == [
        f"{tmp_path}/.hidden",
        f"{tmp_path}/sub",
        f"{tmp_path}/sub/f",
    ]


@pytest.mark.parametrize("depth", [0, -1, True, 1.5, None], ids=repr)
def test_a_depth_that_can_be_none_is_refused(files: Files, depth: Any) -> None:
    with pytest.raises(errors.UsageError, match="depth"):
        files.list(".", depth=depth)
    with pytest.raises(errors.UsageError, match="depth"):
        files.scan(".", depth=depth)


def test_the_working_directory_is_listed_if_nothing_is_named(files: Files) -> None:
    files.write("listed", b"")
    assert "listed" in [entry.path.removeprefix("./") for entry in files.list()]


def test_what_a_file_system_does_is_done(files: Files, tmp_path: Path) -> None:
    top = str(tmp_path)
    files.mkdir(f"{top}/a/b")
    files.write(f"{top}/a/b/f", b"abc")
    assert files.copy(f"{top}/a", f"{top}/c", recursive=True) == ()
    files.rename(f"{top}/c/b/f", f"{top}/c/g")
    files.chmod(f"{top}/c/g", 0o600)
    entry = files.stat(f"{top}/c/g", sha256=True)
    assert (entry.size, entry.mode, entry.sha256) == (3, 0o600, hashlib.sha256(b"abc").hexdigest())
    assert files.exists(f"{top}/c/g")
    files.remove(f"{top}/c", recursive=True)
    files.remove(f"{top}/c", missing_ok=True)
    assert not files.exists(f"{top}/c")


def test_the_time_of_a_call_is_bounded(tmp_path: Path) -> None:
    with (
        ScriptedServer(SILENT) as server,
        open_client(server.url, clock=SYSTEM_CLOCK) as client,
        pytest.raises((errors.ReadTimeoutError, errors.WaitTimeoutError)),
    ):
        Files(lambda _deadline: client).read("f", timeout=0.2)


def test_many_threads_use_it_at_once(files: Files, tmp_path: Path) -> None:
    def use(number: int) -> bool:
        path = str(tmp_path / str(number % 7))
        data = bytes([number % 7]) * 300_000
        files.write(path, data)
        return files.read(path) == data and files.stat(path).size == len(data)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(56)))
    assert sorted(os.listdir(tmp_path)) == [str(number) for number in range(7)]


# -- which agent can do what -------------------------------------------------------------------------------------------


def announcing(*features: str) -> Answer:
    return json_answer(200, {"status": "ok", "version": "1", "features": list(features)})


def test_the_agent_is_asked_once_what_it_can(tmp_path: Path) -> None:
    steps = (announcing("files", "fs"), answer(200, b"1"), answer(200, b"2"), json_answer(200, {"exists": True}))
    with ScriptedServer(*steps) as server, open_client(server.url) as client:
        files = Files(lambda _deadline: client)
        assert (files.read("f"), files.read("f"), files.exists("f")) == (b"1", b"2", True)
        assert [request.target.partition("?")[0] for request in server.requests] == [
            "/healthz",
            "/v1/files",
            "/v1/files",
            "/v1/fs/exists",
        ]


def test_what_the_agent_has_no_route_for_is_done_by_tools(shared_agent: Agent, tmp_path: Path) -> None:
    with base_contract(shared_agent.port) as url, open_client(url) as client:
        files = Files(lambda _deadline: client)
        files.write(str(tmp_path / "f"), b"abc", mode=0o600)
        assert files.read(str(tmp_path / "f"), offset=1) == b"bc"
        assert [entry.name for entry in files.list(str(tmp_path))] == ["f"]
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "f").write_bytes(b"abc")
        files.upload(tmp_path / "tree", str(tmp_path / "copy"))
        files.download(str(tmp_path / "copy"), tmp_path / "back")
        files.download(str(tmp_path / "copy" / "f"), tmp_path / "g")
    assert (tmp_path / "back" / "f").read_bytes() == (tmp_path / "g").read_bytes() == b"abc"


def test_a_larger_file_than_a_request_of_the_base_contract_holds_is_written(files: Files, tmp_path: Path) -> None:
    assert files.write(str(tmp_path / "huge"), bytes(51 * 1024 * 1024)) == 51 * 1024 * 1024
