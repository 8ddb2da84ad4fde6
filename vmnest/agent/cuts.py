"""What to do after a connection was cut: ask for the MicroVM's state, which wakes nothing, and only then send again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from ..deadline import SYSTEM_CLOCK, Clock, Deadline, backoff
from ..wire import names

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["MAX_CUTS", "repeated", "wait_awake"]

MAX_CUTS = 5  # in a row, without a byte between them
FIRST_DELAY_SECONDS = 0.2
LAST_DELAY_SECONDS = 5.0

T = TypeVar("T")


def repeated(
    client: AgentClient,
    ask: Callable[[], T],
    *,
    may_repeat: Callable[[], bool],
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """The outcome of ``ask``, which is called again after a cut, if it may be.

    Raises:
        errors.TransportError: it was cut too often; or it may not be repeated, and then whether it was done is unknown.
    """
    for count in range(MAX_CUTS + 1):
        try:
            return ask()
        except errors.TransportError as cut:
            if not cut.sent or count == MAX_CUTS:
                raise
            if not may_repeat():
                cut.details["outcome"] = "unknown"
                cut.retryable = False
                cut.add_hint("It may have been done.")
                raise
            wait_awake(client, because=cut, deadline=deadline, clock=clock)
    raise AssertionError("the last attempt returns or raises")


def wait_awake(
    client: AgentClient, *, because: errors.TransportError, deadline: Deadline, clock: Clock = SYSTEM_CLOCK
) -> None:
    """After a cut, before anything is sent: while the MicroVM is suspended, wait, since only its user is to wake it.

    Raises:
        errors.TransportError: ``because``, once the deadline has passed.
    """
    for delay in backoff(first=FIRST_DELAY_SECONDS, last=LAST_DELAY_SECONDS):
        if deadline.expired:
            raise because
        if client.look() not in (names.SUSPENDING, names.SUSPENDED):
            return
        clock.sleep(deadline.clamp(delay))
