"""Parts of files and directories, against the real agent."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.agent import Agent
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.deadline import Deadline
from vmnest.ops import excerpts
from vmnest.sandbox.files import Files
from vmnest.transport import Transport


@pytest.fixture(scope="module")
def agent_files(shared_agent: Agent) -> Iterator[Files]:
    transport = Transport(environ={})
    client = AgentClient(shared_agent.url, headers=lambda _refused: [], transport=transport, port=shared_agent.port)
    shared_agent.workdir.mkdir(exist_ok=True)
    yield Files(lambda _deadline: client)
    transport.close()


class Excerpts:
    """Reads parts of one file."""

    def __init__(self, files: Files, agent: Agent) -> None:
        self._files = files
        self._agent = agent

    def write(self, data: bytes) -> None:
        (self._agent.workdir / "f").write_bytes(data)

    def lines(self, offset: int = 1, limit: int | None = None, most: int = 1000) -> dict[str, object]:
        return excerpts.read_lines(self._files, path="f", offset=offset, limit=limit, most=most, deadline=Deadline(30))

    def bytes(self, offset: int = 0, limit: int | None = None, most: int = 1000) -> dict[str, object]:
        return excerpts.read_bytes(self._files, path="f", offset=offset, limit=limit, most=most, deadline=Deadline(30))


@pytest.fixture(scope="module")
def part(agent_files: Files, shared_agent: Agent) -> Excerpts:
    return Excerpts(agent_files, shared_agent)


def text_of(shown: dict[str, object]) -> str:
    content = shown["content"]
    assert isinstance(content, dict)
    return str(content["text"])


def test_a_whole_file_is_whole(part: Excerpts) -> None:
    part.write(b"one\ntwo\nthree")
    assert part.lines() == {
        "path": "f",
        "encoding": "text",
        "content": {"text": "one\ntwo\nthree", "truncated": False, "total_bytes": 13, "returned_bytes": 13},
        "next_offset": None,
        "unit": "lines",
        "first_line": 1,
        "lines": 3,
    }


def test_lines_are_counted_from_one_and_lead_to_the_next(part: Excerpts) -> None:
    part.write(b"1\n2\n3\n4\n5\n")
    shown = part.lines(2, 2)
    assert (text_of(shown), shown["lines"], shown["next_offset"]) == ("2\n3\n", 2, 4)
    last = part.lines(4, 2)
    assert (text_of(last), last["next_offset"]) == ("4\n5\n", None)
    beyond = part.lines(9)
    assert (text_of(beyond), beyond["lines"], beyond["next_offset"]) == ("", 0, None)
    assert beyond["content"] == {"text": "", "truncated": False, "total_bytes": 10, "returned_bytes": 0}


def test_what_is_too_much_ends_with_a_whole_line(part: Excerpts) -> None:
    part.write(b"abc\n" * 10)
    shown = part.lines(most=10)
    assert (text_of(shown), shown["next_offset"]) == ("abc\nabc\n", 3)
    assert shown["content"] == {"text": "abc\nabc\n", "truncated": True, "total_bytes": 40, "returned_bytes": 8}


def test_a_line_that_is_too_long_is_cut_between_characters_and_told(part: Excerpts) -> None:
    part.write("é".encode() * 10 + b"\nnext\n")
    shown = part.lines(most=7)
    assert (text_of(shown), shown["line_cut"], shown["lines"], shown["next_offset"]) == ("ééé", True, 1, 2)
    assert text_of(part.lines(2, most=7)) == "next\n"
    tiny = part.lines(most=1)
    assert (text_of(tiny), tiny["next_offset"]) == ("", 2)


def test_what_is_no_text_comes_as_bytes_from_there_on(part: Excerpts) -> None:
    part.write(b"text\n\xff\xfe\n")
    assert text_of(part.lines(1, 1)) == "text\n"
    shown = part.lines(2)
    assert (shown["encoding"], shown["unit"], base64.b64decode(text_of(shown))) == ("base64", "bytes", b"\xff\xfe\n")


def test_lines_are_found_beyond_the_first_block(part: Excerpts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "BLOCK_BYTES", 7)
    part.write(b"".join(b"line %d\n" % number for number in range(50)))
    assert text_of(part.lines(31, 2)) == "line 30\nline 31\n"


@settings(max_examples=25, deadline=None)
@given(data=st.text(alphabet="aé日\n\r", max_size=60).map(str.encode), most=st.integers(16, 40))
def test_the_parts_of_a_text_are_the_text(part: Excerpts, data: bytes, most: int) -> None:
    part.write(data)
    texts, offset = [], 1
    while True:
        shown = part.lines(offset, most=most)
        texts.append(text_of(shown))
        if shown.get("line_cut"):
            return  # its rest is left out
        following = shown["next_offset"]
        if following is None:
            break
        assert isinstance(following, int)
        assert following > offset
        offset = following
    assert "".join(texts).encode() == data


def test_the_parts_of_bytes_are_the_bytes(part: Excerpts) -> None:
    data = bytes(range(256)) * 4
    part.write(data)
    found, offset = b"", 0
    while True:
        shown = part.bytes(offset, most=400)
        assert len(text_of(shown)) <= 400
        found += base64.b64decode(text_of(shown))
        following = shown["next_offset"]
        if following is None:
            break
        assert following == len(found)
        offset = len(found)
    assert found == data
    assert base64.b64decode(text_of(part.bytes(254, 4))) == b"\xfe\xff\x00\x01"
    beyond = part.bytes(5000)["content"]
    assert beyond == {"text": "", "truncated": False, "total_bytes": 1024, "returned_bytes": 0}


@pytest.mark.parametrize(("offset", "limit"), [(0, None), (-1, None), (1, 0), (1 << 70, None)])
def test_numbers_that_are_none_are_refused(part: Excerpts, offset: int, limit: int | None) -> None:
    part.write(b"x")
    with pytest.raises(errors.UsageError, match="whole number"):
        part.lines(offset, limit)


def test_a_reading_ends_when_nobody_waits(agent_files: Files, part: Excerpts) -> None:
    part.write(b"x\n")

    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        excerpts.read_lines(agent_files, path="f", most=9, deadline=Deadline(30), check=check)


def test_only_files_are_read(agent_files: Files, shared_agent: Agent) -> None:
    (shared_agent.workdir / "folder").mkdir(exist_ok=True)
    with pytest.raises(errors.NotAFileError):
        excerpts.read_lines(agent_files, path="folder", most=9, deadline=Deadline(30))


def test_a_text_that_no_path_has_is_cut() -> None:
    shown = excerpts.shorten({"path": "x" * 9000, "size": 1, "target": "y"})
    assert (len(str(shown["path"])), shown["size"], shown["target"]) == (8193, 1, "y")


def test_entries_come_in_parts(agent_files: Files, shared_agent: Agent) -> None:
    folder = shared_agent.workdir / "many"
    folder.mkdir()
    for number in range(5):
        (folder / f"f{number}").touch()

    def names(**options: int) -> tuple[list[str], object]:
        part = excerpts.list_part(
            agent_files, path="many", **{"limit": 2, "most": 1000, **options}, deadline=Deadline(30)
        )
        entries = part["entries"]
        assert isinstance(entries, list)
        assert part["truncated"] is (part["next_offset"] is not None)
        return [entry["name"] for entry in entries], part["next_offset"]

    assert names() == (["f0", "f1"], 2)
    assert names(offset=2) == (["f2", "f3"], 4)
    assert names(offset=4) == (["f4"], None)
    assert names(limit=5) == (["f0", "f1", "f2", "f3", "f4"], None)
    assert names(limit=5, most=1) == (["f0"], 1)  # one at least: else nobody gets on
    with pytest.raises(errors.UsageError, match="limit"):
        names(limit=0)
