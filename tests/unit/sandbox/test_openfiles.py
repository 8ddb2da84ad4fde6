"""Files of a sandbox as streams."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator

import pytest

from vmnest.agent.minimal import MinimalReading
from vmnest.sandbox.openfiles import MEMORY_BYTES, Writer, open_reader


class Told(MinimalReading):
    """A reading that tells when it is closed."""

    def __init__(self, *pieces: bytes) -> None:
        self.closed = 0
        self.given = 0
        super().__init__(self._give(pieces), size=0, expected=0, mode=0o644)

    def _give(self, pieces: tuple[bytes, ...]) -> Iterator[bytes]:
        for piece in pieces:
            self.given += 1
            yield piece

    def close(self) -> None:
        self.closed += 1


# -- reading -----------------------------------------------------------------------------------------------------------


def test_it_is_read_as_any_binary_file() -> None:
    with open_reader(Told(b"first\nse", b"", b"cond\n", b"third")) as file:
        assert file.readable()
        assert not file.writable()
        assert file.readline() == b"first\n"
        assert file.read(3) == b"sec"
        assert list(file) == [b"ond\n", b"third"]
        assert file.read() == b""


def test_text_can_be_read_through_it() -> None:
    with io.TextIOWrapper(open_reader(Told(b"\xe6", b"\x97\xa5\n", b"x")), "utf-8") as text:
        assert text.read() == "日\nx"


def test_it_is_fetched_while_it_is_read() -> None:
    told = Told(b"x" * 1_000_000, b"y" * 1_000_000)
    with open_reader(told) as file:
        file.read(10)
        assert told.given == 1


def test_closing_it_ends_the_reading_once() -> None:
    told = Told(b"abc")
    file = open_reader(told)
    file.read(1)
    file.close()
    file.close()
    assert told.closed == 1
    with pytest.raises(ValueError):
        file.read(1)


def test_an_error_of_the_reading_comes_through() -> None:
    class Failing(Told):
        def _give(self, pieces: tuple[bytes, ...]) -> Iterator[bytes]:
            yield b"a"
            raise ZeroDivisionError

    with open_reader(Failing()) as file:
        assert file.read(1) == b"a"
        with pytest.raises(ZeroDivisionError):
            file.read(1)


# -- writing -----------------------------------------------------------------------------------------------------------


class Commits:
    """What was committed, as often as it was."""

    def __init__(self, *, fails: bool = False) -> None:
        self.seen: list[bytes] = []
        self._fails = fails

    def __call__(self, file: object) -> None:
        if self._fails:
            raise ZeroDivisionError
        self.seen.append(file.read())  # type: ignore[attr-defined]


def test_what_is_written_is_committed_at_the_close() -> None:
    commits = Commits()
    with Writer(commits) as file:
        assert file.writable()
        assert file.write(b"ab") == 2
        file.write(memoryview(b"cd"))
        file.write(bytearray(b"ef"))
        assert commits.seen == []
    assert commits.seen == [b"abcdef"]


def test_nothing_written_is_an_empty_file() -> None:
    commits = Commits()
    Writer(commits).close()
    assert commits.seen == [b""]


def test_a_large_content_waits_outside_of_memory() -> None:
    commits = Commits()
    with Writer(commits) as file:
        for _ in range(3):
            file.write(b"x" * MEMORY_BYTES)
    assert commits.seen == [b"x" * 3 * MEMORY_BYTES]


def test_a_second_close_commits_nothing() -> None:
    commits = Commits()
    file = Writer(commits)
    file.close()
    file.close()
    assert len(commits.seen) == 1


def break_off(file: Writer) -> None:
    file.write(b"abc")
    raise ZeroDivisionError


def test_a_block_that_ends_with_an_exception_commits_nothing() -> None:
    commits = Commits()
    with pytest.raises(ZeroDivisionError), Writer(commits) as file:
        break_off(file)
    assert file.closed
    assert commits.seen == []


def test_one_that_is_dropped_commits_nothing() -> None:
    commits = Commits()
    Writer(commits).write(b"abc")
    gc.collect()
    assert commits.seen == []


def test_a_commit_that_fails_is_told_once() -> None:
    file = Writer(Commits(fails=True))
    with pytest.raises(ZeroDivisionError):
        file.close()
    file.close()


def test_after_the_close_nothing_is_taken() -> None:
    file = Writer(Commits())
    file.close()
    with pytest.raises(ValueError):
        file.write(b"x")


def test_text_can_be_written_through_it() -> None:
    commits = Commits()
    with io.TextIOWrapper(Writer(commits), "utf-8") as text:  # type: ignore[type-var] # its stub asks for a name
        text.write("日")
    assert commits.seen == ["日".encode()]
