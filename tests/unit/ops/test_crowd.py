"""Many at a time."""

from __future__ import annotations

import threading

import pytest

from vmnest.ops import crowd


def test_results_are_in_the_order_of_the_items() -> None:
    assert crowd.map_parallel(lambda number: number * 2, range(100)) == list(range(0, 200, 2))


@pytest.mark.parametrize("items", [[], [1]], ids=str)
def test_a_few_need_no_threads(items: list[int]) -> None:
    assert crowd.map_parallel(lambda _: threading.current_thread(), items) == [threading.current_thread()] * len(items)


def test_several_are_under_way_at_a_time_and_no_more_than_that() -> None:
    together = threading.Barrier(4, timeout=20)
    threads: set[str] = set()

    def work(number: int) -> None:
        threads.add(threading.current_thread().name)
        together.wait()

    crowd.map_parallel(work, range(16), largest=4)
    assert len(threads) == 4


def test_what_one_raises_is_raised_when_all_were_tried() -> None:
    tried: list[int] = []

    def work(number: int) -> None:
        tried.append(number)
        if number == 3:
            raise KeyError(number)

    with pytest.raises(KeyError):
        crowd.map_parallel(work, range(30))
    assert sorted(tried) == list(range(30))
