"""The three standard streams: bytes out, whatever they are connected to.

Everything is written to the descriptors themselves: nothing waits in a buffer of Python's that the end of the process
would have to flush into a pipe that nobody reads any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from .. import errors, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

__all__ = [
    "STDERR",
    "STDIN",
    "STDOUT",
    "Drawer",
    "Progress",
    "RawMode",
    "can_express",
    "draw_line",
    "ellipsis",
    "is_terminal",
    "open_missing",
    "read_bytes",
    "room",
    "size",
    "tell",
    "want_colour",
    "write_bytes",
    "write_text",
]

STDIN, STDOUT, STDERR = 0, 1, 2
PROGRESS_AFTER_SECONDS = 1.0
USUAL_SIZE = (80, 24)  # where nobody knows


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
            _wait(fd, writable=True)  # somebody else made the terminal non-blocking
        except BrokenPipeError:
            raise
        except OSError as error:
            stream = "standard output" if fd == STDOUT else "standard error"
            raise errors.OutputError(f"cannot write to {stream}: {error.strerror}") from error
        else:
            view = view[written:]


def read_bytes(fd: int, most: int) -> bytes:
    """What is there to be read, once there is something; nothing at the end, or when the terminal has gone.

    Raises:
        errors.InputError: it cannot be read.
    """
    while True:
        try:
            return os.read(fd, most)
        except BlockingIOError:
            _wait(fd)  # somebody else made it non-blocking
        except OSError as error:
            if error.errno == errno.EIO:
                return b""
            raise errors.InputError(f"cannot read standard input: {error.strerror}") from error


def _wait(fd: int, *, writable: bool = False) -> None:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLOUT if writable else select.POLLIN)
    poller.poll()


class _Drawn:
    """Whether a line stands on the terminal that gives way to other text."""

    is_there = False


def draw_line(text: str) -> None:
    """Show a line on standard error, a terminal, in the place of the one that was drawn there before; none if empty."""
    if text or _Drawn.is_there:
        _Drawn.is_there = False
        tell(f"\r{text}\x1b[K")
        _Drawn.is_there = bool(text)


def write_text(fd: int, text: str) -> None:
    """Write text in the stream's encoding; what that cannot express becomes a ``\\N`` escape."""
    if fd == STDERR and _Drawn.is_there:
        _Drawn.is_there = False
        text = f"\r\x1b[K{text}"
    stream = sys.stdout if fd == STDOUT else sys.stderr
    encoding = getattr(stream, "encoding", None) or "utf-8"
    write_bytes(fd, text.encode(encoding, errors="backslashreplace"))


def tell(text: str) -> None:
    """Write to standard error, where somebody may be there to read it: what we do must not depend on that."""
    with contextlib.suppress(BrokenPipeError, errors.OutputError):
        write_text(STDERR, text)


def is_terminal(fd: int) -> bool:
    """Somebody watches."""
    return os.isatty(fd)


def want_colour(fd: int) -> bool:
    """Colour is for terminals that know it, and for users who did not switch it off (https://no-color.org)."""
    environ = settings.environment()
    return is_terminal(fd) and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def ellipsis() -> str:
    """The sign for text that is cut, if standard output can express it."""
    return "…" if can_express("…") else "~"


def can_express(text: str) -> bool:
    """Standard output's encoding has these characters."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def size() -> tuple[int, int]:
    """Columns and rows of the terminal that the user looks at, if any of the streams is one."""
    for fd in (STDOUT, STDIN, STDERR):
        try:
            columns, rows = os.get_terminal_size(fd)
        except OSError:
            continue
        if columns > 0 and rows > 0:  # a serial line says 0 for "unknown"
            return columns, rows
    return USUAL_SIZE


def check_raw_mode() -> None:
    """See that terminals have a ``RawMode`` here.

    Raises:
        errors.UnsupportedError: they have none.
    """
    try:
        import termios  # noqa: F401 - used below
    except ModuleNotFoundError as error:
        raise errors.UnsupportedError(
            "the keys of this terminal cannot be handed on: this Python lacks the module termios",
            hint="Take input from a file or a pipe, or leave -i out.",
        ) from error


def room(fd: int) -> int | None:
    """The columns that a line may have there; None where that is no terminal, and nothing bounds it."""
    return size()[0] if is_terminal(fd) else None


class RawMode:
    """A terminal on which every key is passed on as it is: no echo, no lines, no signals.

    ``end`` puts everything back, and may be called again; ``begin`` starts anew after it. What was typed ahead is kept
    both times, and neither waits for the terminal's output, which may be stopped.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] | None = None

    def begin(self) -> None:
        """Switch it on, unless the terminal is gone."""
        import termios

        if self._before is None:
            with contextlib.suppress(termios.error):
                before = termios.tcgetattr(self._fd)
                self._before = list(before)
                termios.tcsetattr(self._fd, termios.TCSANOW, _raw(before))

    def end(self) -> None:
        """Put back what was there."""
        before, self._before = self._before, None
        if before is not None:
            import termios

            with contextlib.suppress(termios.error):  # the terminal itself is gone
                termios.tcsetattr(self._fd, termios.TCSANOW, before)


def _raw(attributes: list[Any]) -> list[Any]:
    """What cfmakeraw(3) makes of them."""
    import termios as t

    flags_in, flags_out, control, local, *speeds, characters = attributes
    flags_in &= ~(t.IGNBRK | t.BRKINT | t.PARMRK | t.ISTRIP | t.INLCR | t.IGNCR | t.ICRNL | t.IXON)
    flags_out &= ~t.OPOST
    control = control & ~(t.CSIZE | t.PARENB) | t.CS8
    local &= ~(t.ECHO | t.ECHONL | t.ICANON | t.ISIG | t.IEXTEN)
    characters = list(characters)
    characters[t.VMIN], characters[t.VTIME] = 1, 0  # a read returns with the first byte
    return [flags_in, flags_out, control, local, *speeds, characters]


class Drawer:
    """A thread that draws while others work. It runs ``draw(wait)``, where ``wait(seconds)`` is true at the end."""

    def __init__(self, draw: Callable[[Callable[[float], bool]], None], *, name: str) -> None:
        import threading

        self._end = threading.Event()
        self._thread = threading.Thread(target=draw, args=(self._end.wait,), name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait until it has drawn for the last time."""
        self._end.set()
        self._thread.join()


class Progress:
    """``with Progress("starting"): …`` says so on the terminal once that takes over a second, and wipes it after."""

    def __init__(self, text: str, *, shown: bool) -> None:
        self._text = text
        self._shown = shown and is_terminal(STDERR)
        self._drawer: Drawer | None = None

    def __enter__(self) -> Progress:
        if self._shown:
            self._drawer = Drawer(self._show, name="vmnest-progress")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Wipe it; does nothing the second time."""
        drawer, self._drawer = self._drawer, None
        if drawer is not None:
            drawer.stop()

    def _show(self, wait: Callable[[float], bool]) -> None:
        seconds = 0
        while not wait(PROGRESS_AFTER_SECONDS):
            seconds += 1
            draw_line(f"{self._text} ... {seconds} s")
        if seconds:
            draw_line("")
