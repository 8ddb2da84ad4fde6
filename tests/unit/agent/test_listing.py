"""Directories by find and stat, compared with what this machine says about them."""

from __future__ import annotations

import hashlib
import ntpath
import os
import socket
import stat as modes
import subprocess
from pathlib import Path

import pytest

from tests.support.cutting import open_client
from tests.support.minimal import FOR_FILES, bare_client
from tests.support.scripted import Answer, Received, ScriptedServer, json_answer
from vmnest import errors
from vmnest.agent import listing
from vmnest.agent.client import AgentClient
from vmnest.agent.entries import Entry
from vmnest.agent.files import RemoteFiles
from vmnest.agent.tools import Tools
from vmnest.deadline import NEVER


@pytest.fixture
def tools(base_client: AgentClient) -> Tools:
    return Tools(base_client, feature="fs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "top\nfolder"
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "sub" / "file").write_bytes(b"123")
    (top / "sub" / "run").write_bytes(b"")
    (top / "sub" / "run").chmod(0o4750)
    (top / ".hidden").touch()
    Path(os.fsdecode(os.fsencode(top) + b"/\xff bytes\n")).touch()
    os.symlink(b"to\xfe\nnowhere\n", os.fsencode(top / "link"))
    os.symlink("sub", top / "to folder")
    os.mkfifo(top / "fifo")
    return top


def without_fractions(entries: list[Entry]) -> list[Entry]:
    """``stat -c %Y`` tells whole seconds."""
    return [entry._replace(mtime=float(int(entry.mtime))) for entry in entries]


@pytest.mark.parametrize("depth", [1, 2, 9])
def test_a_list_is_the_one_that_the_agents_own_route_gives(
    tools: Tools, agent_client: AgentClient, folder: Path, depth: int
) -> None:
    ours = listing.scan(tools, str(folder), depth=depth, deadline=NEVER)
    assert ours == without_fractions(RemoteFiles(agent_client).list(str(folder), depth=depth))
    assert len(ours) > 5


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("name", ["sub", "sub/run", "to folder", "fifo", "."])
def test_stat_is_what_the_agents_own_route_gives(
    tools: Tools, agent_client: AgentClient, folder: Path, name: str, follow: bool
) -> None:
    path = os.path.join(str(folder), name)
    expected = RemoteFiles(agent_client).stat(path, follow=follow)
    assert without_fractions([listing.stat(tools, path, follow=follow, deadline=NEVER).entry]) == (
        without_fractions([expected])
    )


def test_a_link_is_told_with_its_target(tools: Tools, folder: Path) -> None:
    entry = listing.stat(tools, str(folder / "link"), follow=False, deadline=NEVER).entry
    assert (entry.type, entry.target) == ("link", "to\udcfe\nnowhere\n")
    with pytest.raises(errors.RemoteFileNotFoundError):
        listing.stat(tools, str(folder / "link"), deadline=NEVER)


def test_a_digest_is_told_if_it_is_asked_for(tools: Tools, folder: Path) -> None:
    entry = listing.stat(tools, str(folder / "sub" / "file"), sha256=True, deadline=NEVER).entry
    assert entry.sha256 == hashlib.sha256(b"123").hexdigest()
    with pytest.raises(errors.NotAFileError):
        listing.stat(tools, str(folder / "fifo"), sha256=True, deadline=NEVER)


def test_the_stamp_changes_with_the_content(tools: Tools, folder: Path) -> None:
    path = folder / "sub" / "file"
    before = listing.stat(tools, str(path), deadline=NEVER).stamp
    assert listing.stat(tools, str(path), deadline=NEVER).stamp == before
    path.write_bytes(b"1234")
    assert listing.stat(tools, str(path), deadline=NEVER).stamp != before


def test_sockets_and_devices_have_their_types(tools: Tools, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        assert listing.scan(tools, str(tmp_path), depth=1, deadline=NEVER)[0].type == "socket"
    device = listing.stat(tools, "/dev/null", deadline=NEVER).entry
    assert (device.type, device.mode) == ("device", modes.S_IMODE(os.stat("/dev/null").st_mode))


def test_an_empty_directory_has_an_empty_list(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert listing.scan(tools, str(tmp_path / "empty"), depth=5, deadline=NEVER) == []


def test_many_names_are_told_in_the_order_of_their_bytes(tools: Tools, tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"name {number * 7919 % 3000:05} {'x' * 150}").touch()
    names = [entry.name for entry in listing.scan(tools, str(tmp_path), depth=1, deadline=NEVER)]
    assert len(names) == 3000
    assert names == sorted(names)


def test_what_is_no_directory_has_its_own_error(tools: Tools, folder: Path) -> None:
    with pytest.raises(errors.RemoteFileNotFoundError):
        listing.scan(tools, str(folder / "absent"), depth=1, deadline=NEVER)
    with pytest.raises(errors.RemoteNotADirectoryError):
        listing.scan(tools, str(folder / "sub" / "file"), depth=1, deadline=NEVER)


def test_a_directory_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    # Root reads everything: the script is run as somebody else.
    (tmp_path / "closed").mkdir(mode=0o700)
    tmp_path.chmod(0o755)
    word = "w" * 32
    script = f'cd {tmp_path}; find . -mindepth 1 -maxdepth 2 -exec sh -c "$1" {word} {{}} +'
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    for folder in tmp_path.parents[:3]:
        folder.chmod(0o755)
    done = subprocess.run([*nobody, "sh", "-c", script, "sh", listing.EACH], capture_output=True, check=False)
    assert f"{word}:closed ./closed".encode() in done.stdout


@pytest.mark.parametrize("missing", ["stat", "find"])
def test_a_missing_tool_is_named(tmp_path: Path, missing: str) -> None:
    tools = [tool for tool in FOR_FILES if tool != missing]
    with bare_client(tmp_path, tools=tools) as client, pytest.raises(errors.UnsupportedError, match=missing):
        listing.scan(Tools(client, feature="fs"), str(tmp_path), depth=1, deadline=NEVER)


@pytest.mark.parametrize("fields", [b"zz", b"81a4 5", b"81a4 -5 1 0 0", b"81a4 5 " + b"9" * 5000 + b" 0 0"])
def test_output_that_is_none_of_stats_is_refused(fields: bytes) -> None:
    with pytest.raises(errors.AgentAnswerError):
        listing.parse_fields(fields.split(), name="a", path="a")


def test_a_mode_of_any_length_is_some_mode() -> None:
    assert listing.parse_fields([b"f" * 5000, b"5", b"1", b"0", b"0"], name="a", path="a").mode == 0o7777


def scan_of(records: str) -> list[Entry]:
    """What is made of these records, in which W is the word."""

    def answer(received: Received) -> Answer:
        told = received.json()
        assert isinstance(told, dict)
        output = records.replace("W", told["args"][-2])
        return json_answer(200, {"exit_code": 0, "stdout": output, "stderr": "", "encoding": "utf-8"})

    with ScriptedServer(answer, missing="/v1/processes") as server, open_client(server.url) as client:
        return listing.scan(Tools(client, feature="fs"), "top", depth=2, deadline=NEVER)


def test_remarks_on_what_has_gone_meanwhile_are_passed_over() -> None:
    (entry,) = scan_of("W:link ./gone W:target there\nW:closed ./gone W:target \nW:entry 81a4 5 1 0 0 7 1 ./a\n")
    assert (entry.path, entry.size, entry.error, entry.target) == ("top/a", 5, None, None)


def test_paths_are_those_of_the_sandbox_whatever_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "path", ntpath)
        (entry,) = scan_of("W:entry 81a4 5 1 0 0 7 1 ./sub/c:a\\b\n")
    assert (entry.name, entry.path) == ("c:a\\b", "top/sub/c:a\\b")


@pytest.mark.parametrize("name", ["./../a", "/etc/a", "./", "./x/..", "."])
def test_what_is_not_in_the_directory_is_refused(name: str) -> None:
    with pytest.raises(errors.AgentAnswerError):
        scan_of(f"W:entry 81a4 5 1 0 0 7 1 {name}\n")
