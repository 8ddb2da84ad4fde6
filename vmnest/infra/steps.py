"""What a plan says: steps, each one resource and what is to happen to it, as data. Events tell what comes of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .state import Resource

__all__ = [
    "CREATE",
    "DELETE",
    "DONE",
    "FAILED",
    "NOTE",
    "NOTHING",
    "PROGRESS",
    "REUSE",
    "START",
    "UPDATE",
    "Change",
    "Event",
    "Step",
]

CREATE = "create"
UPDATE = "update"
REUSE = "reuse"
NOTHING = "nothing"
DELETE = "delete"

START = "start"
PROGRESS = "progress"
DONE = "done"
NOTE = "note"
FAILED = "failed"


@dataclass(frozen=True)
class Change:
    """One field that differs. No secret stands in it: of environment variables only the names are told."""

    field: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Step:
    """One resource, and what happens to it.

    Attributes:
        resource: Its name in the state: ``role``, ``bucket``, ``guest_object``, ``image``, ``network_operator_role``,
            ``security_group`` or ``network_connector``.
        kind: What it is, as the state says it: ``iam-role``, ``s3-bucket``, ``s3-object``, ``microvm-image``,
            ``ec2-sg``, ``network-connector``.
        action: CREATE, UPDATE, REUSE (it exists, is not ours, and stays as it is), NOTHING or DELETE.
        id: Its name, ARN or id, as far as that is known.
        reason: Why, for people.
        changes: What differs, if it is an update.
        target: What is removed, as it is recorded, if it is a removal.
    """

    resource: str
    kind: str
    action: str
    id: str | None
    reason: str
    changes: tuple[Change, ...] = ()
    target: Resource | None = field(default=None, repr=False)

    @property
    def is_change(self) -> bool:
        """Something is made, changed or removed."""
        return self.action in (CREATE, UPDATE, DELETE)


@dataclass(frozen=True)
class Event:
    """Something that happened on the way. ``resource`` is empty if it is about the stack.

    Attributes:
        stack_key: ``project/stack``, as in the state file.
        resource: As in Step.
        phase: START, PROGRESS, DONE, NOTE or FAILED.
        text: One line for people, without the name of the resource.
        step: The step that it is about: a resource may be made and, what it replaces, removed.
    """

    stack_key: str
    resource: str
    phase: str
    text: str
    step: Step | None = field(default=None, repr=False, compare=False)
