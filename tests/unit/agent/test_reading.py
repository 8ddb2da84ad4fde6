"""Reading a file of a sandbox: parts of it, and going on after cuts."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tests.support.cutting import Cutter, open_client
from tests.support.scripted import Answer, ScriptedServer, answer, text_answer
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.agent.reading import Reading
from vmnest.deadline import NEVER
from vmnest.wire import names

DATA = random.Random(7).randbytes(300_000)


def read(client: AgentClient, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
    with Reading(client, path, offset=offset, length=length, deadline=NEVER) as reading:
        data = b"".join(reading.pieces())
        assert reading.expected in (None, len(data))
        return data


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("reading") / "a b%+é\n"
    path.write_bytes(DATA)
    return str(path)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offset=st.integers(0, 400_000), length=st.none() | st.integers(0, 400_000))
def test_any_part_is_what_a_slice_is(agent_client: AgentClient, file: str, offset: int, length: int | None) -> None:
    expected = DATA[offset:] if length is None else DATA[offset : offset + length]
    assert read(agent_client, file, offset=offset, length=length) == expected


def test_an_empty_file_has_no_parts(agent_client: AgentClient, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read(agent_client, str(tmp_path / "empty")) == b""
    assert read(agent_client, str(tmp_path / "empty"), offset=1, length=1) == b""


def test_size_and_mode_are_known_before_the_first_byte(agent_client: AgentClient, tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"0123456789")
    (tmp_path / "run").chmod(0o751)
    with Reading(agent_client, str(tmp_path / "run"), offset=3, length=4, deadline=NEVER) as reading:
        assert (reading.size, reading.expected, reading.mode, reading.was_cut) == (10, 4, 0o751, False)


def test_a_file_that_does_not_tell_its_size_is_read_to_its_end(agent_client: AgentClient) -> None:
    assert b"Name:" in read(agent_client, "/proc/self/status")
    assert read(agent_client, "/proc/self/status", offset=5, length=1) in b"\t "


def test_what_cannot_be_read_is_an_error_before_the_first_byte(agent_client: AgentClient, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.RemoteFileNotFoundError):
        Reading(agent_client, str(tmp_path / "absent"), offset=0, length=None, deadline=NEVER)
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(errors.NotAFileError):
            Reading(agent_client, str(path), offset=0, length=None, deadline=NEVER)


# -- cuts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [(1,), (400,), (100_000,), (100_000, 0, 60_000, 1)], ids=str)
def test_after_cuts_it_goes_on_where_it_was(
    cut_client: AgentClient, cutter: Cutter, file: str, after: tuple[int, ...]
) -> None:
    cutter.cut_answers(*after)
    with Reading(cut_client, file, offset=0, length=None, deadline=NEVER) as reading:
        assert b"".join(reading.pieces()) == DATA
        assert reading.was_cut is (max(after) > 1)  # else it was cut in the head
    assert cutter.count == len(after)


def test_a_cut_at_any_byte_of_the_answer_changes_nothing(
    cut_client: AgentClient, cutter: Cutter, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"0123456789" * 3)
    for after in range(400):  # the head has about 300 bytes
        before = cutter.count
        cutter.cut_answers(after)
        assert read(cut_client, str(tmp_path / "f")) == b"0123456789" * 3
        assert read(cut_client, str(tmp_path / "f"), offset=3, length=20) == b"34567890123456789012"
        assert cutter.count == before + 1, f"not cut after {after} bytes"


def test_after_a_cut_a_part_ends_where_it_should(cut_client: AgentClient, cutter: Cutter, file: str) -> None:
    cutter.cut_answers(70_000)
    with Reading(cut_client, file, offset=1000, length=200_000, deadline=NEVER) as reading:
        assert b"".join(reading.pieces()) == DATA[1000:201_000]


def test_a_file_that_was_replaced_meanwhile_is_not_stitched_together(
    cut_client: AgentClient, cutter: Cutter, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA * 10)

    def replace() -> None:
        (tmp_path / "new").write_bytes(bytes(len(DATA) * 10))
        (tmp_path / "new").rename(path)

    cutter.cut_answers(50_000, on_cut=replace)
    with (
        Reading(cut_client, str(path), offset=0, length=None, deadline=NEVER) as reading,
        pytest.raises(errors.FileChangedError) as caught,
    ):
        b"".join(reading.pieces())
    assert caught.value.retryable


HEAD = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n"


def partial(status: bytes, *, length: int, body: bytes, more: bytes = b'ETag: "1"\r\n') -> Answer:
    """An answer that is cut after ``body``."""
    return Answer([HEAD % (status, length, more) + body], cut=True)


def test_without_a_tag_nothing_is_stitched_together(fake_clock: FakeClock) -> None:
    with (
        ScriptedServer(partial(b"200 OK", length=4, body=b"ab", more=b"")) as server,
        open_client(server.url, clock=fake_clock) as client,
        pytest.raises(errors.ConnectionLostError),
    ):
        read(client, "f")


def test_the_rest_is_asked_for_under_the_tag_of_the_beginning() -> None:
    rest = answer(206, b"cd", headers=[("Content-Range", "bytes 2-3/4"), ("ETag", '"1"')])
    with ScriptedServer(partial(b"200 OK", length=4, body=b"ab"), rest) as server:
        with open_client(server.url) as client:
            assert read(client, "f") == b"abcd"
        first, second = server.requests
    assert "range" not in first.headers
    assert (second.headers["range"], second.headers["if-match"]) == ("bytes=2-", '"1"')


def test_a_size_that_no_file_has_is_not_known() -> None:
    rest = answer(206, b"cd", headers=[("Content-Range", "bytes 2-3/" + "9" * 5000)])
    with (
        ScriptedServer(rest) as server,
        open_client(server.url) as client,
        Reading(client, "f", offset=2, length=None, deadline=NEVER) as reading,
    ):
        assert (reading.size, reading.expected) == (None, None)
        assert b"".join(reading.pieces()) == b"cd"


def test_a_server_that_knows_no_parts_is_read_from_the_beginning() -> None:
    whole = answer(200, b"0123456789", headers=[("ETag", '"1"')])
    with (
        ScriptedServer(whole, partial(b"200 OK", length=10, body=b"01234567"), whole) as server,
        open_client(server.url) as client,
    ):
        assert read(client, "f", offset=2, length=3) == b"234"
        assert read(client, "f", offset=7) == b"789"


def test_while_the_sandbox_sleeps_it_is_not_woken() -> None:
    looks = [names.SUSPENDED, names.SUSPENDED, names.RUNNING]
    seen: list[int] = []
    rest = answer(206, b"cd", headers=[("Content-Range", "bytes 2-3/4")])
    with ScriptedServer(partial(b"200 OK", length=4, body=b"ab"), rest) as server:

        def look() -> str:
            seen.append(len(server.requests))
            return looks.pop(0)

        with open_client(server.url, look=look) as client:
            assert read(client, "f") == b"abcd"
    assert seen == [1, 1, 1]


def test_a_token_that_ends_in_the_middle_is_replaced() -> None:
    refused = text_answer(403, "Token authentication failed")
    rest = answer(206, b"cd", headers=[("Content-Range", "bytes 2-3/4")])
    tokens = iter(("one", "two", "three"))

    def headers(_refused: object) -> list[tuple[str, str]]:
        return [("X-aws-proxy-auth", next(tokens))]

    with (
        ScriptedServer(partial(b"200 OK", length=4, body=b"ab"), refused, rest) as server,
        open_client(server.url, headers=headers) as client,
    ):
        assert read(client, "f") == b"abcd"
        assert [request.headers["x-aws-proxy-auth"] for request in server.requests] == ["one", "two", "three"]


def test_an_agent_that_never_gives_a_byte_more_is_given_up() -> None:
    stuck = partial(b"206 OK", length=2, body=b"", more=b"Content-Range: bytes 2-3/4\r\n")

    def first_or_stuck() -> Iterator[Answer]:
        yield partial(b"200 OK", length=4, body=b"ab")
        while True:
            yield stuck

    steps = first_or_stuck()
    with (
        ScriptedServer(lambda _received: next(steps), repeat_last=True) as server,
        open_client(server.url) as client,
        pytest.raises(errors.ConnectionLostError),
    ):
        read(client, "f")


@pytest.mark.parametrize(
    ("told", "mode"), [("0755", 0o755), ("", 0o644), ("rwx", 0o644), ("9", 0o644), ("1" * 9, 0o644)], ids=str
)
def test_a_mode_that_is_none_is_the_usual_one(told: str, mode: int) -> None:
    with (
        ScriptedServer(answer(200, b"", headers=[("vmnest-mode", told)])) as server,
        open_client(server.url) as client,
        Reading(client, "f", offset=0, length=None, deadline=NEVER) as reading,
    ):
        assert reading.mode == mode
