"""Members of what ``ops`` answers, taken out with their types checked."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["items", "reason"]


def items(data: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """The objects of a list; none if there is no such list."""
    found = data.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def reason(each: Mapping[str, object]) -> str:
    """What is said of what failed with it."""
    error = each["error"]
    assert isinstance(error, dict)
    return str(error["message"])
