"""Signals: those that end this process, and Ctrl+C as long as it is meant for a command in a sandbox."""

from __future__ import annotations

import signal

from .. import errors
from . import failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Protocol

    class Target(Protocol):
        """A command in a sandbox."""

        def signal(self, sig: str | int) -> bool:
            """Send a signal to it; False: it has ended."""

        def kill(self) -> bool:
            """Send SIGKILL to it; False: it has ended."""


__all__ = ["Interrupts", "is_ending", "leave_to_main_thread", "raise_once"]

PATIENCE_SECONDS = 1.0  # how long a command may take to end after a Ctrl+C before the user is told about a second one
KILL_SECONDS = 5.0  # how long the news of a killed command is waited for
JOIN_SECONDS = 1.0
AGAIN_SECONDS = 0.1
# Windows has no SIGHUP.
_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def raise_once() -> Callable[[], None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into an exception, so that what was begun is cleaned up; then be deaf.

    Returns what makes deaf without a signal.

    Cleaning up has its own deadline; a second signal in the middle of it would leave a sandbox behind. Signals that
    whoever started us ignores stay ignored.
    """
    handled = [number for number in _ENDING if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)]

    def become_deaf() -> None:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)

    def receive(number: int, frame: FrameType | None) -> None:
        # Not ignored: Python complains of one that has come already and is ignored before its turn.
        for each in handled:
            signal.signal(each, _pass_over)
        # No KeyboardInterrupt: one that passes through code made from text (a NamedTuple's) counts as uncaught for
        # Python, which then ends the process by the signal, whatever status we exit with.
        raise failure.Ended(number)

    for number in handled:
        signal.signal(number, receive)
    return become_deaf


def _pass_over(number: int, frame: FrameType | None) -> None:
    """We are on our way out already."""


def is_ending() -> bool:
    """Whether a signal has been raised: another exception in its way would be one in the middle of cleaning up."""
    return any(signal.getsignal(number) is _pass_over for number in _ENDING)


def leave_to_main_thread() -> None:
    """Have signals go to the main thread, for a thread that calls this: one that it got would not wake the main one."""
    if hasattr(signal, "pthread_sigmask"):  # where there is none, they go to no other
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


class Interrupts:
    """Within its ``with`` block Ctrl+C is for the command: once SIGINT, twice SIGKILL; a third one is for us.

    The handler runs in the main thread, wherever that is: perhaps in the middle of a request, with locks held. So it
    leaves a note, and a thread of our own sends the signal. Where the command cannot be reached (its sandbox is
    suspended, the network is down), Ctrl+C ends us as it does everywhere else.

    Args:
        target: The command.
        remark: Told what becomes of it.
        advises: Say of a command that does not end what to do about that, to the person who waits for it.

    Attributes:
        is_paused: Set by whoever knows: the sandbox is suspended, and a signal would wake it.
        was_killed: The command was sent SIGKILL.
    """

    def __init__(self, target: Target, *, remark: Callable[[str], None], advises: bool = True) -> None:
        self.is_paused = False
        self.was_killed = False
        self._target = target
        self._remark = remark
        self._advises = advises
        self._count = 0
        self._is_lost = False  # it cannot be reached
        self._is_given_up = False  # the main thread has heard of that, or of a third Ctrl+C
        self._before: Callable[[int, FrameType | None], object] | None = None

    def __enter__(self) -> Interrupts:
        import threading

        before = signal.getsignal(signal.SIGINT)
        if not callable(before) or threading.current_thread() is not threading.main_thread():
            return self  # it is ignored, or not ours to take
        import queue

        self._notes: queue.SimpleQueue[bool] = queue.SimpleQueue()  # put() may interrupt itself
        self._thread = threading.Thread(target=self._work, name="vmnest-interrupts", daemon=True)
        self._thread.start()
        self._before = before
        signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        if signal.getsignal(signal.SIGINT) == self._receive:  # else all signals are passed over by now
            signal.signal(signal.SIGINT, before)
        self._notes.put(False)
        self._thread.join(JOIN_SECONDS)  # it may be in the middle of a request

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._is_given_up:
            return
        self._count += 1
        if self._before is not None and (self._count > 2 or self.is_paused or self._is_lost):
            self._is_given_up = True
            self._before(number, frame)
        else:
            self._notes.put(True)

    def _work(self) -> None:
        leave_to_main_thread()
        if not self._notes.get() or not self._send(lambda: self._target.signal("INT")):
            return
        if not self._next("the command was sent SIGINT; a second Ctrl+C kills it"):
            return
        self.was_killed = True
        if self._send(self._target.kill) and self._wait(KILL_SECONDS):
            self._give_up()

    def _send(self, action: Callable[[], bool]) -> bool:
        try:
            action()
        except errors.VmnestError as error:
            self._remark(f"the command cannot be sent the signal: {error.message}")
            self._give_up()
            return False
        return True

    def _next(self, advice: str) -> bool:
        """Wait for another Ctrl+C, or for the end (False); give the advice when the wait gets long."""
        if self._wait(PATIENCE_SECONDS):
            if self._advises:
                self._remark(advice)
            return self._notes.get()
        return self._is_interrupted

    def _wait(self, seconds: float) -> bool:
        """Nothing happens for so long."""
        import queue

        try:
            self._is_interrupted = self._notes.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def _give_up(self) -> None:
        """Let this Ctrl+C be for us."""
        import threading

        self._is_lost = True
        main = threading.main_thread().ident
        assert main is not None
        # To the thread itself: it may wait for bytes that do not come. And again, until it has heard: a signal that
        # comes while it is on its way into the kernel, or in the handler of another one, ends no wait.
        while self._before is not None and not self._is_given_up:
            _interrupt(main)
            self._wait(AGAIN_SECONDS)


def _interrupt(main: int) -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)  # its handler runs in the main thread in any case, if less soon
