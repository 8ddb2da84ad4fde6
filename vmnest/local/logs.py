"""CloudWatch Logs of the local account: groups, streams and events, bounded on disk. Asked for by ``logs_calls``.

Below ``<folder>/account/logs`` each group has a folder with a note, and each stream a file of lines of JSON, the first
of which names it. A file that has grown to STREAM_BYTES becomes the older half of its stream, and what was the older
half is dropped; where all files together are more than TOTAL_BYTES, the streams that were written least lately go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from .. import deadline, errors
from ..wire import names
from . import faults, keeping

_LOG = logging.getLogger(__name__)

LOGS_FOLDER = "logs"
STREAM_BYTES = 4 << 20  # of each of a stream's two halves
TOTAL_BYTES = 256 << 20
MAX_STREAMS = 20_000
MAX_GROUPS = 1000
MAX_EVENT_BYTES = 262_144
_GROUP_FILE = "group.json"
_NEWER = ".jsonl"
_OLDER = ".old"
_DAY_MS = 86_400_000
_MARK_BYTES = 65536
_PUT_EVENTS = 1000  # at a time: a file is not to be much larger than it may be
_EVENT = re.compile(rb'\[(\d+), (-?\d+), (-?\d+), (".*")\]\n')


Place = tuple[int, int]  # the time of an event and its number, by which events are in order


BEGINNING: Place = (-1, 0)


class Event(NamedTuple):
    """A line of a log: its place among those of its stream, its time and the time it came, both in milliseconds.

    Its message is decoded when it is asked for: of the many that are looked at, an answer has few.
    """

    number: int
    time: int
    came: int
    raw: bytes  # the message in JSON

    @property
    def place(self) -> Place:
        """Where it is among the events of its stream."""
        return self.time, self.number

    @property
    def message(self) -> str:
        """What it says."""
        try:
            return str(json.loads(self.raw))
        except ValueError:  # the file was damaged there
            return self.raw.decode("utf-8", "replace")


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


class Stream:
    """A stream in memory: all but its events. ``size`` and ``older_size`` are those of its files."""

    def __init__(self, name: str, *, created: int, path: str) -> None:
        self.name = name
        self.created = created
        self.path = path  # without what tells its halves apart
        self.next_number = 1
        self.size = 0
        self.older_size = 0
        self.first: int | None = None
        self.end: Place | None = None
        self.came: int | None = None
        self.is_in_order = True
        # For each half: offsets in its file, growing, and the place that no event before the offset is behind.
        self.marks: dict[str, list[tuple[Place, int]]] = {_OLDER: [], _NEWER: []}

    @property
    def last(self) -> int | None:
        """The time of the latest event."""
        return None if self.end is None else self.end[0]

    def find_offset(self, half: str, after: Place) -> int | None:
        """Where in that half's file events behind that place begin, or before; None if it has none of them."""
        if half == _OLDER and self.marks[_NEWER][:1] and self.marks[_NEWER][0][0] <= after:
            return None
        return max((offset for end, offset in self.marks[half] if end <= after), default=0)

    def mark(self) -> None:
        """Note where the newer half ends now, if that is far from the last mark."""
        marks = self.marks[_NEWER]
        if self.end is not None and (not marks or self.size - marks[-1][1] >= _MARK_BYTES):
            marks.append((self.end, self.size))

    def turn(self) -> None:
        """The newer half is the older one now."""
        self.older_size, self.size = self.size, 0
        self.marks = {_OLDER: self.marks[_NEWER], _NEWER: []}

    def note(self, events: Sequence[Event]) -> None:
        """Events are in it, behind those that were."""
        places = [event.place for event in events]
        least, most = min(places), max(places)
        self.is_in_order = self.is_in_order and places == sorted(places) and (self.end is None or self.end < least)
        self.first = least[0] if self.first is None else min(self.first, least[0])
        self.end = most if self.end is None else max(self.end, most)
        self.came = events[-1].came
        self.next_number = events[-1].number + 1


class _Held:
    """A group in memory."""

    def __init__(self, group: Group, folder: str) -> None:
        self.group = group
        self.folder = folder
        self.streams: dict[str, Stream] = {}


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
                least = self._groups[group].streams[stream].last or 0
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
            held = _Held(Group(name, created=self._now(), tags=tags or {}), os.path.join(self._folder, _digest(name)))
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
            stream = Stream(name, created=self._now(), path=os.path.join(held.folder, _digest(name)))
            self._begin(stream)
            held.streams[name] = stream

    def delete_stream(self, group: str, name: str) -> None:
        """Remove a stream. Raises if it is not there."""
        with self._lock:
            self._drop(self._held(group), self._stream(group, name))

    def streams(self, group: str) -> list[Stream]:
        """A group's streams, by name. Raises if the group is not there."""
        with self._lock:
            held = self._held(group)
            return [held.streams[name] for name in sorted(held.streams)]

    # -- events --------------------------------------------------------------------------------------------------------

    def put(self, group: str, stream: str, events: Sequence[tuple[int, str]]) -> None:
        """Add events: (time in milliseconds, message). Raises if the stream is not there."""
        with self._lock:
            found = self._stream(group, stream)
            came = self._now()
            numbered = [
                Event(found.next_number + index, time=time, came=came, raw=_raw(message))
                for index, (time, message) in enumerate(events)
            ]
            for start in range(0, len(numbered), _PUT_EVENTS):
                self._put(found, numbered[start : start + _PUT_EVENTS])

    def events(
        self,
        group: str,
        stream: str,
        *,
        after: Place = BEGINNING,
        until: Place | None = None,
        most: int | None = None,
    ) -> list[Event]:
        """A stream's events in the order of their places, but for those beyond the group's retention.

        Args:
            group: Its name.
            stream: Its name.
            after: Only those behind that place.
            until: Only those before that place.
            most: So many of them will do, the first ones; there may be more.

        Raises:
            faults.Fault: there is no such group or stream.
        """
        with self._lock, contextlib.ExitStack() as stack:
            found = self._stream(group, stream)
            days = self._held(group).group.retention_days
            if days is not None:
                after = max(after, (self._now() - days * _DAY_MS, -1))
            # Who follows a log asks again and again whether there is more: no file need be read to say no.
            if found.end is None or found.end <= after:
                return []
            files = _open_both(found, stack, after=after)
            most = most if found.is_in_order else None
            opened = stack.pop_all()
        # Read without the lock: files only grow, and one that is dropped meanwhile is open.
        with opened:
            events = (event for file in files for event in _parse_events(file) if event.place > after)
            wanted = events if until is None else (event for event in events if event.place < until)
            return sorted(itertools.islice(wanted, most), key=lambda event: event.place)

    def _put(self, stream: Stream, events: Sequence[Event]) -> None:
        if stream.size > self._stream_bytes:
            self._turn(stream)
        stream.mark()
        data = b"".join(b"[%d, %d, %d, %s]\n" % event for event in events)
        with open(_append(stream.path + _NEWER), "wb") as file:
            file.write(data)
        stream.size += len(data)
        stream.note(events)

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(self._clock.time() * 1000)

    def _held(self, name: str) -> _Held:
        held = self._groups.get(name)
        if held is None:
            raise no_such("log group")
        return held

    def _stream(self, group: str, name: str) -> Stream:
        stream = self._held(group).streams.get(name)
        if stream is None:
            raise no_such("log stream")
        return stream

    def _keep(self, held: _Held, group: Group) -> None:
        keeping.save(os.path.join(held.folder, _GROUP_FILE), dataclasses.asdict(group))
        held.group = group

    def _begin(self, stream: Stream) -> None:
        head = json.dumps({"stream": stream.name, "created": stream.created}).encode() + b"\n"
        with open(_append(stream.path + _NEWER), "wb") as file:
            file.write(head)
        stream.size = len(head)

    def _turn(self, stream: Stream) -> None:
        os.rename(stream.path + _NEWER, stream.path + _OLDER)
        stream.turn()
        self._begin(stream)
        self._make_room()

    def _make_room(self) -> None:
        everything = [(held, stream) for held in self._groups.values() for stream in held.streams.values()]
        size = sum(stream.size + stream.older_size for _, stream in everything)
        count = len(everything)
        if size <= self._total_bytes and count < MAX_STREAMS:
            return
        for held, stream in sorted(everything, key=lambda pair: pair[1].came or pair[1].created):
            if size <= self._total_bytes and count < MAX_STREAMS:
                return
            _LOG.info("the log %s %s goes: there are too many", held.group.name, stream.name)
            size -= stream.size + stream.older_size
            count -= 1
            self._drop(held, stream)

    def _drop(self, held: _Held, stream: Stream) -> None:
        for suffix in (_OLDER, _NEWER):
            keeping.remove(stream.path + suffix)
        del held.streams[stream.name]

    # -- what an earlier daemon left -----------------------------------------------------------------------------------

    def _load(self) -> Iterator[_Held]:
        for found in os.scandir(self._folder):
            if not found.is_dir(follow_symlinks=False):
                continue
            group = keeping.load(os.path.join(found.path, _GROUP_FILE), _parse_group)
            if group is None or _digest(group.name) != found.name:
                continue
            held = _Held(group, found.path)
            for path in keeping.files(held.folder, _NEWER):
                stream = _load_stream(path)
                if stream is not None:
                    held.streams[stream.name] = stream
            yield held


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


def _raw(message: str) -> bytes:
    return json.dumps(message[:MAX_EVENT_BYTES]).encode()


def _append(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _size(held: _Held) -> int:
    return sum(stream.size + stream.older_size for stream in held.streams.values())


def _open_both(stream: Stream, stack: contextlib.ExitStack, *, after: Place) -> list[BinaryIO]:
    """The files of a stream that have events behind that place, the older one first; the stack closes them."""
    files: list[BinaryIO] = []
    for suffix in (_OLDER, _NEWER):
        offset = stream.find_offset(suffix, after)
        if offset is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            files.append(stack.enter_context(open(stream.path + suffix, "rb")))  # noqa: SIM115 - it is
            files[-1].seek(offset)
    return files


def _parse_head(file: BinaryIO) -> object:
    """The JSON value in its first line; None if there is none."""
    try:
        return json.loads(file.readline())
    except ValueError:
        return None


def _parse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events in lines of a file; one that is none, as the first line, or that was cut short, is passed over."""
    for line in lines:
        found = _EVENT.fullmatch(line)
        if found is not None:
            number, time, came, raw = found.groups()
            yield Event(int(number), int(time), int(came), raw)


def _load_stream(path: str) -> Stream | None:
    with open(path, "rb") as file:
        head = _parse_head(file)
    base = path.removesuffix(_NEWER)
    if not isinstance(head, dict) or _digest(str(head.get("stream"))) != os.path.basename(base):
        _LOG.warning("%s is damaged, and kept as %s%s", path, os.path.basename(path), keeping.BAD)
        os.rename(path, path + keeping.BAD)
        return None
    _end_line(path)
    created = head.get("created")
    stream = Stream(str(head["stream"]), created=created if isinstance(created, int) else 0, path=base)
    for suffix in (_OLDER, _NEWER):
        stream.turn()
        with contextlib.suppress(FileNotFoundError), open(base + suffix, "rb") as file:
            _load_events(stream, file)
    return stream


def _load_events(stream: Stream, file: BinaryIO) -> None:
    """Take note of the events in the newer half's file."""
    while lines := file.readlines(_MARK_BYTES):
        events = list(_parse_events(lines))
        stream.mark()
        if events:
            stream.note(events)
        stream.size = file.tell()


def _end_line(path: str) -> None:
    """Behind a line that was cut short the next one would be lost, too."""
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


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
