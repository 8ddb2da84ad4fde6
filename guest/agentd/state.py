"""What the parts of one running agent share: is it serving, which commands run, how long do we wait for them."""

from __future__ import annotations

import os
import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    """One agent: its activity, its running groups, and whether it serves."""

    def __init__(self) -> None:
        self.serving = threading.Event()
        self.activity = Activity()
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
