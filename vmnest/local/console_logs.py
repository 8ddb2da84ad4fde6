"""What MicroVMs print, on its way to the logs of the account.

The supervisor keeps the last part of the output in a file in the VM's folder; one thread here looks at the files of
those VMs whose output is wanted, and tells new lines. How far it came is noted beside the file, so that the next daemon
neither tells a line twice nor leaves one out. A file stays open: when the VM's folder goes, the rest can still be read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from datetime import datetime, timezone

from .. import deadline
from . import logs, records

_LOG = logging.getLogger(__name__)

CONSOLE_NAME = "console.log"  # the supervisor's
TOLD_NAME = "console.told"
LOOK_SECONDS = 0.5
MAX_LINE_BYTES = 65536


def find_target(record: records.Record) -> tuple[str, str] | None:
    """The group and stream for a VM's output; None if nobody wants it.

    As on AWS: the image's own log settings are of its builds; who passes a role and says nothing has the group of the
    image's name.
    """
    spec = record.spec
    if spec.logging is None and spec.execution_role_arn is None:
        return None
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
        self._file = open(os.path.join(folder, CONSOLE_NAME), "rb", buffering=0)  # noqa: SIM115 - closed by finish
        self._told = os.path.join(folder, TOLD_NAME)
        self._at = self._load()

    def take(self, *, is_last: bool) -> list[str]:
        """The lines that are new; the beginning of one is left for later, unless it is the last."""
        # It drops its head when it has become too long, and begins anew.
        if os.fstat(self._file.fileno()).st_size < self._at:
            self._at = 0
        self._file.seek(self._at)
        data = self._file.read()
        end = len(data) if is_last or len(data) > MAX_LINE_BYTES else data.rfind(b"\n") + 1
        if not end:
            return []
        self._at += end
        self._note()
        return [_shown(line) for line in data[:end].removesuffix(b"\n").split(b"\n") if line]

    def close(self) -> None:
        self._file.close()

    def _load(self) -> int:
        with contextlib.suppress(OSError, ValueError), open(self._told, "rb") as file:
            return int(file.read(20))
        return 0

    def _note(self) -> None:
        # Its folder may be gone, or the disk full: then a line is told twice, if there is anybody to do so.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(b"%d" % self._at)


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
            tail.close()

    def follow(self, record: records.Record, folder: str) -> None:
        """Tell what the VM prints, if somebody wants it; ``folder`` is its own."""
        target = find_target(record)
        if target is None:
            return
        try:
            tail = _Tail(folder, group=target[0], stream=target[1])
        except OSError as error:
            _LOG.warning("the output of %s goes to no log: %s", record.microvm_id, error)
            return
        with self._changed:
            is_new = not self._closed and record.microvm_id not in self._tails
            if is_new:
                self._tails[record.microvm_id] = tail
                self._changed.notify_all()
        if not is_new:
            tail.close()

    def finish(self, microvm_id: str) -> None:
        """Tell the rest: the VM prints no more. Harmless for one that is not followed."""
        with self._changed:
            tail = self._tails.pop(microvm_id, None)
        if tail is not None:
            self._tell(tail, is_last=True)
            tail.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._tails)
                self._changed.wait_for(lambda: self._closed, self._look_seconds)
                if self._closed:
                    return
                tails = dict(self._tails)
            for microvm_id, tail in tails.items():
                with self._changed:
                    is_followed = self._tails.get(microvm_id) is tail
                if is_followed:
                    self._tell(tail, is_last=False)

    def _tell(self, tail: _Tail, *, is_last: bool) -> None:
        with tail.lock, contextlib.suppress(ValueError):  # of a file that was closed in this very moment
            lines = tail.take(is_last=is_last)
            now = self._clock.time()
            if lines:
                self._logs.write(tail.group, tail.stream, [(now, line) for line in lines])
