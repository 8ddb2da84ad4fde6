"""Sandboxes by their names: make, look at."""

from __future__ import annotations

import contextlib

from .. import errors, registry
from ..deadline import Deadline
from . import creation, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..registry import Record

__all__ = ["create_sandbox", "inspect_sandbox", "require", "show_sandbox"]

ASK_SECONDS = 30.0


def create_sandbox(
    *,
    name: str,
    demand: creation.Demand | None = None,
    replace: bool = False,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Make a sandbox and wait until it runs.

    Args:
        name: Its name: 1 to 63 letters, digits, dots, underscores and dashes.
        demand: What it shall be.
        replace: End the sandbox that has the name, if there is one, and take its place.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
    """
    registry.check_name(name)  # before anything else: a bad name is one on every target
    sandbox = creation.start(name, demand or creation.Demand(), replace=replace, local=local, region=region)
    with contextlib.ExitStack() as undo:
        undo.enter_context(sandbox)  # who is interrupted now has not heard of it yet: it is not to stay behind
        data = views.Look(region=region, deadline=Deadline(ASK_SECONDS)).at(sandbox.record)
        undo.pop_all()
    return {**data, "sources": dict(sandbox.record.sources)} if sandbox.record.sources else data


def show_sandbox(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """Show a sandbox and its state.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        timeout: Seconds that asking may take.
    """
    record = require(name, local=local)
    return views.Look(region=region, deadline=Deadline(timeout)).closely_at(record)


def inspect_sandbox(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """Show all that is recorded of a sandbox, and all that the service says about its MicroVM.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        timeout: Seconds that asking may take.
    """
    record = require(name, local=local)
    return views.Look(region=region, deadline=Deadline(timeout)).into(record)


def require(name: str, *, local: bool | None) -> Record:
    """The record of a name, on the target that the caller limits the search to."""
    record = registry.open_default().require(name)
    if not record.is_within(local):
        here = "this machine" if local else "AWS"
        there = "this machine" if record.is_local else "AWS"
        raise errors.SandboxNotFoundError(
            f"no sandbox named {name!r} is recorded on {here}; that one is on {there}",
            hint="A name finds its own target: leave the option out.",
        )
    return record
