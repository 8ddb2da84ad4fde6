"""What the parts of one running agent share: is it serving, is it about to be suspended, which commands run or ran."""

from __future__ import annotations

import math
import os
import signal
import threading
import time

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Activity:
    """Counts one-shot commands in flight, so that a suspend can wait for them. Thread-safe; a context manager."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._count -= 1
            if self._count == 0:
                self._changed.notify_all()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing is in flight; False if that took longer than ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout=seconds)


class Suspension:
    """Whether the platform is about to suspend the VM: a command that began now would be cut off. Thread-safe.

    A notice that no suspension follows runs out: the platform may fail to suspend, and code inside can call the hook.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until = -math.inf

    def begin(self) -> None:
        """The platform has asked, and waits for the answer."""
        self._until = math.inf

    def answered(self) -> None:
        """The platform has its answer, and goes on."""
        self._until = self._monotonic() + wire.SUSPEND_NOTICE_SECONDS

    def end(self) -> None:
        """The VM has been resumed."""
        self._until = -math.inf

    @property
    def is_near(self) -> bool:
        """No new command is to begin. All clocks jump at a resume: then it is over, even before the hook comes."""
        return self._monotonic() < self._until


class Started:
    """The ids of the latest commands, so that a request that arrives twice runs its command once. Thread-safe."""

    def __init__(self, *, limit: int = wire.MAX_REMEMBERED_EXECS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._ids: dict[str, None] = {}  # oldest first

    def claim(self, exec_id: str) -> bool:
        """Remember the id; False if it is remembered already."""
        with self._lock:
            if exec_id in self._ids:
                return False
            self._ids[exec_id] = None
            if len(self._ids) > self._limit:
                del self._ids[next(iter(self._ids))]
            return True

    def forget(self, exec_id: str) -> None:
        """The command of that id was not started after all."""
        with self._lock:
            self._ids.pop(exec_id, None)


class Groups:
    """The process groups of running commands, so that none outlives the agent. Thread-safe.

    A group is in here only while its leader is not reaped, so its number cannot have passed to a stranger.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._groups: set[int] = set()
        self._closing = False

    def add(self, group: int) -> None:
        """Register before the first wait. While the agent ends, the group is killed at once."""
        with self._changed:
            self._groups.add(group)
            if self._closing:
                send_signal(group, signal.SIGKILL)

    def discard(self, group: int) -> None:
        """Take out a group whose leader is about to be reaped."""
        with self._changed:
            self._groups.discard(group)
            self._changed.notify_all()

    def end_all(self, *, grace: float) -> None:
        """TERM to every group, KILL to those that are left after ``grace`` seconds. New ones are killed at once."""
        with self._changed:
            self._closing = True
            for group in self._groups:
                send_signal(group, signal.SIGTERM)
            self._changed.wait_for(lambda: not self._groups, timeout=grace)
            for group in self._groups:
                send_signal(group, signal.SIGKILL)


class State:
    """One agent: its activity, its running groups, and whether it serves, and goes on to."""

    def __init__(self) -> None:
        self.serving = threading.Event()
        self.suspension = Suspension()
        self.activity = Activity()
        self.started = Started()
        self.groups = Groups()


def send_signal(group: int, number: int) -> None:
    """Signal a whole process group; one that is gone, or beyond our rights, is left alone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
    if number == signal.SIGTERM:
        # A stopped process acts on TERM only once it runs again.
        try:
            os.killpg(group, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            return
