"""One request to the agent, and how long its answer may take."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from .. import errors
from ..deadline import NEVER, Clock, Deadline
from . import refusals

if TYPE_CHECKING:
    from ..transport import Response

__all__ = [
    "CHUNK_BYTES",
    "SILENCE_SECONDS",
    "TIMED_OUT_STATUS",
    "AnswerDeadline",
    "Body",
    "Budget",
    "Request",
    "beginning",
    "judge",
    "lost",
    "lost_answers",
    "noting_doubt",
]

TIMED_OUT_STATUS = 504
SILENCE_SECONDS = 60.0  # the longest wait for the agent's answer about health and files
SLOWEST_BYTES_PER_SECOND = 1024.0  # an answer that comes slower than this is one that never ends
CHUNK_BYTES = 256 * 1024
JSON_TYPE = "application/json"

# A body as it goes out, or what makes its pieces anew for every attempt.
Body = bytes | Callable[[], Iterable[bytes]]


class AnswerDeadline(Deadline):
    """When to stop waiting for an answer: ``patience`` for its beginning, and more with each byte that moves.

    An honest answer may be large and the line slow; one that only drips is cut. Time in which we ourselves did not
    read does not count. ``outer`` holds in any case.
    """

    __slots__ = ("_began", "moved", "outer")

    def __init__(self, patience: float | None, *, outer: Deadline, clock: Clock) -> None:
        super().__init__(patience, clock=clock)
        self.outer = outer
        self._began = clock.monotonic()
        self.moved = 0

    def end_within(self, seconds: float) -> None:
        """Wait no longer than that from now on, if there was more patience than that."""
        allowed = self._clock.monotonic() - self._began + seconds
        self.seconds = allowed if self.seconds is None else min(self.seconds, allowed)

    def lift(self) -> None:
        """The answer has begun: it may last as long as it wants."""
        self.seconds = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The time of this block does not count."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._began += self._clock.monotonic() - began

    def remaining(self) -> float | None:
        outer = self.outer.remaining()
        if self.seconds is None:
            return outer
        allowed = self.seconds + self.moved / SLOWEST_BYTES_PER_SECOND
        left = max(0.0, allowed - (self._clock.monotonic() - self._began))
        return left if outer is None else min(left, outer)


class Budget(AnswerDeadline):
    """How long one call waits in all: its attempts, the silence in each, and the waits between them draw on it.

    What arrives buys more. Time in which nobody waits does not count, nor does the sandbox's sleep, after which it is
    whole again.

    Args:
        seconds: None for no end.
        outer: Holds in any case; each call of several may set its own.
        clock: The time.
    """

    __slots__ = ("_rests_since", "_whole")

    def __init__(self, seconds: float | None, *, outer: Deadline, clock: Clock) -> None:
        super().__init__(seconds, outer=outer, clock=clock)
        self._whole = self.seconds
        self._rests_since: float | None = None

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Somebody waits in this block; from the end of the first one to the next nobody does."""
        if self._rests_since is not None:
            self._began += self._clock.monotonic() - self._rests_since
        try:
            yield
        finally:
            self._rests_since = self._clock.monotonic()

    def note_sleep(self, state: str | None) -> None:
        """The sandbox was found suspended, or (None) goes on."""
        if state is not None:
            self.seconds = None
        else:
            self.seconds, self._began, self.moved = self._whole, self._clock.monotonic(), 0


class Request:
    """One request, which may be sent several times; one that must not be carried out twice only if it was not yet.

    ``bound`` belongs to the attempt that is under way; ``may_have_run`` is set once one may have been carried out.

    Args:
        method: The HTTP method.
        path: The route with its query, percent-encoded.
        asked: What it asks for (``refusals.EXEC`` and so on): what an error's status without a code means.
        deadline: The end of all attempts, the reading of the answer included.
        body: Bytes, or a function that makes their pieces anew for each attempt; those go out in chunks.
        content_type: The body's.
        headers: Further ones, names and values.
        accepted: The statuses that are no errors.
        repeatable: Sent twice, it does what it does when sent once; None: unless it runs a command.
        patience: Seconds for the beginning of the answer; what is sent and what arrives buys more. None for no end.
        silence: The longest time without a byte of the answer, once all is sent; None for no end.
        wakes: Whether it may resume a MicroVM that is found suspended; if not, SandboxSuspendedError tells of it.
        command: The command that it runs, for messages.
    """

    def __init__(
        self,
        method: str,
        path: str,
        *,
        asked: str,
        deadline: Deadline = NEVER,
        body: Body | None = None,
        content_type: str = JSON_TYPE,
        headers: Iterable[tuple[str, str]] = (),
        accepted: Collection[int] = (200, 201),
        repeatable: bool | None = None,
        patience: float | None = SILENCE_SECONDS,
        silence: float | None = None,
        wakes: bool = True,
        command: str | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.asked = asked
        self.body = body
        self.content_type = content_type
        self.headers = tuple(headers)
        self.accepted = frozenset(accepted)
        self.is_repeatable = command is None if repeatable is None else repeatable
        self.deadline = deadline
        self.patience = patience
        self.silence = silence
        self.wakes = wakes
        self.command = command
        self.exec_id = None if command is None else os.urandom(16).hex()
        self.bound: AnswerDeadline | None = None
        self.may_have_run = False

    def outgoing(self) -> bytes | Callable[[], Iterable[bytes]] | None:
        """The body for the attempt that is under way."""
        return self._pieces_out if callable(self.body) else self.body

    def _pieces_out(self) -> Iterator[bytes]:
        assert callable(self.body)
        assert self.bound is not None
        source = iter(self.body())
        while True:
            with self.bound.paused():  # whoever gives the pieces may be slow: a pipe, a disk
                piece = next(source, None)
            if piece is None:
                return
            yield piece
            self.bound.moved += len(piece)

    def is_timeout(self, response: Response) -> bool:
        """The agent ended the command at its timeout, and answers with what it left."""
        if self.command is None or response.status != TIMED_OUT_STATUS:
            return False
        return refusals.is_agent_answer(response.headers)

    def pieces(self, response: Response) -> Iterator[bytes]:
        """The answer's body."""
        assert self.bound is not None
        for piece in response.chunks(CHUNK_BYTES):
            self.bound.moved += len(piece)
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


@contextlib.contextmanager
def noting_doubt(request: Request) -> Iterator[None]:
    """The request goes out in this block: when it fails, note whether it may have been carried out."""
    try:
        yield
    except errors.TransportError as error:
        request.may_have_run |= error.sent and not request.is_repeatable
        raise


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
