"""CloudWatch Logs of the local account: groups, streams and events, bounded on disk. Asked for by ``logs_calls``.

Below ``<folder>/account/logs`` each group has a folder with a note, and each stream a file of lines of JSON, the first
of which names it. A file that has grown to STREAM_BYTES becomes the older half of its stream, and what was the older
half is dropped; where all files together are more than TOTAL_BYTES, the streams that were written least lately go.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .. import deadline, errors
from ..wire import names
from . import faults, keeping, log_files

_LOG = logging.getLogger(__name__)

LOGS_FOLDER = "logs"
STREAM_BYTES = 4 << 20  # of each of a stream's two halves
TOTAL_BYTES = 256 << 20
MAX_STREAMS = 10_000
MAX_GROUPS = 1000
_GROUP_FILE = "group.json"
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Group:
    """A group of streams."""

    name: str
    created: int
    retention_days: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:logs:{names.LOCAL_REGION}:{names.LOCAL_ACCOUNT}:log-group:{self.name}"


class _Held:
    """A group in memory."""

    def __init__(self, group: Group, folder: str) -> None:
        self.group = group
        self.folder = folder
        self.streams: dict[str, log_files.Stream] = {}


class Logs:
    """All logs of the local account. Thread-safe."""

    def __init__(
        self,
        folder: str,
        *,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
        stream_bytes: int = STREAM_BYTES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        self._folder = keeping.open_folder(os.path.join(folder, keeping.FOLDER, LOGS_FOLDER))
        self._clock = clock
        self._stream_bytes = stream_bytes
        self._total_bytes = total_bytes
        self._lock = threading.RLock()  # guards the groups and their files
        self._groups = {held.group.name: held for held in self._load()}

    # -- the local cloud's own writing ---------------------------------------------------------------------------------

    def write(self, group: str, stream: str, lines: Iterable[tuple[float, str]]) -> None:
        """Add lines, each with its time (seconds); makes group and stream where they are not.

        It does not raise: what is told in a log goes on without it. Times do not go back, even if the clock does:
        whoever follows a log goes on from the time of its last line.
        """
        events = [(int(when * 1000), text) for when, text in lines]
        try:
            with self._lock:
                if group not in self._groups:
                    self.create_group(group)
                if stream not in self._groups[group].streams:
                    self.create_stream(group, stream)
                least = self._groups[group].streams[stream].facts.last or 0
                self.put(group, stream, [(max(when, least), text) for when, text in events])
        except (errors.VmnestError, OSError) as error:
            _LOG.warning("%d lines for the log %s %s were lost: %s", len(events), group, stream, error)

    # -- groups --------------------------------------------------------------------------------------------------------

    def create_group(self, name: str, *, tags: Mapping[str, str] | None = None) -> None:
        """Make a group.

        Raises:
            faults.Fault: it is there already, or there are too many.
        """
        with self._lock:
            if name in self._groups:
                raise _exists("log group")
            if len(self._groups) >= MAX_GROUPS:
                raise faults.Fault("Resource limit exceeded.", error_type="LimitExceededException", status=400)
            folder = os.path.join(self._folder, log_files.digest(name))
            held = _Held(Group(name, created=self._now(), tags=tags or {}), folder)
            shutil.rmtree(held.folder, ignore_errors=True)  # of one whose deletion was cut short
            keeping.open_folder(held.folder)
            self._keep(held, held.group)
            self._groups[name] = held

    def delete_group(self, name: str) -> None:
        """Remove a group with its streams. Raises if it is not there."""
        with self._lock:
            held = self._held(name)
            keeping.remove(os.path.join(held.folder, _GROUP_FILE))
            del self._groups[name]
            shutil.rmtree(held.folder, ignore_errors=True)

    def set_retention(self, name: str, days: int | None) -> None:
        """Events that are older are answered no more; None: all are. Raises if the group is not there."""
        with self._lock:
            held = self._held(name)
            self._keep(held, dataclasses.replace(held.group, retention_days=days))

    def set_tags(self, name: str, tags: Mapping[str, str]) -> None:
        """Replace a group's tags. Raises if it is not there."""
        with self._lock:
            held = self._held(name)
            self._keep(held, dataclasses.replace(held.group, tags=dict(tags)))

    def group(self, name: str) -> Group:
        """That group. Raises if it is not there."""
        with self._lock:
            return self._held(name).group

    def groups(self) -> list[tuple[Group, int]]:
        """All groups by name, with the bytes of their files."""
        with self._lock:
            return [(held.group, _size(held)) for _, held in sorted(self._groups.items())]

    # -- streams -------------------------------------------------------------------------------------------------------

    def create_stream(self, group: str, name: str) -> None:
        """Make a stream.

        Raises:
            faults.Fault: there is no such group, or the stream is there already.
        """
        with self._lock:
            held = self._held(group)
            if name in held.streams:
                raise _exists("log stream")
            self._make_room()
            path = os.path.join(held.folder, log_files.digest(name))
            stream = log_files.Stream(name, created=self._now(), path=path)
            stream.begin()
            held.streams[name] = stream

    def delete_stream(self, group: str, name: str) -> None:
        """Remove a stream. Raises if it is not there."""
        with self._lock:
            self._drop(self._held(group), self._stream(group, name))

    def streams(self, group: str) -> list[log_files.Stream]:
        """A group's streams, by name. Raises if the group is not there."""
        with self._lock:
            held = self._held(group)
            return [held.streams[name] for name in sorted(held.streams)]

    # -- events --------------------------------------------------------------------------------------------------------

    def put(self, group: str, stream: str, events: Sequence[tuple[int, str]]) -> None:
        """Add events: (time in milliseconds, message). Raises if the stream is not there."""
        with self._lock:
            found = self._stream(group, stream)
            if found.put(events, came=self._now(), most_bytes=self._stream_bytes):
                self._make_room()

    def events(
        self,
        group: str,
        stream: str,
        *,
        after: log_files.Place = log_files.BEGINNING,
        until: log_files.Place | None = None,
        most: int | None = None,
        last: int | None = None,
    ) -> list[log_files.Event]:
        """A stream's events in the order of their places, but for those beyond the group's retention.

        The first one of a stream that has dropped events says how many.

        Args:
            group: Its name.
            stream: Its name.
            after: Only those behind that place.
            until: Only those before that place.
            most: So many of them will do, the first ones; there may be more.
            last: So many of them will do, the last ones; there may be more.

        Raises:
            faults.Fault: there is no such group or stream.
        """
        with self._lock, contextlib.ExitStack() as stack:
            found = self._stream(group, stream)
            days = self._held(group).group.retention_days
            if days is not None:
                after = max(after, (self._now() - days * _DAY_MS, -1))
            begin = after if last is None else max(after, found.facts.find_before_last(last, until=until))
            files, gap = found.open(stack, after=begin), found.facts.gap
            is_in_order = found.facts.is_in_order
            opened = stack.pop_all()
        # Read without the lock: files only grow, and one that is dropped meanwhile is open.
        with opened:
            most = most if is_in_order else None
            events = log_files.select(files, after=begin, until=until, most=most, is_in_order=is_in_order)
        if begin > after and last is not None and len(events) < last:
            return self.events(group, stream, after=after, until=until)
        if gap is not None and begin < gap.place and (until is None or gap.place < until):
            bisect.insort(events, gap, key=lambda event: event.place)
        return events

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(self._clock.time() * 1000)

    def _held(self, name: str) -> _Held:
        held = self._groups.get(name)
        if held is None:
            raise no_such("log group")
        return held

    def _stream(self, group: str, name: str) -> log_files.Stream:
        stream = self._held(group).streams.get(name)
        if stream is None:
            raise no_such("log stream")
        return stream

    def _keep(self, held: _Held, group: Group) -> None:
        keeping.save(os.path.join(held.folder, _GROUP_FILE), dataclasses.asdict(group))
        held.group = group

    def _make_room(self) -> None:
        everything = [(held, stream) for held in self._groups.values() for stream in held.streams.values()]
        size = sum(stream.size + stream.older_size for _, stream in everything)
        count = len(everything)
        if size <= self._total_bytes and count < MAX_STREAMS:
            return
        for held, stream in sorted(everything, key=lambda pair: pair[1].written):
            if size <= self._total_bytes and count < MAX_STREAMS:
                return
            _LOG.info("the log %s %s goes: there are too many", held.group.name, stream.name)
            size -= stream.size + stream.older_size
            count -= 1
            self._drop(held, stream)

    def _drop(self, held: _Held, stream: log_files.Stream) -> None:
        stream.drop()
        del held.streams[stream.name]

    # -- what an earlier daemon left -----------------------------------------------------------------------------------

    def _load(self) -> Iterator[_Held]:
        for found in os.scandir(self._folder):
            if not found.is_dir(follow_symlinks=False):
                continue
            group = keeping.load(os.path.join(found.path, _GROUP_FILE), _parse_group)
            if group is None or log_files.digest(group.name) != found.name:
                continue
            held = _Held(group, found.path)
            for path in keeping.files(held.folder, log_files.NEWER):
                stream = log_files.load(path)
                if stream is not None:
                    held.streams[stream.name] = stream
            yield held


def _size(held: _Held) -> int:
    return sum(stream.size + stream.older_size for stream in held.streams.values())


def _parse_group(value: object) -> Group:
    record = keeping.mapping(value)
    days = record.get("retention_days")
    return Group(
        name=keeping.text(record, "name"),
        created=int(keeping.number(record, "created")),
        retention_days=days if isinstance(days, int) else None,
        tags=keeping.texts(record, "tags"),
    )


def no_such(what: str) -> faults.Fault:
    """There is no such group or stream."""
    return faults.Fault(f"The specified {what} does not exist.", error_type=faults.NOT_FOUND, status=400)


def _exists(what: str) -> faults.Fault:
    return faults.Fault(f"The specified {what} already exists", error_type="ResourceAlreadyExistsException", status=400)
