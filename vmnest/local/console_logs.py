"""What MicroVMs print, on its way to the logs of the account.

The supervisor keeps the last part of the output in a file in the VM's folder; one thread here looks at the files of all
VMs, and tells new lines. How far it came is noted beside the file, so that the next daemon neither tells a line twice
nor leaves one out. A file stays open: when the VM's folder goes, the rest can still be read.

However much a VM prints, it is read at a bounded rate. What it had dropped by then is missing, and a line says so.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from datetime import datetime, timezone

from .. import deadline
from . import logs, records
from .drivers import channel

_LOG = logging.getLogger(__name__)

TOLD_NAME = "console.told"
EGRESS_SUFFIX = "/egress"  # of the stream beside a VM's own
LOOK_SECONDS = 0.2
LOOK_BYTES = 256 * 1024  # of one VM, in one look
MAX_LINE_BYTES = 65536
_MAX_STREAM_CHARACTERS = 512  # the service's


def find_target(record: records.Record) -> tuple[str, str] | None:
    """The group and stream for a VM's output; None if its log was disabled.

    The names are AWS's. There nothing is kept without an execution role; here it is, since nobody pays for it. As
    there, the image's own log settings are of its builds.
    """
    spec = record.spec
    told = (spec.logging or {}).get("cloudWatch") if spec.logging else {}
    if not isinstance(told, dict):
        return None
    day = datetime.fromtimestamp(record.started_at, timezone.utc)
    group = told.get("logGroup") or f"/aws/lambda-microvms/{spec.image_arn.rpartition(':')[2]}"
    stream = told.get("logStream") or f"{day:%Y/%m/%d}[{spec.image_version}]{record.microvm_id}"
    return str(group), str(stream)


class _Tail:
    """The output of one VM. ``lock`` guards all of it."""

    def __init__(self, folder: str, *, group: str, stream: str) -> None:
        self.lock = threading.Lock()
        self.group = group
        self.stream = stream
        self._path = os.path.join(folder, channel.CONSOLE_NAME)
        self._told = os.path.join(folder, TOLD_NAME)
        self._descriptor: int | None = None
        self._is_closed = False
        self._at = 0
        self.written_at = 0.0  # when the file was last written, as of the latest look

    def take(self, *, is_last: bool) -> list[str]:
        """The lines that are new; the beginning of one is left for later, unless it is the last.

        Raises:
            OSError: the file cannot be read.
        """
        if not self._open():
            return []
        lines: list[str] = []
        while True:
            missing, data = self._read()
            if missing:
                lines.append(f"[vmnest: {missing} bytes of output are missing here]")
            is_rest = is_last and len(data) < LOOK_BYTES
            end = len(data) if is_rest else data.rfind(b"\n") + 1
            if not end and len(data) > MAX_LINE_BYTES:
                end = len(data)
            self._at += end
            if end or missing:
                self._note()
            lines += _split(data[:end])
            if not is_last or is_rest:
                return lines

    def close(self) -> None:
        self._is_closed = True
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> bool:
        """Whether there is a file to read; there is none before the supervisor has begun."""
        if self._descriptor is None and not self._is_closed:
            with contextlib.suppress(FileNotFoundError):
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                self._at = self._load()
        return self._descriptor is not None

    def _read(self) -> tuple[int, bytes]:
        """How many bytes were dropped before they could be read, and what follows."""
        assert self._descriptor is not None
        found = os.fstat(self._descriptor)
        size, self.written_at = found.st_size, found.st_mtime
        if size < self._at:  # where no holes can be made in files, the supervisor begins anew
            self._at = 0
        begin = self._at
        while self._at < size:
            self._at = self._find_data()
            data = os.pread(self._descriptor, LOOK_BYTES, self._at)
            # Dropped while it was read, it would read as zeros.
            if self._find_data() == self._at:
                return self._at - begin, data
        return self._at - begin, b""

    def _find_data(self) -> int:
        """Where the first byte is that was not dropped."""
        assert self._descriptor is not None
        try:
            return os.lseek(self._descriptor, self._at, os.SEEK_DATA)
        except OSError:  # a filesystem without holes; or they are all that follows, which the next look finds
            return self._at

    def _load(self) -> int:
        with contextlib.suppress(OSError, ValueError), open(self._told, "rb") as file:
            return max(0, int(file.read(20)))
        return 0

    def _note(self) -> None:
        # Its folder may be gone, or the disk full: then a line is told twice, if there is anybody to do so.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(b"%d" % self._at)


def _split(data: bytes) -> Iterator[str]:
    """The lines that are not empty, long ones in parts."""
    for line in data.removesuffix(b"\n").split(b"\n"):
        shown = _shown(line)
        for start in range(0, len(shown), MAX_LINE_BYTES):
            yield shown[start : start + MAX_LINE_BYTES]


def _shown(line: bytes) -> str:
    # What a program writes over itself, as progress bars do: its last state counts.
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")


class ConsoleLogs:
    """Carries the output of VMs to the logs. Thread-safe."""

    def __init__(
        self,
        kept: logs.Logs,
        *,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._logs = kept
        self._clock = clock
        self._look_seconds = look_seconds
        self._changed = threading.Condition()  # guards all below
        self._tails: dict[str, _Tail] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="console logs")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. What was not told yet, the next daemon tells."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        with self._changed:
            tails, self._tails = self._tails, {}
        for tail in tails.values():
            with tail.lock:
                tail.close()

    def follow(self, record: records.Record, folder: str) -> None:
        """Tell what the VM prints, unless its log was disabled; ``folder`` is its own. It need not have begun yet."""
        target = find_target(record)
        if target is None:
            return
        with self._changed:
            if not self._closed and record.microvm_id not in self._tails:
                self._tails[record.microvm_id] = _Tail(folder, group=target[0], stream=target[1])
                self._changed.notify_all()

    def finish(self, microvm_id: str) -> None:
        """Tell the rest: the VM prints no more. When this returns it is told. Harmless for one that is not followed."""
        with self._changed:
            tail = self._tails.get(microvm_id)
        if tail is None:
            return
        self._tell(tail, is_last=True)
        with self._changed:
            self._tails.pop(microvm_id, None)

    def tell_egress(self, record: records.Record, line: str) -> None:
        """Tell a decision about a connection of the VM to the outside, unless its log was disabled."""
        target = find_target(record)
        if target is not None:
            stream = target[1][: _MAX_STREAM_CHARACTERS - len(EGRESS_SUFFIX)] + EGRESS_SUFFIX
            self._logs.write(target[0], stream, [(self._clock.time(), line)])

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._tails)
                self._changed.wait_for(lambda: self._closed, self._look_seconds)
                if self._closed:
                    return
                tails = list(self._tails.values())
            for tail in tails:
                self._tell(tail, is_last=False)

    def _tell(self, tail: _Tail, *, is_last: bool) -> None:
        with tail.lock:
            try:
                lines = tail.take(is_last=is_last)
            except OSError as error:  # a VM must be able to end whatever becomes of its log
                _LOG.warning("the output for the log %s %s cannot be read: %s", tail.group, tail.stream, error)
                lines = []
            if lines:
                # Nearer to the truth than the time of this look: the last of them came then, the others just before.
                when = min(tail.written_at, self._clock.time())
                self._logs.write(tail.group, tail.stream, [(when, line) for line in lines])
            if is_last:
                tail.close()
