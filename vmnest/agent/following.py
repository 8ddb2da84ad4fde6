"""Reading a process's output to its end, through cuts, quiet times, renewed tokens and suspensions.

Strategy: one answer after the other is asked for, each from the offset that was reached. An answer ends when it is
large or quiet; when it is cut, the next one begins where it was cut. What was handed out is counted, nothing else: what
was in flight when the caller was interrupted comes again. How to go on between two answers is ``recovery``'s.

The end of a process is told by its EXIT frame alone. A process that the agent does not know any more has an end that
nobody knows; then an error says so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import errors
from ..deadline import NEVER, Deadline
from . import exchange, outputs, processes, starting
from .recovery import DOUBTFUL, Recovery

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["Follower"]


class Follower:
    """Reads one process's output. One thread reads at a time; ``stop``, ``give_up`` and ``recovery.stir`` are for any.

    Args:
        client: Of the agent.
        process_id: The process.
        name: The command's, for messages.
        offset: Where to begin.
        first: An answer that has begun already.
        budget: What it was asked for with; the waits that follow draw on it, too.

    Attributes:
        offset: The bytes of output that were handed out, or are known to be missing.
        exit: The end of the process, once it was read.
        info: What the agent said last of the process.
        recovery: How it goes on after a cut.
    """

    def __init__(
        self,
        client: AgentClient,
        process_id: str,
        *,
        name: str,
        offset: int = 0,
        first: processes.Answer | None = None,
        budget: exchange.Budget | None = None,
    ) -> None:
        self.offset = offset
        self.exit: outputs.Exit | None = None
        self.info: outputs.ProcessInfo | None = None
        self._client = client
        self._process_id = process_id
        self._name = name
        self._budget = budget or exchange.Budget(None, outer=NEVER, clock=client.clock)
        self.recovery = Recovery(client, deadline=self._budget)
        self._is_quiet = False
        self._answer: processes.Answer | None = None
        self._owner = os.getpid()  # the process of this machine that asked for it
        self._events: Iterator[outputs.Event] = iter(())
        if first is not None:
            self._read(first)

    def begin(self) -> outputs.ProcessInfo:
        """What the agent says of the process, which stands before its output. Raises what ``next`` raises."""
        try:
            with self._budget.counting():
                while self.info is None:
                    self._next_event()
        except BaseException:
            self.stop()
            raise
        return self.info

    def next(self, deadline: Deadline = NEVER) -> outputs.Chunk | None:
        """The next piece of output, or None once the process has ended.

        Raises:
            errors.WaitTimeoutError: neither within the deadline.
            errors.MicroVMEndedError: the MicroVM has ended, and the process with it.
            errors.AgentUnreachableError: nobody knows what became of the process.
        """
        self._budget.outer = deadline
        if self._owner != os.getpid():
            self.stop()  # a forked child and its parent would each get a part of one answer
        try:
            with self._budget.counting():
                while self.exit is None:
                    event = self._next_event()
                    if isinstance(event, outputs.Chunk):
                        self.offset = event.offset + len(event.data) + event.missing
                        return event
        except BaseException:
            # What was received and not handed out comes again.
            self.stop()
            raise
        self.stop()
        return None

    def stop(self) -> None:
        """End the answer that is under way; ``next`` would ask for another."""
        answer, self._answer = self._answer, None
        self._events = iter(())
        if answer is not None and self._owner == os.getpid():
            answer.close()

    def conclude(self, end: outputs.Exit, *, offset: int) -> None:
        """Read no more: it has ended so, and what is not read of its output is gone."""
        self.stop()
        self.exit = end
        self.offset = offset

    def give_up(self, deadline: Deadline) -> None:
        """Let a ``next`` that waits within this deadline raise WaitTimeoutError now."""
        deadline.expire()
        self.stop()
        self.recovery.stir()

    def _next_event(self) -> outputs.Event | None:
        """The next event; None when there is none yet, and it was seen to that there may be."""
        try:
            if self._answer is None:
                self._ask()
            event = next(self._events, None)
        except errors.ProcessNotFoundError as error:
            raise self._lost(error) from error
        except DOUBTFUL as error:
            self.stop()
            self._after_failure(error)
            return None
        if event is None:
            self.stop()
            return None
        self._take(event)
        return event

    def _take(self, event: outputs.Event) -> None:
        self.recovery.note_success()
        if isinstance(event, outputs.Exit):
            self.exit = event
            # An answer that was read to its end gives its connection back.
            with contextlib.suppress(errors.VmnestError):
                next(self._events, None)
        elif isinstance(event, outputs.ProcessInfo):
            self.info = event
        else:
            self._is_quiet = False
            self._budget.moved += len(event.data)

    def _ask(self) -> None:
        if self._is_quiet:
            self.recovery.await_awake()
        self._read(processes.watch(self._client, self._process_id, offset=self.offset, deadline=self._budget))

    def _read(self, answer: processes.Answer) -> None:
        self._is_quiet = True
        self._owner = os.getpid()
        self._answer = answer
        self._events = answer.events(offset=self.offset)

    def _after_failure(self, error: errors.VmnestError) -> None:
        try:
            self.recovery.after_failure(error)
        except DOUBTFUL as last:
            raise self._lost(last) from last
        self._is_quiet = False  # the MicroVM was looked at just now

    def _lost(self, reason: errors.VmnestError) -> errors.AgentUnreachableError:
        return starting.lost(self._name, reason, process_id=self._process_id)
