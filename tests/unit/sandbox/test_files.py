"""Files of a sandbox, against the real agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent import Agent
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.sandbox.files import Files
from vmnest.transport import Transport


@pytest.fixture
def files(shared_agent: Agent) -> Iterator[Files]:
    transport = Transport(environ={})
    client = AgentClient(shared_agent.url, headers=lambda _refused: [], transport=transport, port=8080)
    yield Files(lambda _deadline: client)
    transport.close()


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


def test_more_than_the_agent_takes_in_one_request_is_refused_as_such(files: Files, tmp_path: Path) -> None:
    with pytest.raises(errors.RequestTooLargeError):
        files.write(str(tmp_path / "huge"), bytes(51 * 1024 * 1024))
    assert not (tmp_path / "huge").exists()
