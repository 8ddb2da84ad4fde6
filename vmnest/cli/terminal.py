"""The three standard streams: bytes out, whatever they are connected to.

Everything is written to the descriptors themselves: nothing waits in a buffer of Python's that the end of the process
would have to flush into a pipe that nobody reads any more.
"""

from __future__ import annotations

import os
import sys

from .. import errors, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from types import TracebackType

__all__ = ["STDERR", "STDOUT", "Progress", "is_terminal", "open_missing", "want_colour", "write_bytes", "write_text"]

STDIN, STDOUT, STDERR = 0, 1, 2
PROGRESS_AFTER_SECONDS = 1.0


def open_missing() -> None:
    """Point standard descriptors that are closed to /dev/null, or the next file opened becomes "standard output"."""
    for fd in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor, that is fd
            os.set_inheritable(opened, True)


def write_bytes(fd: int, data: bytes | memoryview) -> None:
    """Write all of it.

    Raises:
        BrokenPipeError: nobody reads any more.
        errors.OutputError: it cannot be written for another reason.
    """
    view = memoryview(data)
    while view:
        try:
            written = os.write(fd, view)
        except BlockingIOError:
            _wait_writable(fd)  # somebody else made the terminal non-blocking
        except BrokenPipeError:
            raise
        except OSError as error:
            stream = "standard output" if fd == STDOUT else "standard error"
            raise errors.OutputError(f"cannot write to {stream}: {error.strerror}") from error
        else:
            view = view[written:]


def _wait_writable(fd: int) -> None:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    poller.poll()


def write_text(fd: int, text: str) -> None:
    """Write text in the stream's encoding; what that cannot express becomes a ``\\N`` escape."""
    stream = sys.stdout if fd == STDOUT else sys.stderr
    encoding = getattr(stream, "encoding", None) or "utf-8"
    write_bytes(fd, text.encode(encoding, errors="backslashreplace"))


def is_terminal(fd: int) -> bool:
    """Somebody watches."""
    return os.isatty(fd)


def want_colour(fd: int) -> bool:
    """Colour is for terminals that know it, and for users who did not switch it off (https://no-color.org)."""
    environ = settings.environment()
    return is_terminal(fd) and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


class Progress:
    """``with Progress("starting"): …`` says so on the terminal once that takes over a second, and wipes it after."""

    def __init__(self, text: str, *, shown: bool) -> None:
        self._text = text
        self._shown = shown and is_terminal(STDERR)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._shown:
            import threading

            self._end = threading.Event()
            self._thread = threading.Thread(target=self._show, name="vmnest-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Wipe it; does nothing the second time."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()

    def _show(self) -> None:
        seconds = 0
        while not self._end.wait(PROGRESS_AFTER_SECONDS):
            seconds += 1
            write_text(STDERR, f"\r{self._text} ... {seconds} s")
        if seconds:
            write_text(STDERR, "\r\x1b[K")
