"""What probes share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.checks import make_context


def test_what_two_probes_need_is_made_once() -> None:
    context = make_context({})
    together = threading.Barrier(4)
    made: list[int] = []

    def probe(_number: int) -> list[int]:
        together.wait(20)
        return context.once("thing", lambda: [*made, made.append(1) or 1])

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(probe, range(4)))
    assert made == [1]
    assert all(each is results[0] for each in results)


def test_what_cannot_be_made_fails_for_each_that_asks() -> None:
    context = make_context({})

    def fail() -> None:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            context.once("thing", fail)
    assert context.once("thing", lambda: 3) == 3


def test_making_one_thing_may_ask_for_another() -> None:
    context = make_context({})
    assert context.once("outer", lambda: context.once("inner", lambda: 1) + 1) == 2
