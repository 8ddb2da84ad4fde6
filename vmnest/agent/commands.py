"""Running a command to its end: as a process where the agent knows processes, else by the base contract's exec.

A process is better in every way: its output comes while it runs, nothing between here and there cuts a long one, and a
lost answer is asked for again. It costs no round trip more: one request starts it and brings its output. An agent that
knows no processes says so to the first such request, which is remembered.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from ..wire import names
from . import arguments, exchange, feeding, following, processes, refusals, results, starting, streams
from .outputs import Chunk, Exit

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["OUTPUT_LIMIT_BYTES", "Outlet", "build_budget", "lacking", "run"]

OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
GIVE_UP_SECONDS = 5.0  # to end a process that nobody waits for any more

_logger = logging.getLogger(__name__)


class Outlet:
    """Where a command's output goes: to the caller's functions, or into the result."""

    def __init__(
        self,
        *,
        limit: int | None = OUTPUT_LIMIT_BYTES,
        on_stdout: streams.Sink | None = None,
        on_stderr: streams.Sink | None = None,
    ) -> None:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise errors.UsageError(f"output_limit must be a number of bytes: {limit!r:.100}")
        self._stdout, self._stderr = streams.Collector(limit), streams.Collector(limit)
        self._missing = 0  # of either
        self.sinks: dict[str, streams.Sink] = {
            "stdout": on_stdout or self._stdout,
            "stderr": on_stderr or self._stderr,
        }

    def take(self, chunk: Chunk) -> None:
        """A piece of output. Of a gap nobody knows which stream it was in: its place is noted in both."""
        if chunk.missing:
            self._missing += chunk.missing
            self._stdout.cut()
            self._stderr.cut()
        else:
            self.sinks[chunk.stream](chunk.data)

    def to_result(self, end: Exit, *, truncated: bool = False) -> results.ExecResult:
        """The result of a command that ended so."""
        stdout, stderr = self._stdout, self._stderr
        return results.ExecResult(
            exit_code=end.exit_code,
            stdout=stdout.value(),
            stderr=stderr.value(),
            signal=end.signal,
            timed_out=end.timed_out,
            truncated=truncated or stdout.truncated or stderr.truncated or self._missing > 0,
            stdout_missing=stdout.missing,
            stderr_missing=stderr.missing,
            either_missing=self._missing,
        )


def run(
    client: AgentClient,
    command: arguments.Command,
    *,
    outlet: Outlet,
    stdin: feeding.Source | None = None,
    deadline: Deadline = NEVER,
) -> results.ExecResult:
    """Run a command and wait for its end. See ``AgentClient.exec`` for what is raised."""
    budget = build_budget(client, command, deadline=deadline)
    if not client.is_known_to_lack(wire.FEATURE_PROCESSES):
        process_id = os.urandom(16).hex()
        try:
            answer = starting.start_and_watch(client, command, process_id=process_id, budget=budget)
        except errors.UnsupportedError:
            client.note_lack(wire.FEATURE_PROCESSES)
        else:
            follower = following.Follower(client, process_id, name=command.command, first=answer, budget=budget)
            return _run(client, command, follower, process_id=process_id, outlet=outlet, stdin=stdin, deadline=deadline)
    _check_plain(command)
    return _run_plain(client, command, outlet=outlet, budget=budget)


def build_budget(client: AgentClient, command: arguments.Command, *, deadline: Deadline = NEVER) -> exchange.Budget:
    """How long its end is waited for: its own timeout and a grace, or as long as it takes."""
    seconds = None if command.timeout is None else command.timeout + client.grace
    return exchange.Budget(seconds, outer=deadline, clock=client.clock)


def _run(
    client: AgentClient,
    command: arguments.Command,
    follower: following.Follower,
    *,
    process_id: str,
    outlet: Outlet,
    stdin: feeding.Source | None,
    deadline: Deadline,
) -> results.ExecResult:
    patience = Deadline(deadline.remaining(), clock=client.clock)

    def give_up() -> None:
        """The caller's source failed: nobody wants what the command would make of a part of its input."""
        _end(client, process_id)
        follower.give_up(patience)

    with feeding.feed(client, feeding.Input(process_id), stdin, on_failure=give_up):
        try:
            while (chunk := follower.next(patience)) is not None:
                outlet.take(chunk)
        except errors.WaitTimeoutError as error:
            raise starting.lost(command.command, error, process_id=process_id) from error
        except errors.VmnestError as error:
            refusals.cast_doubt(error)
            raise
        except BaseException:
            # The caller's function failed, or the caller was interrupted: nobody waits for the command any more.
            follower.stop()
            _end(client, process_id)
            raise
    assert follower.exit is not None
    return _check(command, outlet.to_result(follower.exit))


def _check_plain(command: arguments.Command) -> None:
    """Refuse what the base contract has no words for."""
    wishes = {"input": command.has_stdin, "a user": command.user is not None, "limits": command.rlimits is not None}
    wanted = [wish for wish, is_there in wishes.items() if is_there]
    if wanted:
        raise lacking(f"{' and '.join(wanted)} of a command")


def lacking(what: str, *, feature: str = wire.FEATURE_PROCESSES) -> errors.UnsupportedError:
    """The error for what needs an extension that the agent does not have."""
    return errors.UnsupportedError(
        f"the agent in this sandbox has no {feature!r}, which {what} would need",
        hint="Build the image with this version's agent: vmnest image build.",
        details={"feature": feature},
    )


def _run_plain(
    client: AgentClient, command: arguments.Command, *, outlet: Outlet, budget: exchange.Budget
) -> results.ExecResult:
    """By the base contract: output comes once the command has ended."""
    timeout = command.timeout
    request = exchange.Request(
        "POST",
        wire.EXEC_PATH,
        asked=refusals.EXEC,
        body=arguments.build_exec(command),
        deadline=budget,
        patience=None if timeout is None else timeout + client.grace,
        command=command.command,
    )
    try:
        with client.send(request) as response, exchange.lost_answers(request):
            budget.lift()
            members = streams.read_answer(request.pieces(response), sinks=outlet.sinks)
        timed_out = response.status == exchange.TIMED_OUT_STATUS
        exit_code, signal_name = results.parse_exit(members, timed_out=timed_out)
        end = Exit(exit_code, signal_name, timed_out)
        return _check(command, outlet.to_result(end, truncated=members.get("truncated") is True))
    except errors.VmnestError as error:
        exchange.judge(request, error)
        if refusals.is_in_doubt(error) and isinstance(error, (errors.AgentUnreachableError, errors.EndpointError)):
            _tell_state(client, error)
        raise


def _check(command: arguments.Command, result: results.ExecResult) -> results.ExecResult:
    if result.timed_out:
        within = "its timeout" if command.timeout is None else f"{command.timeout:g} s"
        raise errors.CommandTimedOutError(f"{command.command} did not end within {within} and was ended", result=result)
    return result


def _tell_state(client: AgentClient, error: errors.VmnestError) -> None:
    """Say what became of the command, as far as the MicroVM's state tells."""
    state = client.look()
    if state is not None:
        error.details["state"] = state
    if state in names.ENDED_STATES:
        error.add_hint(f"The sandbox has ended meanwhile ({state}), and the command with it.")
    elif state in names.SUSPENDED_STATES:
        error.add_hint(
            f"The sandbox was suspended meanwhile ({state}): that cuts connections, and the command is ended when "
            "the sandbox is resumed."
        )
    elif error.hint is None:
        error.add_hint("The command may have run, and may still be running.")


def _end(client: AgentClient, process_id: str) -> None:
    """End a process that nobody waits for any more, if that can be done in a moment."""
    try:
        processes.remove(client, process_id, deadline=Deadline(GIVE_UP_SECONDS, clock=client.clock))
    except errors.VmnestError as failure:
        _logger.info("a process that was given up could not be ended: %s", failure)
