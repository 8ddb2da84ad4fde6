"""Sandboxes by their names: make, look at."""

from __future__ import annotations

import contextlib

from .. import errors, registry
from ..deadline import Deadline
from . import creation, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..registry import Record
    from ..sandbox import Sandbox

__all__ = ["create_sandbox", "inspect_sandbox", "keep_handles", "open_sandbox", "require", "show_sandbox"]

ASK_SECONDS = 30.0
MOST_HANDLES = 64


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


class _Handles:
    """Sandboxes that were opened, by what tells one launch from another; the latest ones are kept. Thread-safe."""

    def __init__(self) -> None:
        import threading

        self._lock = threading.Lock()
        self._kept: dict[tuple[object, ...], Sandbox] = {}

    def get(self, key: tuple[object, ...]) -> Sandbox | None:
        """The one of that key, which is the latest from then on."""
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found
            return found

    def put(self, key: tuple[object, ...], sandbox: Sandbox) -> None:
        """Keep one, and no more than there is room for."""
        with self._lock:
            self._kept[key] = sandbox
            if len(self._kept) > MOST_HANDLES:
                del self._kept[next(iter(self._kept))]


_handles: _Handles | None = None


def keep_handles() -> None:
    """Keep what was opened, with its tokens and connections. For a process that works with the same ones for long."""
    global _handles
    _handles = _Handles()


def open_sandbox(name: str, *, resume: bool = True, local: bool | None = None, region: str | None = None) -> Sandbox:
    """The sandbox of a name, to be used. Asks nobody whether it is still there.

    Args:
        name: The sandbox.
        resume: False: refuse to use it when it is suspended, instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    from ..sandbox import Sandbox

    record = require(name, local=local)
    key = (registry.locate().path, name, record.target, record.microvm_id, region, resume)
    kept = None if _handles is None else _handles.get(key)
    if kept is not None:
        return kept
    sandbox = Sandbox.from_record(record, region=region, auto_resume=resume)
    if _handles is not None and record.microvm_id is not None:
        _handles.put(key, sandbox)
    return sandbox


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
