"""From what is wanted, what there is and what is recorded to steps. Pure: nothing is asked, nothing is done.

``apply`` performs the same object that a preview prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from . import naming, ownership, recording
from .facts import Inputs
from .resources import artifact, table
from .state import Resource
from .steps import DELETE, Step

__all__ = ["Plan", "make"]


@dataclass(frozen=True)
class Plan:
    """The steps that make a stack's resources what they are to be, in their order.

    Attributes:
        stack_key: ``project/stack``, as in the state file.
        steps: One for each resource, also for those with nothing to do.
        notes: What the user should know, one line each.
        forgets: Names of recorded resources that are not there any more, or were never ours, and are not wanted.
        inputs: What it was made of; None if it is a plan for the removal of everything.
    """

    stack_key: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    forgets: tuple[str, ...] = field(default=(), repr=False)
    inputs: Inputs | None = field(default=None, repr=False, compare=False)

    @property
    def has_changes(self) -> bool:
        """There is something to do."""
        return any(step.is_change for step in self.steps)


def make(inputs: Inputs, *, notes: tuple[str, ...] = ()) -> Plan:
    """The plan for a stack.

    Raises:
        errors.InfrastructureError: something of a wanted name is not ours, or what is to be reused does not exist.
    """
    steps = tuple(slot.plan(inputs) for slot in table.SLOTS if slot.is_wanted(inputs))
    by_name = {step.resource: step for step in steps}
    removals = tuple(_removals(inputs, by_name))
    network = inputs.facts.network
    return Plan(
        stack_key=inputs.state.key,
        steps=(*steps, *removals),
        notes=(*notes, *(network.notes if network is not None else ())),
        forgets=tuple(_forgets(inputs, by_name)),
        inputs=inputs,
    )


def _removals(inputs: Inputs, steps: Mapping[str, Step]) -> Iterator[Step]:
    """What is ours and has been replaced, or is not wanted any more; what holds other things first."""
    for kind in table.KINDS:
        for name, resource in inputs.state.resources.items():
            if resource.kind != kind.name or not resource.managed or name in inputs.facts.vanished:
                continue
            slot = naming.slot(name)
            step = steps.get(slot)
            if step is None:
                yield _removal(slot, resource, "is not wanted any more")
            elif not _is_kept(resource, step, inputs):
                yield _removal(slot, resource, "has been replaced")


def _removal(slot: str, resource: Resource, reason: str) -> Step:
    return Step(slot, resource.kind, DELETE, recording.told(resource), reason, target=resource)


def _is_kept(resource: Resource, step: Step, inputs: Inputs) -> bool:
    """The step is about that very resource."""
    if ownership.is_unfinished(resource):
        return resource == table.unfinished(step, inputs)
    connector = inputs.facts.connector
    if connector is not None and resource.id == connector.connector.arn:
        return inputs.stack.egress is not None  # also one that is made anew under its name: its step clears it away
    if resource.kind == naming.ARTIFACT_KIND:
        return recording.identity(resource) == recording.identity(artifact.record(inputs))
    return resource.id == step.id


def _forgets(inputs: Inputs, steps: Mapping[str, Step]) -> Iterator[str]:
    for name, resource in inputs.state.resources.items():
        is_unwanted = not resource.managed and naming.slot(name) not in steps
        if is_unwanted or name in inputs.facts.vanished:
            yield name
