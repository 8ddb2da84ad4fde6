"""Commands in sandboxes: in one that is there, or in one of their own."""

from __future__ import annotations

import contextlib
import os

from ... import errors
from ...ops import commands, creation, removal
from . import attendance, output
from .pulse import Pulse
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..calls import Call

__all__ = ["TOOLS"]

# An own sandbox whose command is left running is ended by its host's model, or else by this.
OWN_SANDBOX_SECONDS = 3600


def sandbox_run(
    *,
    command: str,
    image: str | None = None,
    role: str | None = None,
    region: str | None = None,
    cwd: str | None = None,
    timeout: float | None = None,
    egress_connector: str | None = None,
    egress: bool = False,
    env: dict[str, str] | None = None,
    egress_allow: list[str] | None = None,
    memory: int | None = None,
    max_bytes: int | None = None,
    local: bool | None = None,
    call: Call,
) -> dict[str, object]:
    """Run a shell command in a new sandbox, return its output, and remove the sandbox.

    For several steps: sandbox_create, sandbox_shell. After 45 seconds running is true and the sandbox stays: go on with
    sandbox_exec_poll(name, id), then sandbox_remove.

    Args:
        command: A line for bash -lc, else sh -lc.
        image: Name or ARN; found by itself.
        role: ARN of the role of its code.
        region: AWS region.
        cwd: Working directory.
        timeout: Seconds until its end (120).
        egress_connector: Its name or ARN.
        egress: Attach the configured egress connector.
        env: Variables to add.
        egress_allow: Hosts that a local sandbox may reach, *.HOST too, or "internet" (none).
        memory: MiB.
        max_bytes: Bytes of each stream (20000).
        local: true: here; false: AWS. Best left out.

    Returns:
        exit_code, success, stdout and stderr as {text, truncated, ...}, shell; running, name, id if it goes on.
    """
    limit = output.resolve_limit(max_bytes)
    demand = creation.Demand(
        image=image,
        role=role,
        egress_connector=egress_connector,
        egress=egress,
        egress_allow=egress_allow,
        memory=memory,
        max_duration=OWN_SANDBOX_SECONDS,
        wait_timeout=attendance.MOST_SECONDS,
    )
    line = _command([command], is_line=True, cwd=cwd, env=env, timeout=timeout, limit=limit)
    return _run_alone(line, demand, call=call, limit=limit, local=local, region=region)


def _run_alone(
    line: commands.Command,
    demand: creation.Demand,
    *,
    call: Call,
    limit: int,
    local: bool | None,
    region: str | None,
) -> dict[str, object]:
    name = f"run-{os.urandom(4).hex()}"
    with Pulse(call, "starting a sandbox"):
        creation.start(name, demand, local=local, region=region)
    is_kept = False
    # Not only below: a server that ends waits for what it is told to end, and for nothing else.
    call.on_cancel(lambda: _remove(name))
    try:
        call.check()
        data = _run(name, line, call=call, limit=limit)
        is_kept = data["running"] is True
        return {**data, "name": name} if is_kept else data
    finally:
        if not is_kept:
            removal.remove_sandbox(name=name, force=True)


def _remove(name: str) -> None:
    """For a call that nobody waits for any more."""
    with contextlib.suppress(errors.VmnestError):
        removal.remove_sandbox(name=name, force=True)


def sandbox_exec(
    *,
    name: str,
    command: str,
    args: list[str] | None = None,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
    max_bytes: int | None = None,
    call: Call,
) -> dict[str, object]:
    """Run a program in a sandbox, without a shell: its arguments are passed as they are.

    A status other than 0 is a result. After 45 seconds running is true: go on with sandbox_exec_poll. For pipes and &&:
    sandbox_shell; for servers and long work: sandbox_exec_start.

    Args:
        name: Sandbox.
        command: The program.
        args: Its arguments.
        cwd: Working directory (/work).
        env: Variables to add.
        timeout: Seconds until its end (120).
        max_bytes: Bytes of each stream (20000).

    Returns:
        exit_code, success, stdout and stderr as {text, truncated, ...}; running, id, next_offset.
    """
    limit = output.resolve_limit(max_bytes)
    wanted = _command([command, *(args or [])], is_line=False, cwd=cwd, env=env, timeout=timeout, limit=limit)
    return _run(name, wanted, call=call, limit=limit)


def sandbox_shell(
    *,
    name: str,
    command: str,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
    max_bytes: int | None = None,
    call: Call,
) -> dict[str, object]:
    """Run a shell command line in a sandbox: pipes, &&, redirections, several lines.

    A status other than 0 is a result. After 45 seconds running is true: go on with sandbox_exec_poll.

    Args:
        name: Sandbox.
        command: A line for bash -lc, else sh -lc.
        cwd: Working directory (/work).
        env: Variables to add.
        timeout: Seconds until its end (120).
        max_bytes: Bytes of each stream (20000).

    Returns:
        exit_code, success, stdout and stderr as {text, truncated, ...}, shell; running, id, next_offset.
    """
    limit = output.resolve_limit(max_bytes)
    wanted = _command([command], is_line=True, cwd=cwd, env=env, timeout=timeout, limit=limit)
    return _run(name, wanted, call=call, limit=limit)


def _command(
    words: list[str],
    *,
    is_line: bool,
    cwd: str | None,
    env: dict[str, str] | None,
    timeout: float | None,
    limit: int,
) -> commands.Command:
    seconds = output.default_timeout() if timeout is None else timeout
    return commands.Command(words, shell=is_line, cwd=cwd, env=env, timeout=seconds, output_limit=limit)


def _run(name: str, command: commands.Command, *, call: Call, limit: int) -> dict[str, object]:
    attendant = attendance.Attendant(call, limit=limit)
    data = commands.exec_command(name=name, command=command, front=attendant)
    shaped = output.shape_result(data) if attendant.left is None else attendant.left
    shell = {"shell": attendant.program} if command.shell and attendant.program is not None else {}
    return {**shaped, **shell}


TOOLS = (
    Tool(sandbox_run, title="Run a command in a new sandbox", is_open=True),
    Tool(sandbox_exec, title="Run a program", destroys=True, is_open=True),
    Tool(sandbox_shell, title="Run a shell command", destroys=True, is_open=True),
)
