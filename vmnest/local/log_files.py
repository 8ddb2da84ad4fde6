"""The files of a stream of a log: lines of JSON, in two halves, of which the older one is dropped in the end.

The first line of a file names the stream. What must be known of the events (how many there are, from when to when, and
where in the files) is found out when it is first asked for: a daemon starts in no time, however much was logged.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from . import keeping

_LOG = logging.getLogger(__name__)

MAX_EVENT_BYTES = 262_144
NEWER = ".jsonl"
OLDER = ".old"
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


class Stream:
    """A stream. Whoever changes it has the lock of all logs; its facts may be asked for by anybody.

    Attributes:
        name: Its name.
        created: When it was made, in milliseconds.
        path: Of its files, without what tells its halves apart.
        size: Of the file of the newer half.
        older_size: Of the other one.
        written: When it was last written, in milliseconds.
    """

    def __init__(self, name: str, *, created: int, path: str) -> None:
        self.name = name
        self.created = created
        self.path = path
        self.size = 0
        self.older_size = 0
        self.written = created
        self._lock = threading.Lock()  # while the facts are found out
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        """What is known of its events.

        Raises:
            OSError: the files cannot be read.
        """
        with self._lock:
            if self._facts is None:
                self._facts = _find_facts(self.path)
            return self._facts

    def begin(self) -> None:
        """Make its file."""
        head = json.dumps({"stream": self.name, "created": self.created}).encode() + b"\n"
        with open(_append(self.path + NEWER), "wb") as file:
            file.write(head)
        self.size = len(head)

    def put(self, events: Sequence[tuple[int, str]], *, came: int, most_bytes: int) -> bool:
        """Add events, each a time and a message; whether the newer half, which was too large, became the older one."""
        self.written, has_turned = came, False
        number = self.facts.next_number
        numbered = [
            Event(number + index, time=time, came=came, raw=json.dumps(message[:MAX_EVENT_BYTES]).encode())
            for index, (time, message) in enumerate(events)
        ]
        for start in range(0, len(numbered), _PUT_EVENTS):
            if self.size > most_bytes:
                self._turn()
                has_turned = True
            self._append(numbered[start : start + _PUT_EVENTS])
        return has_turned

    def drop(self) -> None:
        """Remove its files."""
        for suffix in (OLDER, NEWER):
            keeping.remove(self.path + suffix)

    def open(self, stack: contextlib.ExitStack, *, after: Place) -> list[BinaryIO]:
        """The files that have events behind that place, the older one first; the stack closes them."""
        files: list[BinaryIO] = []
        # Who follows a log asks again and again whether there is more: no file need be read to say no.
        if self.facts.end is None or self.facts.end <= after:
            return []
        for suffix in (OLDER, NEWER):
            offset = self.facts.find_offset(suffix, after)
            if offset is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                files.append(stack.enter_context(open(self.path + suffix, "rb")))  # noqa: SIM115 - it is
                files[-1].seek(offset)
        return files

    def _append(self, events: Sequence[Event]) -> None:
        self.facts.mark(self.size)
        data = b"".join(b"[%d, %d, %d, %s]\n" % event for event in events)
        with open(_append(self.path + NEWER), "wb") as file:
            file.write(data)
        self.size += len(data)
        self.facts.note(events)

    def _turn(self) -> None:
        os.rename(self.path + NEWER, self.path + OLDER)
        self.facts.turn()
        self.older_size = self.size
        self.begin()


class Facts:
    """What is known of a stream's events without reading them.

    Attributes:
        next_number: Of the event that comes next.
        first: The time of the earliest one; None without one, as the next two.
        end: The place of the latest one.
        came: When the last one came.
        is_in_order: Whether they stand in the files in the order of their places.
        heads: Of each half, its first event without what it says.
        marks: For each half, offsets in its file, growing, and the place that no event before the offset is behind.
    """

    def __init__(self) -> None:
        self.next_number = 1
        self.first: int | None = None
        self.end: Place | None = None
        self.came: int | None = None
        self.is_in_order = True
        self.heads: dict[str, Event | None] = {OLDER: None, NEWER: None}
        self.marks: dict[str, list[tuple[Place, int]]] = {OLDER: [], NEWER: []}

    @property
    def last(self) -> int | None:
        """The time of the latest event."""
        return None if self.end is None else self.end[0]

    @property
    def gap(self) -> Event | None:
        """An event that says how many were dropped, in the place of the last of them; None if all are there."""
        head = self.heads[OLDER] or self.heads[NEWER]
        if head is None or head.number <= 1:
            return None
        told = f"[vmnest: {head.number - 1} earlier events are not kept any more]"
        return head._replace(number=head.number - 1, raw=json.dumps(told).encode())

    def find_before_last(self, count: int, *, until: Place | None) -> Place:
        """A place that so many events are behind, the last ones before the other place; there may be fewer."""
        if not self.is_in_order or self.end is None:
            return BEGINNING
        number = self.next_number if until is None or until > self.end else until[1]
        places = (place for marks in self.marks.values() for place, _ in marks)
        return max((place for place in places if place[1] < number - count), default=BEGINNING)

    def find_offset(self, half: str, after: Place) -> int | None:
        """Where in that half's file events behind that place begin, or before; None if it has none of them."""
        if half == OLDER and self.marks[NEWER][:1] and self.marks[NEWER][0][0] <= after:
            return None
        return max((offset for end, offset in self.marks[half] if end <= after), default=0)

    def mark(self, offset: int) -> None:
        """The newer half ends at that offset now; noted if it is far from the last mark."""
        marks = self.marks[NEWER]
        if self.end is not None and (not marks or offset - marks[-1][1] >= _MARK_BYTES):
            marks.append((self.end, offset))

    def turn(self) -> None:
        """The newer half is the older one now."""
        self.marks = {OLDER: self.marks[NEWER], NEWER: []}
        self.heads = {OLDER: self.heads[NEWER], NEWER: None}

    def note(self, events: Sequence[Event]) -> None:
        """Events are in it, behind those that were."""
        places = [event.place for event in events]
        least, most = min(places), max(places)
        self.heads[NEWER] = self.heads[NEWER] or events[0]._replace(raw=b"")
        self.is_in_order = self.is_in_order and places == sorted(places) and (self.end is None or self.end < least)
        self.first = least[0] if self.first is None else min(self.first, least[0])
        self.end = most if self.end is None else max(self.end, most)
        self.came = events[-1].came
        self.next_number = events[-1].number + 1


def select(
    files: Iterable[BinaryIO], *, after: Place, until: Place | None, most: int | None, is_in_order: bool = False
) -> list[Event]:
    """The events behind one place and before the other, in the order of their places.

    Args:
        files: Of a stream, as ``Stream.open`` gives them.
        after: Only those behind that place.
        until: Only those before that place; None: all of them.
        most: No more than that, the first ones in the files.
        is_in_order: They stand in the files in the order of their places: behind the last one nothing is read.
    """
    choose = itertools.takewhile if is_in_order else filter
    events = (event for file in files for event in _parse_events(file) if event.place > after)
    wanted = events if until is None else choose(lambda event: event.place < until, events)
    return sorted(itertools.islice(wanted, most), key=lambda event: event.place)


def load(path: str) -> Stream | None:
    """The stream of the file of a newer half; None, and the file kept aside, if it does not say which."""
    with open(path, "rb") as file:
        head = _parse_head(file)
    base = path.removesuffix(NEWER)
    if not isinstance(head, dict) or digest(str(head.get("stream"))) != os.path.basename(base):
        _LOG.warning("%s is damaged, and kept as %s%s", path, os.path.basename(path), keeping.BAD)
        os.rename(path, path + keeping.BAD)
        return None
    _end_line(path)
    created = head.get("created")
    stream = Stream(str(head["stream"]), created=created if isinstance(created, int) else 0, path=base)
    found = os.stat(path)
    stream.size, stream.written = found.st_size, int(found.st_mtime * 1000)
    with contextlib.suppress(FileNotFoundError):
        stream.older_size = os.stat(base + OLDER).st_size
    return stream


def digest(name: str) -> str:
    """What the files of something of that name are called."""
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


def _append(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


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


def _find_facts(path: str) -> Facts:
    facts = Facts()
    for suffix in (OLDER, NEWER):
        facts.turn()
        with contextlib.suppress(FileNotFoundError), open(path + suffix, "rb") as file:
            while lines := file.readlines(_MARK_BYTES):
                events = list(_parse_events(lines))
                if events:
                    facts.note(events)
                facts.mark(file.tell())
    return facts


def _end_line(path: str) -> None:
    """Behind a line that was cut short the next one would be lost, too."""
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
