"""One process that can be watched, fed and signalled while it runs, and asked for when it has ended.

Rules:

- It leads its own session and process group. The leader is reaped last: while it is a zombie its number names this
  group and no other, so a late signal is safe.
- The loop's thread takes its output and its exit; the threads of requests read what is kept, and wait on ``changed``.
- The leader's exit is the end. What it wrote before is taken to the last byte, however slow the readers are; a child
  that holds a pipe open delays the end by a short drain only, and then its pipe goes to ``drain``.
- At the timeout: TERM to the group, a short grace, KILL to the group. Then its exit is waited for: none is made up.
- While a reader lags too far behind, nothing is read. Without a reader that lasts for ``READER_GRACE_SECONDS``.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time

from . import frames, journal, loop, process, retained, state, terminals, wire
from .errors import RequestError, bad_argument, overloaded
from .inputs import Input

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .drain import Drain
    from .launch import Started
    from .programs import Command

_EXIT_CHECK_SECONDS = 0.02  # where the system has no pidfd
_TERMINAL_CHECK_SECONDS = 0.1  # while no program has it open
_KILL_SECONDS = 5.0  # for the end of one that was killed
_LAST_WORDS_BYTES = 2 * 1024 * 1024  # taken after the exit: more than a pipe holds
_MAX_TOLD_CHARACTERS = 4096  # of a command line in documents

_RUNNING, _ENDING, _KILLED, _LAST_WORDS, _OVER = range(5)


class Services:
    """What all processes of an agent share."""

    __slots__ = ("drain", "events", "groups", "loop", "store")

    def __init__(
        self,
        *,
        loop: loop.Loop,
        groups: state.Groups,
        drain: Drain,
        store: retained.Store,
        events: journal.Events | None = None,
    ) -> None:
        self.loop = loop
        self.events = events or journal.Events(is_wanted=False)
        self.groups = groups
        self.drain = drain
        self.store = store


class Process:
    """One process. Thread-safe: ``changed`` guards what changes, and tells of new output and of the end.

    Args:
        process_id: The caller's name for it.
        command: What runs.
        started: It, running; its streams are owned from here on.
        services: Shared with others.
        output_limit: How many bytes of output are kept.
        retain: ``block`` or ``drop``.
        on_end: Called from the loop's thread when it has ended.
    """

    def __init__(
        self,
        process_id: str,
        command: Command,
        *,
        started: Started,
        services: Services,
        output_limit: int,
        retain: str,
        on_end: Callable[[Process], object],
    ) -> None:
        self.id = process_id
        self.pid = started.child.pid
        self.changed = threading.Condition()
        self.readers = 0
        self.is_told = False  # a reader was told of the end
        self.ended_clock = 0.0
        is_pty = started.terminal is not None
        window = retained.TERMINAL_BYTES if is_pty else None
        self.output = retained.Output(services.store, limit=output_limit, retain=retain, window=window)
        self.input = None if started.stdin is None else Input(started.stdin, loop=services.loop if is_pty else None)
        self._command = _tell_command(command.argv)
        self._child = started.child
        self._terminal = started.terminal
        self._is_pty = is_pty
        self._services = services
        self._on_end: Callable[[Process], object] | None = on_end
        self._timeout = command.timeout
        pipes = {started.stdout: frames.STDOUT, started.stderr: frames.STDERR, started.terminal: frames.STDOUT}
        self._pipes = {descriptor: kind for descriptor, kind in pipes.items() if descriptor is not None}
        self._phase = _RUNNING
        self._timer: loop.Timer | None = None
        self._exit_watch: int | None = None
        self._has_exited = False
        self._is_paused = False
        self._grace_turn = 0
        self._allowance = _LAST_WORDS_BYTES
        self._started_at = time.time()
        self._started_clock = time.monotonic()
        self._ended_at: float | None = None
        self._exit_code: int | None = None
        self._signal: str | None = None
        self._timed_out = False

    def begin(self) -> None:
        """Watch it from here on.

        Raises:
            RequestError: the system cannot watch more; the process was killed.
        """
        self._services.events.tell_start(self.id, pid=self.pid)  # before the loop can tell of its end
        with self.changed:
            self._services.groups.add(self.pid)
            try:
                self._watch_pipes()
                self._exit_watch = process.open_exit_watch(self.pid)
                if self._exit_watch is not None:
                    self._services.loop.watch(self._exit_watch, self._on_exit)
            except OSError as error:
                self._give_up()
                raise overloaded(error) from error
            if self._exit_watch is None:
                self._services.loop.post(self._check_exit)
            if self._timeout is not None:
                self._services.loop.post(self._arm)

    @property
    def has_ended(self) -> bool:
        """It is over, and reaped."""
        return self._phase == _OVER

    @property
    def is_paused(self) -> bool:
        """It waits for a reader to ask for what comes behind all that was read."""
        return self._is_paused

    def document(self) -> dict[str, object]:
        """What is known of it."""
        with self.changed:
            stdin = wire.STDIN_NONE if self.input is None else "closed" if self.input.is_closed else "open"
            return {
                "id": self.id,
                "command": self._command,
                "pid": self.pid,
                "state": "ended" if self.has_ended else "running",
                "exit_code": self._exit_code,
                "signal": self._signal,
                "timed_out": self._timed_out,
                "started_at": self._started_at,
                "ended_at": self._ended_at,
                "pty": self._is_pty,
                "stdin": stdin,
                "retain": self.output.retain,
                "offset": self.output.size,
                "oldest": self.output.oldest,
            }

    def end_document(self) -> dict[str, object]:
        """How it ended; for one that has."""
        return {
            "exit_code": self._exit_code,
            "signal": self._signal,
            "timed_out": self._timed_out,
            "offset": self.output.size,
        }

    def attach(self, offset: int) -> retained.Cursor:
        """A reader comes, and has everything before ``offset``. ``detach`` is owed for it.

        Raises:
            RequestError: there is no such offset yet.
        """
        with self.changed:
            if offset > self.output.size:
                raise bad_argument("offset", f"the output has {self.output.size} bytes so far")
            self.readers += 1
            self._grace_turn += 1
            self.output.confirm(offset)
            self._resume()
            return retained.Cursor(offset)

    def detach(self) -> None:
        """A reader is gone."""
        with self.changed:
            self.readers -= 1
            if self._is_paused and not self.readers:
                self._services.loop.post(self._arm_grace)

    def read(self, cursor: retained.Cursor, limit: int) -> bytes:
        """Frames of about ``limit`` bytes from the cursor on; empty if there is nothing now."""
        with self.changed:
            return self.output.read(cursor, limit)

    def send_signal(self, number: int) -> bool:
        """Signal its process group, and the one in the foreground of its terminal; False if it has ended."""
        with self.changed:
            if self.has_ended:
                return False
            self._signal_groups(number)
            return True

    def kill(self) -> None:
        """Kill it if it runs, and wait until that is done; it is forgotten, and so is its output."""
        self.send_signal(signal.SIGKILL)
        with self.changed:
            # One that the kernel holds in a call may take longer; nobody hears then how it ended.
            if self.changed.wait_for(lambda: self.has_ended, timeout=_KILL_SECONDS):
                self.output.discard()

    def discard_output(self) -> None:
        """Keep nothing of its output."""
        with self.changed:
            self.output.discard()

    def resize(self, size: tuple[int, int]) -> None:
        """Change the size of its terminal.

        Raises:
            RequestError: it has none.
        """
        with self.changed:
            if not self._is_pty:
                raise RequestError(409, wire.NO_PTY, f"process {self.id} has no terminal")
            if self._terminal is not None:
                terminals.resize(self._terminal, size)

    def _signal_groups(self, number: int) -> None:
        foreground = None if self._terminal is None else terminals.find_foreground(self._terminal)
        state.send_signal(self.pid, number)
        if foreground not in (None, self.pid):
            assert foreground is not None
            state.send_signal(foreground, number)

    # -- called by the loop

    def _on_output(self, descriptor: int) -> None:
        with self.changed:
            if descriptor in self._pipes and not (self._is_paused and not self._has_exited):
                self._take(descriptor)
                self._advance()
        self._tell_end()

    def _on_exit(self) -> None:
        with self.changed:
            if not self._has_exited and process.is_zombie(self.pid):
                self._has_exited = True
                if self._exit_watch is not None:
                    self._services.loop.unwatch(self._exit_watch)
                    os.close(self._exit_watch)
                try:
                    self._take_rest()
                finally:  # whatever becomes of its output, it has exited
                    if self._is_paused:
                        self._is_paused = False
                        self._watch_pipes()
                    self._advance()
        self._tell_end()

    def _check_exit(self) -> None:
        self._on_exit()
        if not self._has_exited:
            self._services.loop.call_later(_EXIT_CHECK_SECONDS, self._check_exit)

    def _on_time(self) -> None:
        with self.changed:
            self._timer = None
            if self._phase == _RUNNING:
                self._timed_out = True
                self._signal_groups(signal.SIGTERM)
                self._enter(_ENDING, seconds=wire.TERM_GRACE_SECONDS)
            elif self._phase == _ENDING:
                self._signal_groups(signal.SIGKILL)
                self._enter(_KILLED)
                self._advance()
            elif self._phase == _LAST_WORDS:
                try:
                    self._take_rest()
                finally:
                    self._finish()
        self._tell_end()

    def _arm(self) -> None:
        with self.changed:
            if self._phase == _RUNNING:
                self._enter(_RUNNING, seconds=self._timeout)

    def _arm_grace(self) -> None:
        with self.changed:
            if not self.readers:  # one may have come since this was asked for
                on_grace = functools.partial(self._on_grace, self._grace_turn)
                self._services.loop.call_later(wire.READER_GRACE_SECONDS, on_grace)

    def _on_grace(self, turn: int) -> None:
        with self.changed:
            if self._is_paused and turn == self._grace_turn:
                self.output.give_up_reader()
                self._resume()

    def _look_again(self) -> None:
        """Perhaps a program has the terminal open again."""
        with self.changed:
            if self._terminal in self._pipes and not self._is_paused and not self._has_exited:
                self._watch_pipes()

    # -- under the lock

    def _take(self, descriptor: int) -> bool:
        """Take a helping of output; False if there was none."""
        data = terminals.read(descriptor)
        if data:
            self.output.append(self._pipes[descriptor], data)
            self.changed.notify_all()
            if self._has_exited:
                self._allowance -= len(data)
            elif self.output.must_pause:
                self._pause()
        elif data is not None:
            self._services.loop.unwatch(descriptor)
            if descriptor == self._terminal and not self._has_exited:
                self._services.loop.call_later(_TERMINAL_CHECK_SECONDS, self._look_again)
            else:
                self._close_pipe(descriptor)
        return bool(data)

    def _take_rest(self) -> None:
        """Take what is there, without waiting."""
        for descriptor in list(self._pipes):
            while self._allowance > 0 and self._take(descriptor):
                pass

    def _close_pipe(self, descriptor: int) -> None:
        del self._pipes[descriptor]
        os.close(descriptor)
        if descriptor == self._terminal:
            self._terminal = None

    def _watch_pipes(self) -> None:
        for descriptor in self._pipes:
            self._services.loop.watch(descriptor, functools.partial(self._on_output, descriptor))

    def _pause(self) -> None:
        self._is_paused = True
        for descriptor in self._pipes:
            self._services.loop.unwatch(descriptor)
        if not self.readers:
            self._arm_grace()

    def _resume(self) -> None:
        if self._is_paused and not self.output.must_pause:
            self._is_paused = False
            self._watch_pipes()

    def _advance(self) -> None:
        """Go on to the phase that what happened calls for."""
        if not self._has_exited or self._phase == _OVER:
            return
        if self._phase == _ENDING:
            if not self._pipes:
                # A member of the group may ignore TERM with its output closed.
                self._signal_groups(signal.SIGKILL)
                self._finish()
        elif not self._pipes or self._allowance <= 0:
            self._finish()
        elif self._phase != _LAST_WORDS:
            self._enter(_LAST_WORDS, seconds=wire.DRAIN_SECONDS)

    def _enter(self, phase: int, *, seconds: float | None = None) -> None:
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._services.loop.call_later(seconds, self._on_time)

    def _finish(self) -> None:
        self._enter(_OVER)
        self._release()
        self._services.groups.discard(self.pid)
        self._exit_code, self._signal = process.reap(self._child)
        self._ended_at = time.time()
        self.ended_clock = time.monotonic()
        self.output.settle()
        self.changed.notify_all()

    def _release(self) -> None:
        """Let go of all streams."""
        for descriptor in list(self._pipes):
            self._services.loop.unwatch(descriptor)
            if descriptor == self._terminal:
                self._close_pipe(descriptor)
            else:
                del self._pipes[descriptor]
                self._services.drain.take(descriptor)
        if self.input is not None:
            self.input.end()

    def _give_up(self) -> None:
        """It cannot be watched."""
        journal.report(f"process {self.pid} was killed: it cannot be watched")
        self._signal_groups(signal.SIGKILL)
        self._phase = _OVER
        if self._exit_watch is not None:
            os.close(self._exit_watch)
        self._release()
        self._services.groups.discard(self.pid)
        self._child.wait()

    def _tell_end(self) -> None:
        """Outside of the lock: whoever hears of it takes locks of its own."""
        on_end = self._on_end
        if self.has_ended and on_end is not None:
            self._on_end = None
            how = journal.describe_end(self._exit_code, self._signal, timed_out=self._timed_out)
            seconds = self.ended_clock - self._started_clock
            self._services.events.tell_end(self.id, pid=self.pid, how=how, seconds=seconds)
            on_end(self)


def _tell_command(argv: Sequence[bytes]) -> list[str]:
    """The command line for documents, which are to stay small."""
    told, left = [], _MAX_TOLD_CHARACTERS
    for word in argv:
        text = word.decode("utf-8", "surrogateescape")
        if len(text) > left:
            told.append(text[:left] + "…")
            break
        told.append(text)
        left -= len(text) + 1
    return told
