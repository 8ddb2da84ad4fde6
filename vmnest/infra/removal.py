"""Removes what is recorded and ours, from what holds other things to what is held; goes on past failures.

What is removed is what the record names, and only while its tags do not say that it is somebody else's by now. What
could not be removed stays recorded, and so does what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .. import errors
from . import naming, ownership, recording
from .account import Account
from .apply import OnEvent
from .plan import Plan
from .resources import table
from .spec import Stack
from .state import Resource, StackState
from .steps import DELETE, DONE, FAILED, REUSE, START, Event, Step


def plan(state: StackState) -> Plan:
    """What a removal does, from the record alone."""
    return Plan(state.key, tuple(_step(name, resource) for name, resource in _ordered(state)))


def run(
    stack: Stack, state: StackState, *, account: Account, save: Callable[[StackState], None], on_event: OnEvent
) -> tuple[Step, ...]:
    """Remove everything; the record is saved after every step.

    Raises:
        errors.InfrastructureError: something is left; ``details["left"]`` tells what and why.
    """
    steps: list[Step] = []
    left: dict[str, str] = {}
    held: dict[str, str] = {}
    hints: dict[str, None] = {}

    def tell(step: Step, phase: str, text: str) -> None:
        on_event(Event(state.key, step.resource, phase, text, step))

    for name, resource in _ordered(state):
        step = _step(name, resource)
        problem = held.get(step.resource)
        if problem is None and step.action == DELETE:
            tell(step, START, step.reason)
            problem, hint = _remove(resource, stack, account, held)
            if hint is not None:
                hints[hint] = None
        if problem is not None:
            left[f"{step.kind} {step.id}"] = problem
            tell(step, FAILED, problem)
            continue
        state = recording.drop(state, [name])
        save(state)
        steps.append(step)
        tell(step, DONE, step.reason if step.action == REUSE else "")
    if left:
        raise _incomplete(state, left, hints)
    return tuple(steps)


def _remove(resource: Resource, stack: Stack, account: Account, held: dict[str, str]) -> tuple[str | None, str | None]:
    """Remove one resource; or say why not, what to do about it, and in ``held`` what must stay because of that."""
    kind = table.kind(resource.kind)
    if kind is None:
        return "this version of vmnest does not know what it is", None
    try:
        kind.remove(resource, account, is_ours=ownership.judge(stack, resource))
    except errors.VmnestError as error:
        for name in kind.holds:
            held[name] = f"is used by {kind.name} {recording.told(resource)}, which is left"
        return error.message, error.hint
    return None, None


def _ordered(state: StackState) -> Iterator[tuple[str, Resource]]:
    known = [kind.name for kind in table.KINDS]
    ranks = {name: rank for rank, name in enumerate(known)}
    yield from sorted(state.resources.items(), key=lambda item: ranks.get(item[1].kind, len(known)))


def _step(name: str, resource: Resource) -> Step:
    slot, told = naming.slot(name), recording.told(resource)
    if resource.managed:
        return Step(slot, resource.kind, DELETE, told, "was made for this stack")
    return Step(slot, resource.kind, REUSE, told, "was not made by vmnest, and stays")


def _incomplete(state: StackState, left: dict[str, str], hints: Iterable[str]) -> errors.InfrastructureError:
    what = "; ".join(f"{name}: {problem}" for name, problem in left.items())
    error = errors.InfrastructureError(
        f"not everything of {state.label} could be removed: {what}", details={"left": left}
    )
    for hint in hints:
        error.add_hint(hint)
    error.add_hint("What is left stays recorded: once that is settled, try again: vmnest infra destroy")
    return error
