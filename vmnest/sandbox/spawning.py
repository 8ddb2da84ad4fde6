"""Processes of a sandbox: started, listed and found again, if its agent knows any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .. import errors
from .._guest.agentd import wire
from ..agent import commands, following, processes, starting
from .process import Process

if TYPE_CHECKING:
    from ..agent.arguments import Command
    from ..agent.client import AgentClient
    from ..agent.outputs import ProcessInfo
    from ..agent.results import ExecResult
    from ..deadline import Deadline

__all__ = ["attach", "failed", "fetch_all", "spawn"]

_COMPLAINT_BYTES = 500


def spawn(
    agent: AgentClient, wish: Command, *, process_id: str, watch: bool, awake: Callable[[Deadline], AgentClient]
) -> Process:
    """Start a program. See ``Sandbox.spawn``.

    Args:
        agent: Of the sandbox.
        wish: What to run.
        process_id: The name by which it runs once.
        watch: Its output comes with the same answer.
        awake: Gives the agent, the sandbox resumed if need be.
    """
    follower: following.Follower | None = None
    with _telling_lack(agent):
        if watch:
            budget = commands.build_budget(agent, wish)
            answer = starting.start_and_watch(agent, wish, process_id=process_id, budget=budget)
            follower = following.Follower(agent, process_id, name=wish.command, first=answer, budget=budget)
            info = follower.begin()
        else:
            info = starting.start(agent, wish, process_id=process_id)
    return Process(info, agent=agent, awake=awake, follower=follower)


def fetch_all(agent: AgentClient) -> list[ProcessInfo]:
    """The processes that the agent knows, oldest first."""
    with _telling_lack(agent):
        return processes.fetch_all(agent)


def attach(agent: AgentClient, process_id: str, *, offset: int, awake: Callable[[Deadline], AgentClient]) -> Process:
    """A process that was started before. See ``Sandbox.attach_process``."""
    with _telling_lack(agent):
        info = processes.fetch(agent, process_id)
    return Process(info, agent=agent, awake=awake, offset=offset)


@contextlib.contextmanager
def _telling_lack(agent: AgentClient) -> Iterator[None]:
    """The first request about processes tells whether the agent knows any; no other one is made in vain."""
    if agent.is_known_to_lack(wire.FEATURE_PROCESSES):
        raise commands.lacking("processes")
    try:
        yield
    except errors.UnsupportedError as error:
        agent.note_lack(wire.FEATURE_PROCESSES)
        raise commands.lacking("processes") from error


def failed(command: str, result: ExecResult) -> errors.CommandFailedError:
    """The error of ``check=True``; the last line that the command complained with is the likeliest reason."""
    how = f"was ended by {result.signal}" if result.signal else f"ended with status {result.exit_code}"
    complaint = result.stderr[-_COMPLAINT_BYTES:].decode("utf-8", "replace").strip().rpartition("\n")[2]
    reason = f": {errors.quote(complaint, limit=200)}" if complaint else ""
    return errors.CommandFailedError(f"{command} {how}{reason}", result=result)
