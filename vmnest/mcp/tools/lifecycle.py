"""Sandboxes: made, looked at, suspended, resumed, ended."""

from __future__ import annotations

from ... import errors
from ...ops import creation, inventory, lifecycle, removal, sandboxes
from ...wire import names
from . import attendance
from .pulse import Pulse
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from ..calls import Call

__all__ = ["TOOLS"]


def sandbox_create(
    *,
    name: str,
    image: str | None = None,
    role: str | None = None,
    region: str | None = None,
    cpus: float | None = None,
    memory: int | None = None,
    egress_connector: str | None = None,
    egress: bool = False,
    egress_allow: list[str] | None = None,
    idle: int | None = None,
    max_duration: int | None = None,
    labels: dict[str, str] | None = None,
    replace: bool = False,
    local: bool | None = None,
    call: Call,
) -> dict[str, object]:
    """Make a sandbox that stays until sandbox_remove, and wait until it runs.

    For work of several steps: files and processes are kept between calls. For one command: sandbox_run.

    Args:
        name: Letters, digits, dots, underscores and dashes.
        image: Name or ARN; found by itself.
        role: ARN of the role of its code.
        region: AWS region.
        cpus: Number of CPUs.
        memory: MiB.
        egress_connector: Its name or ARN.
        egress: Attach the configured egress connector.
        egress_allow: Hosts that a local sandbox may reach, *.HOST too, or "internet" (none).
        idle: Seconds without a request until it is suspended (900).
        max_duration: Seconds until it ends in any case (28800).
        labels: Labels of your own.
        replace: End the sandbox that has it.
        local: true: here; false: AWS. Best left out.

    Returns:
        The sandbox: name, state, microvm_id, endpoint, expires_at and more.
    """
    demand = creation.Demand(
        image=image,
        role=role,
        cpus=cpus,
        memory=memory,
        egress_connector=egress_connector,
        egress=egress,
        egress_allow=egress_allow,
        idle=idle,
        max_duration=max_duration,
        labels=labels,
        wait_timeout=attendance.MOST_SECONDS,
    )
    with Pulse(call, f"starting {name}"):
        data = sandboxes.create_sandbox(name=name, demand=demand, replace=replace, local=local, region=region)
    if call.is_cancelled:
        removal.remove_sandbox(name=name, force=True)  # nobody has heard of it
        call.check()
    return data


def sandbox_start(*, name: str, call: Call) -> dict[str, object]:
    """Resume a suspended sandbox. Rarely needed: using a suspended sandbox resumes it.

    Args:
        name: Sandbox.

    Returns:
        The sandbox and its state.
    """
    with Pulse(call, f"resuming {name}"):
        return lifecycle.start_sandbox(name=name, timeout=attendance.MOST_SECONDS)


def sandbox_list(
    *, unnamed: bool = False, labels: dict[str, str] | None = None, local: bool | None = None
) -> dict[str, object]:
    """List the sandboxes with the state of each.

    Args:
        unnamed: Also MicroVMs of the account that have no name here.
        labels: Only sandboxes that have all of these labels.
        local: true: of this machine; false: of AWS.

    Returns:
        sandboxes {name, state, image_arn, ...}; count.
    """
    data = inventory.list_sandboxes(labels=labels, unnamed=unnamed, local=local)
    found = data["sandboxes"]
    assert isinstance(found, list)
    return {**data, "count": len(found)}


def sandbox_status(*, name: str | None = None) -> dict[str, object]:
    """Show the state of one sandbox, or of all of them. Never wakes a suspended one.

    Args:
        name: The sandbox; all by default.

    Returns:
        The sandbox with state, expires_at, idle_policy; or sandboxes, a list of such.
    """
    return inventory.list_sandboxes() if name is None else sandboxes.show_sandbox(name=name)


def sandbox_inspect(*, name: str) -> dict[str, object]:
    """Show all that is recorded of a sandbox and all that the service says of its MicroVM.

    Args:
        name: Sandbox.

    Returns:
        The sandbox, with record and microvm as they are.
    """
    return sandboxes.inspect_sandbox(name=name)


def sandbox_stop(*, name: str, call: Call) -> dict[str, object]:
    """Suspend a sandbox: memory, disk and processes are frozen until it is used again.

    Args:
        name: Sandbox.

    Returns:
        The sandbox and its state.
    """
    with Pulse(call, f"suspending {name}"):
        return lifecycle.stop_sandbox(name=name, timeout=attendance.MOST_SECONDS)


def sandbox_remove(*, name: str) -> dict[str, object]:
    """End a sandbox for good, with all files in it, and forget its name. To remove a file: sandbox_fs_remove.

    Args:
        name: Sandbox.

    Returns:
        removed, and was_there: false if its MicroVM had ended already.
    """
    return removal.remove_sandbox(name=name)


def sandbox_wait(
    *,
    name: str,
    target: Literal["running", "suspended", "terminated", "pending", "suspending", "terminating"] = "running",
    timeout: float = 120.0,
    call: Call,
) -> dict[str, object]:
    """Wait until a sandbox is in a state. Waits at most 45 seconds: call it again if reached_target is false.

    Args:
        name: Sandbox.
        target: The state.
        timeout: Seconds to wait.

    Returns:
        The sandbox, its state, and reached_target.
    """
    wanted = target.upper()
    try:
        with Pulse(call, f"waiting for {target}"):
            data = lifecycle.wait_for_sandbox(
                name=name, states=(wanted,), timeout=min(timeout, attendance.MOST_SECONDS)
            )
    except errors.WaitTimeoutError:
        data = sandboxes.show_sandbox(name=name)
    has_ended = wanted == names.TERMINATED and data["state"] == "GONE"
    return {**data, "reached_target": data["state"] == wanted or has_ended}


TOOLS = (
    Tool(sandbox_create, title="Make a sandbox", destroys=True, is_open=True),
    Tool(sandbox_start, title="Resume a sandbox", repeatable=True),
    Tool(sandbox_list, title="List sandboxes", reads=True),
    Tool(sandbox_status, title="Show a sandbox's state", reads=True),
    Tool(sandbox_inspect, title="Inspect a sandbox", reads=True),
    Tool(sandbox_stop, title="Suspend a sandbox", repeatable=True),
    Tool(sandbox_remove, title="End a sandbox", destroys=True, repeatable=True),
    Tool(sandbox_wait, title="Wait for a state", reads=True),
)
