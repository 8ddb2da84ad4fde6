"""Joins the user's terminal to a program in a sandbox, until that ends.

Strategy: the main thread carries output, since signals reach the main thread and have to wake it; a thread carries
input; another one carries the window's size, which must not wait behind input that nobody takes. What goes wrong in a
thread is raised in the main one.

Rules:

- Whatever happens, the terminal gets back the modes that it had, and those that the program has left in it are undone.
- No descriptor is made non-blocking: it may be shared with others, the shell that started us first of all.
- A suspended sandbox is woken by a key, and not by the window's size, which is sent once it runs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import threading
import time

from .. import errors
from . import escapes, failure, output, render, screen, signals, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Protocol

    from .signals import Interrupts
    from .words import Options

    class Piece(Protocol):
        """Some output. ``stream`` is ``stdout``, ``stderr``, or ``gap``: then ``missing`` bytes are not kept."""

        @property
        def stream(self) -> str: ...

        @property
        def data(self) -> bytes: ...

        @property
        def missing(self) -> int: ...

    class Program(Protocol):
        """What runs in the sandbox. Its methods are called from several threads.

        ``state_watch`` is called with a state when the sandbox is found suspended, and with None when it goes on.
        ``backlog`` is how many bytes of output others may have seen before.
        """

        state_watch: Callable[[str | None], object] | None

        @property
        def is_pty(self) -> bool: ...

        @property
        def backlog(self) -> int: ...

        def chunks(self) -> Iterator[Piece]: ...

        def write(self, data: bytes, /) -> int: ...

        def close_stdin(self) -> object: ...

        def resize(self, columns: int, rows: int, /) -> object: ...

        def wait(self) -> int: ...


__all__ = ["Left", "interact"]

_READ_BYTES = 1024 * 1024  # of input at once
_FULL_PIPE_BYTES, _FULL_TERMINAL_BYTES = 65536, 4095  # what one that is full hands out
_GATHER_SECONDS = 0.002  # in which it can be filled again
_AGAIN_SECONDS = 0.05
_STOP_SECONDS = 0.5  # for threads that may be in the middle of a request
_LOOK_AGAIN_SECONDS = 1.0  # at a sandbox that our input must not resume
_LOOK_SECONDS = 0.1  # in which a program notices that the window has another size
_SIZE, _REDRAW, _END = "size", "redraw", "end"  # what the thread for the size is told
# What would end us at once, and leave the terminal as it is then. INT, TERM and HUP are the whole program's business.
_DEADLY = tuple(getattr(signal, name) for name in ("SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM") if hasattr(signal, name))


# To wait for a pipe, and to wake the main thread, takes what Windows has not.
_CARRIES_INPUT = hasattr(select, "poll") and hasattr(signal, "pthread_kill")


class Left(Exception):  # noqa: N818 - the user's wish, no failure
    """The user has typed ``~.``: the program runs on without them."""


def interact(
    program: Program,
    *,
    options: Options,
    read_input: bool = True,
    escape: bool = False,
    resumes: bool = True,
    interrupts: Interrupts | None = None,
    show: Callable[[Piece], object] | None = None,
) -> int:
    """Join the standard streams to the program until it ends, and return its exit status.

    For the main thread only. With a terminal on both sides, every key goes to the program.

    Args:
        program: What runs in the sandbox.
        options: The command line's.
        read_input: Carry standard input, too.
        escape: ``~.`` at the beginning of a line leaves.
        resumes: Input resumes a sandbox that is suspended.
        interrupts: Where Ctrl+C goes meanwhile.
        show: Takes the output, in place of the standard streams.

    Raises:
        Left: see ``escape``.
        BrokenPipeError: nobody reads the output any more.
        errors.VmnestError: the connection to the program is lost for good.
    """
    joint = _Console(program, options=options, read_input=read_input, escape=escape, interrupts=interrupts)
    joint.resumes = resumes
    return joint.run(show or joint.show)


def check_input() -> None:
    """See that standard input can be handed on from here.

    Raises:
        errors.UnsupportedError: it cannot.
    """
    if not _CARRIES_INPUT:
        raise errors.UnsupportedError(
            "this system cannot hand standard input on to a sandbox",
            hint="Copy the input into a file there (vmnest cp), and let the command read that.",
        )
    if terminal.is_terminal(terminal.STDIN):
        terminal.check_raw_mode()


class _Console:
    """One joint. ``_failure`` is set by the thread that fails, and raised by the main thread."""

    resumes = True

    def __init__(
        self, program: Program, *, options: Options, read_input: bool, escape: bool, interrupts: Interrupts | None
    ) -> None:
        self._program = program
        self._options = options
        self._reads = read_input
        self._interrupts = interrupts
        self._is_raw = read_input and program.is_pty and terminal.is_terminal(terminal.STDIN)
        self._raw = terminal.RawMode(terminal.STDIN)
        self._escapes = escapes.Escapes() if escape and self._is_raw else None
        self._modes = screen.Modes() if program.is_pty and terminal.is_terminal(terminal.STDOUT) else None
        self._backlog = screen.Backlog(program.backlog if self._modes is not None else 0)
        self._sizes: queue.SimpleQueue[str] = queue.SimpleQueue()  # one that a signal handler may put into
        self._is_within_line = False  # of the output
        self._is_paused = False
        self._is_over = False
        self._failure: BaseException | None = None

    def run(self, show: Callable[[Piece], object]) -> int:
        """Carry everything until the program has ended; returns its status."""
        with contextlib.ExitStack() as stack:
            stack.push(self._leave_terminal)
            stack.enter_context(self._signals())
            if self._interrupts is not None:
                stack.enter_context(self._interrupts)
            self._program.state_watch = self._tell_state
            if self._is_raw:
                self._raw.begin()
            if self._program.is_pty:
                stack.enter_context(self._sizing())
            if self._reads:
                stack.enter_context(self._typing())
            pieces = self._program.chunks()  # kept: what its end does must not be interrupted by the next exception
            try:
                for piece in pieces:
                    show(piece)
            finally:
                self._is_over = True  # a thread that fails from here on does not matter
        return self._program.wait()

    # -- the main thread -----------------------------------------------------------------------------------------------

    def show(self, piece: Piece) -> None:
        """Write some output to where it belongs."""
        if piece.stream == "gap":
            self._say(f"{piece.missing} bytes of output are not kept any more, and are missing here")
            return
        data = piece.data
        if self._modes is not None:
            if not self._backlog.is_over:
                data = self._show_again(data)
            self._modes.feed(data)
        self._is_within_line = not data.endswith(b"\n")
        terminal.write_bytes(terminal.STDERR if piece.stream == "stderr" else terminal.STDOUT, data)

    def _show_again(self, data: bytes) -> bytes:
        data = self._backlog.feed(data)
        if self._backlog.is_over:
            self._sizes.put(_REDRAW)  # a program that draws has drawn for another terminal
        return data

    def _leave_terminal(self, kind: type[BaseException] | None, *_: object) -> None:
        self._program.state_watch = None
        undo = b""
        if self._modes is not None:
            was_full_screen = self._modes.is_full_screen
            undo = self._modes.restore()
            if kind is not None and self._is_within_line and not was_full_screen:
                undo += b"\r\n"  # something will be said about it
        # The terminal may be gone, which is why we leave.
        with contextlib.suppress(errors.OutputError, BrokenPipeError):
            terminal.write_bytes(terminal.STDOUT, undo)
        self._raw.end()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handlers for the time of the joint."""
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}
        if _CARRIES_INPUT:
            handlers[signal.SIGWINCH] = self._on_resized
        if self._is_raw:
            handlers |= {signal.SIGTSTP: self._on_stop, signal.SIGCONT: self._on_continued}
            handlers |= dict.fromkeys(_DEADLY, _on_deadly)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_resized(self, number: int, frame: FrameType | None) -> None:
        # Also how a thread wakes us: this is the only place where the main thread can be made to look at something.
        error, self._failure = self._failure, None
        if error is not None and not self._is_over and not signals.is_ending():
            raise error
        self._sizes.put(_SIZE)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        """Stopped from outside (the key for it goes to the program): lend the terminal back meanwhile."""
        self._raw.end()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _on_continued(self, number: int, frame: FrameType | None) -> None:
        """Whoever had the terminal meanwhile has set its modes, and the window may have another size."""
        self._raw.end()
        self._raw.begin()
        self._sizes.put(_SIZE)

    # -- what is said --------------------------------------------------------------------------------------------------

    def _tell_state(self, state: str | None) -> None:
        """Called by the program's own threads."""
        was_paused, self._is_paused = self._is_paused, state is not None
        if self._is_paused == was_paused:
            return
        if self._interrupts is not None:
            self._interrupts.is_paused = self._is_paused
        if state is not None:
            way = f"{'a key' if self._is_raw else 'input'} resumes it"
            if not (self._reads and self.resumes):
                way = "waiting until it is resumed"
            self._say(f"the sandbox is suspended; {way}")
        elif self._modes is not None and self._modes.is_full_screen:
            self._sizes.put(_REDRAW)  # which also takes away what we wrote over it
        else:
            self._say("the sandbox goes on")
            self._sizes.put(_SIZE)

    def _say(self, text: str) -> None:
        if not self._is_raw or not terminal.is_terminal(terminal.STDERR):
            output.remark(text, options=self._options)
            return
        if self._options.quiet:
            return
        # Without the terminal's own help a line has to be begun by hand.
        line = f"\r\nvmnest: {render.to_printable(text)}\r\n"
        if self._modes is not None and self._modes.is_full_screen:
            columns, rows = terminal.size()
            line = f"\x1b7\x1b[{rows};1H\x1b[0;7m{line.strip()[: columns - 1]}\x1b[K\x1b[0m\x1b8"
        terminal.tell(line)

    # -- the threads ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _typing(self) -> Iterator[None]:
        """The thread that carries input, while the block runs."""
        wake_reader, wake_writer = os.pipe()
        thread = threading.Thread(target=self._type, args=(wake_reader,), name="vmnest-input", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.close(wake_writer)
            # It may be in the middle of a request, or in a read that somebody else has emptied: nobody waits for that.
            thread.join(_STOP_SECONDS)

    def _type(self, wake: int) -> None:
        signals.leave_to_main_thread()
        try:
            self._carry_input(wake)
        except BaseException as error:
            self._fail(error)
        finally:
            os.close(wake)

    def _carry_input(self, wake: int) -> None:
        import select

        poller = select.poll()
        poller.register(wake, select.POLLIN)
        poller.register(terminal.STDIN, select.POLLIN)
        while wake not in dict(poller.poll()):
            data = _read_input(full=_FULL_TERMINAL_BYTES if self._is_raw else _FULL_PIPE_BYTES)
            if not data and self._is_raw:
                raise failure.Ended(signal.SIGHUP)  # a terminal has no end but its own
            if not data:
                self._program.close_stdin()
                return
            if self._escapes is not None:
                data = self._escapes.feed(data)
            if data and not self._hand_over(data, wake=wake):
                return
            if self._escapes is not None and self._escapes.is_left:
                raise Left

    def _hand_over(self, data: bytes, *, wake: int) -> bool:
        """Write to the program, if need be once its sandbox was resumed; False if no more is wanted."""
        import select

        poller = select.poll()
        poller.register(wake, select.POLLIN)
        was_told = False
        while True:
            try:
                # It takes less than all if it has closed its input, or has ended.
                return self._program.write(data) == len(data)
            except errors.SandboxSuspendedError as error:
                if not was_told:
                    self._say(f"{error.message}: what is typed waits until it is resumed")
                was_told = True
            if poller.poll(_LOOK_AGAIN_SECONDS * 1000):
                return False

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        main = threading.main_thread().ident
        assert main is not None
        # Until it has heard: a signal that comes while it is on its way into the kernel ends no wait.
        while self._failure is not None and not self._is_over:
            signal.pthread_kill(main, signal.SIGWINCH)
            time.sleep(_AGAIN_SECONDS)

    @contextlib.contextmanager
    def _sizing(self) -> Iterator[None]:
        """The thread that carries the window's size, while the block runs."""
        thread = threading.Thread(target=self._carry_sizes, name="vmnest-size", daemon=True)
        thread.start()
        self._sizes.put(_SIZE)
        try:
            yield
        finally:
            self._sizes.put(_END)
            thread.join(_STOP_SECONDS)

    def _carry_sizes(self) -> None:
        signals.leave_to_main_thread()
        while (what := self._sizes.get()) != _END:
            if not self._is_paused:
                # Whoever carries output will hear of it, and say it better.
                with contextlib.suppress(errors.VmnestError):
                    self._send_size(redraw=what == _REDRAW)

    def _send_size(self, *, redraw: bool) -> None:
        columns, rows = terminal.size()
        if redraw and rows > 1:
            # Programs draw anew when the size is another one than when they last looked.
            self._program.resize(columns, rows - 1)
            time.sleep(_LOOK_SECONDS)
        self._program.resize(columns, rows)


def _read_input(*, full: int) -> bytes:
    """What was typed; or, as long as there are ``full`` bytes whenever we look, as much as goes in one request.

    Each request costs a round trip to the sandbox, and a pipe or a terminal holds far less than a request.
    """
    import select

    data = terminal.read_bytes(terminal.STDIN, _READ_BYTES)
    if len(data) < full:
        return data
    poller = select.poll()
    poller.register(terminal.STDIN, select.POLLIN)
    pieces, count = [data], len(data)
    while data and count < _READ_BYTES and poller.poll(_GATHER_SECONDS * 1000):
        data = terminal.read_bytes(terminal.STDIN, _READ_BYTES - count)
        pieces.append(data)
        count += len(data)
    return b"".join(pieces)


def _on_deadly(number: int, frame: FrameType | None) -> None:
    raise failure.Ended(number)
