"""Runs one-shot commands: spawn, watch, end.

Rules:

- A command leads its own session and process group, so that the group can be ended as a whole. Its stdin is /dev/null.
- One ``poll`` loop per command watches both pipes, the command's end (a pidfd) and the client's connection.
- The leader is reaped last: while it is a zombie its number names this group and no other, so a late KILL is safe.
- At the timeout, or when the client is gone: TERM to the group, a short grace, KILL to the group.
- Time for which the VM was suspended does not count (``stopwatch``), in no phase.
- The command's own end decides: a background child that keeps a pipe open delays the answer by a short drain only, and
  its pipe goes to ``drain``, since closing it would kill the child.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from . import journal, launch, programs, state, stopwatch, wire
from .errors import PeerGoneError
from .spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .drain import Drain
    from .programs import Command

_PIECE_BYTES = 65536
_EXIT_CHECK_SECONDS = 0.02  # where the system has no pidfd

_RUNNING, _ENDING, _LAST_WORDS, _OVER = range(4)


class Outcome:
    """What a command left. A context manager: its output may be in files.

    ``exit_code`` is 128+N when signal N ended it; ``signal`` is then the signal's name.
    """

    __slots__ = ("exit_code", "signal", "stderr", "stdout", "timed_out")

    def __init__(self, stdout: Spool, stderr: Spool) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = 0
        self.signal: str | None = None
        self.timed_out = False

    def __enter__(self) -> Outcome:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self.stderr.close()


class Runner:
    """Runs commands for an agent. Thread-safe: each call of ``run`` stands alone.

    Args:
        groups: Where running commands are registered.
        drain: Takes the pipes that outlive their command.
        launcher: Starts them.
        events: Are told of each start and end.
        start_watch: Starts a watch that counts while the VM runs.
    """

    def __init__(
        self,
        *,
        groups: state.Groups,
        drain: Drain,
        launcher: launch.Launcher | None = None,
        events: journal.Events | None = None,
        start_watch: Callable[[], stopwatch.Stopwatch] = stopwatch.Stopwatch,
    ) -> None:
        self._groups = groups
        self._drain = drain
        self._start_watch = start_watch
        self._launcher = launcher or launch.Launcher()
        self._events = events or journal.Events(is_wanted=False)

    def run(self, command: Command, *, name: str = "", hangup: int | None = None) -> Outcome:
        """Run a command to its end, its timeout, or the end of the connection ``hangup`` (a descriptor).

        ``name`` is the caller's for it, for the journal.

        Raises:
            RequestError: the command cannot be started.
            PeerGoneError: the client went away; the command's group was ended.
        """
        executable = programs.resolve(command)
        started = self._launcher.start(command, executable)
        child = started.child
        begin = time.monotonic()
        self._events.tell_start(name, pid=child.pid)
        assert started.stdout is not None  # one-shot commands have no terminal
        assert started.stderr is not None
        outcome = Outcome(Spool(limit_bytes=wire.MAX_OUTPUT_BYTES), Spool(limit_bytes=wire.MAX_OUTPUT_BYTES))
        pipes = {started.stdout: outcome.stdout, started.stderr: outcome.stderr}
        pump = _Pump(child.pid, pipes, hangup=hangup, watch=self._start_watch())
        self._groups.add(child.pid)
        try:
            pump.run(command.timeout)
        except BaseException:
            state.send_signal(child.pid, signal.SIGKILL)
            outcome.__exit__(None, None, None)
            raise
        finally:
            self._groups.discard(child.pid)
            for descriptor in pump.release():
                self._drain.take(descriptor)
            outcome.exit_code, outcome.signal = reap(child)
            how = journal.describe_end(outcome.exit_code, outcome.signal, timed_out=pump.is_timed_out)
            self._events.tell_end(name, pid=child.pid, how=how, seconds=time.monotonic() - begin)
        if pump.is_peer_gone:
            outcome.__exit__(None, None, None)
            raise PeerGoneError
        outcome.timed_out = pump.is_timed_out
        return outcome


class _Pump:
    """Moves a command's output into its spools until the command is over."""

    def __init__(self, group: int, pipes: dict[int, Spool], *, hangup: int | None, watch: stopwatch.Stopwatch) -> None:
        self._group = group
        self._pipes = pipes  # those that are open
        self._hangup = hangup
        self._exit_watch = open_exit_watch(group)
        self._has_exited = False
        self._phase = _RUNNING
        self._watch = watch
        self._until: float | None = None  # the end of this phase, on the watch
        self.is_timed_out = False
        self.is_peer_gone = False

    def run(self, timeout: float | None) -> None:
        poller = select.poll()
        for descriptor in self._pipes:
            poller.register(descriptor, select.POLLIN)
        if self._exit_watch is not None:
            poller.register(self._exit_watch, select.POLLIN)
        if self._hangup is not None:
            # A client that only closed its sending half looks the same; no HTTP client in use does that.
            poller.register(self._hangup, select.POLLRDHUP)
        if timeout is not None:
            self._until = self._watch.read() + timeout
        while self._phase != _OVER:
            for descriptor, _ in poller.poll(self._patience()):
                if not self._on_event(descriptor):
                    poller.unregister(descriptor)
            if self._exit_watch is None and not self._has_exited:
                self._has_exited = is_zombie(self._group)
            self._advance(self._watch.read())

    def release(self) -> list[int]:
        """Close what is ours; the pipes that others still hold open go to the caller."""
        if self._exit_watch is not None:
            os.close(self._exit_watch)
            self._exit_watch = None
        held = list(self._pipes)
        self._pipes = {}
        return held

    def _patience(self) -> int | None:
        """How long to wait for the next event, in milliseconds."""
        waits = [_EXIT_CHECK_SECONDS] if self._exit_watch is None else []
        if self._until is not None:
            waits.append(min(self._until - self._watch.read(), stopwatch.TICK_SECONDS))
        # Rounded up: a wait that ends a moment too early would spin.
        return max(0, int(min(waits) * 1000) + 1) if waits else None

    def _on_event(self, descriptor: int) -> bool:
        """Take one event in; False when nothing more is to be expected from its descriptor."""
        spool = self._pipes.get(descriptor)
        if spool is not None:
            data = os.read(descriptor, _PIECE_BYTES)
            if data:
                spool.append(data)
                return True
            del self._pipes[descriptor]
            os.close(descriptor)
        elif descriptor == self._hangup:
            self.is_peer_gone = True
        else:
            self._has_exited = True
        return False

    def _advance(self, now: float) -> None:
        """Go on to the phase that the events and the time call for."""
        is_due = self._until is not None and now >= self._until
        is_quiet = self._has_exited and not self._pipes
        if self._phase == _RUNNING:
            if self._has_exited:
                self._enter(_OVER if is_quiet else _LAST_WORDS, until=now + wire.DRAIN_SECONDS)
            elif is_due or self.is_peer_gone:
                self.is_timed_out = not self.is_peer_gone
                state.send_signal(self._group, signal.SIGTERM)
                self._enter(_ENDING, until=now + wire.TERM_GRACE_SECONDS)
        elif self._phase == _ENDING:
            if is_due or is_quiet:
                # Also when all seems over: a member of the group may ignore TERM with its output closed.
                state.send_signal(self._group, signal.SIGKILL)
                self._enter(_OVER if is_quiet else _LAST_WORDS, until=now + wire.DRAIN_SECONDS)
        elif is_due or is_quiet:
            self._enter(_OVER, until=now)

    def _enter(self, phase: int, *, until: float) -> None:
        self._phase = phase
        self._until = until


def name_signal(number: int) -> str:
    """``SIGKILL`` for 9; the real-time signals are counted from SIGRTMIN."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def reap(child: subprocess.Popen[bytes]) -> tuple[int, str | None]:
    """The exit code and signal of a child that has exited, or was sent KILL."""
    try:
        status = child.wait(0 if child.poll() is not None else wire.DRAIN_SECONDS)
    except subprocess.TimeoutExpired:
        # Stuck in the kernel. It ends as soon as it wakes; subprocess reaps it at a later spawn.
        status = -signal.SIGKILL
    if status >= 0:
        return status, None
    return 128 - status, name_signal(-status)


def open_exit_watch(pid: int) -> int | None:
    """A descriptor that becomes readable when ``pid`` exits, or None where the system has none (Linux before 5.3)."""
    open_pidfd = getattr(os, "pidfd_open", None)
    try:
        return None if open_pidfd is None else int(open_pidfd(pid))
    except OSError:
        return None


def is_zombie(pid: int) -> bool:
    """Whether the child has exited; it is not reaped by this."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
