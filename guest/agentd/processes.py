"""The processes that an agent runs or can still be asked for, by the ids that their callers gave them.

Whatever arrives twice runs once: an id whose process is known leads to it, an id that was used before and whose process
is forgotten is refused. Of those that have ended the latest are kept, and of their output what fits a common budget.
"""

from __future__ import annotations

import threading
import time

from . import programs, running, slots, state, wire
from .errors import RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .launch import Launcher
    from .programs import Command

ENDED_OUTPUT_BYTES = 256 * 1024 * 1024  # of all ended processes together
# Ended processes whose end nobody has heard of yet are kept beyond the latest ones, but not for ever.
_UNHEARD_SECONDS = 60.0
_MAX_UNHEARD = 4096


class Order:
    """What to start, and how to keep its output."""

    __slots__ = ("command", "output_limit", "retain")

    def __init__(self, command: Command, *, output_limit: int, retain: str) -> None:
        self.command = command
        self.output_limit = output_limit
        self.retain = retain


class Processes:
    """Starts, finds and forgets. Thread-safe.

    Args:
        agent_state: Of the agent: is a suspension near, which ids were used.
        launcher: Starts commands.
        services: Shared by the processes.
    """

    def __init__(self, agent_state: state.State, *, launcher: Launcher, services: running.Services) -> None:
        self._state = agent_state
        self._launcher = launcher
        self._services = services
        self._changed = threading.Condition()
        self._known: dict[str, running.Process] = {}  # oldest first; guarded by the lock, as are the next two
        self._starting: set[str] = set()
        self._ended: dict[str, running.Process] = {}  # those of _known that have ended, in the order of their ends

    def start(self, process_id: str, build_order: Callable[[], Order]) -> tuple[running.Process, bool]:
        """The process of that id, and whether it was started just now.

        Args:
            process_id: The caller's name for it.
            build_order: Asked if there is none yet.

        Raises:
            RequestError: it cannot be started; or its id was used before, and it is not known any more.
        """
        found = self._claim(process_id)
        if found is not None:
            return found, False
        started = None
        try:
            started = self._launch(process_id, build_order())
        except BaseException:
            self._state.started.forget(process_id)
            raise
        finally:
            with self._changed:
                self._starting.discard(process_id)
                self._changed.notify_all()
        return started, True

    def find(self, process_id: str) -> running.Process:
        """The process of that id.

        Raises:
            RequestError: there is none, or none any more.
        """
        with self._changed:
            # Whoever asks for one whose start was cut off must not hear that there is none.
            self._changed.wait_for(lambda: process_id not in self._starting)
            found = self._known.get(process_id)
        if found is None:
            raise RequestError(404, wire.NO_SUCH_PROCESS, f"no such process: {process_id}")
        return found

    def list(self) -> list[running.Process]:
        """All that are known, oldest first."""
        with self._changed:
            return list(self._known.values())

    def forget(self, process_id: str) -> running.Process:
        """Do not know it any more; its id stays used.

        Raises:
            RequestError: it is not known.
        """
        found = self.find(process_id)
        with self._changed:
            self._known.pop(process_id, None)
            self._ended.pop(process_id, None)
        return found

    def _claim(self, process_id: str) -> running.Process | None:
        """The process of that id; None if the caller is to start it, and nobody else will."""
        with self._changed:
            self._changed.wait_for(lambda: process_id not in self._starting)
            found = self._known.get(process_id)
            if found is not None:
                return found
            if not self._state.started.claim(process_id):
                raise RequestError(409, wire.ALREADY_STARTED, "a command of this id was started before")
            self._starting.add(process_id)
            return None

    def _launch(self, process_id: str, order: Order) -> running.Process:
        if self._state.suspension.is_near:
            raise RequestError(503, wire.SUSPENDING, "the sandbox is about to be suspended: nothing was started")
        executable = programs.resolve(order.command)
        started = running.Process(
            process_id,
            order.command,
            started=self._launcher.start(order.command, executable),
            services=self._services,
            output_limit=order.output_limit,
            retain=order.retain,
            on_end=self._note_end,
        )
        with self._changed:
            self._known[process_id] = started
        try:
            started.begin()
        except BaseException:
            with self._changed:
                del self._known[process_id]
            raise
        return started

    def _note_end(self, ended: running.Process) -> None:
        with self._changed:
            if ended.id not in self._known:  # forgotten meanwhile
                dropped = [ended]
            else:
                self._ended[ended.id] = ended
                dropped = list(self._choose_dropped())
                for one in dropped:
                    del self._known[one.id], self._ended[one.id]
            kept = list(self._ended.values())
        for one in dropped:
            one.discard_output()
        # Mostly there is so little in the file that nobody's share of it need be counted.
        if len(self._services.store.slots) * slots.SLOT_BYTES > ENDED_OUTPUT_BYTES:
            self._limit_output(kept)

    def _limit_output(self, kept: Sequence[running.Process]) -> None:
        """Let go of the oldest output of ended processes that is too much for their common budget."""
        cost = sum(one.output.cost for one in kept)
        for one in kept:
            if cost <= ENDED_OUTPUT_BYTES:
                break
            if not one.readers:
                cost -= one.output.cost
                one.discard_output()

    def _choose_dropped(self) -> Iterator[running.Process]:
        """Ended processes that are one too many: the oldest of those that nobody waits for."""
        surplus = len(self._ended) - wire.MAX_ENDED_PROCESSES
        if surplus <= 0:
            return
        heard_before = time.monotonic() - _UNHEARD_SECONDS
        is_flooded = len(self._ended) > _MAX_UNHEARD
        for one in self._ended.values():
            if surplus <= 0:
                return
            if not one.readers and (one.is_told or one.ended_clock < heard_before or is_flooded):
                surplus -= 1
                yield one
