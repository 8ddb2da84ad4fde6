"""Commands that are looked at now and then: started, polled, fed, signalled, closed. Each call stands alone.

For callers that cannot wait for a command, nor hold a connection open: a handle and an offset are all they keep.
"""

from __future__ import annotations

from .. import errors
from .._guest.agentd import wire
from ..deadline import Deadline
from . import commands, processes, sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..sandbox import Process

__all__ = [
    "close_session",
    "poll_session",
    "signal_session",
    "start_session",
    "write_session",
]

WAIT_SECONDS = 10.0
POLL_BYTES = 20_000
WRITE_SECONDS = 30.0
FETCH_SECONDS = 5.0  # for output that is there: whoever does not want to wait for more gets that all the same
# Output comes in pieces: whoever is told of the first would have to ask again at once for the rest of a line.
SETTLE_SECONDS = 0.05
_LONGEST_BEGINNING_BYTES = 3  # of a character in UTF-8 whose end has not come
_STDERR = "stderr"


class _Watch:
    """Reads a process's output once there is some.

    Args:
        wait: Seconds to wait for output or the end.
        limit: Bytes of output, of both streams, that are taken.
    """

    def __init__(self, *, wait: float, limit: int) -> None:
        self._wait = wait
        self._limit = limit
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.missing = 0
        self.offset = 0
        self._last = self.stdout  # the stream that was written to last

    def read(self, process: Process) -> bool:
        """Read; whether the process has ended, and all of its output was read."""
        self.offset = process.offset
        has_ended = self._read(process)
        if not has_ended:
            self._leave_beginning()
        return has_ended

    def _read(self, process: Process) -> bool:
        deadline = Deadline(self._wait)
        while True:
            try:
                chunk = next(process.chunks(timeout=deadline.remaining()), None)
            except errors.WaitTimeoutError:
                return False
            if chunk is None:
                return True
            if not self._take(chunk.stream, chunk.data, missing=chunk.missing):
                return False
            deadline = Deadline(deadline.clamp(SETTLE_SECONDS))

    def _take(self, stream: str, data: bytes, *, missing: int) -> bool:
        """Keep a piece; False when there is no room for more."""
        room = self._limit - len(self.stdout) - len(self.stderr)
        kept = data[:room]
        self._last = self.stderr if stream == _STDERR else self.stdout
        self._last += kept
        self.missing += missing
        self.offset += len(kept) + missing
        return len(self.stdout) + len(self.stderr) < self._limit

    def _leave_beginning(self) -> None:
        """A character of which only the beginning has come is left for the next one who reads."""
        count = _count_torn(self._last)
        if count < len(self._last):  # else there would be no progress
            del self._last[len(self._last) - count :]
            self.offset -= count


def _count_torn(data: bytearray) -> int:
    """Bytes at the end that are the beginning of a character in UTF-8."""
    for count in range(1, min(len(data), _LONGEST_BEGINNING_BYTES) + 1):
        try:
            data[-count:].decode("utf-8")
        except UnicodeDecodeError as error:
            if not error.start and error.reason == "unexpected end of data":
                return count
        else:
            return 0
    return 0


def start_session(
    *,
    name: str,
    command: commands.Command,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Start a command and leave it running. Output that nobody reads in time is dropped from its middle.

    Args:
        name: The sandbox.
        command: What to run.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    command.check()
    sandbox = sandboxes.open_sandbox(name, local=local, region=region)
    process = commands.spawn(sandbox, command, process_id=processes.new_id(), retain=wire.RETAIN_DROP)
    process.detach()
    return {"id": process.id, "pid": process.pid, "command": list(process.command)}


def poll_session(
    *,
    name: str,
    id: str,  # noqa: A002 - what it is called in every answer, too
    offset: int = 0,
    wait: float = WAIT_SECONDS,
    limit: int = POLL_BYTES,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """What a command has written from an offset on, once there is something, and whether it has ended.

    Args:
        name: The sandbox.
        id: The command.
        offset: Bytes of its output to pass over: the ``next_offset`` of the last answer.
        wait: Seconds to wait for output or the end.
        limit: Bytes of output to answer with.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    process = _attach(name, id, offset=offset, local=local, region=region)
    try:
        is_there = wait < FETCH_SECONDS and (process.backlog or process.poll() is not None)
        watch = _Watch(wait=FETCH_SECONDS if is_there else wait, limit=limit)
        has_ended = watch.read(process)
    finally:
        process.detach()
    return {**_describe(watch, process, has_ended=has_ended), "offset": offset}


def _describe(watch: _Watch, process: Process, *, has_ended: bool) -> dict[str, object]:
    """What was read of a process, and how it ended if it has. Bytes that are no text are replaced: ``lossy``."""
    stdout, stderr = (bytes(stream).decode("utf-8", "replace") for stream in (watch.stdout, watch.stderr))
    is_lossy = stdout.encode("utf-8") != watch.stdout or stderr.encode("utf-8") != watch.stderr
    return {
        "id": process.id,
        "running": not has_ended,
        "exit_code": process.exit_code if has_ended else None,
        "signal": process.signal_name if has_ended else None,
        "timed_out": process.timed_out,
        "stdout": stdout,
        "stderr": stderr,
        "lossy": is_lossy,
        "missing": watch.missing,
        "next_offset": watch.offset,
    }


def write_session(
    *,
    name: str,
    id: str,  # noqa: A002 - what it is called in every answer, too
    data: bytes,
    eof: bool = False,
    timeout: float = WRITE_SECONDS,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Write to a command's standard input.

    Args:
        name: The sandbox.
        id: The command.
        data: What to write.
        eof: Close its input then.
        timeout: Seconds in which it must take that.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    process = _attach(name, id, local=local, region=region)
    deadline = Deadline(timeout)
    try:
        written = process.write(data, timeout=deadline.remaining()) if data else 0
        if eof:
            process.close_stdin(timeout=deadline.remaining())
    finally:
        process.detach()
    return {"id": process.id, "written": written, "closed": eof or written < len(data)}


def signal_session(
    *,
    name: str,
    id: str,  # noqa: A002 - what it is called in every answer, too
    signal: str | int = "TERM",
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Send a signal to a command and to all that it has started. That it has ended already is fine.

    Args:
        name: The sandbox.
        id: The command.
        signal: The signal's name, with or without SIG, or its number.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    process = _attach(name, id, local=local, region=region)
    try:
        return {"id": process.id, "signal": signal, "delivered": process.signal(signal)}
    finally:
        process.detach()


def close_session(
    *,
    name: str,
    id: str,  # noqa: A002 - what it is called in every answer, too
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """End a command that still runs, with all that it has started, and forget it and its output.

    Args:
        name: The sandbox.
        id: The command.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    with _attach(name, id, local=local, region=region) as process:
        pass
    return {"id": id, "closed": True, "exit_code": process.exit_code, "signal": process.signal_name}


def _attach(name: str, process_id: str, *, offset: int = 0, local: bool | None, region: str | None) -> Process:
    sandbox = sandboxes.open_sandbox(name, local=local, region=region)
    try:
        return sandbox.attach_process(process_id, offset=offset)
    except errors.ProcessNotFoundError as error:
        raise errors.ProcessNotFoundError(
            f"there is no command {errors.quote(process_id, limit=80)} in {name}",
            hint="It was closed, or its sandbox was made anew. sandbox_exec_list tells which there are.",
            details=error.details,
        ) from error
