"""Reads every recorded resource again: what is gone is forgotten, what is otherwise is recorded."""

from __future__ import annotations

from . import naming, recording
from .account import Account
from .resources import table
from .state import StackState
from .steps import DELETE, UPDATE, Change, Step


def run(state: StackState, *, account: Account) -> tuple[StackState, tuple[Step, ...]]:
    """The record as it should be, and what is new in it."""
    steps: list[Step] = []
    for name, resource in state.resources.items():
        kind = table.kind(resource.kind)
        if kind is None:
            continue  # a newer version has recorded it, and knows how to look at it
        told = recording.told(resource)
        found = kind.look(resource, account)
        if found is None:
            state = state.without_resource(name)
            steps.append(Step(naming.slot(name), resource.kind, DELETE, told, "does not exist any more"))
        elif found != resource:
            changes = tuple(
                Change(field, _text(resource.attrs.get(field)), _text(found.attrs.get(field)))
                for field in sorted({*resource.attrs, *found.attrs})
                if resource.attrs.get(field) != found.attrs.get(field)
            )
            state = state.with_resource(name, found)
            steps.append(Step(naming.slot(name), resource.kind, UPDATE, told, "is otherwise than recorded", changes))
    return recording.with_outputs(state), tuple(steps)


def _text(value: object) -> str | None:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return None if value is None else str(value)
