"""Processes of a guest agent without its HTTP: a loop, what processes share, and a registry, in this process."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from guest.agentd import drain, frames, launch, loop, processes, programs, retained, running, state, stopwatch, wire

WAIT_SECONDS = 20.0


class Yard:
    """Starts processes and watches them. Its clock can be moved, as a suspension does."""

    def __init__(self) -> None:
        self.suspended = 0.0
        self._readings = 0
        self.state = state.State()
        self.drain = drain.Drain()
        self.store = retained.Store()
        self.launcher = launch.Launcher()
        self.loop = loop.Loop(start_watch=lambda: stopwatch.Stopwatch(self._monotonic))
        self.loop.start()
        self.services = running.Services(loop=self.loop, groups=self.state.groups, drain=self.drain, store=self.store)
        self.known = processes.Processes(self.state, launcher=self.launcher, services=self.services)
        self._numbers = itertools.count()

    def start(
        self,
        *argv: str,
        process_id: str | None = None,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        retain: str = wire.RETAIN_BLOCK,
        output_limit: int = wire.DEFAULT_RETAINED_BYTES,
    ) -> running.Process:
        """A process of a new id, or of this one."""
        command = programs.Command(
            [os.fsencode(word) for word in argv],
            cwd=os.fsencode(cwd),
            environment={**os.environb, **{name.encode(): value.encode() for name, value in (env or {}).items()}},
            timeout=timeout,
            stdin=stdin,
            pty=pty,
        )
        order = processes.Order(command, output_limit=output_limit, retain=retain)
        return self.known.start(process_id or f"p{next(self._numbers)}", lambda: order)[0]

    def shell(self, script: str, **options: object) -> running.Process:
        """A process that runs a script."""
        return self.start("sh", "-c", script, **options)  # type: ignore[arg-type]

    def suspend(self, seconds: float) -> None:
        """The clock jumps, and the loop sees it."""
        self.suspended += seconds
        seen = self._readings
        wait_until(lambda: self._readings >= seen + 2)

    def close(self) -> None:
        """End what runs, and the loop. Nothing may be left."""
        for process in self.known.list():
            process.send_signal(9)
        for process in self.known.list():
            wait_end(process)
        self.state.groups.end_all(grace=WAIT_SECONDS)
        self.loop.stop()
        for process in self.known.list():
            self.known.forget(process.id).kill()
        assert len(self.store.slots) == 0
        self.store.slots.close()

    def _monotonic(self) -> float:
        self._readings += 1
        return time.monotonic() + self.suspended


def wait_until(is_so: Callable[[], bool], *, seconds: float = WAIT_SECONDS) -> None:
    """Wait for a state that another thread or process brings about."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def wait_end(process: running.Process) -> dict[str, object]:
    """Wait until it has ended; how."""
    with process.changed:
        assert process.changed.wait_for(lambda: process.has_ended, timeout=WAIT_SECONDS), "it did not end"
    return process.end_document()


def wait_size(process: running.Process, size: int) -> None:
    """Wait until so many bytes of output have come."""
    with process.changed:
        assert process.changed.wait_for(lambda: process.output.size >= size, timeout=WAIT_SECONDS)


def read_output(process: running.Process, offset: int = 0) -> dict[int, bytes]:
    """What is kept, stream by stream. There must be no gap."""
    cursor = process.attach(offset)
    found = {frames.STDOUT: b"", frames.STDERR: b""}
    decoder = frames.Decoder()
    while data := process.read(cursor, 1 << 20):
        for kind, payload in decoder.feed(data):
            found[kind] += payload
    process.detach()
    return found


def read_stdout(process: running.Process) -> bytes:
    """What is kept of its standard output, or terminal."""
    return read_output(process)[frames.STDOUT]


@pytest.fixture
def yard() -> Iterator[Yard]:
    """Processes of which nothing is left behind: no child, no descriptor."""
    before = set(os.listdir("/proc/self/fd"))
    made = Yard()
    yield made
    made.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    wait_until(lambda: len(made.drain) == 0)
    # The drain's own pipe stays with its thread, which never ends.
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 2


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The agent's end and the client's."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as ours:
            yield ours, client
