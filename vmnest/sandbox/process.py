"""``Process``: a program that runs in a sandbox while its caller watches it, feeds it, or does something else."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from .._guest.agentd import wire
from ..agent import arguments, commands, feeding, following, outputs, processes, unread
from ..agent.recovery import DOUBTFUL
from ..agent.results import ExecResult
from ..agent.unread import Line
from ..deadline import NEVER, Deadline, backoff
from ..wire import names

if TYPE_CHECKING:
    from ..agent.client import AgentClient
    from ..agent.recovery import Watch

__all__ = ["Line", "Process"]

KILL_SECONDS = 30.0  # at the end of a ``with`` block
HOLD_SECONDS = 10.0
NEVER_SEEN = float("-inf")
LOOK_SECONDS = 1.0  # so old may be what is known of the MicroVM's state when a terminal's size is sent
FIRST_PAUSE_SECONDS = 0.01
LAST_PAUSE_SECONDS = 1.0

_logger = logging.getLogger(__name__)


Piece = TypeVar("Piece", outputs.Chunk, Line)


class Process:
    """A program in a sandbox, made by ``Sandbox.spawn`` or found by ``Sandbox.attach_process``.

    Leaving a ``with`` block kills it if it still runs, unless it was detached. Iterating gives its output as it comes,
    and goes on after cut connections and suspensions at the very byte. While its sandbox is suspended, reading waits
    until something resumes it: ``write`` and ``signal`` do, reading and ``resize`` do not.

    Safe for threads, of which one reads at a time: ``wait`` in another waits for the one that iterates. A forked child
    may read it as its parent does: each gets all that comes from then on.

    Attributes:
        id: By it, any process of any machine can attach to it.
        command: The program and its arguments.
        pid: Its number in the sandbox.
        is_pty: It runs in a terminal: then all output is ``stdout``.
        backlog: How many bytes of its output were there already when this object was made.
        state_watch: Called with the sandbox's state when it is found suspended, and with None when it goes on.
    """

    def __init__(
        self,
        info: outputs.ProcessInfo,
        *,
        agent: AgentClient,
        awake: Callable[[Deadline], AgentClient],
        offset: int = 0,
        follower: following.Follower | None = None,
    ) -> None:
        """Not for users: see ``Sandbox.spawn`` and ``Sandbox.attach_process``."""
        self.id = info.id
        self.command = info.command
        self.pid = info.pid
        self.is_pty = info.is_pty
        self.backlog = max(0, info.offset - offset)
        self._name = info.command[0] if info.command else info.id
        self._agent = agent
        self._awake = awake
        self._input = feeding.Input(info.id)
        self._follower = follower or following.Follower(agent, info.id, name=self._name, offset=offset)
        self._unread = unread.Unread()
        self._end: outputs.Exit | None = None
        self._reading = threading.Lock()  # held by the thread that asks for the next piece
        self._changed = threading.Condition()  # told when somebody stops to iterate; held when the next poll is set
        self._reader: threading.Thread | None = None  # who iterates
        self._size: tuple[int, int] | None = None  # of the terminal, wanted and not sent
        self._entered_by = os.getpid()
        self._is_detached = False
        self._looked_at = NEVER_SEEN  # when its MicroVM was last seen awake
        self._ask_again_at = NEVER_SEEN  # whoever polls
        self._pauses = backoff(first=FIRST_PAUSE_SECONDS, last=LAST_PAUSE_SECONDS)  # between two polls
        self._has_input = info.stdin != wire.STDIN_NONE
        self.state_watch: Watch | None = None
        told = weakref.WeakMethod(self._on_pause)  # a ring of references would keep the connection open
        self._follower.recovery.on_pause = lambda state: None if (tell := told()) is None else tell(state)

    def __repr__(self) -> str:
        how = "running" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"Process({self.id!r}, {self._name!r}, {how})"

    # -- what is known of it -------------------------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """How many bytes of output were handed out, of all streams; ``attach_process`` goes on from there."""
        offset = self._unread.offset
        return self._follower.offset if offset is None else offset

    @property
    def exit_code(self) -> int | None:
        """Its status once it is known to have ended, 128+N when signal N ended it. Nobody is asked."""
        return None if self._end is None else self._end.exit_code

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, or None."""
        return None if self._end is None else self._end.signal

    @property
    def timed_out(self) -> bool:
        """It was ended at its timeout."""
        return self._end is not None and self._end.timed_out

    def poll(self) -> int | None:
        """Ask whether it has ended; its exit code, or None. A suspended sandbox sleeps on, and nothing in it ends.

        Whoever calls this in a loop is answered from memory most of the time, and hears of the end up to a second late;
        ``wait`` returns at once.

        Raises:
            errors.ProcessNotFoundError: the agent does not know it (any more).
            errors.MicroVMEndedError: the sandbox has ended, and it with it.
        """
        with self._changed:
            now = self._agent.clock.monotonic()
            if self._end is not None or now < self._ask_again_at:
                return self.exit_code
            self._ask_again_at = now + next(self._pauses)
        self._looked_at = NEVER_SEEN  # it may have been suspended since: asking the agent would wake it
        if not self._may_sleep():
            try:
                self._learn(processes.peek(self._agent, self.id))
            except DOUBTFUL as error:
                self._looked_at = NEVER_SEEN
                if not self._may_sleep():
                    raise error
        return self.exit_code

    # -- output --------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[outputs.Chunk]:
        return self.chunks()

    def chunks(self, *, timeout: float | None = None) -> Iterator[outputs.Chunk]:
        """Its output, in pieces as they come, until it has ended.

        Args:
            timeout: Seconds for which each piece is waited for; None for no end.

        Raises:
            errors.WaitTimeoutError: no piece came in time. Nothing is lost: another call goes on.
            errors.MicroVMEndedError: the sandbox has ended, and it with it.
            errors.AgentUnreachableError: nobody knows what became of it.
        """
        return self._iterate(self._next, timeout)

    def lines(
        self, *, encoding: str = "utf-8", errors: str = "replace", timeout: float | None = None
    ) -> Iterator[Line]:  # fmt: skip
        """Its output line by line, until it has ended. A line that is longer than a mebibyte comes in pieces.

        It may be called again and again, and be mixed with ``chunks``: each goes on where the last one stopped.

        Args:
            encoding: That of the output, in which lines end with the byte 10.
            errors: What to do with bytes that are not, as for ``bytes.decode``.
            timeout: Seconds for which each line is waited for; None for no end.

        Raises:
            errors.VmnestError: see ``chunks``.
        """
        unread.check_encoding(encoding)
        return self._iterate(functools.partial(self._next_line, encoding, errors), timeout)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return its exit code. Output that nobody has read is read and dropped.

        Whoever reads afterwards gets a gap for it.

        Args:
            timeout: Seconds; None for no end. With 0 it is asked once, and no output is read.

        Raises:
            errors.WaitTimeoutError: it has not ended within so many seconds.
            errors.MicroVMEndedError: the sandbox has ended, and it with it.
            errors.AgentUnreachableError: nobody knows what became of it.
        """
        deadline = Deadline(timeout, clock=self._agent.clock)
        if timeout == 0 and (code := self.poll()) is not None:
            return code
        while self._end is None or self._follower.exit is None:
            if self._is_read_elsewhere():
                deadline.check(f"the end of {self._name}")
                with self._changed:
                    # The other thread may leave without a word: it is looked for now and then.
                    self._changed.wait(deadline.clamp(0.5))
            elif not self._drop_next(deadline):
                break
        assert self._end is not None
        return self._end.exit_code

    def communicate(
        self, data: feeding.Source | None = None, *, output_limit: int = commands.OUTPUT_LIMIT_BYTES,
        timeout: float | None = None,
    ) -> ExecResult:  # fmt: skip
        """Feed it all of its input, close that, and read its output to the end.

        Args:
            data: Bytes, a file, or pieces, which a thread takes. What they raise is raised here; it runs on.
            output_limit: Bytes of each stream that the result holds, half of its beginning and half of its end.
            timeout: Seconds; None for no end.

        Raises:
            errors.NoInputError: there is data, and it was started without an input.
            errors.WaitTimeoutError: it has not ended in time, and runs on.
        """
        if data is None and self._has_input:
            data = b""
        elif data is not None and not self._has_input:
            raise errors.NoInputError(f"process {self.id} was started without a standard input")
        deadline = Deadline(timeout, clock=self._agent.clock)
        outlet = commands.Outlet(limit=output_limit)
        give_up = functools.partial(self._follower.give_up, deadline)
        with feeding.feed(self._agent, self._input, data, on_failure=give_up):
            while (chunk := self._next(deadline)) is not None:
                outlet.take(chunk)
        assert self._end is not None
        return outlet.to_result(self._end)

    def hold(self) -> None:
        """Tell that its output is still read, although nobody asks for more just now. A suspended sandbox sleeps on.

        Whoever takes more than a minute for a piece of output calls this every now and then, from another thread: else
        the sandbox takes the reader for gone, and of output that is too much to be kept the middle is lost.

        Raises:
            errors.VmnestError: see ``poll``.
        """
        is_asked_for = self._reading.locked()
        self._looked_at = NEVER_SEEN
        if self._end is None and not is_asked_for and not self._may_sleep():
            deadline = Deadline(HOLD_SECONDS, clock=self._agent.clock)
            processes.hold(self._agent, self.id, offset=self.offset, deadline=deadline)

    # -- input, signals, terminal --------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview | str, *, timeout: float | None = None) -> int:
        """Write to its input, and wait until it has taken that. A suspended sandbox is resumed.

        Args:
            data: Bytes, or text that is written as UTF-8.
            timeout: Seconds; None for no end.

        Returns:
            How many bytes it took: fewer than there are if it has closed its input, or has ended.

        Raises:
            errors.NoInputError: it was started without an input.
            errors.WaitTimeoutError: it did not take them in time.
        """
        return self._write(data.encode("utf-8") if isinstance(data, str) else data, is_end=False, timeout=timeout)

    def close_stdin(self, *, timeout: float | None = None) -> None:
        """Close its input: it reads what was written, then the end. In a terminal it gets an end-of-file character."""
        self._write(b"", is_end=True, timeout=timeout)

    def signal(self, signal: str | int) -> bool:
        """Send it a signal (``INT``, ``SIGINT`` and 2 are the same), and all that it has started.

        A suspended sandbox is resumed. Returns False if there was nobody left to get it.
        """
        delivered = processes.send_signal(self._awake(NEVER), self.id, signal)
        self._note_awake()
        return delivered

    def terminate(self) -> bool:
        """``signal("TERM")``."""
        return self.signal("TERM")

    def kill(self) -> bool:
        """``signal("KILL")``."""
        return self.signal("KILL")

    def resize(self, columns: int, rows: int) -> None:
        """Give its terminal another size. A suspended sandbox sleeps on: the size is sent when it goes on.

        Raises:
            errors.NoTerminalError: it runs in none.
        """
        arguments.build_size(columns, rows)
        self._size = columns, rows
        if not self._may_sleep():
            self._send_size()

    # -- life ----------------------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """Leave it running when this object, or its ``with`` block, is left. Reading and all else still work."""
        self._is_detached = True
        self._rest()

    def __enter__(self) -> Process:
        self._entered_by = os.getpid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered_by != os.getpid():
            return  # a forked child leaves the block of its parent, who goes on in it
        if self._is_detached or self._end is not None:
            self._rest()
            return
        try:
            deadline = Deadline(KILL_SECONDS, clock=self._agent.clock)
            self._settle(processes.remove(self._awake(deadline), self.id, deadline=deadline))
        except errors.MicroVMEndedError:
            return  # and it with it
        except errors.VmnestError as failure:
            if error is None:
                raise
            _logger.warning("the process %s in a sandbox was not killed: %s", self.id, failure)
        finally:
            self._follower.stop()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _iterate(self, take: Callable[[Deadline], Piece | None], timeout: float | None) -> Iterator[Piece]:
        me = threading.current_thread()
        self._reader = me
        try:
            while (piece := self._take(take, timeout)) is not None:
                yield piece
        finally:
            if self._reader is me:
                self._reader = None
            with self._changed:
                self._changed.notify_all()

    def _take(self, take: Callable[[Deadline], Piece | None], timeout: float | None) -> Piece | None:
        try:
            return take(Deadline(timeout, clock=self._agent.clock))
        except errors.WaitTimeoutError as error:
            raise errors.WaitTimeoutError(f"{self._name} has written nothing more within {timeout:g} s") from error

    def _next(self, deadline: Deadline) -> outputs.Chunk | None:
        """The next piece of output; None at the end."""
        with self._turn(deadline):
            return self._unread.take() or self._receive(deadline)

    def _next_line(self, encoding: str, handling: str, deadline: Deadline) -> Line | None:
        with self._turn(deadline):
            is_last = False
            while True:
                line = self._unread.take_line(encoding=encoding, handling=handling, is_last=is_last)
                if line is not None or is_last:
                    return line
                chunk = self._receive(deadline)
                is_last = chunk is None
                if chunk is not None:
                    self._unread.put(chunk)

    def _drop_next(self, deadline: Deadline) -> bool:
        """Receive the next piece, and keep nothing but that it was there; False at the end."""
        with self._turn(deadline):
            chunk = self._receive(deadline)
            if chunk is not None:
                self._unread.drop(offset=chunk.offset, count=len(chunk.data) + chunk.missing)
            return chunk is not None

    @contextlib.contextmanager
    def _turn(self, deadline: Deadline) -> Iterator[None]:
        """One thread reads at a time."""
        while not self._reading.acquire(timeout=-1 if (left := deadline.remaining()) is None else left):
            deadline.check(f"the end of {self._name}")
        try:
            yield
        finally:
            self._reading.release()

    def _rest(self) -> None:
        """End the answer that is under way. Whoever reads in another thread reads on."""
        if self._reading.acquire(blocking=False):
            try:
                self._follower.stop()
            finally:
                self._reading.release()

    def _receive(self, deadline: Deadline) -> outputs.Chunk | None:
        chunk = self._follower.next(deadline)
        if chunk is None:
            self._end = self._follower.exit
        return chunk

    def _settle(self, last: outputs.ProcessInfo | None) -> None:
        """The agent has forgotten it, and said the last of it."""
        if last is None:
            return
        self._learn(last)
        if self._end is not None and self._reading.acquire(blocking=False):
            try:
                offset = self._follower.offset
                self._unread.drop(offset=offset, count=max(0, last.offset - offset))
                self._follower.conclude(self._end, offset=max(offset, last.offset))
            finally:
                self._reading.release()

    def _is_read_elsewhere(self) -> bool:
        reader = self._reader
        return reader is not None and reader is not threading.current_thread() and reader.is_alive()

    def _write(self, data: bytes | bytearray | memoryview, *, is_end: bool, timeout: float | None) -> int:
        deadline = Deadline(timeout, clock=self._agent.clock)
        taken = self._input.send(self._awake(deadline), data, is_end=is_end, deadline=deadline)
        self._note_awake()
        return taken

    def _note_awake(self) -> None:
        """The agent did something for us: whoever waits for the sandbox to wake up looks at once."""
        self._looked_at = self._agent.clock.monotonic()
        self._ask_again_at = NEVER_SEEN
        self._pauses = backoff(first=FIRST_PAUSE_SECONDS, last=LAST_PAUSE_SECONDS)
        self._follower.recovery.stir()
        self._send_size()

    def _may_sleep(self) -> bool:
        """Whether its MicroVM is suspended, as far as can be seen. What was seen a moment ago is still so."""
        now = self._agent.clock.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        state = self._agent.look()
        if state in names.ENDED_STATES:
            raise self._agent.ended(state)
        is_asleep = state in names.SUSPENDED_STATES
        self._looked_at = NEVER_SEEN if is_asleep else now
        return is_asleep

    def _send_size(self) -> None:
        size, self._size = self._size, None
        if size is None:
            return
        try:
            processes.resize(self._agent, self.id, columns=size[0], rows=size[1])
        except DOUBTFUL as failure:
            # Another is on its way already, or this one goes when the sandbox is reached again.
            self._size = self._size or size
            _logger.info("the size of a terminal was not sent: %s", failure)

    def _on_pause(self, state: str | None) -> None:
        self._looked_at = NEVER_SEEN
        if state is None:
            self._send_size()
        if self.state_watch is not None:
            self.state_watch(state)

    def _learn(self, info: outputs.ProcessInfo) -> None:
        if info.exit_code is not None:
            self._end = outputs.Exit(info.exit_code, info.signal, info.timed_out)
