"""Processes in sandboxes that outlive who started them: jobs in the background, and commands whose client was lost."""

from __future__ import annotations

import os

from .. import errors
from .._guest.agentd import wire
from ..deadline import Deadline, backoff
from ..wire import names
from . import commands, moments, sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading

    from ..agent.outputs import ProcessInfo
    from ..sandbox import Process, Sandbox

__all__ = [
    *("attach_job", "describe_process", "end", "end_process", "kill_job", "list_jobs", "new_id", "start_job"),
]

END_SECONDS = 10.0  # for a command to be ended when its front has gone
GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
FIRST_LOOK_SECONDS = 0.02
LAST_LOOK_SECONDS = 0.5


def start_job(
    *,
    name: str,
    command: commands.Command,
    resume: bool = True,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Start a command in the background of a sandbox. It goes on when nobody watches, as long as its sandbox runs.

    Args:
        name: The sandbox.
        command: What to run.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    command.check()
    sandbox = sandboxes.open_sandbox(name, resume=resume, local=local, region=region)
    # A short id: it is there to be typed. One that was used before would attach to what it stands for.
    process = commands.spawn(sandbox, command, process_id=f"job-{os.urandom(5).hex()}", retain=wire.RETAIN_DROP)
    process.detach()
    return {"job": process.id, "pid": process.pid}


def list_jobs(
    *,
    name: str,
    everything: bool = False,
    resume: bool = True,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """List what runs in a sandbox, and what has ended in its background.

    Args:
        name: The sandbox.
        everything: Also commands that have ended and were waited for.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    found = sandboxes.open_sandbox(name, resume=resume, local=local, region=region).processes()
    return {"jobs": [describe_process(each) for each in found if everything or _is_of_interest(each)]}


def attach_job(
    *,
    name: str,
    job: str,
    front: commands.Front,
    offset: int = 0,
    resume: bool = True,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """See a process's output from an offset on, until it ends. It goes on if the front is gone before.

    Args:
        name: The sandbox.
        job: The process's id, or a beginning that no other's id has.
        front: Attends to it.
        offset: Bytes of its output to pass over.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    process = _attach(sandboxes.open_sandbox(name, resume=resume, local=local, region=region), job, offset=offset)
    try:
        result = front.attend(process)
        return {"job": process.id} if result is None else commands.describe(result)
    finally:
        process.detach()


def kill_job(
    *,
    name: str,
    job: str,
    signal: str | int = "TERM",
    resume: bool = True,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Send a signal to a process in a sandbox, and to all that it has started. That it has ended already is fine.

    Args:
        name: The sandbox.
        job: The process's id, or a beginning that no other's id has.
        signal: The signal's name, with or without SIG, or its number.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    process = _attach(sandboxes.open_sandbox(name, resume=resume, local=local, region=region), job)
    try:
        return {"job": process.id, "signal": signal, "delivered": process.signal(signal)}
    finally:
        process.detach()


def new_id() -> str:
    """An id that no process has."""
    return os.urandom(16).hex()


def end(sandbox: Sandbox, process_id: str, *, timeout: float = END_SECONDS) -> None:
    """End a process whose front has gone: SIGTERM (in a terminal SIGHUP), and SIGKILL if that does not do.

    A suspended sandbox is not woken for it. Fails silently: whoever calls this is on their way out already.
    """
    import threading

    # In a thread that can be left: nobody who wants to get away waits for a network that is gone.
    thread = threading.Thread(target=_end, args=(sandbox, process_id), name="vmnest-end", daemon=True)
    thread.start()
    thread.join(timeout)


def _end(sandbox: Sandbox, process_id: str) -> None:
    try:
        if sandbox.refresh() != names.RUNNING:
            return
        end_process(sandbox.attach_process(process_id))
    except errors.VmnestError:
        return


def end_process(process: Process, *, grace: float = GRACE_SECONDS, hurry: threading.Event | None = None) -> None:
    """End it: SIGTERM (in a terminal SIGHUP), and SIGKILL after ``grace`` seconds, or at ``hurry``."""
    # An interactive shell ignores SIGTERM; when its line is cut it ends, and hangs up what it has started.
    process.signal("HUP" if process.is_pty else "TERM")
    if not _has_ended(process, deadline=Deadline(grace), hurry=hurry):
        process.kill()


def _has_ended(process: Process, *, deadline: Deadline, hurry: threading.Event | None) -> bool:
    from time import sleep

    wait = sleep if hurry is None else hurry.wait
    for delay in backoff(first=FIRST_LOOK_SECONDS, last=LAST_LOOK_SECONDS):
        if process.poll() is not None:
            return True
        if deadline.expired or wait(deadline.clamp(delay)):
            break
    return False


def describe_process(info: ProcessInfo) -> dict[str, object]:
    """What is known of a process, as ``--json`` and the MCP server show it."""
    return {
        "job": info.id,
        "state": wire.PROCESS_RUNNING if info.is_running else wire.PROCESS_ENDED,
        "exit_code": info.exit_code,
        "signal": info.signal,
        "timed_out": info.timed_out,
        "command": list(info.command),
        "pid": info.pid,
        "started_at": moments.from_epoch(info.started_at),
        "ended_at": moments.from_epoch(info.ended_at),
        "background": info.retain == wire.RETAIN_DROP,
        "terminal": info.is_pty,
        "stdin": info.stdin,
        "offset": info.offset,
        "oldest": info.oldest,
    }


def _is_of_interest(info: ProcessInfo) -> bool:
    return info.is_running or info.retain == wire.RETAIN_DROP


def _attach(sandbox: Sandbox, job: str, *, offset: int = 0) -> Process:
    """The process of that id, else the only one whose id begins so."""
    try:
        return sandbox.attach_process(job, offset=offset)
    except errors.ProcessNotFoundError as error:
        close = [each.id for each in sandbox.processes() if each.id.startswith(job)]
        if len(close) == 1:
            return sandbox.attach_process(close[0], offset=offset)
        if close:
            raise errors.UsageError(f"which job is meant by {job}: {' or '.join(close)}?") from error
        raise errors.ProcessNotFoundError(
            f"there is no job {job} in {sandbox.name}",
            hint=f"All that can be had: vmnest jobs --all {sandbox.name}",
            details=error.details,
        ) from error
