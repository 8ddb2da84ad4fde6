"""The server as a process: standard input and output, signals, and an end in time.

It ends when standard input does, when whoever started it is gone, and at a signal: at once, with nobody waited for.
Some hosts only ever send SIGINT, others only close the pipe, and what outlives its host is found by the hundred.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from . import stdio
from .server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["serve"]

_ASKING = (signal.SIGINT, signal.SIGTERM)
_ENDING = (*_ASKING, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # Windows has none

CLOSE_SECONDS = 0.3  # to end what goes on in sandboxes for a client that has gone


class _Stopped(BaseException):
    """A signal came."""


def serve(server: Server, *, source: int = 0) -> None:
    """Serve until the client is gone or a signal comes.

    Args:
        server: What serves the lines.
        source: The descriptor that they come from.
    """
    _handle_signals(_stop)
    with contextlib.suppress(_Stopped):
        _read(server, source)
        _handle_signals(_ignore)  # it ends already
    _close(server)


def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in _ENDING:
        # Who ignores the end of a terminal was started to outlive it (nohup).
        if number in _ASKING or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    _handle_signals(_ignore)  # some hosts send both, one after the other
    raise _Stopped


def _ignore(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN: Python tells on standard error of a signal that came just before it was set."""


def _read(server: Server, source: int) -> None:
    lines = stdio.Lines()
    wait = _Waiting(source)
    if wait.woken is not None:
        signal.set_wakeup_fd(wait.woken, warn_on_full_buffer=False)
    while wait.for_data():
        data = os.read(source, stdio.READ_BYTES)
        if not data:
            return
        for line in lines.feed(data):
            server.receive(line)


class _Waiting:
    """Waits for data, or for the end of the process that started us. A file is always ready.

    Attributes:
        woken: What to write to, to let it be looked whether a signal came: the kernel may give one to another thread,
            and only the first thread serves them. None where that cannot be.
    """

    def __init__(self, source: int) -> None:
        import select

        self._source = source
        self.woken: int | None = None
        self._is_able = hasattr(select, "poll")
        if not self._is_able:  # Windows: reading must be the waiting
            return
        self._poller = select.poll()
        self._poller.register(source, select.POLLIN)
        self._wakes, self.woken = os.pipe()
        os.set_blocking(self.woken, False)
        self._poller.register(self._wakes, select.POLLIN)
        try:
            self._parent = os.pidfd_open(os.getppid())
            self._poller.register(self._parent, select.POLLIN)
        except (AttributeError, OSError):  # no Linux, or one before 5.3: the end of standard input must do
            self._parent = -1

    def for_data(self) -> bool:
        """There is something to read, or the end; False: the parent is gone."""
        while self._is_able:
            ready = {descriptor for descriptor, _ in self._poller.poll()}
            if self._source in ready:
                break
            if self._wakes not in ready:
                return False
            os.read(self._wakes, stdio.READ_BYTES)  # the signal itself is served meanwhile
        return True


def _close(server: Server) -> None:
    """End the client's calls, but not for long: an agent that does not answer must not keep us."""
    closing = threading.Thread(target=server.close, name="vmnest-mcp-close", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
