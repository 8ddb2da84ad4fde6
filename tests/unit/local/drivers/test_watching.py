"""The thread that listens to supervisors."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterator

import pytest

from vmnest.local.drivers.watching import Watcher


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher("test-watcher")
    yield watcher
    watcher.close()


class Source:
    """A pipe whose bytes are put on a queue; it ends with its writer."""

    def __init__(self, heard: queue.Queue[bytes]) -> None:
        self.reader, self.writer = os.pipe()
        self._heard = heard

    def hear(self) -> bool:
        data = os.read(self.reader, 100)
        self._heard.put(data)
        if not data:
            os.close(self.reader)
        return bool(data)


def test_every_source_is_heard_until_its_end(watcher: Watcher) -> None:
    heard: queue.Queue[bytes] = queue.Queue()
    sources = [Source(heard) for _ in range(3)]
    for source in sources:
        watcher.add(source.reader, source.hear)
    for source in sources:
        os.write(source.writer, b"x")
        assert heard.get(timeout=5) == b"x"
    os.write(sources[0].writer, b"y")
    assert heard.get(timeout=5) == b"y"
    for source in sources:
        os.close(source.writer)
        assert heard.get(timeout=5) == b""


def test_a_number_that_is_used_again_is_watched_again(watcher: Watcher) -> None:
    heard: queue.Queue[bytes] = queue.Queue()
    for _ in range(5):
        source = Source(heard)
        watcher.add(source.reader, source.hear)
        os.close(source.writer)
        assert heard.get(timeout=5) == b""


def test_one_failure_does_not_silence_the_others(watcher: Watcher, caplog: pytest.LogCaptureFixture) -> None:
    heard: queue.Queue[bytes] = queue.Queue()
    bad, good = Source(heard), Source(heard)

    def fail() -> bool:
        raise RuntimeError("on purpose")

    with caplog.at_level(logging.ERROR):
        watcher.add(bad.reader, fail)
        os.write(bad.writer, b"x")
        watcher.add(good.reader, good.hear)
        os.write(good.writer, b"y")
        assert heard.get(timeout=5) == b"y"
    assert "on purpose" in caplog.text
    os.close(good.writer)
    assert heard.get(timeout=5) == b""
    for descriptor in (bad.reader, bad.writer):
        os.close(descriptor)


def test_close_ends_the_thread_and_may_be_repeated() -> None:
    watcher = Watcher("test-closing")
    source = Source(queue.Queue())
    watcher.add(source.reader, source.hear)
    assert "test-closing" in {thread.name for thread in threading.enumerate()}
    watcher.close()
    watcher.close()
    assert "test-closing" not in {thread.name for thread in threading.enumerate()}
    for descriptor in (source.reader, source.writer):
        os.close(descriptor)


def test_close_without_a_source_is_fine() -> None:
    Watcher("test-idle").close()


def test_a_closed_watcher_takes_nothing_more() -> None:
    watcher = Watcher("test-closed")
    watcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        watcher.add(0, lambda: False)
