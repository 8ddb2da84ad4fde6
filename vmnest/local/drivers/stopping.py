"""Freezing without control groups: every process of a sandbox is stopped by SIGSTOP.

Stand-alone (see ``runtime``). Process 1, which is ours and which no signal from inside stops or ends, signals everybody
at once when the supervisor asks it to: ``kill(-1)`` is one step for the kernel, which a process that forks cannot
outrun. What was stopped before stays so afterwards.

No process is to notice: a shell that saw its child stopped would take the terminal back. So parents are stopped
before that, oldest first, and what goes on goes on youngest first. (Those who make it take long are not waited for.)

The supervisor asks by a signal, which whoever is inside can send as well; all that he achieves is what his own
``kill(-1)`` would.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see init
import contextlib
import os
import time

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_QUIET = frozenset(b"TtZXx")  # stopped, stopped by a tracer, dead
# In an uninterruptible wait (D) nothing of a program runs, nor will: the signal waits at its end. Most waits are soon
# over. One between vfork and the child's exec is not, once the child is stopped.
_AS_GOOD_AS_QUIET = _QUIET | frozenset(b"D")
_PATIENCE_SECONDS = 0.2
_STOPPED = ord("T")
_OURS = 1
_PARENTS_SECONDS = 0.1
_PAUSE_SECONDS = 0.0002
_STOP_PROCESSES = _signal.SIGUSR1
_STOP_THREADS = _signal.SIGUSR2
# A timer or a file can bring a process SIGCONT. Who has woken once is looked at often.
_LOOK_SECONDS = 1.0
_CLOSE_LOOK_SECONDS = 0.01


class SignalFreezer:
    """Stops a sandbox whose own /proc the descriptor ``proc`` is open on. The same verbs as ``cgroups.Group``."""

    def __init__(self, proc: int) -> None:
        self._proc = proc
        self._before: set[int] = set()
        self._is_asked = False  # process 1 has not said yet that it did what it was asked for
        self._is_wanted = False
        self._patient_until = 0.0
        self.look_seconds = _LOOK_SECONDS

    def freeze(self) -> None:
        """Begin to stop everything."""
        if not self._is_asked:  # else it may be stopped, or not, for a freeze that was called off
            self._before = {pid for pid in _list_processes(self._proc) if _STOPPED in self._threads(pid).values()}
        self._is_wanted = True
        self.look_seconds = _LOOK_SECONDS
        self._stop_parents()
        self._ask(_STOP_PROCESSES)
        self._patient_until = time.monotonic() + _PATIENCE_SECONDS

    def is_frozen(self) -> bool:
        """Whether nothing runs any more; else what does is signalled again."""
        if self._is_asked:
            return False
        quiet = _QUIET if time.monotonic() < self._patient_until else _AS_GOOD_AS_QUIET
        # Twice: one that was running still may have continued another that was looked at already.
        is_awake = any(_find_running(self._proc, quiet)) or any(_find_running(self._proc, quiet))
        if is_awake:
            self._ask(_STOP_THREADS)
        return not is_awake

    def stays_frozen(self) -> bool:
        """Whether what was frozen is so still; else it is being stopped again, and is to be watched more closely."""
        is_frozen = self.is_frozen()
        if not is_frozen:
            self.look_seconds = _CLOSE_LOOK_SECONDS
        return is_frozen

    def thaw(self) -> None:
        """Let go on what was not stopped before; also what is not stopped yet."""
        self._is_wanted = False
        for pid in sorted(_list_processes(self._proc), reverse=True):
            if pid not in self._before:
                self._signal(pid, _signal.SIGCONT)

    def note_stopped(self) -> None:
        """Process 1 says that it did what it was asked for: once more than needed, if somebody inside asked too."""
        if not self._is_asked:
            return
        self._is_asked = False
        if not self._is_wanted:  # the freeze was called off meanwhile
            self.thaw()

    def _ask(self, number: int) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._signal(_OURS, number)

    def _stop_parents(self) -> None:
        end = time.monotonic() + _PARENTS_SECONDS
        parents = {self._parent_of(pid) for pid in _list_processes(self._proc)}
        for pid in sorted(parents - self._before - {_OURS, 0}):
            self._signal(pid, _signal.SIGSTOP)
            while not _QUIET.issuperset(self._threads(pid).values()) and time.monotonic() < end:
                time.sleep(_PAUSE_SECONDS)

    def _threads(self, process: int) -> dict[int, int]:
        return _read_threads(self._proc, process)

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


# -- in process 1 ------------------------------------------------------------------------------------------------------


def obey(tell: Callable[[], None]) -> None:
    """From here on stop everybody but ourselves when asked to, and ``tell`` when that is done.

    Whoever asks again does so in the middle of a handler. What is asked for then is only noted, and done by that
    handler at its end: handlers within handlers would exhaust the stack of process 1, and end the VM.
    """
    asked: set[int] = set()
    is_busy = False

    def hear(number: int, _frame: object) -> None:
        nonlocal is_busy
        asked.add(number)
        while asked and not is_busy:
            is_busy = True
            while asked:
                _stop(asked.pop())
                tell()
            is_busy = False  # and then look once more: somebody may have asked just before

    _signal.signal(_STOP_PROCESSES, hear)
    _signal.signal(_STOP_THREADS, hear)


def _stop(number: int) -> None:
    _stop_processes()
    if number == _STOP_THREADS:
        with contextlib.suppress(OSError):  # out of descriptors: those inside can see to that
            _stop_threads()


def _stop_processes() -> None:
    with contextlib.suppress(ProcessLookupError):  # there is nobody
        os.kill(-1, _signal.SIGSTOP)


def _stop_threads() -> None:
    """Signal the threads that still run, each by itself.

    A process's signal is taken by one of its threads, for all; one that waits for a vfork takes it, and does not.
    """
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for process, thread in _find_running(proc, _QUIET):
            kernel.signal_thread(process, thread, _signal.SIGSTOP)
    finally:
        os.close(proc)


# -- looking into /proc ------------------------------------------------------------------------------------------------


def _list_processes(proc: int) -> Iterator[int]:
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != _OURS:
            yield int(name)


def _find_running(proc: int, quiet: frozenset[int]) -> Iterator[tuple[int, int]]:
    """The threads, each after its process, that may run still."""
    for process in _list_processes(proc):
        for thread, state in _read_threads(proc, process).items():
            if state not in quiet:
                yield process, thread


def _read_threads(proc: int, process: int) -> dict[int, int]:
    """The states of a process's threads; none if it has just ended."""
    states: dict[int, int] = {}
    try:
        folder = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    except FileNotFoundError:
        return states
    try:
        for thread in _list_threads(folder):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                states[int(thread)] = _read_state(f"{thread}/stat", folder=folder)[0]
    finally:
        os.close(folder)
    return states


def _list_threads(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError):
        return []


def _read_state(path: str, *, folder: int) -> bytes:
    """The fields of a ``stat`` from the state on; the name before them may be anything."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(descriptor, 4096).rpartition(b") ")[2]
    finally:
        os.close(descriptor)
