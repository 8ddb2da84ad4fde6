"""Starting a process once, although answers get lost.

Its id is the caller's: an agent that knows the id does not run the command a second time, but gives the process that it
has. An agent that was restarted knows nothing of what its predecessor did. So when the answer to a start is lost, the
request is only sent again if the agent of now was there before it was sent first, or if it does know the process.
Otherwise nobody can say whether the command ran, and the error says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from . import arguments, exchange, outputs, processes, refusals
from .recovery import DOUBTFUL, Recovery

if TYPE_CHECKING:
    from ..transport import Response
    from .client import AgentClient

__all__ = ["lost", "start", "start_and_watch"]

HEALTH_SECONDS = 10.0
END_SECONDS = 1.0  # from a command's timeout to its end

Result = TypeVar("Result")


def start(
    client: AgentClient, command: arguments.Command, *, process_id: str, deadline: Deadline = NEVER
) -> outputs.ProcessInfo:
    """Start a process once, or find the one that has this id.

    Raises:
        errors.UnsupportedError: the agent knows no processes.
        errors.ExecError: it was not started (see its subclasses).
        errors.AgentUnreachableError: whether it was started is unknown.
    """
    body = arguments.build_process(command, process_id=process_id)
    request = exchange.Request(
        "POST", wire.PROCESSES_PATH, asked=refusals.PROCESS, body=body, deadline=deadline, repeatable=False
    )

    def read(response: Response) -> outputs.ProcessInfo:
        with response, exchange.noting_doubt(request):
            return outputs.parse_info(processes.to_object(response))

    return _send(client, request, read, process_id=process_id, name=command.command)


def start_and_watch(
    client: AgentClient, command: arguments.Command, *, process_id: str, budget: exchange.Budget
) -> processes.Answer:
    """As ``start``, and the beginning of its output in the same answer, as ``processes.watch`` gives it."""
    wait, patience = processes.watch_seconds(client, budget), client.grace
    if command.timeout is not None:
        # Within its budget there is to be time for a second attempt.
        wait = min(wait, command.timeout + END_SECONDS)
        patience = min(patience, (command.timeout + client.grace) / 2)
    request = exchange.Request(
        "POST",
        f"{wire.PROCESSES_PATH}?wait={wait:g}&offset=0",
        asked=refusals.PROCESS,
        body=arguments.build_process(command, process_id=process_id),
        deadline=budget,
        patience=patience,
        silence=processes.silence(client, wait),
        repeatable=False,
    )
    read = functools.partial(processes.Answer, request)
    return _send(client, request, read, process_id=process_id, name=command.command)


def lost(name: str, reason: errors.VmnestError, *, process_id: str) -> errors.AgentUnreachableError:
    """The error for a command of which nobody knows what became."""
    return errors.AgentUnreachableError(
        f"nobody knows what became of {name[:200]!r}: {reason}",
        hint="The command may have run, and may still be running.",
        details={"outcome": "unknown", "process": process_id},
    )


def _send(
    client: AgentClient,
    request: exchange.Request,
    read: Callable[[Response], Result],
    *,
    process_id: str,
    name: str,
) -> Result:
    """What ``read`` makes of the answer; it runs once, or an error says that nobody knows."""
    began = client.clock.monotonic()
    recovery = Recovery(client, deadline=request.deadline)
    while True:
        try:
            return read(client.send(request))
        except errors.VmnestError as error:
            if error.details.get("agent_code") == wire.ALREADY_STARTED:
                # It has forgotten what became of it: asking again tells no more.
                raise lost(name, error, process_id=process_id) from error
            if not _is_doubtful(request, error):
                exchange.judge(request, error)
                raise
            failure = error
        request.may_have_run = True
        _settle(client, recovery, failure, process_id=process_id, name=name, began=began)


def _is_doubtful(request: exchange.Request, error: errors.VmnestError) -> bool:
    """Whether the agent is to be asked what became of the request."""
    if isinstance(error, errors.AgentUnreachableError):
        return True
    is_other = isinstance(error, errors.SandboxSuspendedError) or not isinstance(error, DOUBTFUL)
    return request.may_have_run and not is_other


def _settle(
    client: AgentClient,
    recovery: Recovery,
    failure: errors.VmnestError,
    *,
    process_id: str,
    name: str,
    began: float,
) -> None:
    """Return once it is certain that a repeat does not run the command twice."""
    reason = failure
    while True:
        try:
            recovery.after_failure(reason)
        except (errors.WaitTimeoutError, *DOUBTFUL) as error:
            raise lost(name, failure, process_id=process_id) from error
        try:
            if _is_safe(client, process_id, began=began, deadline=recovery.deadline):
                return
        except DOUBTFUL as error:
            reason = error
        else:
            raise lost(name, failure, process_id=process_id) from failure


def _is_safe(client: AgentClient, process_id: str, *, began: float, deadline: Deadline) -> bool:
    """Whether the agent of now was there before the first attempt, or knows the process."""
    look = Deadline(deadline.clamp(min(HEALTH_SECONDS, client.grace)), clock=client.clock)
    health = client.health(wakes=False, deadline=look)
    if health.uptime is not None and health.uptime > client.clock.monotonic() - began:
        return True
    try:
        processes.peek(client, process_id, deadline=look)
    except errors.ProcessNotFoundError:
        return False
    return True
