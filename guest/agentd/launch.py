"""Starts commands: their streams, their session, and whatever has to be done in their own process before them.

A command leads its own session and process group. A plain one is spawned directly. One with a terminal, another user or
limits of its own begins as ``prelude``, which costs the start of an interpreter: ``preexec_fn``, ``fork`` and
``pty.fork`` may deadlock in a process with threads.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import socket
import subprocess
import sys
import threading

from . import limits, programs, stopwatch, terminals, wire
from .errors import RequestError, bad_argument, is_exhaustion, overloaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .programs import Command

# A spawn holds the interpreter, on Python 3.9 for a whole fork. Those that wait for their turn do not compete for it
# with the threads that answer others: with 64 spawns at once, /healthz took seconds. With vfork (3.10 on), two at a
# time left a quarter of what two cores can start unused; eight brought hardly more than four.
_SPAWNS_AT_ONCE = 4 if sys.version_info >= (3, 10) else 2
_PRELUDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prelude.py")
_PRELUDE_SECONDS = 30.0
_PIECE_BYTES = 65536


class Started:
    """A command that runs, and our ends of its streams; those that it has not are None. They are non-blocking.

    With a terminal, ``stdin`` is a second descriptor of it: all that a process needs is there before it is.
    """

    __slots__ = ("child", "stderr", "stdin", "stdout", "terminal")

    def __init__(self, child: subprocess.Popen[bytes], ends: dict[str, int]) -> None:
        self.child = child
        self.stdin = ends.get("stdin")
        self.stdout = ends.get("stdout")
        self.stderr = ends.get("stderr")
        self.terminal = ends.get("terminal")


class Launcher:
    """Starts commands for an agent. Thread-safe.

    Args:
        files: The agent's own limit of open files, which no command inherits.
    """

    def __init__(self, *, files: limits.OwnFiles | None = None) -> None:
        self._files = files or limits.OwnFiles()
        self._spawning = threading.BoundedSemaphore(_SPAWNS_AT_ONCE)

    def start(self, command: Command, executable: bytes) -> Started:
        """Start ``command``, whose program ``programs.resolve`` has found.

        Raises:
            RequestError: the system refuses.
        """
        streams = _Streams()
        try:
            streams.open(command)
            if _is_plain(command):
                child = self._start_plain(command, executable, streams=streams)
            else:
                child = self._start_prepared(command, executable, streams=streams)
        except OSError as error:
            streams.close_ours()
            raise programs.explain(error, command) from error
        except BaseException:
            streams.close_ours()
            raise
        finally:
            streams.close_theirs()
        return Started(child, streams.ours)

    def _start_plain(self, command: Command, executable: bytes, *, streams: _Streams) -> subprocess.Popen[bytes]:
        with self._spawning, self._files.lowered():
            child = subprocess.Popen(
                command.argv,
                executable=executable,
                cwd=command.cwd,
                env=command.environment,
                stdin=streams.theirs[0],
                stdout=streams.theirs[1],
                stderr=streams.theirs[2],
                start_new_session=True,
            )
        self._files.lower(child.pid)
        return child

    def _start_prepared(self, command: Command, executable: bytes, *, streams: _Streams) -> subprocess.Popen[bytes]:
        order = _build_order(command, executable, rlimits={**self._files.limits, **command.rlimits})
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._spawning:
                child = _spawn_prelude(theirs.fileno(), streams)
            try:
                answer = _converse(ours, order)
            except BaseException:
                child.kill()
                child.wait()
                raise
        if answer != b"+":
            child.wait()
            raise _explain_answer(answer.decode("ascii", "replace"), command)
        return child


class _Streams:
    """The descriptors between the agent and one command."""

    def __init__(self) -> None:
        self.ours: dict[str, int] = {}
        self.theirs: list[int] = []  # stdin, stdout, stderr
        self._opened: list[int] = []  # of theirs, those to be closed

    def open(self, command: Command) -> None:
        if command.pty is not None:
            self.ours["terminal"], side = terminals.open_pair(command.pty)
            self._opened.append(side)
            self.theirs = [side] * 3
            # For input a descriptor of its own: a request may be waiting on it when the other one is closed.
            self.ours["stdin"] = os.dup(self.ours["terminal"])
            return
        if command.stdin:
            reader, self.ours["stdin"] = os.pipe()
            self._opened.append(reader)
        else:
            reader = subprocess.DEVNULL
        self.theirs.append(reader)
        for name in ("stdout", "stderr"):
            self.ours[name], writer = os.pipe()
            self._opened.append(writer)
            self.theirs.append(writer)
        for descriptor in self.ours.values():
            os.set_blocking(descriptor, False)

    def close_ours(self) -> None:
        for descriptor in self.ours.values():
            os.close(descriptor)

    def close_theirs(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)


def _is_plain(command: Command) -> bool:
    """Whether nothing has to be done in its own process that ``Popen`` does not do."""
    user = command.user
    is_own_user = user is None or (user.uid, user.gid) == (os.getuid(), os.getgid())
    return is_own_user and command.pty is None and not command.rlimits


def _build_order(command: Command, executable: bytes, *, rlimits: dict[str, tuple[int, int]]) -> bytes:
    executables = [executable]
    if command.user is not None:
        # What we can execute, this user perhaps cannot; then a later one on PATH is meant.
        candidates = list(programs.find_candidates(command))
        executables = candidates[candidates.index(executable) :]
    user = command.user
    order = {
        "argv": list(command.argv),
        "cwd": command.cwd,
        "environment": dict(command.environment),
        "executables": executables,
        "rlimits": [(name, limits.NUMBERS[name], pair) for name, pair in rlimits.items()],
        "terminal": command.pty is not None,
        "user": None if user is None else (user.uid, user.gid, user.groups),
    }
    return marshal.dumps(order)


def _spawn_prelude(channel: int, streams: _Streams) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            # Our own environment: what this interpreter needs to start, it has.
            [sys.executable or "/proc/self/exe", "-I", "-S", _PRELUDE, str(channel)],
            cwd="/",
            stdin=streams.theirs[0],
            stdout=streams.theirs[1],
            stderr=streams.theirs[2],
            start_new_session=True,
            pass_fds=(channel,),
        )
    except OSError as error:
        if is_exhaustion(error):
            raise
        raise RequestError(500, wire.INTERNAL, f"the agent cannot start its own interpreter: {error}") from error


def _converse(channel: socket.socket, order: bytes) -> bytes:
    """Give the order and take the answer. Neither may block for ever, whatever became of the other side."""
    channel.setblocking(False)
    poller = select.poll()
    poller.register(channel, select.POLLIN | select.POLLOUT)
    watch = stopwatch.Stopwatch()
    unsent, answer = memoryview(order), b""
    while watch.read() < _PRELUDE_SECONDS:
        for _, events in poller.poll(int(stopwatch.TICK_SECONDS * 1000)):
            if events & select.POLLOUT:
                unsent = _send(channel, unsent)
                if not unsent:
                    poller.modify(channel, select.POLLIN)
            if events & ~select.POLLOUT:
                piece = _receive(channel)
                if not piece:
                    return answer
                answer += piece
    raise overloaded(OSError(errno.EAGAIN, "a command did not begin in time"))


def _send(channel: socket.socket, unsent: memoryview) -> memoryview:
    """What is still to be sent; nothing where the other side ended without hearing us out."""
    try:
        unsent = unsent[channel.send(unsent) :]
        if not unsent:
            channel.shutdown(socket.SHUT_WR)
    except ConnectionError:
        return memoryview(b"")
    return unsent


def _receive(channel: socket.socket) -> bytes:
    try:
        return channel.recv(_PIECE_BYTES)
    except ConnectionError:
        return b""


def _explain_answer(answer: str, command: Command) -> RequestError:
    """Why a command did not begin, of what the prelude said last."""
    step, _, digits = answer.lstrip("+").partition(" ")
    if not digits.isdigit():
        reason = "a command's process ended before the command began"
        return bad_argument("rlimits", reason) if command.rlimits else RequestError(503, wire.OVERLOADED, reason)
    number = int(digits)
    reason = os.strerror(number)
    if step == "cwd":
        return programs.explain(OSError(number, reason, command.cwd), command)
    if step == "exec" and number == errno.EAGAIN and "nproc" in command.rlimits:
        return bad_argument("rlimits.nproc", "its user has as many processes already")
    if step == "exec":
        return programs.explain(OSError(number, reason), command)
    if step == "user":
        assert command.user is not None
        name = command.user.name.decode("utf-8", "backslashreplace")
        if number == errno.EINVAL:  # a user namespace that does not map its numbers
            detail = f"this sandbox has no user {name}: uid {command.user.uid} is not mapped in it"
            return RequestError(400, wire.NO_SUCH_USER, detail)
        return RequestError(400, wire.PERMISSION_DENIED, f"the agent may not run commands as user {name}: {reason}")
    if step.startswith("rlimits."):
        why = "refused, as a hard limit above the present one is" if number == errno.EPERM else "refused"
        return bad_argument(step, f"{why}: {reason}")
    return RequestError(500, wire.INTERNAL, f"{step}: {reason}")
