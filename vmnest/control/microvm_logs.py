"""What a MicroVM has logged, from CloudWatch Logs: all of it, its end, or as it comes.

Everything is read by FilterLogEvents, which merges the streams in the order of time and names each event. The end of a
log is found by GetLogEvents, which reads backwards: it tells from when on to read. Nothing here touches the MicroVM, so
none is woken, and the log of one that has ended, or was forgotten, is read like any other.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from .. import errors
from ..aws.service import Service
from ..deadline import NEVER, SYSTEM_CLOCK, Clock, Deadline, backoff
from . import log_streams
from .log_marks import LogEvent, Mark
from .log_streams import Selection, Subject

__all__ = ["AWS_PACE", "LOCAL_PACE", "MicrovmLog", "Pace"]

LARGEST_PAGE = 10_000
MOST_TAIL_BYTES = 64 << 20
CALL_SECONDS = 60.0
_LEAST_SECONDS = 5.0  # for a look, however short one wants to follow
# How long one who follows bears with a service that throttles, or that cannot be reached.
PATIENCE_SECONDS = 300.0
# The MicroVM's clock and the service's may differ; there is nothing of others in its streams.
_MARGIN_MS = 3_600_000


class Pace(NamedTuple):
    """How often one who follows looks, and how long the last lines may be on their way when a MicroVM has ended.

    Accounts are allowed a few calls of FilterLogEvents a second, all users of logs together.
    """

    first_seconds: float = 1.0
    last_seconds: float = 5.0
    settle_seconds: float = 10.0


AWS_PACE = Pace()
LOCAL_PACE = Pace(0.2, 1.0, 1.0)


class MicrovmLog:
    """The log of one MicroVM. Not for several threads.

    Args:
        service: CloudWatch Logs.
        subject: The MicroVM.
        groups: Where its streams may be, the likeliest first; see ``log_streams.groups_of``.
        clock: The time.

    Attributes:
        selection: What was found; before ``find``, the first group.
    """

    def __init__(
        self, service: Service, subject: Subject, *, groups: tuple[str, ...], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._service = service
        self._subject = subject
        self._groups = groups
        self._clock = clock
        self.selection = Selection(groups[0])

    def find(self, *, deadline: Deadline, is_thorough: bool = True) -> Selection:
        """Look where it is: see ``log_streams.find``."""
        self.selection = log_streams.find(
            self._service, self._subject, groups=self._groups, is_thorough=is_thorough, deadline=deadline
        )
        return self.selection

    def read(
        self,
        mark: Mark,
        *,
        deadline: Deadline,
        tail: int | None = None,
        matches: Callable[[str], bool] | None = None,
    ) -> Iterator[LogEvent]:
        """The events that the mark has not had, in the order of time; the mark takes what is read.

        Nothing if there is no stream (any more).

        Args:
            mark: How far the log has been told.
            deadline: When to stop.
            tail: Only so many, the last ones.
            matches: Only those whose message it is true of.
        """
        if not self.selection.streams:
            return
        start = max(mark.floor_ms, self._beginning())
        if tail is not None:
            start = self._tail_start(max(tail, 1), since_ms=start, matches=matches, deadline=deadline)
            mark.floor_ms = start
        events = self._new_events(mark, start_ms=start, matches=matches, deadline=deadline)
        yield from events if tail is None else _last(events, tail)

    def follow(
        self,
        mark: Mark,
        *,
        has_ended: Callable[[], bool],
        pace: Pace,
        matches: Callable[[str], bool] | None = None,
        on_trouble: Callable[[errors.VmnestError], object] = lambda error: None,
        until: Deadline = NEVER,
    ) -> Iterator[LogEvent]:
        """Events as they come, until the MicroVM has ended and no more of them come.

        Args:
            mark: How far the log has been told.
            has_ended: Whether the MicroVM has ended.
            pace: How often to look.
            matches: Only events whose message it is true of.
            on_trouble: Told once in a row of failures that may pass.
            until: When to stop in any case, though not before one look.

        Raises:
            errors.VmnestError: a failure does not pass.
        """
        pauses = backoff(first=pace.first_seconds, last=pace.last_seconds)
        trouble = _Trouble(self._clock, on_trouble)
        ended_at: float | None = None
        while True:
            before = mark.count
            try:
                # Before the reading: what was logged until then is there to be read, or on its way.
                if ended_at is None and has_ended():
                    ended_at = self._clock.monotonic()
                yield from self._look(mark, is_thorough=ended_at is not None, matches=matches, until=until)
                trouble.is_over()
            except errors.VmnestError as error:
                trouble.bear(error)
            else:
                if ended_at is not None and self._is_all(pace, has_news=mark.count > before, ended_at=ended_at):
                    return
            if until.expired:
                return
            if mark.count > before:
                pauses = backoff(first=pace.first_seconds, last=pace.last_seconds)
            self._clock.sleep(until.clamp(next(pauses)))

    def _is_all(self, pace: Pace, *, has_news: bool, ended_at: float) -> bool:
        """Of a MicroVM that has ended nothing more is to come."""
        if not pace.settle_seconds:
            return True
        return not has_news and self._clock.monotonic() - ended_at >= pace.settle_seconds

    def _look(
        self, mark: Mark, *, is_thorough: bool, matches: Callable[[str], bool] | None, until: Deadline
    ) -> Iterator[LogEvent]:
        deadline = Deadline(max(_LEAST_SECONDS, until.clamp(CALL_SECONDS)), clock=self._clock)
        if not self.selection.streams:
            self.find(is_thorough=is_thorough, deadline=deadline)
        yield from self.read(mark, matches=matches, deadline=deadline)
        mark.rise()

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _beginning(self) -> int:
        """No event is older; with that, the service has less to look through."""
        began = self._subject.began
        return 0 if began is None else max(0, int(began.timestamp() * 1000) - _MARGIN_MS)

    def _new_events(
        self, mark: Mark, *, start_ms: int, matches: Callable[[str], bool] | None, deadline: Deadline
    ) -> Iterator[LogEvent]:
        params = {**self.selection.to_wire(), "startTime": start_ms}
        try:
            for found in self._service.pages("FilterLogEvents", params, deadline=deadline, items="events"):
                event = _event(found)
                if not log_streams.is_of(event.stream, self._subject.microvm_id):
                    continue  # not every service that speaks this knows prefixes
                if mark.take(event) and (matches is None or matches(event.message)):
                    yield event
        except errors.ResourceNotFoundError:
            self.selection = Selection(self.selection.group)  # deleted meanwhile: to be looked for anew

    def _tail_start(
        self, count: int, *, since_ms: int, matches: Callable[[str], bool] | None, deadline: Deadline
    ) -> int:
        """When the last so many events begin, all streams together."""
        times: list[int] = []
        limit = min(count, LARGEST_PAGE) if matches is None else LARGEST_PAGE
        for stream in self.selection.streams:
            events = self._backwards(stream, since_ms=since_ms, limit=limit, deadline=deadline)
            found = (event.time_ms for event in events if matches is None or matches(event.message))
            times += itertools.islice(found, count)
        last = heapq.nlargest(count, times)
        return last[-1] if len(last) == count else since_ms

    def _backwards(self, stream: str, *, since_ms: int, limit: int, deadline: Deadline) -> Iterator[LogEvent]:
        """A stream's events, the last one first. A page may be empty; at the end, the token is the one before."""
        params = {
            "logGroupName": self.selection.group,
            "logStreamName": stream,
            "startTime": since_ms,
            "startFromHead": False,
            "limit": limit,
        }
        token: str | None = None
        seen: set[str] = set()
        while True:
            try:
                answer = self._service.call("GetLogEvents", {**params, "nextToken": token}, deadline=deadline)
            except errors.ResourceNotFoundError:
                return
            found = answer.get("events")
            for item in reversed(found if isinstance(found, list) else []):
                yield _event(item)
            last, token = token, _text(answer, "nextBackwardToken")
            if not token or token == last:
                return
            if token in seen:
                raise errors.AnswerInvalidError(
                    "GetLogEvents: the pages go round in a circle", operation="GetLogEvents", status=200
                )
            seen.add(token)


def _last(events: Iterable[LogEvent], count: int) -> Iterable[LogEvent]:
    """The last so many events, or fewer if those are too large to be held."""
    last: deque[LogEvent] = deque()
    size = 0
    for event in events:
        last.append(event)
        size += len(event.message)
        while len(last) > count or (size > MOST_TAIL_BYTES and len(last) > 1):
            size -= len(last.popleft().message)
    return last


class _Trouble:
    """Failures in a row that may pass."""

    def __init__(self, clock: Clock, on_trouble: Callable[[errors.VmnestError], object]) -> None:
        self._clock = clock
        self._on_trouble = on_trouble
        self._began: float | None = None

    def bear(self, error: errors.VmnestError) -> None:
        """Go on, or raise the error: it does not pass, or has not for too long."""
        now = self._clock.monotonic()
        if self._began is None:
            if not error.retryable:
                raise error
            self._began = now
            self._on_trouble(error)
        elif not error.retryable or now - self._began > PATIENCE_SECONDS:
            raise error

    def is_over(self) -> None:
        self._began = None


def _event(item: object) -> LogEvent:
    event = item if isinstance(item, Mapping) else {}
    return LogEvent(
        time_ms=_number(event, "timestamp"),
        stream=_text(event, "logStreamName"),
        message=_text(event, "message"),
        event_id=_text(event, "eventId"),
        came_ms=_number(event, "ingestionTime"),
    )


def _number(event: Mapping[str, object], name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(event: Mapping[str, object], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""
