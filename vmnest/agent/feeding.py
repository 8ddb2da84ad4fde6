"""Input of a process, sent so that every byte arrives once, whatever happens to the answers.

Each piece goes with the number of bytes before it, so that sending it again does no harm. Others may write to the same
process: everybody's bytes are counted by themselves. A user's own input wakes a sandbox that sleeps; what is only fed
through (a file, a list of pieces) waits until it is awake.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from . import processes
from .recovery import DOUBTFUL, Recovery
from .sources import BinaryFile

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["Feeder", "Input", "Source", "feed"]

LATE = "the process in the sandbox did not take its input in time"
STOP_SECONDS = 1.0  # for the request that is under way when the process has ended

_logger = logging.getLogger(__name__)

Source = bytes | bytearray | memoryview | str | Iterable[bytes] | BinaryFile


class Input:
    """One process's input. Safe for threads: ``lock`` keeps the pieces of one call together, and its holder sends.

    Args:
        process_id: The process.
        writer: By it the agent knows our bytes from those of others.

    Attributes:
        is_closed: It takes no more.
    """

    def __init__(self, process_id: str, *, writer: str | None = None) -> None:
        self.is_closed = False
        self._process_id = process_id
        self._writer = os.urandom(8).hex() if writer is None else writer
        self._offset = 0
        self._lock = threading.Lock()

    def send(
        self,
        client: AgentClient,
        data: bytes | bytearray | memoryview,
        *,
        is_end: bool = False,
        wakes: bool = True,
        deadline: Deadline = NEVER,
    ) -> int:
        """Send these bytes, and wait until the process has taken them; how many it took before it took no more.

        Raises:
            errors.NoInputError: the process has no input.
            errors.ProcessNotFoundError: the agent does not know the process.
            errors.WaitTimeoutError: the process did not take them in time.
        """
        view = memoryview(data).cast("B")
        with self._lock:
            recovery = Recovery(client, deadline=deadline, late=LATE)
            sender = functools.partial(self._send, client, wakes=wakes, recovery=recovery)
            began = self._offset
            is_done = not view and not is_end
            while not (is_done or self.is_closed):
                if deadline.expired:
                    raise errors.WaitTimeoutError(LATE)
                at = self._offset - began
                piece = bytes(view[at : at + wire.MAX_STDIN_BYTES])
                is_last = at + len(piece) == len(view)
                self._offset = sender(piece, at=self._offset, is_end=is_end and is_last)
                is_done = is_last and self._offset == began + len(view)
            self.is_closed |= is_end
            return self._offset - began

    def _send(
        self, client: AgentClient, piece: bytes, *, at: int, is_end: bool, wakes: bool, recovery: Recovery
    ) -> int:
        """How many bytes of our input the process has taken in all."""
        while True:
            try:
                taken = processes.send_input(
                    client,
                    self._process_id,
                    piece,
                    writer=self._writer,
                    offset=at,
                    is_end=is_end,
                    wakes=wakes,
                    deadline=recovery.deadline,
                )
            except DOUBTFUL as error:
                recovery.after_failure(error, wakes=wakes)
                continue
            recovery.note_success()
            self.is_closed |= taken.is_closed
            if taken.offset < at + len(piece) and not taken.is_closed:
                recovery.await_awake()  # it was quiet: nobody's word is needed to ask again, so nothing may be woken
            return taken.offset


class Feeder:
    """Sends a source to a process's input in a thread of its own, and closes the input at the source's end.

    The thread ends by itself when the process takes no more. One that waits for the source's next piece then cannot be
    woken: it ends with that piece, or with the program.

    Args:
        client: Of the agent.
        process_input: Where the source goes.
        source: What to send.
        on_failure: Called by the thread when the source fails. The process gets no end of its input then, which is not
            whole: whoever waits for the end of the process must hear that it may not come.
    """

    def __init__(
        self,
        client: AgentClient,
        process_input: Input,
        source: Source,
        *,
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._input = process_input
        self._pieces = _to_pieces(source)
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="vmnest-stdin", daemon=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It feeds during this block, which reads the output; what the source raised is raised at its end."""
        self._thread.start()
        try:
            yield
        except errors.VmnestError:
            if self._failure is None:
                raise  # else the reading was ended for that
        finally:
            self._stopping.set()
            self._thread.join(STOP_SECONDS)
        if self._failure is not None:
            raise self._failure

    def is_alive(self) -> bool:
        """Something is still to be sent."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the feeding, at most that long."""
        self._thread.join(seconds)

    def _feed(self) -> None:
        try:
            with contextlib.closing(self._pieces) as pieces:
                for piece in pieces:
                    if self._stopping.is_set() or not self._send(piece):
                        return
            self._send(b"", is_end=True)
        except BaseException as error:
            self._failure = error
            self._on_failure()

    def _send(self, piece: bytes | memoryview, *, is_end: bool = False) -> bool:
        """Send it; False if no more is wanted."""
        try:
            self._input.send(self._client, piece, is_end=is_end, wakes=False)
        except (errors.ProcessNotFoundError, errors.MicroVMEndedError, *DOUBTFUL) as error:
            # Whoever reads the output meets the same, and knows better what it means.
            _logger.info("a process did not get all of its input: %s", error)
            return False
        return not self._input.is_closed


@contextlib.contextmanager
def feed(
    client: AgentClient, process_input: Input, source: Source | None, *, on_failure: Callable[[], object]
) -> Iterator[None]:
    """Feed a process its input, if there is any, while its output is read in this block. See ``Feeder``."""
    if source is None:
        yield
    else:
        with Feeder(client, process_input, source, on_failure=on_failure).running():
            yield


def _to_pieces(source: Source) -> Generator[bytes | memoryview]:
    """The bytes of a source, in pieces that are worth a request each, but none later than it can be had."""
    if isinstance(source, str):
        source = source.encode("utf-8")
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield memoryview(source).cast("B")
    elif hasattr(source, "read"):
        yield from _read(cast("BinaryFile", source))
    else:
        gatherer = _Gatherer(source)
        try:
            yield from gatherer.blocks()
        finally:
            gatherer.stop()


def _read(file: BinaryFile) -> Iterator[bytes]:
    """A file's content. ``read1`` gives what there is, where ``read`` would wait for all that was asked for."""
    read = getattr(file, "read1", file.read)
    while piece := _checked(read(wire.MAX_STDIN_BYTES)):
        yield bytes(piece)


def _checked(piece: object) -> bytes | bytearray | memoryview:
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise errors.UsageError(
            f"input must come as bytes, not as {type(piece).__name__}", hint="Open files in binary mode, and blocking."
        )
    return piece


class _Gatherer:
    """Takes pieces in a thread of its own: those that come while a request is under way share the next one."""

    def __init__(self, pieces: Iterable[object]) -> None:
        self._pieces = pieces
        self._changed = threading.Condition()
        self._gathered = bytearray()
        self._has_ended = False
        self._is_stopped = False
        self._failure: BaseException | None = None
        threading.Thread(target=self._gather, name="vmnest-stdin-source", daemon=True).start()

    def blocks(self) -> Iterator[bytes]:
        """What has come, as soon as something has; raises what the pieces raise, after what came before that."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._gathered or self._has_ended)
                block = bytes(self._gathered[: wire.MAX_STDIN_BYTES])
                del self._gathered[: wire.MAX_STDIN_BYTES]
                self._changed.notify_all()
            if not block:
                break
            yield block
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """No more is wanted."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _gather(self) -> None:
        try:
            for piece in self._pieces:
                if not self._take(_checked(piece)):
                    break
        except BaseException as error:
            self._failure = error
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _take(self, piece: bytes | bytearray | memoryview) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._gathered) < wire.MAX_STDIN_BYTES or self._is_stopped)
            self._gathered += piece
            self._changed.notify_all()
            return not self._is_stopped
