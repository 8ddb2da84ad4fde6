"""Attends to a command for a call: until it ends, the call is cancelled, or the host would wait no longer."""

from __future__ import annotations

from ... import errors
from ...deadline import Deadline
from ...ops import commands as ops_commands
from ...ops import processes
from . import output
from .pulse import Pulse

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading

    from ...agent.commands import Outlet
    from ...agent.results import ExecResult
    from ...sandbox import Process
    from ..calls import Call

__all__ = ["MOST_SECONDS", "Attendant"]

# Hosts give a call 60 seconds, and some of them no way to wait longer.
MOST_SECONDS = 45.0
_GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
_HURRY_SECONDS = 0.1  # the same, when this server is about to end


class Attendant:
    """A front of ``ops.commands``: reads a command's output and leaves it running after a while.

    Args:
        call: Whoever waits.
        limit: Bytes of each stream that are kept.

    Attributes:
        left: What was seen of a command that was left running; None if it has ended.
        program: The program that was started, once it was.
    """

    on_stdout = None
    on_stderr = None

    def __init__(self, call: Call, *, limit: int) -> None:
        self._call = call
        self._limit = limit
        self.left: dict[str, object] | None = None
        self.program: str | None = None

    def attend(self, process: Process) -> ExecResult | None:
        """Stay until it has ended, and say how; None: it was left running."""
        from ...agent import commands, outputs

        self.program = process.command[0] if process.command else None
        self._call.on_cancel(lambda: _end(process, hurry=self._call.hurry))
        outlet = commands.Outlet(limit=self._limit)
        with Pulse(self._call, "running"):
            has_ended = _read(process, outlet, Deadline(MOST_SECONDS))
        self._call.check()
        code = process.exit_code
        if has_ended and code is not None:
            return outlet.to_result(outputs.Exit(code, process.signal_name, process.timed_out))
        seen = outlet.to_result(outputs.Exit(0, None, timed_out=False))
        self.left = {
            **output.shape_result(ops_commands.describe(seen)),
            "exit_code": None,
            "success": None,
            "running": True,
            "id": process.id,
            "next_offset": process.offset,
        }
        return None


def _read(process: Process, outlet: Outlet, deadline: Deadline) -> bool:
    """Read its output until it has ended, or the deadline; whether it has ended."""
    while not deadline.expired:
        try:
            chunk = next(process.chunks(timeout=deadline.remaining()), None)
        except errors.WaitTimeoutError:
            return False
        if chunk is None:
            return True
        outlet.take(chunk)
    return False


def _end(process: Process, *, hurry: threading.Event) -> None:
    """For a call that nobody waits for any more, on a thread that only a server waits for that ends."""
    try:
        if hurry.is_set():
            processes.end_process(process, grace=_HURRY_SECONDS)
        else:
            processes.end_process(process, grace=_GRACE_SECONDS, hurry=hurry)
    except errors.VmnestError:
        return  # it has ended, or cannot be reached: its sandbox's idle policy is what is left
