"""Pages of S3's lists: prefix, delimiter, markers and the number of items. Pure.

Items come in the order of their keys' bytes. With a delimiter, keys that have it behind the prefix are rolled up into
one common prefix, which counts as an item. A page ends behind a key or a common prefix, and that is the marker by
which the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

MAX_ITEMS = 1000
Item = TypeVar("Item")


class Query(NamedTuple):
    """What is asked for.

    Attributes:
        prefix: Of keys.
        delimiter: What ends a common prefix; empty: there are none.
        after: The key or common prefix behind which it begins; empty: at the beginning.
        limit: The most items of a page.
    """

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    limit: int = MAX_ITEMS


# No named tuple: Python 3.10 does not let one be generic.
@dataclass(frozen=True)
class Page(Generic[Item]):
    """A page. ``last`` is its last key or common prefix; ``is_truncated``: there is more."""

    items: Sequence[Item]
    prefixes: Sequence[str]
    is_truncated: bool
    last: str


def page(items: Iterable[Item], query: Query, *, key: Callable[[Item], str]) -> Page[Item]:
    """The page of ``items``, which are in the order of their keys' bytes."""
    chosen: list[Item] = []
    prefixes: list[str] = []
    last = ""
    after = query.after.encode()
    for item in items:
        name = key(item)
        if not name.startswith(query.prefix):
            continue
        rolled = roll_up(name, query)
        # Keys below a common prefix that was the end of the page before are behind it in the order.
        if name.encode() <= after or rolled == query.after or (prefixes and rolled == prefixes[-1]):
            continue
        if len(chosen) + len(prefixes) >= query.limit:
            return Page(chosen, prefixes, is_truncated=query.limit > 0, last=last)
        if rolled is None:
            chosen.append(item)
            last = name
        else:
            prefixes.append(rolled)
            last = rolled
    return Page(chosen, prefixes, is_truncated=False, last=last)


def roll_up(name: str, query: Query) -> str | None:
    """The common prefix that stands for that key, or None: it stands for itself."""
    if not query.delimiter:
        return None
    at = name.find(query.delimiter, len(query.prefix))
    return None if at < 0 else name[: at + len(query.delimiter)]
