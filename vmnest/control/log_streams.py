"""Where a MicroVM's log is in CloudWatch Logs: its group, and its streams in there.

A MicroVM that was told no group writes to one that is named after its image. AWS's manual and what was measured differ
in that name, so both are tried. A stream was seen to be named ``2026/11/30[1.0]microvm-…``, by the UTC day of the start
and the image's version, while the manual says the MicroVM's id alone. Hence: the measured name by one look, then the
manual's, and at last, if the caller has the time for it, all streams whose name has the id in it, those written latest
first. What belongs to the same MicroVM and has a stream of its own (the local cloud's decisions about the network) is
named by its main stream, with a slash behind it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from .. import errors
from ..aws.service import Service
from ..deadline import Deadline
from .logs import GROUP_PREFIX

__all__ = ["GROUP_PREFIXES", "Selection", "Subject", "all_groups", "find", "groups_of", "is_of"]

DOCUMENTED_GROUP_PREFIX = "/aws/lambda/microvms/"
GROUP_PREFIXES = (GROUP_PREFIX, DOCUMENTED_GROUP_PREFIX)
# A group has a stream for each MicroVM that was ever started from the image: a search through them must end.
MOST_STREAMS_SEARCHED = 2000
MOST_GROUPS_SEARCHED = 100
MOST_STREAMS_READ = 100  # the service's own limit in one call


class Subject(NamedTuple):
    """The MicroVM whose log is looked for, as far as it is known.

    ``began`` is when the service says that it was started, else when its launch was recorded. ``image_version`` is
    known only if the service still knows the MicroVM.
    """

    microvm_id: str
    image_arn: str | None = None
    image_version: str | None = None
    began: datetime | None = None


class Selection(NamedTuple):
    """What was found: a group, whether it exists, and the streams of the MicroVM in it.

    ``prefix`` is what the names of all of them begin with, and those of no other MicroVM's; None if there is no such.
    """

    group: str
    is_there: bool = False
    streams: tuple[str, ...] = ()
    prefix: str | None = None

    def to_wire(self) -> dict[str, object]:
        """As parameters of FilterLogEvents."""
        streams = {"logStreamNamePrefix": self.prefix} if self.prefix else {"logStreamNames": list(self.streams)}
        return {"logGroupName": self.group, **streams}


def groups_of(subject: Subject) -> tuple[str, ...]:
    """The groups that a MicroVM which was told none may write to; none if its image is not known."""
    if subject.image_arn is None:
        return ()
    name = subject.image_arn.rpartition(":")[2]
    return tuple(f"{prefix}{name}" for prefix in GROUP_PREFIXES)


def all_groups(service: Service, *, deadline: Deadline) -> Iterator[str]:
    """The groups of all images, for a MicroVM of which nothing but the id is known.

    Raises:
        errors.AccessDeniedError: the credentials may not list groups.
    """
    for prefix in GROUP_PREFIXES:
        params = {"logGroupNamePrefix": prefix}
        found = service.pages("DescribeLogGroups", params, deadline=deadline, items="logGroups")
        yield from itertools.islice(_texts(found, "logGroupName"), MOST_GROUPS_SEARCHED)


def find(
    service: Service, subject: Subject, *, groups: Iterable[str], deadline: Deadline, is_thorough: bool = True
) -> Selection:
    """The first of the groups that has streams of the MicroVM; else the first that exists; else the first.

    Args:
        service: CloudWatch Logs.
        subject: The MicroVM.
        groups: Their names, the likeliest first; at least one.
        deadline: When to stop.
        is_thorough: Search through all streams where the names that are expected are not there.

    Raises:
        errors.AccessDeniedError: a group may not be looked into, and no other one has the log.
    """
    best: Selection | None = None
    denial: errors.AccessDeniedError | None = None
    for group in groups:
        try:
            found = _find_in(service, subject, group=group, is_thorough=is_thorough, deadline=deadline)
        except errors.AccessDeniedError as error:
            denial = denial or error
            continue
        if found.streams:
            return found
        if best is None or (found.is_there and not best.is_there):
            best = found
    if denial is not None:
        raise denial
    assert best is not None
    return best


def _find_in(service: Service, subject: Subject, *, group: str, is_thorough: bool, deadline: Deadline) -> Selection:
    try:
        names = _streams(service, subject, group=group, is_thorough=is_thorough, deadline=deadline)
    except errors.ResourceNotFoundError:
        return Selection(group)
    return Selection(group, True, names, _common_prefix(names, subject.microvm_id))


def _streams(
    service: Service, subject: Subject, *, group: str, is_thorough: bool, deadline: Deadline
) -> tuple[str, ...]:
    looks: list[dict[str, object]] = [{"logStreamNamePrefix": prefix} for prefix in _expected_prefixes(subject)]
    if is_thorough:
        looks.append({"orderBy": "LastEventTime", "descending": True})
    for params in looks:
        listed = service.pages(
            "DescribeLogStreams", {"logGroupName": group, **params}, deadline=deadline, items="logStreams"
        )
        names = itertools.islice(_texts(listed, "logStreamName"), MOST_STREAMS_SEARCHED)
        found = [name for name in names if is_of(name, subject.microvm_id)]
        if found:
            return tuple(sorted(dict.fromkeys(found), key=lambda name: (len(name), name))[:MOST_STREAMS_READ])
    return ()


def _expected_prefixes(subject: Subject) -> Iterator[str]:
    if subject.began is not None:
        day = subject.began.astimezone(timezone.utc)
        if subject.image_version is not None:
            yield f"{day:%Y/%m/%d}[{subject.image_version}]{subject.microvm_id}"
        else:
            # What is recorded is when we asked for it: by the service's clock that may be another day.
            for days in (0, 1, -1):
                yield f"{day + timedelta(days=days):%Y/%m/%d}["
    yield subject.microvm_id


def is_of(stream: str, microvm_id: str) -> bool:
    """The stream's name has the id in it, and not as a part of a longer one."""
    return re.search(rf"(?<![A-Za-z0-9-]){re.escape(microvm_id)}(?![A-Za-z0-9-])", stream) is not None


def _common_prefix(streams: Iterable[str], microvm_id: str) -> str | None:
    """The names up to the id and with it, if that is the same for all of them."""
    heads = {name[: name.index(microvm_id) + len(microvm_id)] for name in streams}
    return heads.pop() if len(heads) == 1 else None


def _texts(items: Iterable[object], name: str) -> Iterator[str]:
    for item in items:
        value = item.get(name) if isinstance(item, Mapping) else None
        if isinstance(value, str) and value:
            yield value
