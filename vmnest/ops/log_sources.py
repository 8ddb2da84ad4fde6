"""Whose log is read, and what of it: the MicroVM behind a name, and a caller's wishes, checked."""

from __future__ import annotations

import re

from .. import errors, registry
from .. import target as targets
from ..deadline import SYSTEM_CLOCK, Deadline, check_seconds
from ..wire import names
from . import moments, sandboxes, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ..control import Control
    from ..control.log_marks import Mark
    from ..control.log_streams import Subject
    from ..control.microvm_logs import MicrovmLog, Pace
    from ..control.microvms import MicroVM
    from ..registry import Record
    from ..target import Target

__all__ = ["Source", "Want"]

ASK_SECONDS = 60.0
LARGEST_TAIL = 50_000
_LONG_AGO_SECONDS = 60.0  # nothing is on its way any more
_ID = re.compile(r"(?:microvm|mvm)-[0-9A-Za-z-]{4,200}")
_ROLE = "a MicroVM without an execution role that may write logs leaves none"


class Want:
    """What of the log is wanted, checked."""

    def __init__(
        self, *, log_group: str | None, since: float | None, tail: int | None, grep: str | None, cursor: str | None
    ) -> None:
        if tail is not None and (isinstance(tail, bool) or not isinstance(tail, int) or not 0 <= tail <= LARGEST_TAIL):
            raise errors.UsageError(f"tail must be a number of events, 0 to {LARGEST_TAIL}: {tail!r}")
        self.log_group = log_group
        self.since_ms = 0 if since is None else int((SYSTEM_CLOCK.time() - check_seconds(since, name="since")) * 1000)
        self.tail = tail
        self.matches = None if grep is None else _matcher(grep)
        self.cursor = cursor

    def mark(self) -> Mark:
        from ..control.log_marks import Mark

        mark = Mark() if self.cursor is None else Mark.from_cursor(self.cursor)
        mark.floor_ms = max(mark.floor_ms, self.since_ms)
        return mark


def _matcher(grep: str) -> Callable[[str], bool]:
    try:
        pattern = re.compile(grep)
    except (re.error, RecursionError, OverflowError) as error:
        raise errors.UsageError(f"not a regular expression: {grep!r}: {error}") from error
    return lambda message: pattern.search(message) is not None


class Source:
    """The MicroVM of a name, and the target that it is on."""

    def __init__(self, name: str, *, local: bool | None, region: str | None, deadline: Deadline) -> None:
        self.name = name
        self._deadline = deadline
        self._record = _find_record(name, local=local)
        self.microvm_id = name if self._record is None else _require_id(self._record)
        self.place = _place(self._record, local=local, region=region)
        self._control: Control = self.place.control(deadline=deadline)
        self._is_gone = False
        self.microvm = self._ask()

    @property
    def is_unknown(self) -> bool:
        """Neither the service nor we know more of it than its id."""
        return self.microvm is None and self._record is None

    @property
    def pace(self) -> Pace:
        from ..control import microvm_logs

        return microvm_logs.LOCAL_PACE if self.place.is_local else microvm_logs.Pace()

    @property
    def settle_seconds(self) -> float:
        """How long after its end the last lines may be on their way."""
        if self._is_gone:
            return 0.0
        ended = None if self.microvm is None else self.microvm.terminated_at
        was_long_ago = ended is not None and SYSTEM_CLOCK.time() - ended.timestamp() > _LONG_AGO_SECONDS
        return 0.0 if was_long_ago else self.pace.settle_seconds

    @property
    def image_arn(self) -> str | None:
        if self.microvm is not None:
            return self.microvm.image_arn
        return None if self._record is None else self._record.image_arn

    def open(self, want: Want) -> MicrovmLog:
        """Its log; nothing is looked for yet."""
        from ..control.log_streams import Subject
        from ..control.microvm_logs import MicrovmLog

        version = None if self.microvm is None else self.microvm.image_version
        subject = Subject(self.microvm_id, self.image_arn, version, self._began())
        service = self.place.service("logs", deadline=self._deadline)
        return MicrovmLog(service, subject, groups=self._groups(want, subject))

    def _began(self) -> datetime | None:
        if self.microvm is not None:
            return self.microvm.started_at
        recorded = None if self._record is None else moments.from_epoch(self._record.created_at)
        if recorded is None:
            return None
        from datetime import datetime

        return datetime.fromisoformat(recorded)

    def _groups(self, want: Want, subject: Subject) -> tuple[str, ...]:
        from ..control import log_streams

        told = want.log_group or (self._record.log_group if self._record else None)
        if told:
            return (told,)
        known = log_streams.groups_of(subject)
        if known:
            return known
        service = self.place.service("logs", deadline=self._deadline)
        return tuple(log_streams.all_groups(service, deadline=self._deadline)) or log_streams.GROUP_PREFIXES[:1]

    def has_ended(self) -> bool:
        """By the service's word; what may not be asked for has not."""
        if not self._is_gone and (self.microvm is None or self.microvm.state != names.TERMINATED):
            self._deadline = Deadline(ASK_SECONDS)
            self.microvm = self._ask() or self.microvm
        return self._is_gone or (self.microvm is not None and self.microvm.state == names.TERMINATED)

    def _ask(self) -> MicroVM | None:
        try:
            return self._control.microvms.get(self.microvm_id, deadline=self._deadline)
        except errors.MicroVMNotFoundError:
            self._is_gone = True
        except errors.AccessDeniedError:
            if self._record is None or self._record.image_arn is None:
                raise
        return None

    def describe(self, log: MicrovmLog) -> dict[str, object]:
        """Whose log it is, as every answer has it."""
        state = views.GONE if self._is_gone else names.UNKNOWN if self.microvm is None else self.microvm.state
        return {
            "name": self.name,
            "microvm_id": self.microvm_id,
            "state": state,
            "log_group": log.selection.group,
            "streams": list(log.selection.streams),
            "note": self.note(log),
        }

    def note(self, log: MicrovmLog) -> str | None:
        """Why there is nothing, if there is no stream."""
        group, is_there, streams, _ = log.selection
        if streams:
            return None
        missing = f"{group} has no stream of {self.microvm_id}" if is_there else f"there is no log group {group}"
        has_role = self.microvm is None or self.microvm.execution_role_arn is not None
        return missing if has_role or self.place.is_local else f"{missing}; {_ROLE}"

    def obituary(self) -> str:
        """That it has ended, and why."""
        reason = None if self.microvm is None else self.microvm.state_reason
        return f"{self.name} has ended{f': {reason}' if reason else ''}"


def _find_record(name: str, *, local: bool | None) -> Record | None:
    """The record of that name, or that MicroVM; none for the id of a MicroVM that no record has."""
    known = registry.open_default()
    if known.get(name) is None:
        for record in known.all():
            if record.microvm_id == name:
                return sandboxes.require(record.name, local=local)
        if _ID.fullmatch(name):
            return None
    try:
        return sandboxes.require(name, local=local)
    except errors.SandboxNotFoundError as error:
        error.add_hint("The log of one that was removed is found by the id of its MicroVM.")
        raise


def _require_id(record: Record) -> str:
    if record.microvm_id is None:
        raise errors.MicroVMNotFoundError(
            f"{record.name} has no MicroVM yet: it is being started, or whoever started it was cut off"
        )
    return record.microvm_id


def _place(record: Record | None, *, local: bool | None, region: str | None) -> Target:
    if record is None:
        return targets.resolve(local=local, region=region)
    return targets.resolve(local=record.is_local, region=region or record.region, arn=record.image_arn)
