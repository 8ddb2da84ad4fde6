"""Whose a resource is. Pure.

What we make carries tags that name its stack, from its creation on. So it is found again when the answer to its
creation, or the record of it, was lost; and what somebody else made under the same name is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import errors
from .spec import Stack
from .state import Resource

__all__ = [
    "LOST",
    "UNFINISHED",
    "Tags",
    "foreign",
    "is_ours",
    "is_unfinished",
    "judge",
    "missing_tags",
    "owner_of",
    "reused",
    "tags_of",
]

MANAGER_TAG = "vmnest:managed-by"
PROJECT_TAG = "vmnest:project"
STACK_TAG = "vmnest:stack"
MANAGER = "vmnest"
# A resource is recorded before it is made, so that nothing is lost when the process ends between the two.
UNFINISHED = "unfinished"

LOST = "is not ours any more by its tags, and stays"

Tags = Mapping[str, str]


def tags_of(stack: Stack) -> dict[str, str]:
    """The tags of everything that is made for a stack: the user's, and ours."""
    return {**stack.tags, MANAGER_TAG: MANAGER, PROJECT_TAG: stack.project, STACK_TAG: stack.stack}


def owner_of(tags: Tags) -> str | None:
    """``project/stack`` of the stack that made it, or None if none did."""
    if tags.get(MANAGER_TAG) != MANAGER:
        return None
    return f"{tags.get(PROJECT_TAG, '')}/{tags.get(STACK_TAG, '')}"


def is_ours(tags: Tags, *, stack: Stack, recorded: Resource | None) -> bool:
    """It was made for this stack: its tags say so, or it has none of ours (0.1.2 set none) and is recorded as made.

    Args:
        tags: Those that it has.
        stack: Which one.
        recorded: What is recorded of just this resource.
    """
    owner = owner_of(tags)
    if owner is not None:
        return owner == stack.label
    return recorded is not None and recorded.managed and not is_unfinished(recorded)


def judge(stack: Stack, resource: Resource) -> Callable[[Tags], bool]:
    """Asked with the tags that a recorded resource has now: whether it is (still) ours."""
    return lambda tags: is_ours(tags, stack=stack, recorded=resource)


def is_unfinished(resource: Resource) -> bool:
    """It was recorded before it was made, and it is not known whether it was."""
    return bool(resource.attrs.get(UNFINISHED))


def missing_tags(tags: Tags, *, stack: Stack) -> dict[str, str]:
    """The tags that it should have and has not."""
    return {key: value for key, value in tags_of(stack).items() if tags.get(key) != value}


def reused(key: str, tags: Tags) -> str:
    """Why a resource is reused that the configuration names under that key."""
    kept = ", and what is named is not removed, although vmnest made it" if owner_of(tags) else ""
    return f"{key} names it{kept}"


def foreign(what: str, tags: Tags, *, hint: str) -> errors.InfrastructureError:
    """The error for a resource of the wanted name that is not ours."""
    owner = owner_of(tags)
    whose = f"belongs to the stack {owner}" if owner else "was not made by vmnest for this stack"
    return errors.InfrastructureError(f"{what} exists and {whose}", hint=hint)
