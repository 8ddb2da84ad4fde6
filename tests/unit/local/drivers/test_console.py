"""The bounded file of a main process's output."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmnest.local.drivers import console, kernel


class Pipe:
    """A console with a writer to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        reader, self.writer = os.pipe()
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.console = console.Console(reader, self.file)

    def feed(self, data: bytes) -> None:
        for start in range(0, len(data), 32768):
            os.write(self.writer, data[start : start + 32768])
            assert self.console.take()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "console.log")
    yield pipe
    for descriptor in (pipe.console.source, pipe.file):
        os.close(descriptor)


def test_a_full_disk_loses_output_and_nothing_else() -> None:
    reader, writer = os.pipe()
    full = os.open("/dev/full", os.O_RDWR)
    one = console.Console(reader, full)
    os.write(writer, b"x")
    assert one.take()
    os.close(writer)
    assert not one.take()
    for descriptor in (reader, full):
        os.close(descriptor)


def test_output_is_kept_in_order(pipe: Pipe) -> None:
    pipe.feed(b"one ")
    pipe.feed(b"two")
    os.close(pipe.writer)
    assert pipe.path.read_bytes() == b"one two"
    assert not pipe.console.take()


def test_the_file_stays_bounded_and_keeps_the_end_where_it_is(pipe: Pipe) -> None:
    lines = b"".join(b"%07d\n" % number for number in range(800_000))
    pipe.feed(lines)
    os.close(pipe.writer)
    begin = os.lseek(pipe.file, 0, os.SEEK_DATA)
    assert len(lines) - console.MAX_BYTES <= begin < len(lines) - console.MAX_BYTES * 9 // 10
    assert pipe.path.read_bytes() == bytes(begin) + lines[begin:]


def test_where_there_are_no_holes_the_file_begins_anew(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, *, start: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no holes")

    monkeypatch.setattr(kernel, "punch", refuse)
    lines = b"".join(b"%07d\n" % number for number in range(800_000))
    pipe.feed(lines)
    os.close(pipe.writer)
    text = pipe.path.read_bytes()
    assert len(text) <= console.MAX_BYTES
    assert text.endswith(lines[-200_000:])
    assert text.startswith(b"[vmnest: earlier output dropped]\n")


def test_a_flood_uses_up_its_second(pipe: Pipe) -> None:
    assert pipe.console.wants_more(100.0)
    pipe.feed(b"x" * 8 * 1024 * 1024)
    assert not pipe.console.wants_more(100.9)
    assert pipe.console.wants_more(101.0)
    os.close(pipe.writer)
