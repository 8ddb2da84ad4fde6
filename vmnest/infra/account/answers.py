"""Members of the classic services' answers, and tags as these services write them."""

from __future__ import annotations

from collections.abc import Mapping

from ... import errors

Answer = Mapping[str, object]


def text(answer: Answer, name: str) -> str:
    """A member that must be there and a text."""
    value = answer.get(name)
    if not isinstance(value, str):
        raise errors.VmnestError(f"the service's answer has no {name}")
    return value


def member(answer: Answer, name: str) -> Answer:
    """A member that must be there and an object."""
    value = answer.get(name)
    if not isinstance(value, Mapping):
        raise errors.VmnestError(f"the service's answer has no {name}")
    return value


def texts(value: object) -> tuple[str, ...]:
    """A list of texts; nothing if it is none."""
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def items(value: object) -> tuple[Answer, ...]:
    """A list of objects; nothing if it is none."""
    return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, (list, tuple)) else ()


def tags(value: object) -> dict[str, str]:
    """Tags out of a list of ``Key`` and ``Value``."""
    return {str(tag.get("Key")): str(tag.get("Value") or "") for tag in items(value)}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as a list of ``Key`` and ``Value``."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]
