"""The requests about processes, one function each. What takes several of them is ``following``'s, and ``sandbox``'s.

Which of them may be sent twice: all that only ask; input, whose offset says what was there before; KILL and TERM, which
do to a process what they did already. Another signal is not repeated once it may have arrived.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from . import arguments, cuts, exchange, outputs, refusals

if TYPE_CHECKING:
    from ..transport import Response
    from .client import AgentClient
    from .outputs import ProcessInfo

__all__ = [
    "Answer",
    "Taken",
    "fetch",
    "fetch_all",
    "hold",
    "peek",
    "remove",
    "resize",
    "send_input",
    "send_signal",
    "silence",
    "to_object",
    "watch",
    "watch_seconds",
]

ANSWER_BYTES = 16 * 1024 * 1024
SMALL_ANSWER_BYTES = 65536

_HARMLESS_TWICE = frozenset({"KILL", "TERM"})


class Taken(NamedTuple):
    """What became of input: how much of the writer's the process has taken in all, and whether it takes no more."""

    offset: int
    is_closed: bool


def watch(client: AgentClient, process_id: str, *, offset: int, deadline: Deadline = NEVER) -> Answer:
    """Output from ``offset`` on, as it comes, until it is quiet for a while. It wakes no sandbox.

    Raises:
        errors.ProcessNotFoundError: the agent does not know the process.
        errors.SandboxSuspendedError: the sandbox is suspended.
    """
    wait = watch_seconds(client, deadline)
    request = exchange.Request(
        "GET",
        f"{_path(process_id)}/output?offset={offset}&wait={wait:g}",
        asked=refusals.PROCESS,
        deadline=deadline,
        patience=client.grace,
        silence=silence(client, wait),
        wakes=False,
    )
    return Answer(request, client.send(request))


def watch_seconds(client: AgentClient, deadline: Deadline) -> float:
    """How long an answer of output may be quiet."""
    return round(deadline.clamp(min(client.quiet, wire.MAX_WAIT_SECONDS)), 3)


def silence(client: AgentClient, wait: float) -> float:
    """When an answer that may be quiet for ``wait`` seconds does not come any more."""
    return wait + client.grace / 2


def hold(client: AgentClient, process_id: str, *, offset: int, deadline: Deadline = NEVER) -> None:
    """Tell that output from ``offset`` on is going to be read, although nobody asks for it yet. It wakes no sandbox.

    Raises:
        errors.ProcessNotFoundError: the agent does not know the process.
        errors.SandboxSuspendedError: the sandbox is suspended.
    """
    path = f"{_path(process_id)}/output?offset={offset}&limit=0"
    request = exchange.Request("GET", path, asked=refusals.PROCESS, deadline=deadline, wakes=False)
    with client.send(request) as response:
        response.read(SMALL_ANSWER_BYTES)


class Answer:
    """One answer of output, while it arrives. It begins at once, and may last."""

    def __init__(self, request: exchange.Request, response: Response) -> None:
        assert request.bound is not None
        request.bound.lift()
        self._request = request
        self._response = response

    def events(self, *, offset: int) -> Iterator[outputs.Event]:
        """See ``outputs.read_events``; ``offset`` is where it was asked to begin."""
        return outputs.read_events(self._request.pieces(self._response), offset=offset)

    def close(self) -> None:
        """End it, from any thread."""
        self._response.close()


def fetch(client: AgentClient, process_id: str, *, deadline: Deadline = NEVER) -> ProcessInfo:
    """What the agent knows of a process.

    Raises:
        errors.ProcessNotFoundError: nothing.
    """
    request = exchange.Request("GET", _path(process_id), asked=refusals.PROCESS, deadline=deadline)
    return outputs.parse_info(_ask(client, request))


def peek(client: AgentClient, process_id: str, *, deadline: Deadline = NEVER) -> ProcessInfo:
    """As ``fetch``, but asked once only, and without waking the sandbox.

    Raises:
        errors.SandboxSuspendedError: it is suspended.
    """
    request = exchange.Request("GET", _path(process_id), asked=refusals.PROCESS, deadline=deadline, wakes=False)
    with client.send(request) as response:
        return outputs.parse_info(to_object(response))


def fetch_all(client: AgentClient, *, deadline: Deadline = NEVER) -> list[ProcessInfo]:
    """All processes that the agent knows, the oldest first."""
    request = exchange.Request("GET", wire.PROCESSES_PATH, asked=refusals.PROCESS, deadline=deadline)
    found = _ask(client, request, limit=ANSWER_BYTES).get("processes")
    if not isinstance(found, list):
        raise errors.AgentAnswerError("the agent does not tell its processes as the protocol says")
    return [outputs.parse_info(document) for document in found]


def send_input(
    client: AgentClient,
    process_id: str,
    data: bytes,
    *,
    writer: str,
    offset: int,
    is_end: bool = False,
    wait: float = wire.MAX_WAIT_SECONDS,
    wakes: bool = True,
    deadline: Deadline = NEVER,
) -> Taken:
    """Send input, which begins after ``offset`` bytes of the writer's; what was taken already is passed over.

    This is one attempt: it may be made again with what was not taken.
    """
    query = f"?writer={writer}&offset={offset}&wait={deadline.clamp(wait):g}" + ("&eof=1" if is_end else "")
    request = exchange.Request(
        "POST",
        f"{_path(process_id)}/stdin{query}",
        asked=refusals.PROCESS,
        body=data,
        content_type=wire.OCTETS_TYPE,
        deadline=deadline,
        wakes=wakes,
    )
    with client.send(request) as response:
        answer = to_object(response)
    taken = answer.get("offset")
    if isinstance(taken, bool) or not isinstance(taken, int) or not 0 <= taken <= offset + len(data):
        raise errors.AgentAnswerError("the agent does not tell how much input it took")
    return Taken(taken, answer.get("closed") is True)


def send_signal(client: AgentClient, process_id: str, signal: str | int, *, deadline: Deadline = NEVER) -> bool:
    """Send a signal to a process with all its children; whether there was one to get it."""
    name = arguments.check_signal(signal)
    request = exchange.Request(
        "POST",
        f"{_path(process_id)}/signal",
        asked=refusals.PROCESS,
        body=json.dumps({"signal": name}).encode("ascii"),
        deadline=deadline,
        repeatable=name in _HARMLESS_TWICE,
    )
    return _ask(client, request).get("delivered") is True


def resize(client: AgentClient, process_id: str, *, columns: int, rows: int, deadline: Deadline = NEVER) -> None:
    """Give a process's terminal another size. It wakes no sandbox."""
    request = exchange.Request(
        "POST",
        f"{_path(process_id)}/resize",
        asked=refusals.PROCESS,
        body=arguments.build_size(columns, rows),
        deadline=deadline,
        wakes=False,
    )
    _ask(client, request)


def remove(client: AgentClient, process_id: str, *, deadline: Deadline = NEVER) -> ProcessInfo | None:
    """End a process that still runs, and forget it; what the agent said last of it, if it did.

    Fine if it is forgotten already.
    """
    request = exchange.Request("DELETE", _path(process_id), asked=refusals.PROCESS, deadline=deadline)
    try:
        last = _ask(client, request)
    except errors.ProcessNotFoundError:
        return None
    return outputs.parse_info(last) if last else None


def _ask(client: AgentClient, request: exchange.Request, *, limit: int = SMALL_ANSWER_BYTES) -> dict[str, object]:
    """The answer; after a cut it is asked for again if that does no harm."""

    def attempt(may_wake: bool) -> dict[str, object]:
        request.wakes = request.wakes and may_wake
        with client.send(request) as response:
            return to_object(response, limit=limit)

    return cuts.repeated(client, attempt, may_repeat=lambda: request.is_repeatable, deadline=request.deadline)


def to_object(response: Response, *, limit: int = SMALL_ANSWER_BYTES) -> dict[str, object]:
    """The answer's body, a JSON object of at most ``limit`` bytes."""
    try:
        answer = json.loads(response.read(limit))
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise errors.AgentAnswerError("the agent's answer about a process is no object")
    return answer


def _path(process_id: str) -> str:
    return f"{wire.PROCESSES_PATH}/{arguments.check_process_id(process_id)}"
