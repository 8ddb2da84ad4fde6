"""The door of the engine: preview, up, refresh and destroy of one stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..deadline import Deadline
from .plan import Plan
from .steps import Event, Step

if TYPE_CHECKING:
    from ..target import Target
    from .config import Stack
    from .state import StackState, Store


def preview(stack: Stack, *, target: Target, store: Store, rebuild: bool = False, deadline: Deadline) -> Plan:
    """What ``up`` would do, and why. Changes nothing."""
    raise NotImplementedError


def up(
    stack: Stack,
    *,
    target: Target,
    store: Store,
    rebuild: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    deadline: Deadline,
) -> StackState:
    """Make the resources what they are to be; ``on_plan`` gets the plan before anything is done.

    The state is saved after every step, so that a later call goes on where this one was ended.
    """
    raise NotImplementedError


def refresh(stack: Stack, *, target: Target, store: Store, deadline: Deadline) -> tuple[Step, ...]:
    """Read every recorded resource again, forget those that are gone, bring the outputs up to date.

    Returns:
        The steps that the record took: ``delete`` for what is gone, ``update`` for what is otherwise than recorded.
    """
    raise NotImplementedError


def plan_removal(stack: Stack, *, target: Target, store: Store) -> Plan:
    """What ``destroy`` would do, from the record alone: for the question that is asked before it."""
    raise NotImplementedError


def destroy(
    stack: Stack,
    *,
    target: Target,
    store: Store,
    on_event: Callable[[Event], None] | None = None,
    deadline: Deadline,
) -> tuple[Step, ...]:
    """Remove what is recorded and managed, in order, and forget the stack.

    Goes on after a failure: what is left stays recorded.

    Returns:
        One step for each resource: ``delete`` if it is gone, ``reuse`` if it was not ours and stays.

    Raises:
        errors.InfrastructureError: something is left; ``details["left"]`` names it.
    """
    raise NotImplementedError
