"""The resources: what can be read without calling a tool, as JSON."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["RESOURCES", "Resource", "describe", "read"]

SCHEME = "agent-sandbox://"
_JSON = "application/json"


class Resource:
    """A row of the table.

    Args:
        path: What follows the scheme in its URI.
        title: For people.
        description: What it tells.
        read: Makes its content.
    """

    __slots__ = ("description", "read", "title", "uri")

    def __init__(self, path: str, *, title: str, description: str, read: Callable[[], Mapping[str, object]]) -> None:
        self.uri = SCHEME + path
        self.title = title
        self.description = description
        self.read = read


RESOURCES: tuple[Resource, ...] = ()


def describe() -> list[dict[str, object]]:
    """What ``resources/list`` says of them."""
    return [
        {
            "uri": each.uri,
            "name": each.uri.removeprefix(SCHEME),
            "title": each.title,
            "description": each.description,
            "mimeType": _JSON,
        }
        for each in RESOURCES
    ]


def read(uri: str) -> list[dict[str, object]] | None:
    """The contents of a resource; None if there is none of that URI.

    Raises:
        errors.VmnestError: what it tells cannot be had.
    """
    for each in RESOURCES:
        if each.uri == uri:
            text = json.dumps(each.read(), ensure_ascii=False, allow_nan=False, indent=1)
            return [{"uri": uri, "mimeType": _JSON, "text": text}]
    return None
