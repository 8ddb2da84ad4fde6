"""Sandboxes by their names: make, list, look at, remove."""

from __future__ import annotations

import contextlib

from .. import errors, registry, settings
from ..deadline import Deadline
from . import creation, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..control import Control
    from ..registry import Record

__all__ = ["create_sandbox", "inspect_sandbox", "list_sandboxes", "remove_sandbox", "require", "show_sandbox"]

ASK_SECONDS = 30.0
LARGEST_CROWD = 16


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


def list_sandboxes(
    *,
    labels: Mapping[str, str] | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """List the sandboxes with the state of each. A service that cannot be asked makes a state UNKNOWN, not an error.

    Args:
        labels: Only those that have all of these labels.
        local: True: only those on this machine; False: only those on AWS.
        region: AWS region to ask, instead of the recorded ones.
        timeout: Seconds that asking may take.
    """
    wanted = (labels or {}).items()
    records = [
        record
        for record in registry.open_default().all()
        if _is_wanted(record, local) and wanted <= record.labels.items()
    ]
    look = views.Look(region=region, deadline=Deadline(timeout))
    look.prepare(records)
    return {"sandboxes": _map_parallel(look.at, records)}


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


def remove_sandbox(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = ASK_SECONDS
) -> dict[str, object]:
    """End a sandbox and forget its name. That its MicroVM has ended already is fine.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region to ask, instead of the recorded one.
        timeout: Seconds that this may take.
    """
    known = registry.open_default()
    record = require(name, local=local)
    was_there = False
    deadline = Deadline(timeout)
    control = views.control_of(record, region=region, deadline=deadline)
    microvm_id = record.microvm_id or _adopt(record, control=control, deadline=deadline)
    if microvm_id is not None:
        was_there = control.microvms.terminate(microvm_id, deadline=deadline)
        if not was_there and record.region not in (None, region or record.region):
            # What another region does not know may well run where it was started.
            raise errors.MicroVMNotFoundError(
                f"region {region} has no MicroVM {microvm_id}; {name} is recorded in {record.region}",
                hint="Leave --region out: a name finds its own region.",
            )
    suspects = [] if microvm_id or record.launch else _find_suspects(record, control=control, known=known)
    # Only now: had the call failed, the name would be all that leads to what still runs.
    known.remove(name, expected=record)
    return {
        "name": name,
        "microvm_id": microvm_id,
        "removed": True,
        "was_there": was_there,
        **({"may_still_run": suspects} if suspects else {}),
    }


def _adopt(record: Record, *, control: Control, deadline: Deadline) -> str | None:
    """The MicroVM of a launch that was cut off before its id was recorded."""
    from ..sandbox import launch

    return launch.adopt(record, control=control, deadline=deadline)


def _find_suspects(record: Record, *, control: Control, known: registry.Registry) -> list[str]:
    """The MicroVMs that a launch which was cut off, and whose parameters nobody kept, may have left."""
    from ..sandbox import launch

    return launch.find_suspects(record, control=control, registry=known)


def require(name: str, *, local: bool | None) -> Record:
    """The record of a name, on the target that the caller limits the search to."""
    record = registry.open_default().require(name)
    if not _is_wanted(record, local):
        here = "this machine" if local else "AWS"
        there = "this machine" if record.is_local else "AWS"
        raise errors.SandboxNotFoundError(
            f"no sandbox named {name!r} is recorded on {here}; that one is on {there}",
            hint="A name finds its own target: leave the option out.",
        )
    return record


def _is_wanted(record: Record, local: bool | None) -> bool:
    return local is None or record.target == (settings.TARGET_LOCAL if local else settings.TARGET_AWS)


def _map_parallel(
    function: Callable[[Record], dict[str, object]], records: Sequence[Record]
) -> list[dict[str, object]]:
    """``function`` of each record, in their order; several at a time if there are several."""
    if len(records) < 2:
        return [function(record) for record in records]
    import threading

    results: list[dict[str, object]] = [{} for _ in records]
    failures: list[BaseException] = []
    waiting = list(enumerate(records))  # pop() is atomic: no lock is needed to share it

    def work() -> None:
        while waiting:
            try:
                index, record = waiting.pop()
            except IndexError:
                return
            try:
                results[index] = function(record)
            except BaseException as error:
                failures.append(error)

    # Daemons: at Ctrl+C nobody waits for a service that does not answer.
    count = min(len(records), LARGEST_CROWD)
    crowd = [threading.Thread(target=work, name=f"vmnest-look-{number}", daemon=True) for number in range(count)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    if failures:
        raise failures[0]
    return results
