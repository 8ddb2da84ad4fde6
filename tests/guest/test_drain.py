"""Pipes of background children: read to nowhere, bounded in number."""

from __future__ import annotations

import os
import select
import threading

import pytest

from guest.agentd import drain

# More than a pipe holds (64 KiB): a writer that nobody reads would block.
MORE_THAN_A_PIPE = 300_000


def is_closed(writer: int) -> bool:
    """Whether the reading end of a pipe is closed: poll reports an error on the writing end."""
    poller = select.poll()
    poller.register(writer, 0)
    return bool(poller.poll(10_000))


def test_what_is_written_goes_nowhere_and_the_writer_never_blocks() -> None:
    drained = drain.Drain()
    reader, writer = os.pipe()
    drained.take(reader)
    assert not os.get_blocking(reader)
    with open(writer, "wb") as stream:
        stream.write(b"x" * MORE_THAN_A_PIPE)


def test_without_a_thread_the_pipe_is_closed_and_the_next_one_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    drained = drain.Drain()
    reader, writer = os.pipe()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        drained.take(reader)
    assert is_closed(writer)
    os.close(writer)
    reader, writer = os.pipe()
    drained.take(reader)
    with open(writer, "wb") as stream:
        stream.write(b"x" * MORE_THAN_A_PIPE)


def test_a_pipe_is_given_back_when_its_writers_are_gone() -> None:
    drained = drain.Drain()
    reader, writer = os.pipe()
    drained.take(reader)
    os.close(writer)
    ended = threading.Event()
    while len(drained):
        ended.wait(0.01)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)


def test_one_thread_serves_all_pipes() -> None:
    before = threading.active_count()
    drained = drain.Drain()
    assert threading.active_count() == before
    pipes = [os.pipe() for _ in range(20)]
    for reader, _ in pipes:
        drained.take(reader)
    assert threading.active_count() == before + 1
    for _, writer in pipes:
        os.write(writer, b"x")
        os.close(writer)


def test_beyond_the_limit_the_oldest_pipe_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "MAX_PIPES", 3)
    drained = drain.Drain()
    pipes = [os.pipe() for _ in range(5)]
    for reader, _ in pipes:
        drained.take(reader)
    assert len(drained) == 3
    assert [is_closed(writer) for _, writer in pipes[:2]] == [True, True]
    for _, writer in pipes[2:]:
        os.write(writer, b"still read")
        os.close(writer)
    os.close(pipes[0][1])
    os.close(pipes[1][1])
