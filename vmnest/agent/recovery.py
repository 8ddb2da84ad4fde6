"""Between two attempts at one thing: how to go on after a cut without waking a sandbox that sleeps.

The rule: after a cut, and before a new poll after a quiet one, the service is asked for the MicroVM's state, which
never wakes it, before anything is sent to its endpoint, which does. While it is suspended, nothing is sent; only
somebody's input or a new call resumes it. A MicroVM that has ended is an error at once; an agent that does not answer
although its MicroVM runs is one after a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .. import errors
from ..deadline import Deadline, backoff
from ..wire import names
from . import exchange

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["DOUBTFUL", "Recovery", "Watch"]

LATE = "the process in the sandbox has not ended in time"
FIRST_DELAY_SECONDS = 0.05
LAST_DELAY_SECONDS = 2.0
FIRST_LOOK_SECONDS = 0.2
LAST_LOOK_SECONDS = 3.0

Watch = Callable[[str | None], object]

# After these, nobody knows what became of a request.
DOUBTFUL = (
    errors.TransportError,
    errors.EndpointUnavailableError,
    errors.EndpointThrottledError,
    errors.AgentUnreachableError,
    errors.SandboxSuspendedError,
)

_logger = logging.getLogger(__name__)


class Recovery:
    """The waits between the attempts at one thing, by one thread; ``stir`` is for any.

    Args:
        client: Of the agent.
        deadline: When to stop waiting, whatever happens; or a budget that the waits draw on, which holds a deadline.
        late: What the error says once the deadline has passed.

    Attributes:
        deadline: See above.
        on_pause: Called with the MicroVM's state when waiting for a suspended one begins, and with None when it ends.
    """

    def __init__(self, client: AgentClient, *, deadline: Deadline, late: str = LATE) -> None:
        self.on_pause: Watch | None = None
        self._client = client
        self._clock = client.clock
        self.deadline = deadline
        if not isinstance(deadline, exchange.Budget):
            deadline = exchange.Budget(None, outer=deadline, clock=client.clock)
        self._budget = deadline
        self._patience = client.grace  # for failures, one after the other
        self._stirred = threading.Event()
        self._late = late
        self._failing_since: float | None = None
        self._delays = self._new_delays()

    def note_success(self) -> None:
        """Something came: what fails from now on is a new failure."""
        if self._failing_since is not None:
            self._failing_since, self._delays = None, self._new_delays()

    def stir(self) -> None:
        """The sandbox was resumed just now: whoever waits for that looks at once."""
        self._stirred.set()

    def after_failure(self, error: errors.VmnestError, *, wakes: bool = False) -> None:
        """Wait until another attempt makes sense; one that may wake a suspended MicroVM does not wait for that.

        Raises:
            errors.WaitTimeoutError: the deadline has passed.
            errors.MicroVMEndedError: the MicroVM has ended.
            errors.VmnestError: ``error``, when there were failures for too long, or the budget is used up.
        """
        self._check(error)
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > self._patience:
            raise error
        _logger.info("an answer of the agent was cut: %s", error)
        if wakes:
            self._look_for_end(self._client.look(), cause=error)
        elif self.await_awake(cause=error):
            self._failing_since = None  # it could not answer in its sleep
        if self._budget.expired:
            raise error
        self._clock.sleep(self._budget.clamp(next(self._delays)))

    def await_awake(self, *, cause: errors.VmnestError | None = None) -> bool:
        """Look at the MicroVM, and wait while it is suspended; whether it was.

        Raises:
            errors.WaitTimeoutError: the deadline has passed.
            errors.MicroVMEndedError: the MicroVM has ended.
        """
        told: str | None = None
        for delay in backoff(first=FIRST_LOOK_SECONDS, last=LAST_LOOK_SECONDS):
            self._stirred.clear()
            state = self._client.look()
            self._look_for_end(state, cause=cause)
            # A state that cannot be seen in the middle of a sleep tells nothing new.
            is_asleep = state in names.SUSPENDED_STATES or (state is None and told is not None)
            if not is_asleep:
                break
            if state is not None and state != told:
                told = state
                self._tell(state)
            self._check(cause)
            self._clock.wait(self._stirred, self._budget.clamp(delay))
        if told is not None:
            self._tell(None)
        return told is not None

    def _look_for_end(self, state: str | None, *, cause: errors.VmnestError | None) -> None:
        if state in names.ENDED_STATES:
            assert state is not None
            raise self._client.ended(state) from cause

    def _check(self, cause: errors.VmnestError | None) -> None:
        if self._budget.outer.expired:
            raise errors.WaitTimeoutError(self._late) from cause

    def _tell(self, state: str | None) -> None:
        self._budget.note_sleep(state)
        if self.on_pause is not None:
            self.on_pause(state)

    @staticmethod
    def _new_delays() -> Iterator[float]:
        return backoff(first=FIRST_DELAY_SECONDS, last=LAST_DELAY_SECONDS)
