"""Calls that are made again when their answer was cut off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from ..deadline import Deadline
from ..wire import names
from .recovery import DOUBTFUL, Recovery

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["build_recovery", "cast_doubt", "is_cut", "repeated"]

LATE = "what was cut off could not be done again in time"

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def is_cut(error: errors.VmnestError) -> bool:
    """The answer was lost after something had been sent. (With what was never sent, the client has tried enough.)"""
    return isinstance(error, errors.AgentUnreachableError) or (isinstance(error, errors.TransportError) and error.sent)


def build_recovery(client: AgentClient, *, deadline: Deadline) -> Recovery:
    """The waits between the attempts at a call, or at the rest of an answer. Nobody watches them: a sleep is logged."""
    recovery = Recovery(client, deadline=deadline, late=LATE)
    recovery.on_pause = _log_sleep
    return recovery


def _log_sleep(state: str | None) -> None:
    if state == names.SUSPENDED:
        _logger.warning("the sandbox is suspended; waiting until it is resumed")


def cast_doubt(error: errors.VmnestError) -> None:
    """What the error tells of may have been done."""
    if error.details.get("outcome") != "unknown":
        error.details["outcome"] = "unknown"
        error.retryable = False
        error.add_hint("It may have been done.")


def repeated(client: AgentClient, ask: Callable[[bool], T], *, may_repeat: Callable[[], bool], deadline: Deadline) -> T:
    """The outcome of ``ask``, which is called again after a cut, if it may be.

    Its argument says whether it may wake a MicroVM that is suspended: only the first attempt may.

    Raises:
        errors.VmnestError: what ``ask`` raises. After the cut of one that may not be made again, whether it was done is
            unknown, and the error says so.
    """
    recovery = build_recovery(client, deadline=deadline)
    is_first = True
    while True:
        try:
            return ask(is_first)
        except DOUBTFUL as error:
            if is_first and not is_cut(error):
                raise
            if not may_repeat():
                cast_doubt(error)
                raise
            is_first = False
            recovery.after_failure(error)
