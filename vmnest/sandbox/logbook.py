"""Whose log is read, and what of it: for ``Sandbox.logs``, and for the verbs in ``ops``.

A ``Logbook`` is that of a MicroVM, of which there may be a record, and what the service says. None of this touches the
sandbox: it is not woken, and need not be there any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from .. import errors
from ..control import log_streams, microvm_logs
from ..control.log_marks import LogEvent, Mark
from ..control.log_streams import Subject
from ..control.microvm_logs import MicrovmLog, Pace
from ..deadline import NEVER, SYSTEM_CLOCK, Deadline, check_seconds
from ..wire import names

if TYPE_CHECKING:
    from ..control import Control
    from ..control.microvms import MicroVM
    from ..registry import Record
    from ..target import Target

__all__ = ["Logbook", "Want"]

ASK_SECONDS = 60.0
LARGEST_TAIL = 50_000
_LONG_AGO_SECONDS = 60.0  # nothing is on its way any more
_ROLE = "a MicroVM without an execution role that may write logs leaves none"


class Want:
    """What of a log is wanted, checked.

    Raises:
        errors.UsageError: it cannot be meant.
    """

    def __init__(
        self,
        *,
        log_group: str | None = None,
        since: float | None = None,
        tail: int | None = None,
        grep: str | None = None,
        cursor: str | None = None,
    ) -> None:
        if tail is not None and (isinstance(tail, bool) or not isinstance(tail, int) or not 0 <= tail <= LARGEST_TAIL):
            raise errors.UsageError(f"tail must be a number of events, 0 to {LARGEST_TAIL}: {tail!r}")
        self.log_group = log_group
        self.since_ms = 0 if since is None else int((SYSTEM_CLOCK.time() - check_seconds(since, name="since")) * 1000)
        self.tail = tail
        self.matches = None if grep is None else _matcher(grep)
        self._cursor = None if cursor is None else Mark.from_cursor(cursor)

    def mark(self) -> Mark:
        """How far the log counts as told; once."""
        mark, self._cursor = self._cursor or Mark(), None
        mark.floor_ms = max(mark.floor_ms, self.since_ms)
        return mark


def _matcher(grep: str) -> Callable[[str], bool]:
    try:
        pattern = re.compile(grep)
    except (re.error, RecursionError, OverflowError) as error:
        raise errors.UsageError(f"not a regular expression: {grep!r}: {error}") from error
    return lambda message: pattern.search(message) is not None


class Logbook:
    """Whose log is read. Not for several threads.

    Args:
        microvm_id: The MicroVM.
        record: What is recorded of it, if it is.
        place: The target that it is on.
        control: The control plane there.
        deadline: Until when the MicroVM may be asked for.

    Attributes:
        microvm: As the service describes it; None if it does not know it, or may not be asked.
        is_gone: The service does not know it (any more).
    """

    def __init__(
        self, microvm_id: str, *, record: Record | None, place: Target, control: Control, deadline: Deadline
    ) -> None:
        self.microvm_id = microvm_id
        self.place = place
        self.is_gone = False
        self._record = record
        self._control = control
        self._deadline = deadline
        self.microvm = self._ask()

    @property
    def is_unknown(self) -> bool:
        """Nobody knows more of the MicroVM than its id."""
        return self.microvm is None and self._record is None

    @property
    def pace(self) -> Pace:
        """How often to look."""
        return microvm_logs.LOCAL_PACE if self.place.is_local else microvm_logs.AWS_PACE

    @property
    def settle_seconds(self) -> float:
        """How long after its end the last lines may be on their way."""
        if self.is_gone:
            return 0.0
        ended = None if self.microvm is None else self.microvm.terminated_at
        was_long_ago = ended is not None and SYSTEM_CLOCK.time() - ended.timestamp() > _LONG_AGO_SECONDS
        return 0.0 if was_long_ago else self.pace.settle_seconds

    @property
    def image_arn(self) -> str | None:
        """The image that it was started from, if anybody knows it."""
        if self.microvm is not None:
            return self.microvm.image_arn
        return None if self._record is None else self._record.image_arn

    def open(self, log_group: str | None = None) -> MicrovmLog:
        """Its log; nothing is looked for yet, unless nobody knows its image."""
        version = None if self.microvm is None else self.microvm.image_version
        subject = Subject(self.microvm_id, self.image_arn, version, self._began())
        return MicrovmLog(
            self.place.service("logs", deadline=self._deadline), subject, groups=self._groups(log_group, subject)
        )

    def follow(
        self,
        log: MicrovmLog,
        want: Want,
        *,
        deadline: Deadline,
        on_trouble: Callable[[errors.VmnestError], object] = lambda error: None,
        until: Deadline = NEVER,
    ) -> Iterator[LogEvent]:
        """What is wanted of a log that was looked for, and then what comes, until the MicroVM has ended."""
        mark = want.mark()
        if want.tail is not None:
            yield from log.read(mark, tail=want.tail, matches=want.matches, deadline=deadline)
        yield from log.follow(
            mark,
            has_ended=self.has_ended,
            pace=self.pace._replace(settle_seconds=self.settle_seconds),
            matches=want.matches,
            on_trouble=on_trouble,
            until=until,
        )

    @property
    def is_over(self) -> bool:
        """It has ended, by what the service said when it was asked last."""
        return self.is_gone or (self.microvm is not None and self.microvm.state == names.TERMINATED)

    def has_ended(self) -> bool:
        """By the service's word; what may not be asked for has not."""
        if not self.is_over:
            self._deadline = Deadline(ASK_SECONDS)
            self.microvm = self._ask() or self.microvm
        return self.is_over

    def note(self, log: MicrovmLog) -> str | None:
        """Why there is nothing, if there is no stream."""
        group, is_there, streams, _ = log.selection
        if streams:
            return None
        missing = f"{group} has no stream of {self.microvm_id}" if is_there else f"there is no log group {group}"
        has_role = self.microvm is None or self.microvm.execution_role_arn is not None
        return missing if has_role or self.place.is_local else f"{missing}; {_ROLE}"

    def _began(self) -> datetime | None:
        from datetime import timezone

        if self.microvm is not None:
            return self.microvm.started_at
        try:
            recorded = None if self._record is None else self._record.created_at
            return None if recorded is None else datetime.fromtimestamp(recorded, timezone.utc)
        except (OverflowError, ValueError, OSError):
            return None  # files say anything

    def _groups(self, log_group: str | None, subject: Subject) -> tuple[str, ...]:
        told = log_group or (self._record.log_group if self._record else None)
        if told:
            return (told,)
        known = log_streams.groups_of(subject)
        if known:
            return known
        service = self.place.service("logs", deadline=self._deadline)
        return tuple(log_streams.all_groups(service, deadline=self._deadline)) or log_streams.GROUP_PREFIXES[:1]

    def _ask(self) -> MicroVM | None:
        try:
            return self._control.microvms.get(self.microvm_id, deadline=self._deadline)
        except errors.MicroVMNotFoundError:
            self.is_gone = True
        except errors.AccessDeniedError:
            if self._record is None or self._record.image_arn is None:
                raise
        return None
