"""The end of a build's log."""

from __future__ import annotations

from collections import deque

from ... import errors
from ...aws.service import Service
from ...deadline import Clock, Deadline

GROUP_PREFIX = "/aws/lambda-microvms/"  # of the groups that the service makes: one an image
MOST_LINES = 20
_LONGEST_LINE = 300
# Reading a log must not hold up the error that it explains.
_PATIENCE_SECONDS = 15.0
_MOST_EVENTS = 50_000


class Logs:
    """Calls to CloudWatch Logs."""

    def __init__(self, logs: Service, *, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock

    def tail(self, group: str, *, since: float, deadline: Deadline) -> tuple[str, ...]:
        """The last lines that were written since then (seconds since the epoch); none if they cannot be had."""
        patience = Deadline(deadline.clamp(_PATIENCE_SECONDS), clock=self._clock)
        params = {"logGroupName": group, "startTime": int(since * 1000)}
        lines: deque[str] = deque(maxlen=MOST_LINES)
        try:
            for number, event in enumerate(
                self._logs.pages("FilterLogEvents", params, deadline=patience, items="events"), start=1
            ):
                message = event.get("message")
                lines.extend(_lines(message if isinstance(message, str) else ""))
                if number >= _MOST_EVENTS:
                    break
        except errors.VmnestError:
            # There may be no such group, or no right to read it: then the reason of the build must do.
            return tuple(lines)
        return tuple(lines)


def _lines(message: str) -> list[str]:
    return [errors.quote(line, limit=_LONGEST_LINE) for line in message.splitlines() if line.strip()]
