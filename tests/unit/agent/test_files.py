"""The client of the agent's routes for files: what it sends, and what it makes of answers and of cuts."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.cutting import Cutter, open_client
from tests.support.lifecycle import eventually
from tests.support.scripted import CUT, Answer, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest._guest.agentd import trees
from vmnest.agent import entries
from vmnest.agent.client import AgentClient
from vmnest.agent.entries import Skipped, Transfer
from vmnest.agent.files import MAX_ANSWER_BYTES, MAX_LINE_BYTES, RemoteFiles
from vmnest.agent.sources import Source, from_data

LINES = "application/x-ndjson"


@pytest.fixture
def remote(agent_client: AgentClient) -> RemoteFiles:
    return RemoteFiles(agent_client)


def written(data: bytes) -> Answer:
    import hashlib

    return json_answer(200, {"bytes_written": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mode": 0o644})


# -- writing -----------------------------------------------------------------------------------------------------------


def test_data_of_a_known_size_goes_out_with_it() -> None:
    with ScriptedServer(written(b"abc")) as server, open_client(server.url) as client:
        assert RemoteFiles(client).write("a b\udcff", from_data(b"abc"), mode=0o750) == 3
        (request,) = server.requests
    assert (request.method, request.target) == ("PUT", "/v1/files?path=a%20b%FF&mode=0750")
    assert (request.headers["content-length"], request.body) == ("3", b"abc")
    assert request.headers["content-type"] == "application/octet-stream"


def test_what_can_be_read_only_once_goes_out_when_the_agent_has_answered(
    agent_client: AgentClient, tmp_path: Path
) -> None:
    data = [b"x" * 300_000] * 10
    assert RemoteFiles(agent_client).write(str(tmp_path / "f"), from_data(iter(data))) == 3_000_000
    assert (tmp_path / "f").read_bytes() == b"".join(data)


def test_a_write_that_was_cut_is_repeated_whole(cut_client: AgentClient, cutter: Cutter, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    cut_client.health()
    cutter.cut_requests(500_000, 10)
    assert RemoteFiles(cut_client).write(str(tmp_path / "f"), from_data(data)) == len(data)
    assert (tmp_path / "f").read_bytes() == data
    assert cutter.count == 2
    eventually(lambda: os.listdir(tmp_path) == ["f"])


def test_a_write_whose_answer_was_lost_is_repeated(cut_client: AgentClient, cutter: Cutter, tmp_path: Path) -> None:
    cut_client.health()
    cutter.cut_answers(20)
    assert RemoteFiles(cut_client).write(str(tmp_path / "f"), from_data(b"abc")) == 3
    assert cutter.count == 1


def test_what_cannot_be_read_again_leaves_the_old_file_when_it_is_cut(
    cut_client: AgentClient, cutter: Cutter, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    cut_client.health()
    cutter.cut_requests(2_000_000)
    with pytest.raises(errors.VmnestError) as caught:
        RemoteFiles(cut_client).write(str(tmp_path / "f"), from_data(iter([b"x" * 300_000] * 10)))
    assert "read only once" in f"{caught.value} {caught.value.hint}"
    assert (tmp_path / "f").read_bytes() == b"old"
    eventually(lambda: os.listdir(tmp_path) == ["f"])


def test_an_exception_of_the_data_is_the_callers_own_and_leaves_the_old_file(
    remote: RemoteFiles, tmp_path: Path
) -> None:
    def failing() -> Iterator[bytes]:
        yield b"x" * 2_000_000
        raise ZeroDivisionError

    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        remote.write(str(tmp_path / "f"), from_data(failing()))
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_cut_of_what_the_data_come_from_is_told_as_that(remote: RemoteFiles, tmp_path: Path) -> None:
    cut = errors.ConnectionLostError("the other sandbox has gone")

    def failing() -> Iterator[bytes]:
        yield b"x" * 2_000_000
        raise cut

    with pytest.raises(errors.ConnectionLostError) as caught:
        remote.write(str(tmp_path / "f"), from_data(failing()))
    assert caught.value is cut
    assert (cut.hint, cut.details) == (None, {})


def test_an_agent_that_wrote_less_is_not_believed() -> None:
    with (
        ScriptedServer(json_answer(200, {"bytes_written": 2})) as server,
        open_client(server.url) as client,
        pytest.raises(errors.AgentAnswerError, match="wrote 2 bytes"),
    ):
        RemoteFiles(client).write("f", from_data(b"abc"))


def test_an_agent_that_wrote_something_else_is_not_believed() -> None:
    with (
        ScriptedServer(written(b"abd")) as server,
        open_client(server.url) as client,
        pytest.raises(errors.ChecksumMismatchError),
    ):
        RemoteFiles(client).write("f", from_data(b"abc"))


def test_a_refusal_in_the_middle_of_a_write_is_told_as_it_is(remote: RemoteFiles, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(errors.NotAFileError):
        remote.write(str(tmp_path / "folder"), from_data(bytes(20_000_000)))


# -- trees -------------------------------------------------------------------------------------------------------------


def members(pieces: Iterator[bytes]) -> list[str]:
    return tarfile.open(fileobj=io.BytesIO(b"".join(pieces))).getnames()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.o").write_bytes(b"x" * 300_000)
    (folder / "sub" / "b.c").write_bytes(b"y" * 300_000)
    return folder


def test_a_tree_is_read_as_an_archive_without_what_is_excluded(remote: RemoteFiles, tree: Path) -> None:
    assert [name.removesuffix("/") for name in remote.read_tree(str(tree), members, exclude=["*.o"])] == [
        ".",
        "sub",
        "sub/b.c",
    ]


def test_a_tree_that_was_cut_is_read_again_from_the_beginning(
    cut_client: AgentClient, cutter: Cutter, tree: Path
) -> None:
    cut_client.health()
    cutter.cut_answers(350_000)
    attempts = []

    def take(pieces: Iterator[bytes]) -> int:
        attempts.append(0)
        for piece in pieces:
            attempts[-1] += len(piece)
        return attempts[-1]

    assert RemoteFiles(cut_client).read_tree(str(tree), take) > 600_000
    assert len(attempts) == 2
    assert attempts[0] < 350_000


def test_a_tree_is_written_and_told(remote: RemoteFiles, tree: Path, tmp_path: Path) -> None:
    source = Source(lambda: iter(trees.pack(str(tree).encode())))
    transfer = remote.write_tree(str(tmp_path / "copy"), source)
    assert transfer == Transfer(files=2, directories=2, links=0, bytes=600_000)
    assert (tmp_path / "copy" / "sub" / "b.c").read_bytes() == b"y" * 300_000


def test_a_tree_whose_write_was_cut_is_written_again(
    cut_client: AgentClient, cutter: Cutter, tree: Path, tmp_path: Path
) -> None:
    cut_client.health()
    cutter.cut_requests(400_000)
    source = Source(lambda: iter(trees.pack(str(tree).encode())))
    assert RemoteFiles(cut_client).write_tree(str(tmp_path / "copy"), source).files == 2
    assert cutter.count == 1


def test_an_archive_that_leads_out_is_refused_as_such(remote: RemoteFiles, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        writer.addfile(tarfile.TarInfo("../out"), io.BytesIO())
    with pytest.raises(errors.UnsafePathError):
        remote.write_tree(str(tmp_path / "copy"), from_data(archive.getvalue()))
    assert not (tmp_path / "out").exists()


# -- the file system ---------------------------------------------------------------------------------------------------


Call = Callable[[RemoteFiles], object]

CALLS: dict[str, tuple[Call, str, dict[str, Any]]] = {
    "stat": (
        lambda remote: remote.stat("p", follow=False, sha256=True),
        "stat",
        {"path": "p", "follow": False, "sha256": True},
    ),
    "exists": (lambda remote: remote.exists("p\udcff"), "exists", {"path": "p\udcff"}),
    "mkdir": (
        lambda remote: remote.mkdir("p", parents=False, mode=0o700),
        "mkdir",
        {"path": "p", "parents": False, "exist_ok": True, "mode": 0o700},
    ),
    "remove": (
        lambda remote: remote.remove("p", missing_ok=True),
        "remove",
        {"path": "p", "recursive": False, "missing_ok": True},
    ),
    "copy": (
        lambda remote: remote.copy("p", "q", recursive=True),
        "copy",
        {"source": "p", "destination": "q", "recursive": True, "overwrite": True},
    ),
    "rename": (
        lambda remote: remote.rename("p", "q", overwrite=False),
        "rename",
        {"source": "p", "destination": "q", "overwrite": False},
    ),
    "chmod": (
        lambda remote: remote.chmod("p", 0o640, recursive=True),
        "chmod",
        {"path": "p", "mode": 0o640, "recursive": True},
    ),
}
ENTRY = {"name": "p", "path": "p", "type": "file", "exists": True}
WITHOUT_REPEAT: dict[str, Call] = {
    "rename": lambda remote: remote.rename("p", "q"),
    "remove": lambda remote: remote.remove("p"),
    "mkdir": lambda remote: remote.mkdir("p", exist_ok=False),
    "copy": lambda remote: remote.copy("p", "q", overwrite=False),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_a_document(name: str) -> None:
    call, operation, expected = CALLS[name]
    with ScriptedServer(json_answer(200, ENTRY)) as server, open_client(server.url) as client:
        call(RemoteFiles(client))
        (request,) = server.requests
    assert (request.method, request.target) == ("POST", f"/v1/fs/{operation}")
    assert json.loads(request.body) == expected


@pytest.mark.parametrize("name", [name for name in CALLS if name != "rename"])
def test_a_call_that_may_be_made_twice_is_made_again_after_a_cut(name: str) -> None:
    with ScriptedServer(CUT, json_answer(200, ENTRY)) as server, open_client(server.url) as client:
        CALLS[name][0](RemoteFiles(client))
        assert len({request.body for request in server.requests}) == 1


@pytest.mark.parametrize("name", WITHOUT_REPEAT)
def test_a_call_that_may_not_be_made_twice_has_an_unknown_outcome_after_a_cut(name: str) -> None:
    with (
        ScriptedServer(CUT) as server,
        open_client(server.url) as client,
        pytest.raises(errors.ConnectionLostError) as caught,
    ):
        WITHOUT_REPEAT[name](RemoteFiles(client))
    assert caught.value.details["outcome"] == "unknown"


@pytest.mark.parametrize("name", WITHOUT_REPEAT)
def test_a_call_that_may_not_be_made_twice_is_doubtful_after_an_unclear_refusal(name: str) -> None:
    unclear = answer(502)
    with (
        ScriptedServer(unclear) as server,
        open_client(server.url, recover=lambda _error: server.url) as client,
        pytest.raises(errors.EndpointUnavailableError) as caught,
    ):
        WITHOUT_REPEAT[name](RemoteFiles(client))
    assert caught.value.details["outcome"] == "unknown"
    assert not caught.value.retryable


@pytest.mark.parametrize("name", CALLS)
def test_no_path_is_sent_that_can_be_none(name: str) -> None:
    with ScriptedServer() as server, open_client(server.url) as client:
        remote = RemoteFiles(client)
        for wrong in ("", "a\0b", "\ud800"):
            with pytest.raises(errors.BadArgumentError):
                remote.copy(wrong, "q") if name == "copy" else remote.chmod(wrong, 0o644)
        assert server.requests == []


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "file_not_found", errors.RemoteFileNotFoundError),
        (409, "file_exists", errors.RemoteFileExistsError),
        (400, "not_a_file", errors.NotAFileError),
        (400, "not_a_directory", errors.RemoteNotADirectoryError),
        (409, "directory_not_empty", errors.DirectoryNotEmptyError),
        (400, "permission_denied", errors.RemotePermissionError),
        (507, "no_space", errors.NoSpaceError),
        (409, "checksum_mismatch", errors.ChecksumMismatchError),
        (412, "file_changed", errors.FileChangedError),
        (400, "unsafe_path", errors.UnsafePathError),
        (400, "file_error", errors.RemoteFileError),
        (400, "bad_argument", errors.BadArgumentError),
    ],
)
def test_a_refusal_has_its_class(status: int, code: str, expected: type[errors.VmnestError]) -> None:
    refusal = json_answer(status, {"detail": "no: /some/path", "code": code})
    with (
        ScriptedServer(refusal) as server,
        open_client(server.url) as client,
        pytest.raises(errors.AgentError, match="/some/path") as caught,
    ):
        RemoteFiles(client).stat("p")
    assert type(caught.value) is expected


def test_a_copy_tells_what_it_left_out() -> None:
    told = {"skipped": [{"path": "s", "reason": "a socket"}]}
    with ScriptedServer(json_answer(200, told)) as server, open_client(server.url) as client:
        assert RemoteFiles(client).copy("p", "q", recursive=True) == (Skipped("s", "a socket"),)


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'"x"', b"[" * 100_000], ids=lambda body: str(body[:9]))
def test_an_answer_that_is_no_object_is_refused(body: bytes) -> None:
    with (
        ScriptedServer(answer(200, body, kind="application/json")) as server,
        open_client(server.url) as client,
        pytest.raises(errors.AgentAnswerError),
    ):
        RemoteFiles(client).stat("p")


def test_an_answer_without_end_is_refused() -> None:
    huge = answer(200, b" " * (MAX_ANSWER_BYTES + 1), kind="application/json")
    with (
        ScriptedServer(huge) as server,
        open_client(server.url) as client,
        pytest.raises(errors.AgentAnswerError, match="larger than"),
    ):
        RemoteFiles(client).stat("p")


# -- lists -------------------------------------------------------------------------------------------------------------


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


TWO = lines({"name": "a", "path": "p/a"}, {"name": "b", "path": "p/b"})
END = lines({"end": True, "count": 2})


def test_a_list_has_an_entry_in_each_line() -> None:
    with ScriptedServer(answer(200, TWO + END, kind=LINES)) as server, open_client(server.url) as client:
        assert [entry.path for entry in RemoteFiles(client).scan("p", depth=3)] == ["p/a", "p/b"]
        assert server.requests[0].json() == {"path": "p", "depth": 3}


def test_a_list_without_its_end_is_no_list() -> None:
    with (
        ScriptedServer(answer(200, TWO, kind=LINES), repeat_last=True) as server,
        open_client(server.url) as client,
        pytest.raises(errors.AgentAnswerError, match="no end"),
    ):
        RemoteFiles(client).list("p")


@pytest.mark.parametrize("wrong", [b"nonsense\n", b"7\n", lines({"name": 1}), b"x" * (MAX_LINE_BYTES + 1)], ids=len)
def test_a_line_that_is_no_entry_is_refused(wrong: bytes) -> None:
    with (
        ScriptedServer(answer(200, wrong, kind=LINES)) as server,
        open_client(server.url) as client,
        pytest.raises(errors.AgentAnswerError),
    ):
        RemoteFiles(client).list("p")


def test_an_entry_that_is_not_in_the_directory_is_refused() -> None:
    with (
        ScriptedServer(answer(200, TWO, kind=LINES)) as server,
        open_client(server.url) as client,
        pytest.raises(errors.AgentAnswerError, match="does not describe files"),
    ):
        RemoteFiles(client).list("elsewhere")


def test_a_list_that_is_held_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_LIST_BYTES", len(TWO) - 2)
    with (
        ScriptedServer(answer(200, TWO + END, kind=LINES), repeat_last=True) as server,
        open_client(server.url) as client,
    ):
        assert len(RemoteFiles(client).list("p")) == 2
        assert len(list(RemoteFiles(client).scan("p"))) == 2
        monkeypatch.setattr(entries, "MAX_LIST_BYTES", len(TWO) - 3)
        with pytest.raises(errors.RemoteFileError, match="more than"):
            RemoteFiles(client).list("p")
        assert len(list(RemoteFiles(client).scan("p"))) == 2


def test_a_list_that_was_cut_is_asked_for_again() -> None:
    cut = Answer([b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + TWO], cut=True)
    whole = answer(200, TWO + END, kind=LINES)
    with ScriptedServer(cut, whole) as server, open_client(server.url) as client:
        assert [entry.name for entry in RemoteFiles(client).list("p")] == ["a", "b"]


def test_a_scan_that_was_cut_says_so() -> None:
    cut = Answer([b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + TWO], cut=True)
    with ScriptedServer(cut) as server, open_client(server.url) as client:
        entries = RemoteFiles(client).scan("p")
        assert next(entries).name == "a"
        with pytest.raises(errors.ConnectionLostError):
            list(entries)


def test_names_of_any_bytes_come_as_they_are(remote: RemoteFiles, shared_agent: Agent, tmp_path: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", "é".encode(), b"-x", b"%2F"):
        Path(str(tmp_path), name.decode("utf-8", "surrogateescape")).touch()
    assert [entry.name.encode("utf-8", "surrogateescape") for entry in remote.list(str(tmp_path))] == [
        b"%2F",
        b"-x",
        b"new\nline",
        "é".encode(),
        b"\xff\xfe",
    ]
