"""One step of a build: a sandbox that runs a command to its end, while its output goes to the build's log."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from .. import errors, rendezvous
from .drivers import channel, interface

MEMORY_MIB = 4096
STEP_SECONDS = 7500.0  # more than two hooks may take, an hour each
_LOOK_SECONDS = 0.2
_MAX_LINE_BYTES = 65536
MAX_OUTPUT_BYTES = 1 << 20
LAST_LINES = 100

Log = Callable[[str], None]


class ClosedError(Exception):
    """The daemon is ending."""


@dataclass(frozen=True)
class Step:
    """What to run, and on what; see ``interface.Launch``."""

    command: tuple[str, ...]
    layers: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    workdir: str = "/"
    keep_layer_at: str | None = None
    memory_mib: int = MEMORY_MIB
    egress: bool = False


class Cells:
    """Runs steps. Thread-safe."""

    def __init__(self, driver: interface.Driver, folder: str, *, disk_bytes: int, visible: Sequence[str] = ()) -> None:
        self._driver = driver
        self._folder = os.path.join(folder, rendezvous.VMS_FOLDER)
        self._disk_bytes = disk_bytes
        self._visible = tuple(visible)
        self._lock = threading.Lock()  # guards the two below
        self._running: set[interface.Machine] = set()
        self._closed = False

    def run(
        self, step: Step, *, log: Log, on_start: Callable[[interface.Machine], None] | None = None
    ) -> interface.Ended:
        """Run a step to its end.

        Raises:
            errors.LocalCloudError: it did not start.
            ClosedError: the daemon is ending.
        """
        with self.start(step) as cell:
            if on_start is not None:
                on_start(cell.machine)
            cell.follow(log)
            assert cell.ended is not None
        if self._closed:
            raise ClosedError
        return cell.ended

    @contextlib.contextmanager
    def start(self, step: Step) -> Iterator[Cell]:
        """A sandbox in which the step's command runs; it is ended with the block."""
        # Among the VMs: should the daemon be killed, the next one finds a folder that nobody noted, and cleans it.
        folder = os.path.join(self._folder, f"build-{uuid.uuid4()}")
        os.makedirs(folder, mode=0o700)
        try:
            cell = Cell(folder)
            launch = interface.Launch(
                microvm_id=os.path.basename(folder), folder=folder, environment=step.environment or {},
                memory_mib=step.memory_mib, disk_bytes=self._disk_bytes, max_seconds=STEP_SECONDS,
                command=step.command, visible=self._visible, image_layers=step.layers, egress=step.egress,
                workdir=step.workdir, keep_layer_at=step.keep_layer_at,
            )  # fmt: skip
            cell.machine = self._driver.start(launch, on_end=cell.end)
            try:
                self._add(cell.machine)
                yield cell
            finally:
                cell.machine.stop()
                with self._lock:
                    self._running.discard(cell.machine)
        finally:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def _add(self, machine: interface.Machine) -> None:
        with self._lock:
            if self._closed:
                raise ClosedError
            self._running.add(machine)

    def close(self) -> None:
        """End what runs, and start nothing any more."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for machine in running:
            with contextlib.suppress(errors.LocalCloudError, OSError):
                machine.stop()


class Cell:
    """A sandbox that runs a step. ``ended`` is how it ended, or None while it runs."""

    machine: interface.Machine

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._console = os.path.join(folder, channel.CONSOLE_NAME)
        self._over = threading.Event()
        self.ended: interface.Ended | None = None

    def end(self, ended: interface.Ended) -> None:
        """What ``on_end`` is."""
        self.ended = ended
        self._over.set()

    def follow(self, log: Log) -> None:
        """Tell what the command prints, line by line, until it ends."""
        teller = Teller(log)
        with open(self._console, "rb") as reader:
            while not self._over.wait(_LOOK_SECONDS):
                teller.take(_read(reader))
            teller.take(_read(reader))
        teller.end()

    def tell(self, log: Log) -> None:
        """Tell what the command has printed so far."""
        teller = Teller(log)
        with open(self._console, "rb") as reader:
            teller.take(_read(reader))
        teller.end()


def _read(reader: BinaryIO) -> bytes:
    """What the console has more; it drops its head when it has become too long, and begins anew."""
    if os.fstat(reader.fileno()).st_size < reader.tell():
        reader.seek(0)
    return reader.read()


class Teller:
    """Tells output line by line: all of it up to a bound, and then only its end, since a log is kept."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._rest = b""
        self._left = MAX_OUTPUT_BYTES
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._dropped = 0

    def take(self, data: bytes) -> None:
        """Tell the lines that have become whole."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in filter(None, lines):
            # What a program writes over itself, as progress bars do: its last state counts.
            last = line.rstrip(b"\r").rpartition(b"\r")[2]
            self._tell(last[:_MAX_LINE_BYTES].decode("utf-8", "replace"))

    def end(self) -> None:
        """Tell what is left."""
        self.take(b"\n")
        if self._dropped > len(self._last):
            self._log(f"[vmnest: {self._dropped - len(self._last)} lines dropped]")
        for line in self._last:
            self._log(line)

    def _tell(self, line: str) -> None:
        self._left -= len(line) + 1
        if self._left >= 0:
            self._log(line)
        else:
            self._dropped += 1
            self._last.append(line)
