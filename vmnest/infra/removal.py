"""Removes what is recorded and ours, from what holds other things to what is held; goes on past failures.

What is removed is what the record names, and only while its tags do not say that it is somebody else's by now. What
could not be removed stays recorded, and so does what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .. import errors
from . import naming, ownership, recording
from .account import Account
from .apply import OnEvent
from .plan import Plan
from .resources import image, table
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
        errors.InfrastructureError: something is left; ``details["left"]`` tells what and why. Or MicroVMs run that
            were started from its image: then nothing was removed.
    """
    for resource in state.resources.values():
        if resource.kind == naming.IMAGE_KIND and resource.managed:
            try:
                image.check_unused(resource, account)
            except errors.InfrastructureError as error:
                error.add_hint("Nothing was removed.")
                raise
    removal = _Removal(stack, state, account=account, save=save, on_event=on_event)
    for name, resource in _ordered(state):
        removal.perform(name, resource)
    removal.check()
    return tuple(removal.steps)


class _Removal:
    """One removal on its way. ``left`` tells why something is left, ``held`` what must stay because of that."""

    def __init__(
        self,
        stack: Stack,
        state: StackState,
        *,
        account: Account,
        save: Callable[[StackState], None],
        on_event: OnEvent,
    ) -> None:
        self.steps: list[Step] = []
        self._stack = stack
        self._state = state
        self._account = account
        self._save = save
        self._on_event = on_event
        self._left: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._hints: dict[str, None] = {}

    def perform(self, name: str, resource: Resource) -> None:
        """Remove one resource, or leave it, and keep in mind why."""
        step = _step(name, resource)
        problem = self._held.get(step.resource)
        if problem is None and step.action == DELETE:
            self._tell(step, START, step.reason)
            try:
                if not self._remove(resource):
                    step = replace(step, action=REUSE, reason=ownership.LOST)
            except errors.VmnestError as error:
                problem = error.message
                self._hints.update({error.hint: None} if error.hint else {})
                self._hold(resource)
        if problem is not None:
            self._left[f"{step.kind} {step.id}"] = problem
            self._tell(step, FAILED, problem)
            return
        self._state = recording.drop(self._state, [name])
        self._save(self._state)
        self.steps.append(step)
        self._tell(step, DONE, step.reason if step.action == REUSE else "")

    def check(self) -> None:
        """Raise InfrastructureError if something is left."""
        if not self._left:
            return
        what = "; ".join(f"{name}: {problem}" for name, problem in self._left.items())
        error = errors.InfrastructureError(
            f"not everything of {self._state.label} could be removed: {what}", details={"left": self._left}
        )
        for hint in self._hints:
            error.add_hint(hint)
        command = f"vmnest{' --local' if self._account.is_local else ''} infra destroy"
        error.add_hint(f"What is left stays recorded: once that is settled, try again: {command}")
        raise error

    def _remove(self, resource: Resource) -> bool:
        kind = table.kind(resource.kind)
        if kind is None:
            raise errors.UnsupportedError("this version of vmnest does not know what it is")
        return kind.remove(resource, self._account, is_ours=ownership.judge(self._stack, resource))

    def _hold(self, resource: Resource) -> None:
        kind = table.kind(resource.kind)
        for name in () if kind is None else kind.holds:
            self._held[name] = f"is used by {resource.kind} {recording.told(resource)}, which is left"

    def _tell(self, step: Step, phase: str, text: str) -> None:
        self._on_event(Event(self._state.key, step.resource, phase, text, step))


def _ordered(state: StackState) -> Iterator[tuple[str, Resource]]:
    known = [kind.name for kind in table.KINDS]
    ranks = {name: rank for rank, name in enumerate(known)}
    yield from sorted(state.resources.items(), key=lambda item: ranks.get(item[1].kind, len(known)))


def _step(name: str, resource: Resource) -> Step:
    slot, told = naming.slot(name), recording.told(resource)
    if resource.managed:
        content = "; all that is in it goes with it" if resource.kind == naming.BUCKET_KIND else ""
        return Step(slot, resource.kind, DELETE, told, f"was made for this stack{content}")
    return Step(slot, resource.kind, REUSE, told, "is one that was to be reused, and stays")
