"""What was logged about an image's build, from CloudWatch Logs.

All versions' builds, and the MicroVMs that are started from them, write to one group. A version's build is taken to be
what was written between its beginning and its end, but for streams whose names tell another version: they were seen as
``2026/09/15[2.0]...``, with ``[0.0]`` for the Dockerfile's steps; their form is not documented, so that one without a
version counts. The output of the steps comes all at once, at the end.

A build has MicroVMs of its own, whose streams are named as those of sandboxes are. Left out are the streams of MicroVMs
that the caller knows to be sandboxes (see ``sandboxes_of``), and of what the local cloud lets them reach. What cannot
be told from the build's own: the streams of sandboxes that the service has forgotten, of those that seem to have begun
before the version was last changed, and what is written to one stream that all share.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from .. import errors
from ..aws.service import Service
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from .images import ImageVersion
from .microvms import MicroVMs

__all__ = ["GROUP_PREFIX", "build_log", "group_of", "sandboxes_of", "tail"]

GROUP_PREFIX = "/aws/lambda-microvms/"  # of the groups that the service makes: one an image
# Clocks differ a little, and the last lines come when the build is over.
MARGIN_SECONDS = 60.0
TAIL_LINES = 20
_LONGEST_LINE = 300
# Reading a log must not hold up the error that it explains.
_TAIL_SECONDS = 15.0
_MOST_TAIL_EVENTS = 50_000
_STREAM_VERSION = re.compile(r"\[(\d+\.\d+)\]")
_NO_VERSION = "0.0"
_MICROVM = re.compile(r"(?:microvm|mvm)-[0-9A-Za-z-]{4,}\Z")
_EGRESS = "/egress"  # behind the name of a MicroVM's stream: what the local cloud let it reach
_FINAL_STATES = ("SUCCESSFUL", "FAILED", "DELETING", "DELETE_FAILED")


class LogLine(NamedTuple):
    """One event. ``time`` is in seconds since the epoch."""

    time: float
    stream: str
    message: str


def group_of(version: ImageVersion) -> str:
    """The log group that a version's builds write to."""
    return version.log_group or f"{GROUP_PREFIX}{version.image_arn.rpartition(':')[2]}"


def sandboxes_of(microvms: MicroVMs, version: ImageVersion, *, deadline: Deadline) -> Collection[str]:
    """The ids of the MicroVMs of a version's image that are no part of its build; none if they may not be listed.

    Those of other versions, and those that began when the version was built, ended ones included.
    """
    built_at = version.updated_at if version.state in _FINAL_STATES else None
    try:
        return {
            each.microvm_id
            for each in microvms.list(image_arn=version.image_arn, deadline=deadline)
            if each.image_version != version.image_version or (built_at is not None and each.started_at >= built_at)
        }
    except errors.AccessDeniedError:
        return set()


def build_log(
    service: Service,
    version: ImageVersion,
    *,
    others: Callable[[], Collection[str]] = tuple,
    deadline: Deadline,
) -> Iterator[LogLine]:
    """What was logged while a version was built, in the order of time; none if there is no such group.

    Args:
        service: CloudWatch Logs.
        version: As the service describes it.
        others: Finds the ids of MicroVMs that are no part of the build. Asked once, if a stream is named by one.
        deadline: When to stop.

    Raises:
        errors.AccessDeniedError: the credentials may not read logs.
    """
    params: dict[str, object] = {"logGroupName": group_of(version)}
    if version.created_at is not None:
        params["startTime"] = int((version.created_at.timestamp() - MARGIN_SECONDS) * 1000)
    if version.updated_at is not None and version.state in _FINAL_STATES:
        params["endTime"] = int((version.updated_at.timestamp() + MARGIN_SECONDS) * 1000)
    known: Collection[str] | None = None
    try:
        for event in service.pages("FilterLogEvents", params, deadline=deadline, items="events"):
            line = _line(event)
            if not _may_be_of(version.image_version, line.stream):
                continue
            named = _MICROVM.search(line.stream)
            if named is not None and known is None:
                known = others()
            if named is None or known is None or named[0] not in known:
                yield line
    except errors.ResourceNotFoundError:
        return


def tail(
    service: Service,
    group: str,
    *,
    image_version: str,
    since: float,
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[str, ...]:
    """The last lines of a version's build since then (seconds since the epoch); none if they cannot be had.

    For the failure of a build: there may be no such group, or no right to read it, and then its reason must do.
    """
    patience = Deadline(deadline.clamp(_TAIL_SECONDS), clock=clock)
    params = {"logGroupName": group, "startTime": int((since - MARGIN_SECONDS) * 1000)}
    lines: deque[str] = deque(maxlen=TAIL_LINES)
    try:
        events = service.pages("FilterLogEvents", params, deadline=patience, items="events")
        for number, event in enumerate(events, start=1):
            line = _line(event)
            if _may_be_of(image_version, line.stream):
                shown = (text for text in line.message.splitlines() if text.strip())
                lines.extend(errors.quote(text, limit=_LONGEST_LINE) for text in shown)
            if number >= _MOST_TAIL_EVENTS:
                break
    except errors.VmnestError:
        return tuple(lines)
    return tuple(lines)


def _may_be_of(image_version: str, stream: str) -> bool:
    told = _STREAM_VERSION.search(stream)
    return not stream.endswith(_EGRESS) and (told is None or told[1] in (image_version, _NO_VERSION))


def _line(event: dict[str, object]) -> LogLine:
    time, stream, message = event.get("timestamp"), event.get("logStreamName"), event.get("message")
    return LogLine(
        time / 1000 if isinstance(time, (int, float)) else 0.0,
        stream if isinstance(stream, str) else "",
        message if isinstance(message, str) else "",
    )
