"""Slots: pieces of output in one file, whose room is used again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from guest.agentd import slots, spool


@pytest.fixture
def kept() -> Iterator[slots.Slots]:
    made = slots.Slots()
    yield made
    made.close()
    made.close()


def test_what_was_put_comes_back(kept: slots.Slots) -> None:
    contents = [b"b", b"ab", b"a" * (slots.SLOT_BYTES - 1) + b"b"]
    numbers = [kept.put((content[:-1], bytearray(b"b"), b"")) for content in contents]
    for number, content in zip(numbers, contents, strict=True):
        assert kept.get(number, len(content)) == content
    assert len(kept) == 3


def test_a_free_slot_is_used_again_lowest_first(kept: slots.Slots) -> None:
    numbers = [kept.put((b"x",)) for _ in range(5)]
    for number in (numbers[3], numbers[1]):
        kept.free(number)
    assert [kept.put((b"y",)) for _ in range(3)] == [1, 3, 5]


def test_the_file_shrinks_when_its_last_slots_are_free(kept: slots.Slots) -> None:
    numbers = [kept.put((b"x" * slots.SLOT_BYTES,)) for _ in range(10)]
    assert kept._file is not None
    descriptor = kept._file.fileno()
    for number in numbers[1:9]:
        kept.free(number)
    assert os.fstat(descriptor).st_size == 10 * slots.SLOT_BYTES
    kept.free(numbers[9])
    assert os.fstat(descriptor).st_size == slots.SLOT_BYTES
    kept.free(numbers[0])
    assert os.fstat(descriptor).st_size == len(kept) == 0
    assert kept.put((b"z",)) == 0


def test_a_long_life_costs_no_memory(kept: slots.Slots) -> None:
    for _ in range(1000):
        kept.free(kept.put((b"x",)))
    assert len(kept._lowest) < 10


def test_a_write_that_fails_keeps_nothing(kept: slots.Slots, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail)
        with pytest.raises(OSError, match="full"):
            kept.put((b"x",))
    assert len(kept) == 0
    assert kept.put((b"x",)) == 0


def test_without_a_place_for_the_file_nothing_is_kept(kept: slots.Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "nowhere")

    monkeypatch.setattr(spool, "open_unlinked", fail)
    with pytest.raises(OSError, match="nowhere"):
        kept.put((b"x",))
    assert len(kept) == 0


def test_partial_writes_are_gone_on_with(kept: slots.Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, views, offset: write(fd, [views[0][:3]], offset))
    assert kept.get(kept.put((b"abcdefg", b"hi", b"j")), 10) == b"abcdefghij"


def test_a_file_that_lost_its_end_is_an_error(kept: slots.Slots) -> None:
    number = kept.put((b"x",))
    assert kept._file is not None
    os.ftruncate(kept._file.fileno(), 0)
    with pytest.raises(OSError, match="shorter"):
        kept.get(number, 1)


def test_many_threads_never_share_a_slot(kept: slots.Slots) -> None:

    def work(number: int) -> None:
        data = bytes([number]) * 100
        for _ in range(200):
            slot = kept.put((data,))
            assert kept.get(slot, 100) == data
            kept.free(slot)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(kept) == 0
