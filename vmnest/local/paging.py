"""Pages of lists: ``maxResults`` and ``nextToken``, and the tokens of services that call these otherwise."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from . import faults

DEFAULT_PAGE = 50
Item = TypeVar("Item")


def page(
    items: Sequence[Item], params: Mapping[str, object], *, key: Callable[[Item], int]
) -> tuple[list[Item], str | None]:
    """The items of the page that ``params`` asks for, and the token of the next one.

    Args:
        items: All of them, ordered by ``key``.
        params: ``maxResults`` and ``nextToken``, both optional.
        key: A number that grows from item to item: the token carries the last one, so that a list may change between
            two pages without an item coming twice.

    Raises:
        faults.Fault: the token is not one of ours.
    """
    count = params.get("maxResults")
    size = count if isinstance(count, int) else DEFAULT_PAGE
    after = _parse_token(params.get("nextToken"))
    rest = [item for item in items if key(item) > after]
    chosen = rest[:size]
    return chosen, _build_token(key(chosen[-1])) if len(rest) > size else None


def build_marker(last: str) -> str:
    """A token of a list that is ordered by texts: it carries the last one."""
    return base64.urlsafe_b64encode(f"1{last}".encode()).decode()


def parse_marker(marker: str) -> str | None:
    """The text in a token; None if the token is not one of ours."""
    try:
        text = base64.b64decode(marker.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        return None
    return text[1:] if text.startswith("1") else None


def _build_token(after: int) -> str:
    # As long as the service's, and with an "=" at the end: clients must keep and encode it.
    text = json.dumps({"after": after}).ljust(511)
    return base64.urlsafe_b64encode(text.encode()).decode()


def _parse_token(token: object) -> int:
    if token is None:
        return 0
    try:
        fields = json.loads(base64.b64decode(str(token).encode("ascii"), altchars=b"-_", validate=True))
        after = fields["after"]
    except (ValueError, binascii.Error, KeyError, TypeError):
        after = None
    if not isinstance(after, int):
        raise faults.validation("Invalid nextToken.")
    return after
