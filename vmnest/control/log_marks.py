"""How far a log has been told: no event twice, and none left out because it came late. Pure.

Events are not there in the order of their times: those of a stream may come seconds after later ones of another, and
clocks in MicroVMs that were suspended are behind for a while. So whoever reads on begins some time before the end of
what he has, and passes over what he had. A ``Mark`` is a floor, below which everything counts as told, and what was
told above it. The floor rises as slowly as the number of events that can be remembered allows.

A mark can be written as a short text, a cursor, which remembers less. Where more events than that have the very same
time, it names the last of them that was told, in the service's order, and what has that time and comes late is lost; no
event is ever told twice.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from typing import NamedTuple

from .. import errors

__all__ = ["LogEvent", "Mark"]

# Clocks that are off by ten minutes have been seen.
OVERLAP_MS = 15 * 60_000
MOST_REMEMBERED = 2000
MOST_REMEMBERED_BYTES = 256 << 10  # of messages: all of this is read again each time
MOST_HELD = 100_000  # while a long log is read: more than an answer has
MOST_IN_CURSOR = 32
_DIGEST_BYTES = 6
_DIGEST_CHARS = 8
_LATEST_MS = 1 << 52
_CURSOR = re.compile(
    rf"1\.([0-9a-f]{{1,14}})(?:~([A-Za-z0-9_-]{{8}}))?\.((?:[A-Za-z0-9_-]{{8}}){{0,{MOST_IN_CURSOR}}})"
)


class LogEvent(NamedTuple):
    """A line, or some, of a log. ``time_ms`` and ``came_ms``, when the service had it, are since the epoch."""

    time_ms: int
    stream: str
    message: str
    event_id: str = ""
    came_ms: int = 0

    @property
    def time(self) -> float:
        """Seconds since the epoch."""
        return self.time_ms / 1000


class _Told(NamedTuple):
    time_ms: int
    size: int


class Mark:
    """How far a log has been told. Not for several threads.

    Attributes:
        floor_ms: What has an earlier time counts as told.
        count: How many events were told by this mark.
    """

    def __init__(self, floor_ms: int = 0, *, told: tuple[str, ...] = (), last: str | None = None) -> None:
        self.floor_ms = floor_ms
        self.count = 0
        self._told: dict[str, _Told] = {}  # in the order in which they were read
        self._of_cursor = set(told)  # when those were is not known until they are read again
        self._last = None if last is None else (floor_ms, last)  # of that time, all up to this one was told
        self._latest_ms = floor_ms
        self._latest_came_ms = 0
        self._most_held = MOST_HELD

    def take(self, event: LogEvent) -> bool:
        """Whether the event is to be told; from now on it counts as told."""
        if event.time_ms < self.floor_ms:
            return False
        digest = _digest(event)
        is_new = self._told.pop(digest, None) is None and digest not in self._of_cursor
        if self._last is not None and self._last[0] == event.time_ms:
            is_new = False
            self._last = None if self._last[1] == digest else self._last
        self._of_cursor.discard(digest)
        self._told[digest] = _Told(event.time_ms, len(event.message))
        self._latest_ms = max(self._latest_ms, event.time_ms)
        self._latest_came_ms = max(self._latest_came_ms, event.came_ms)
        self.count += is_new
        if len(self._told) > self._most_held and self._last is None:
            # Events are read in the order of time: those below the new floor will not be met again.
            self._forget()
            self._most_held = max(MOST_HELD, 2 * len(self._told))
        return is_new

    def give_back(self, event: LogEvent) -> None:
        """The event that was taken last is not told after all."""
        self.count -= 1
        del self._told[_digest(event)]
        self._latest_ms = max((told.time_ms for told in self._told.values()), default=self.floor_ms)

    def rise(self) -> None:
        """Forget what need not be remembered; after all that there is from the floor on was taken."""
        self._of_cursor.clear()
        if self._last is not None:  # it is not there any more
            self.floor_ms, self._last = max(self.floor_ms, self._last[0] + 1), None
        self._forget()

    def _forget(self) -> None:
        # A time in the future is a wrong clock's: what is right would be below the floor.
        reached = min(self._latest_ms, self._latest_came_ms or self._latest_ms)
        floor_ms = max(self.floor_ms, reached - OVERLAP_MS)
        # All of the latest time is kept: there may be more of it to come.
        self.floor_ms = max(floor_ms, min(self._latest_ms, self._floor_for(MOST_REMEMBERED)))
        self._told = {digest: told for digest, told in self._told.items() if told.time_ms >= self.floor_ms}

    def to_cursor(self) -> str:
        """The mark as a text for ``from_cursor``."""
        floor_ms = max(self.floor_ms, self._floor_for(MOST_IN_CURSOR))
        last = self._last[1] if self._last is not None and self._last[0] == floor_ms else ""
        told = [digest for digest, each in self._told.items() if each.time_ms >= floor_ms]
        if self._told and floor_ms > self._latest_ms:  # even those of the latest time are too many
            floor_ms = self._latest_ms
            last = [digest for digest, each in self._told.items() if each.time_ms == floor_ms][-1]
        return f"1.{floor_ms:x}{'~' if last else ''}{last}.{''.join([*sorted(self._of_cursor), *told])}"

    @classmethod
    def from_cursor(cls, cursor: str) -> Mark:
        """The mark that a text stands for.

        Raises:
            errors.UsageError: it is none of ours.
        """
        found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
        if found is None or int(found[1], 16) > _LATEST_MS:
            raise errors.UsageError(
                "that is no cursor of a log", hint="Give the cursor of the answer before, as it is; or none."
            )
        told = [found[3][at : at + _DIGEST_CHARS] for at in range(0, len(found[3]), _DIGEST_CHARS)]
        return cls(int(found[1], 16), told=tuple(told), last=found[2])

    def _floor_for(self, most: int) -> int:
        """The lowest floor above which no more events than these were told, nor more bytes than are read again."""
        floor_ms, count, size = self._latest_ms + 1, len(self._of_cursor), 0
        latest_first = sorted(self._told.values(), reverse=True)
        for time_ms, of_this_time in itertools.groupby(latest_first, key=lambda told: told.time_ms):
            for told in of_this_time:
                count, size = count + 1, size + told.size
            if count > most or size > MOST_REMEMBERED_BYTES:
                return floor_ms
            floor_ms = time_ms
        return self.floor_ms


def _digest(event: LogEvent) -> str:
    # An id is the service's own for an event; one without, which should not be, is what it says.
    text = event.event_id or f"{event.time_ms}\0{event.stream}\0{event.message}"
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii")
