"""The door of the engine: preview, up, refresh and destroy of one stack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from .. import errors, guest_image, settings
from ..control.image_specs import Hooks
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from . import apply, reading, refreshing, removal, whereabouts
from . import plan as plans
from .account import Account
from .facts import Artifact
from .plan import Plan
from .spec import Stack
from .state import StackState, Store
from .steps import Event, Step

if TYPE_CHECKING:
    from ..guest_image import Package
    from ..target import Target

__all__ = ["destroy", "plan_removal", "preview", "refresh", "up"]


def preview(
    stack: Stack,
    *,
    target: Target,
    store: Store,
    rebuild: bool = False,
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> Plan:
    """What ``up`` would do, and why. Changes nothing.

    Raises:
        errors.GuestImageError: the guest's folder cannot be made an image of.
        errors.InfrastructureError: what there is does not allow what is wanted.
    """
    account = Account(target, deadline=deadline, clock=clock)
    with _packed(stack, target) as packed:
        return _plan(stack, target, store, account, packed=packed, rebuild=rebuild)


def up(
    stack: Stack,
    *,
    target: Target,
    store: Store,
    rebuild: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> StackState:
    """Make the resources what they are to be; ``on_plan`` gets the plan before anything is done.

    The state is saved after every step, so that a later call goes on where this one was ended.

    Raises:
        errors.GuestImageError: the guest's folder cannot be made an image of.
        errors.ImageBuildError: the build of the image failed.
        errors.InfrastructureError: what there is does not allow what is wanted, or another call is at it.
    """
    account = Account(target, deadline=deadline, clock=clock)
    with _packed(stack, target) as packed, store.hold(_recorded(stack, target, store).key):
        plan = _plan(stack, target, store, account, packed=packed, rebuild=rebuild)
        if on_plan is not None:
            on_plan(plan)
        return apply.run(
            plan, account=account, artifact=packed.package.file, save=store.save, on_event=on_event or _ignore
        )


def refresh(
    stack: Stack, *, target: Target, store: Store, deadline: Deadline, clock: Clock = SYSTEM_CLOCK
) -> tuple[Step, ...]:
    """Read every recorded resource again, forget those that are gone, bring the outputs up to date.

    Returns:
        The steps that the record took: ``delete`` for what is gone, ``update`` for what is otherwise than recorded.
    """
    account = Account(target, deadline=deadline, clock=clock)
    with store.hold(_recorded(stack, target, store).key):
        state = _recorded(stack, target, store)
        whereabouts.check(state, account)
        after, steps = refreshing.run(state, account=account)
        if after != state:
            _save(after, store)
        return steps


def plan_removal(stack: Stack, *, target: Target, store: Store) -> Plan:
    """What ``destroy`` would do, from the record alone: for the question that is asked before it."""
    return removal.plan(_recorded(stack, target, store))


def destroy(
    stack: Stack,
    *,
    target: Target,
    store: Store,
    on_event: Callable[[Event], None] | None = None,
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Step, ...]:
    """Remove what is recorded and managed, in order, and forget the stack.

    Goes on after a failure: what is left stays recorded.

    Returns:
        One step for each resource: ``delete`` if it is gone, ``reuse`` if it was not ours and stays.

    Raises:
        errors.InfrastructureError: something is left; ``details["left"]`` names it.
    """
    account = Account(target, deadline=deadline, clock=clock)
    with store.hold(_recorded(stack, target, store).key):
        state = _recorded(stack, target, store)
        whereabouts.check(state, account)
        if not state.resources:
            _save(state, store)
        return removal.run(
            stack, state, account=account, save=lambda state: _save(state, store), on_event=on_event or _ignore
        )


def _plan(
    stack: Stack,
    target: Target,
    store: Store,
    account: Account,
    *,
    packed: _Packed,
    rebuild: bool,
) -> Plan:
    if target.is_local and stack.egress is not None:
        raise errors.UsageError(
            f"{stack.source} asks for network.egress, and there are no VPCs on this machine",
            hint="Leave it out for a local stack: what a sandbox may reach is said when it is made (--egress-allow).",
        )
    state = _recorded(stack, target, store)
    whereabouts.check(state, account)
    artifact = Artifact(packed.package.digest, size=packed.package.size, hooks=packed.hooks)
    inputs = reading.read(
        stack, state=whereabouts.fill(state, account), artifact=artifact, account=account, rebuild=rebuild
    )
    return plans.make(inputs, notes=(*stack.remarks, *packed.notes))


class _Packed(NamedTuple):
    """The guest's folder as a zip, its hooks, and what the user should know of it."""

    package: Package
    hooks: Hooks | None
    notes: tuple[str, ...]


@contextlib.contextmanager
def _packed(stack: Stack, target: Target) -> Iterator[_Packed]:
    wanted = stack.image
    guest_image.check_settings(memory_mib=wanted.memory_mib, environment=wanted.environment)
    source = guest_image.find(wanted.guest_dir, folder=stack.folder)
    with guest_image.pack(source.path) as package:
        hooks = Hooks(port=settings.number("hook_port", environ=target.environ)) if package.has_agent else None
        port = settings.number("agent_port", environ=target.environ)
        warnings = guest_image.check(package, hooks=hooks, agent_port=port)
        yield _Packed(package, hooks, (*((source.remark,) if source.remark else ()), *warnings))


def _recorded(stack: Stack, target: Target, store: Store) -> StackState:
    """What is recorded of the stack; nothing of it if nothing is."""
    new = StackState(stack.project, stack.stack, target=target.kind)
    return store.load(new.key) or new


def _save(state: StackState, store: Store) -> None:
    """Record the stack, or forget it if there is nothing left of it."""
    if state.resources:
        store.save(state)
    else:
        store.remove(state.key)


def _ignore(event: Event) -> None:
    del event
