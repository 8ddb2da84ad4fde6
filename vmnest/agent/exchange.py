"""One request to the agent, and how long its answer may take."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import errors
from ..deadline import Clock, Deadline
from . import refusals

if TYPE_CHECKING:
    from ..transport import Response

__all__ = [
    "CHUNK_BYTES",
    "SILENCE_SECONDS",
    "TIMED_OUT_STATUS",
    "AnswerDeadline",
    "Request",
    "beginning",
    "judge",
    "lost",
    "lost_answers",
]

TIMED_OUT_STATUS = 504
SILENCE_SECONDS = 60.0  # the longest wait for the agent's answer about health and files
SLOWEST_BYTES_PER_SECOND = 1024.0  # an answer that comes slower than this is one that never ends
CHUNK_BYTES = 256 * 1024


class AnswerDeadline(Deadline):
    """When to stop waiting for an answer: ``patience`` for its beginning, and more with each byte that arrives.

    An honest answer may be large and the line slow; one that only drips is cut. Time in which we ourselves did not
    read does not count. ``outer`` holds in any case.
    """

    __slots__ = ("_began", "_outer", "received")

    def __init__(self, patience: float | None, *, outer: Deadline, clock: Clock) -> None:
        super().__init__(patience, clock=clock)
        self._outer = outer
        self._began = clock.monotonic()
        self.received = 0

    def end_within(self, seconds: float) -> None:
        """Wait no longer than that from now on, if there was more patience than that."""
        allowed = self._clock.monotonic() - self._began + seconds
        self.seconds = allowed if self.seconds is None else min(self.seconds, allowed)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The time of this block does not count."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._began += self._clock.monotonic() - began

    def remaining(self) -> float | None:
        outer = self._outer.remaining()
        if self.seconds is None:
            return outer
        allowed = self.seconds + self.received / SLOWEST_BYTES_PER_SECOND
        left = max(0.0, allowed - (self._clock.monotonic() - self._began))
        return left if outer is None else min(left, outer)


class Request:
    """One request, which may be sent several times; one that runs a ``command`` only if that makes no second run.

    ``bound`` belongs to the attempt that is under way; ``may_have_run`` is set once one may have run the command.
    """

    def __init__(
        self,
        method: str,
        path: str,
        *,
        asked: str,
        deadline: Deadline,
        body: bytes | None = None,
        patience: float | None = SILENCE_SECONDS,
        command: str | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.asked = asked
        self.body = body
        self.deadline = deadline
        self.patience = patience
        self.command = command
        self.exec_id = None if command is None else os.urandom(16).hex()
        self.bound: AnswerDeadline | None = None
        self.may_have_run = False

    @property
    def is_repeatable(self) -> bool:
        """Sent twice, it does what it does when sent once."""
        return self.command is None

    def is_timeout(self, response: Response) -> bool:
        """The agent ended the command at its timeout, and answers with what it left."""
        if self.command is None or response.status != TIMED_OUT_STATUS:
            return False
        return refusals.is_agent_answer(response.headers)

    def pieces(self, response: Response) -> Iterator[bytes]:
        """The answer's body."""
        assert self.bound is not None
        for piece in response.chunks(CHUNK_BYTES):
            self.bound.received += len(piece)
            with self.bound.paused():  # whoever takes the output may be slow: a pager, a full pipe
                yield piece


def beginning(response: Response) -> bytes:
    """As much of an error's body as is looked at; a body that breaks off is no other error than its status."""
    data = b""
    try:
        for piece in response.chunks():
            data += piece
            if len(data) >= refusals.MAX_BODY_BYTES:
                break
    except errors.TransportError:
        return data
    return data[: refusals.MAX_BODY_BYTES]


@contextlib.contextmanager
def lost_answers(request: Request) -> Iterator[None]:
    """The agent's answer comes in this block: when it does not, say of a command that its outcome is unknown.

    What else is asked for it, tokens and the MicroVM's state, stays out: then the command was not even sent.
    """
    try:
        yield
    except errors.TransportError as error:
        if request.command is None or not error.sent:
            raise
        raise lost(request, str(error)) from error


def lost(request: Request, reason: str) -> errors.AgentUnreachableError:
    """The error for a command whose answer does not come."""
    assert request.command is not None
    return errors.AgentUnreachableError(
        f"no answer about {request.command[:200]!r}: {reason}", details={"outcome": "unknown"}
    )


def judge(request: Request, error: errors.VmnestError) -> None:
    """Make an error that ended a command's request say whether the command may have run."""
    # After an attempt that may have run it, only the agent itself can tell that it did not.
    is_settled = isinstance(error, errors.ExecError) or "agent_code" in error.details
    if isinstance(error, errors.AgentAnswerError) or (request.may_have_run and not is_settled):
        refusals.cast_doubt(error)
