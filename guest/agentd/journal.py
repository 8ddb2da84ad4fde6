"""The agent's own messages: one short line each on standard error, where the platform's log collects them.

They tell what happened and to which process, never what it was given: no arguments, no environment, no payload, no
content. Nor do they tell the words of errors that may repeat such things.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time

from . import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LINE_BYTES = 1024
MAX_FREQUENT = 200  # of the frequent events, in each window
WINDOW_SECONDS = 10.0
_STDERR = 2
_MAX_FRAMES = 12
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_ESCAPES.update({ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r"})
# Their messages quote what they were given.
_QUOTING = (ValueError, LookupError, subprocess.SubprocessError, errors.RequestError)


def report(message: str) -> None:
    """Write a line about what went wrong. A log that cannot be written must not take the agent down."""
    _write(render_line(message, now=time.time()))


def report_exception(message: str) -> None:
    """Write a line about the exception that is being handled, and where it comes from."""
    report(f"{message}: {_describe(sys.exc_info()[1])}")


class Events:
    """What happens in the life of an agent: hooks, and processes that start and end. Thread-safe.

    Args:
        is_wanted: Nothing is told if not.
        write: Gets each line.
    """

    def __init__(
        self,
        *,
        is_wanted: bool = True,
        write: Callable[[str], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_wanted = is_wanted
        self._write = write or _write_at_once
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards all below
        self._window_ends_at = float("-inf")
        self._count = 0
        self._left_out = 0

    def tell(self, message: str, *, is_frequent: bool = False) -> None:
        """Tell one. Of the frequent ones, which clients cause, those are left out that are too many."""
        if not self._is_wanted:
            return
        with self._lock:
            now = self._monotonic()
            if now >= self._window_ends_at:
                self._window_ends_at, self._count = now + WINDOW_SECONDS, 0
            self._count += is_frequent
            if is_frequent and self._count > MAX_FREQUENT:
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
        if left_out:
            self._write(render_line(f"{left_out} events of processes were left out", now=time.time()))
        self._write(render_line(message, now=time.time()))

    def tell_start(self, name: str, *, pid: int) -> None:
        """A process was started."""
        self.tell(f"process {name or '-'} started: pid {pid}", is_frequent=True)

    def tell_end(self, name: str, *, pid: int, how: str, seconds: float) -> None:
        """A process has ended; see ``describe_end``."""
        self.tell(f"process {name or '-'} ended: pid {pid}, {how} after {seconds:.3f} s", is_frequent=True)


def describe_end(exit_code: int | None, signal: str | None, *, timed_out: bool) -> str:
    """How a process ended, in words."""
    how = signal or f"exit status {exit_code}"
    return f"{how}, timed out," if timed_out else how


def render_line(message: str, *, now: float) -> str:
    """The line for a message: dated, in ASCII, and not too long."""
    seconds, milliseconds = divmod(round(now * 1000), 1000)
    head = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z agentd: "
    text = message.translate(_ESCAPES).encode("ascii", "backslashreplace").decode("ascii")
    room = MAX_LINE_BYTES - len(head) - 1
    return head + (text if len(text) <= room else text[: room - 3] + "...") + "\n"


def _describe(error: BaseException | None) -> str:
    """What an exception is, and the places that it passed, the innermost first."""
    words = type(error).__name__
    if isinstance(error, OSError):
        words += f": {error.strerror or (error.args or [''])[0]}"
    elif not isinstance(error, _QUOTING):
        words += f": {error}"
    trace = error.__traceback__ if error is not None else None
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return " < ".join([words, *places[: -_MAX_FRAMES - 1 : -1]])


def _write(line: str) -> None:
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # no standard error, a full disk, a closed stream
        return


def _write_at_once(line: str) -> None:
    """Write a line unless it would have to wait: nobody's command is held up by a log that is not read."""
    poller = select.poll()
    poller.register(_STDERR, select.POLLOUT)
    if any(event & select.POLLOUT for _, event in poller.poll(0)):
        _write(line)
