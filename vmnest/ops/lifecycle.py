"""The life of a sandbox that is there: stop (suspend), start (resume), wait."""

from __future__ import annotations

from .. import errors
from ..deadline import Deadline
from ..wire import names
from . import sandboxes, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..sandbox import Sandbox

__all__ = ["STATE_SECONDS", "start_sandbox", "stop_sandbox", "wait_for_sandbox"]

STATE_SECONDS = 120.0


def stop_sandbox(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = STATE_SECONDS
) -> dict[str, object]:
    """Suspend a sandbox: it is frozen with memory and disk until it is started or used again. Fine if it is already.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        timeout: Seconds that this may take.
    """
    sandbox = sandboxes.open_sandbox(name, local=local, region=region)
    sandbox.suspend(timeout=timeout)
    return _view(sandbox, region=region)


def start_sandbox(
    *, name: str, local: bool | None = None, region: str | None = None, timeout: float = STATE_SECONDS
) -> dict[str, object]:
    """Resume a suspended sandbox and wait until it can be used. Fine if it runs already.

    Args:
        name: The sandbox.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        timeout: Seconds that this may take.
    """
    sandbox = sandboxes.open_sandbox(name, local=local, region=region)
    sandbox.resume(timeout=timeout)
    return _view(sandbox, region=region)


def wait_for_sandbox(
    *,
    name: str,
    states: Sequence[str] = (names.TERMINATED,),
    timeout: float | None = None,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Wait until a sandbox is in one of some states. This never wakes a suspended one.

    Args:
        name: The sandbox.
        states: PENDING, RUNNING, SUSPENDING, SUSPENDED, TERMINATING or TERMINATED.
        timeout: Seconds to wait; without end by default.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    sandbox = sandboxes.open_sandbox(name, local=local, region=region)
    try:
        state = sandbox.wait(*states, timeout=timeout)
    except errors.MicroVMNotFoundError:
        if names.TERMINATED not in states or sandbox.record.microvm_id is None:
            raise
        state = views.GONE  # it ended so long ago that the service has forgotten it
    return {**_view(sandbox, region=region), "state": state}


def _view(sandbox: Sandbox, *, region: str | None) -> dict[str, object]:
    return views.Look(region=region, deadline=Deadline(sandboxes.ASK_SECONDS)).at(sandbox.record)
