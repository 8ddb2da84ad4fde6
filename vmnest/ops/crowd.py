"""One thing done for many items, several at a time."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    Item = TypeVar("Item")
    Result = TypeVar("Result")

__all__ = ["LARGEST", "map_parallel"]

LARGEST = 16  # so many at a time


def map_parallel(function: Callable[[Item], Result], items: Sequence[Item], *, largest: int = LARGEST) -> list[Result]:
    """``function`` of each item, in their order. What one of them raises is raised when all were tried.

    Args:
        function: What is called; it must be safe for threads.
        items: What it is called with.
        largest: How many may be under way at a time.
    """
    if len(items) < 2:
        return [function(item) for item in items]
    import threading

    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting = list(enumerate(items))
    waiting.reverse()  # pop() takes the first, and is atomic: no lock is needed to share it

    def work() -> None:
        while waiting:
            try:
                index, item = waiting.pop()
            except IndexError:
                return
            try:
                results[index] = function(item)
            except BaseException as error:
                failures.append(error)

    # Daemons: at Ctrl+C nobody waits for a service that does not answer.
    count = min(len(items), largest)
    crowd = [threading.Thread(target=work, name=f"vmnest-crowd-{number}", daemon=True) for number in range(count)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(items))]
