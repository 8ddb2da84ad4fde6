"""Freezing without control groups: every process of a sandbox is stopped by SIGSTOP.

Stand-alone (see ``runtime``). The supervisor forks a child, which is born in the sandbox's pid namespace, and has it
signal everybody there at once: ``kill(-1)`` is one step for the kernel, which a process that forks cannot outrun.
What was stopped before stays so afterwards.

No process is to notice: a shell that saw its child stopped would take the terminal back. So parents are stopped
before that, oldest first, and what goes on goes on youngest first. (Those who make it take long are not waited for.)
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see init
import contextlib
import os
import time

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SIGKILL = 9
_QUIET = frozenset(b"TtZXx")  # stopped, stopped by a tracer, dead
# In an uninterruptible wait (D) nothing of a program runs, nor will: the signal waits at its end. Most waits are soon
# over. One between vfork and the child's exec is not, once the child is stopped.
_AS_GOOD_AS_QUIET = _QUIET | frozenset(b"D")
_PATIENCE_SECONDS = 0.2
_STOPPED = ord("T")
_OURS = 1
_PARENTS_SECONDS = 0.1
_PAUSE_SECONDS = 0.0002
_TITLE = "vmnest-freeze"


class SignalFreezer:
    """Stops a sandbox whose own /proc the descriptor ``proc`` is open on. The same verbs as ``cgroups.Group``."""

    def __init__(self, proc: int) -> None:
        self._proc = proc
        self._helper = 0
        self._before: set[int] = set()
        self._patient_until = 0.0

    def freeze(self) -> None:
        """Begin to stop everything."""
        self._before = {pid for pid in self._processes() if _STOPPED in self._threads(pid).values()}
        self._stop_parents()
        self._send([])
        self._patient_until = time.monotonic() + _PATIENCE_SECONDS

    def is_frozen(self) -> bool:
        """Whether nothing runs any more; else what does is signalled again."""
        if not self._has_sent():
            return False
        quiet = _QUIET if time.monotonic() < self._patient_until else _AS_GOOD_AS_QUIET
        # Twice: one that was running still may have continued another that was looked at already.
        running = self._find_running(quiet) or self._find_running(quiet)
        if running:
            self._send(running)
        return not running

    def thaw(self) -> None:
        """Let go on what was not stopped before; also what is not stopped yet."""
        if self._helper:
            os.kill(self._helper, _SIGKILL)
            os.waitpid(self._helper, 0)
            self._helper = 0
        for pid in sorted(self._processes(), reverse=True):
            if pid not in self._before:
                self._signal(pid, _signal.SIGCONT)

    def _stop_parents(self) -> None:
        end = time.monotonic() + _PARENTS_SECONDS
        for pid in sorted({self._parent_of(pid) for pid in self._processes()} - self._before - {_OURS, 0}):
            self._signal(pid, _signal.SIGSTOP)
            while not _QUIET.issuperset(self._threads(pid).values()) and time.monotonic() < end:
                time.sleep(_PAUSE_SECONDS)

    def _find_running(self, quiet: frozenset[int]) -> list[tuple[int, int]]:
        """The threads, each after its process, that may run still."""
        return [
            (pid, thread)
            for pid in self._processes()
            for thread, state in self._threads(pid).items()
            if state not in quiet
        ]

    def _send(self, threads: Sequence[tuple[int, int]]) -> None:
        """Signal everybody, and those threads by themselves.

        A process's signal is taken by one of its threads, for all; one that waits for a vfork takes it, and does not.
        """
        title = kernel.get_title()
        kernel.set_title(_TITLE)  # those inside see the helper, and ours is full of the host's paths
        try:
            self._helper = os.fork()
            if self._helper == 0:
                _stop_all(threads)
        finally:
            kernel.set_title(title)

    def _has_sent(self) -> bool:
        """Whether the helper is through. (One inside may have stopped or killed it.)"""
        if self._helper and os.waitpid(self._helper, os.WNOHANG) == (0, 0):
            return False
        self._helper = 0
        return True

    def _processes(self) -> Iterator[int]:
        for name in os.listdir(self._proc):
            if name.isdigit() and int(name) != _OURS:
                yield int(name)

    def _threads(self, process: int) -> dict[int, int]:
        """The states of a process's threads; none if it has just ended."""
        states: dict[int, int] = {}
        try:
            folder = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        except FileNotFoundError:
            return states
        try:
            for thread in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    states[int(thread)] = _read_state(f"{thread}/stat", folder=folder)[0]
        finally:
            os.close(folder)
        return states

    def _parent_of(self, process: int) -> int:
        try:
            return int(_read_state(f"{process}/stat", folder=self._proc).split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return 0

    def _signal(self, process: int, number: int) -> None:
        # By the directory, which stands for the process: its number is one of the sandbox, not of ours.
        try:
            descriptor = os.open(f"{process}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        except FileNotFoundError:
            return
        try:
            _signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


def _read_state(path: str, *, folder: int) -> bytes:
    """The fields of a ``stat`` from the state on; the name before them may be anything."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(descriptor, 4096).rpartition(b") ")[2]
    finally:
        os.close(descriptor)


def _stop_all(threads: Sequence[tuple[int, int]]) -> None:
    """In the helper: one signal for everybody but process 1 and ourselves, and one for each of the threads."""
    try:
        os.kill(-1, _signal.SIGSTOP)
        for process, thread in threads:
            kernel.signal_thread(process, thread, _signal.SIGSTOP)
    finally:
        os._exit(0)
