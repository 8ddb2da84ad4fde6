"""Performs a plan, one step after the other. The record is saved after every step, and before a thing is made.

So the process may end anywhere: the next ``up`` finds what was made by its record, its name and its tags, and
``destroy`` removes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import BinaryIO

from .. import errors
from . import naming, ownership, recording
from .account import Account
from .facts import Inputs
from .plan import Plan
from .resources import table
from .state import StackState
from .steps import CREATE, DELETE, DONE, FAILED, NOTE, REUSE, START, Event, Step
from .work import Work

Save = Callable[[StackState], None]
OnEvent = Callable[[Event], None]


def run(plan: Plan, *, account: Account, artifact: BinaryIO, save: Save, on_event: OnEvent) -> StackState:
    """Perform a plan.

    Args:
        plan: What to do, made for this account.
        account: Where to do it.
        artifact: The zip that the plan was made for, open for reading.
        save: Called with the record whenever it changes.
        on_event: Told of what is done.

    Returns:
        The record as it was saved last.

    Raises:
        errors.VmnestError: a step failed; those before it are done and recorded.
    """
    assert plan.inputs is not None
    performance = _Performance(plan, plan.inputs, account=account, artifact=artifact, save=save, on_event=on_event)
    for step in plan.steps:
        performance.perform(step)
    return performance.work.state


class _Performance:
    def __init__(
        self,
        plan: Plan,
        inputs: Inputs,
        *,
        account: Account,
        artifact: BinaryIO,
        save: Save,
        on_event: OnEvent,
    ) -> None:
        self._inputs = inputs
        self._key = plan.stack_key
        self._save = save
        self._on_event = on_event
        self._step: Step | None = None
        self.work = Work(inputs, account=account, artifact=artifact, state=inputs.state, tell=self._tell)
        self._record(recording.drop(inputs.state, plan.forgets))

    def perform(self, step: Step) -> None:
        """Do one step."""
        self._step = step
        try:
            if step.is_change:
                self._tell(START, step.reason)
            before = self.work.state
            if step.action == DELETE:
                self._remove(step)
            else:
                self._bring(step)
        except errors.VmnestError as error:
            self._tell(FAILED, error.message)
            error.add_hint("What was done by then is recorded: vmnest infra up goes on from there.")
            raise
        if step.is_change or (step.action == REUSE and self.work.state != before):
            self._tell(DONE, step.reason if step.action == REUSE else "")

    def _bring(self, step: Step) -> None:
        """Make a resource what it is to be; ``apply`` also tells what to record of one with nothing to do."""
        if step.action == CREATE:
            self._record(recording.put(self.work.state, step.resource, table.unfinished(step, self._inputs)))
        resource = table.slot(step.resource).apply(step, self.work)
        if step.is_change:
            self.work.fresh.add(step.resource)
            self._step = dataclasses.replace(step, id=step.id or resource.id)
        self._record(recording.put(self.work.state, step.resource, resource))

    def _remove(self, step: Step) -> None:
        assert step.target is not None
        wanted = recording.identity(step.target)
        for name, resource in self.work.state.resources.items():
            if naming.slot(name) == step.resource and recording.identity(resource) == wanted:
                kind = table.kind(resource.kind)
                assert kind is not None
                judge = ownership.judge(self._inputs.stack, resource)
                if not kind.remove(resource, self.work.account, is_ours=judge):
                    self._tell(NOTE, f"{step.id} {ownership.LOST}")
                self._record(recording.drop(self.work.state, [name]))

    def _record(self, state: StackState) -> None:
        is_new = state != self.work.state
        self.work.state = state
        if is_new:
            self._save(state)

    def _tell(self, phase: str, text: str) -> None:
        resource = self._step.resource if self._step is not None else ""
        self._on_event(Event(self._key, resource, phase, text, self._step))
