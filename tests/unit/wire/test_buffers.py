"""Buffers that are lent."""

from __future__ import annotations

from vmnest.wire import buffers


def test_what_was_given_back_is_lent_again() -> None:
    first = buffers.borrow()
    assert len(first) == buffers.BUFFER_BYTES
    buffers.give_back(first)
    assert buffers.borrow() is first
    buffers.give_back(first)


def test_two_who_borrow_have_two() -> None:
    first, second = buffers.borrow(), buffers.borrow()
    assert first is not second
    buffers.give_back(first)
    buffers.give_back(second)


def test_no_more_are_kept_than_a_few() -> None:
    lent = [buffers.borrow() for _ in range(100)]
    for each in lent:
        buffers.give_back(each)
    assert len(buffers._free) < 20
