"""From what is wanted, what there is and what is recorded to steps. Pure: nothing is asked, nothing is done.

``apply`` performs the same object that a preview prints.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .steps import Step


@dataclass(frozen=True)
class Plan:
    """The steps that make a stack's resources what they are to be, in their order.

    Attributes:
        stack_key: ``project/stack``, as in the state file.
        steps: One for each resource, also for those with nothing to do.
        notes: What the user should know, one line each.
    """

    stack_key: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def has_changes(self) -> bool:
        """There is something to do."""
        return any(step.is_change for step in self.steps)
