"""A running VM of the namespace driver, as the daemon sees it: the other end of a supervisor's control socket."""

from __future__ import annotations

import _socket
import contextlib
import json
import logging
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from ... import errors
from . import cgroups, channel, keeping
from .interface import DISK, ENFORCED_CGROUP, ENFORCED_WATCH, EXITED, LIFETIME, LOST, MEMORY, STOPPED, Ended
from .rubbish import Rubbish

_LOG = logging.getLogger(__name__)

SUPERVISOR_LOG_NAME = "supervisor.log"
LAYER_NAME = "layer"
STAGE_NAME = "stage"
GROUPS_NAME = "cgroups"
_REASONS = (DISK, EXITED, LIFETIME, MEMORY, STOPPED)
DIAL_SPARE_SECONDS = 5.0
_HEAR_SECONDS = 3.0
_STOP_SECONDS = 10.0
_EXIT_SECONDS = 2.0
_LAYER_SECONDS = 600.0  # a layer of millions of files takes that long to remove
_FREEZE_SECONDS = 30.0  # the supervisor gives up long before
_FACTS_SECONDS = 5.0
_CREDENTIALS = struct.Struct("3i")


class NamespaceMachine:
    """A VM and its supervisor. Thread-safe: every dial and every stop has a connection of its own."""

    def __init__(
        self,
        folder: str,
        *,
        connection: _socket.socket,
        pid: int | None,
        facts: Mapping[str, object],
        rubbish: Rubbish,
        on_end: Callable[[Ended], None],
    ) -> None:
        """``pid`` is the supervisor's, if it is a child of ours."""
        self.facts = facts
        self.ended: Ended | None = None
        self.is_frozen = False
        self.folder = folder
        self._connection = connection
        self.pid = pid
        self.keep_layer_at: str | None = None
        self._rubbish = rubbish
        self._on_end = on_end
        self._told: Ended | None = None
        self._pidfd: int | None = None
        self._supervisor = os.pidfd_open(_peer(connection) if pid is None else pid)
        self._gone = threading.Event()
        # Held while the supervisor answers, which is bounded: a freeze and a thaw at once end in one state, not in two.
        self._freezing = threading.Lock()

    @classmethod
    def reconnect(
        cls, folder: str, *, facts: Mapping[str, object], rubbish: Rubbish, on_end: Callable[[Ended], None]
    ) -> NamespaceMachine | None:
        """The VM whose supervisor listens in ``folder``, or None if none does."""
        try:
            connection = channel.connect(folder)
        except OSError:
            return None
        try:
            channel.send(connection, "watch")
            return cls(folder, connection=connection, pid=None, facts=facts, rubbish=rubbish, on_end=on_end)
        except OSError:  # it has just ended
            connection.close()
            return None

    def learn(self) -> bool:
        """Ask the supervisor what holds for the VM; False if it does not answer. One of an older version knows not."""
        try:
            words, descriptor = self._converse("facts", timeout=_FACTS_SECONDS)
        except errors.LocalCloudError:
            return False
        if descriptor is not None:
            os.close(descriptor)
        if words[:1] == ["facts"] and len(words) == 3:
            self._note_enforced(words[1])
            self.is_frozen = words[2] == "frozen"
        return True

    def _note_enforced(self, word: str) -> None:
        if word in (ENFORCED_CGROUP, ENFORCED_WATCH):
            self.facts = {**self.facts, "enforced": word}

    @property
    def descriptor(self) -> int:
        """What the watcher polls."""
        return self._connection.fileno()

    # -- for the daemon ------------------------------------------------------------------------------------------------

    def dial(self, port: int, *, timeout: float) -> socket.socket:
        """See ``interface.Machine``."""
        words, descriptor = self._converse("dial", port, int(timeout * 1000), timeout=timeout + DIAL_SPARE_SECONDS)
        return _check_call(words, descriptor, port=port)

    def egress_listener(self) -> socket.socket:
        """See ``interface.Machine``."""
        words, descriptor = self._converse("egress", timeout=_FACTS_SECONDS)
        return _check_listener(words, descriptor)

    def freeze(self) -> None:
        """See ``interface.Machine``."""
        with self._freezing:
            self._ask("freeze", wanted="frozen")
            self.is_frozen = True

    def thaw(self) -> None:
        """See ``interface.Machine``."""
        with self._freezing:
            self._ask("thaw", wanted="thawed")
            self.is_frozen = False

    def _ask(self, request: str, *, wanted: str) -> None:
        """Have the supervisor do what it answers with one word."""
        words, descriptor = self._converse(request, timeout=_FREEZE_SECONDS)
        if descriptor is not None:
            os.close(descriptor)
        if not words:
            raise errors.LocalCloudError("The sandbox has ended")
        if words != [wanted]:
            raise errors.LocalCloudError(f"The sandbox could not be {wanted}: {' '.join(words)}")

    def _converse(self, *request: object, timeout: float) -> tuple[list[str], int | None]:
        """One request to the supervisor, and its answer, on a connection of their own."""
        if self.ended is not None:
            raise errors.LocalCloudError(f"The sandbox has ended ({self.ended.reason})")
        try:
            connection = channel.connect(self.folder)
        except OSError as error:
            raise errors.LocalCloudError(f"The supervisor of the sandbox does not answer: {error}") from error
        try:
            connection.settimeout(timeout)
            channel.send(connection, *request)
            return channel.receive(connection)
        except (OSError, ValueError) as error:
            raise errors.LocalCloudError(f"The supervisor of the sandbox does not answer: {error}") from error
        finally:
            connection.close()

    def stop(self, *, grace: float = 0) -> None:
        """See ``interface.Machine``."""
        if self._gone.is_set():
            return
        try:
            connection = channel.connect(self.folder)
        except OSError:
            connection = None  # it is about to end, or it is lost: the watcher sees which
        try:
            if connection is not None and not _request_stop(connection, grace) and not self._has_no_process():
                self.kill()  # it hangs
            if not self._wait_gone(grace + _STOP_SECONDS):
                self.kill()
                self.wait()
        finally:
            if connection is not None:
                connection.close()

    def kill(self) -> None:
        """End the supervisor; the kernel ends the VM with it."""
        signal.pidfd_send_signal(self._supervisor, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until nothing is left of the VM."""
        self._gone.wait()

    def let_go(self) -> None:
        """Close what is open towards the supervisor, which goes on; the machine is of no further use."""
        self._connection.close()
        os.close(self._supervisor)
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _wait_gone(self, seconds: float) -> bool:
        """Wait that long for the VM's processes to end, then as long as it takes to remove the layer."""
        deadline = time.monotonic() + seconds
        while not self._gone.wait(min(0.5, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return self._has_no_process() and self._gone.wait(_LAYER_SECONDS)
        return True

    def _has_no_process(self) -> bool:
        return self._pidfd is not None and _is_dead(self._pidfd, seconds=0)

    # -- for the watcher -----------------------------------------------------------------------------------------------

    def hear(self, *, timeout: float | None = None) -> list[str]:
        """The supervisor's next words; none at its end or the timeout, after which only ``conclude`` may be called."""
        try:
            self._connection.settimeout(timeout)
            words, descriptor = channel.receive(self._connection)
        except (OSError, ValueError):
            return []
        if words[:1] == ["init"] and descriptor is not None and self._pidfd is None:
            self._pidfd = descriptor
        elif descriptor is not None:
            os.close(descriptor)
        if words[:1] == ["limits"] and len(words) == 2:
            self._note_enforced(words[1])
        if words[:1] == ["ended"]:
            self._told = parse_ended(words)
        return words

    def attend(self) -> bool:
        """Take one frame in the watcher's thread; False after the end."""
        if self.hear():
            return True
        self.conclude()
        self._on_end(self.ended or Ended(None, None, LOST))
        return False

    def conclude(self) -> None:
        """After the supervisor's end: make sure that nothing is left, and tell all who wait."""
        self._connection.close()
        if not _is_dead(self._supervisor, seconds=_EXIT_SECONDS):
            self.kill()
        if self.pid is not None:
            os.waitpid(self.pid, 0)
        os.close(self._supervisor)
        if self._pidfd is not None:
            if self._told is None:
                # It is dead as well, or about to be, unless it was frozen by a group of version 1.
                cgroups.end_processes(load_groups(self.folder))
            # Normally it is dead: the supervisor waited for it, or took it along.
            if not _is_dead(self._pidfd, seconds=_EXIT_SECONDS):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                _is_dead(self._pidfd, seconds=_STOP_SECONDS)
            os.close(self._pidfd)
            self._pidfd = None
        self._keep_layer()
        clean_folder(self.folder, self._rubbish)
        if self._told is None:
            self._told = Ended(None, None, LOST)
            record_ended(self.folder, self._told)
        self.ended = self._told
        self._gone.set()

    def _keep_layer(self) -> None:
        if self.keep_layer_at is None or self._told is None or self._told != Ended(0, None, EXITED):
            return
        try:
            keeping.keep_layer(os.path.join(self.folder, LAYER_NAME), self.keep_layer_at)
        except OSError:  # a full disk; who wants the layer sees that it is not there
            _LOG.exception("%s: what it wrote cannot be kept", self.folder)


def _peer(connection: _socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    return pid


def _is_dead(pidfd: int, *, seconds: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _request_stop(connection: _socket.socket, grace: float) -> bool:
    """Ask a supervisor to end its VM; False if it does not hear."""
    try:
        connection.settimeout(_HEAR_SECONDS)
        channel.send(connection, "stop", int(grace * 1000))
        _, descriptor = channel.receive(connection)
    except TimeoutError:
        return False
    except (OSError, ValueError):  # it has just ended
        return True
    if descriptor is not None:
        os.close(descriptor)
    return True


def _check_call(words: list[str], descriptor: int | None, *, port: int) -> socket.socket:
    """The connected socket of a dial's answer. What the supervisor hands over is not believed, but looked at."""
    call = None if descriptor is None else _wrap(descriptor)
    if call is not None:
        is_tcp = (call.family, call.type) == (socket.AF_INET, socket.SOCK_STREAM)
        if words == ["ok"] and is_tcp and _is_connected(call, port):
            call.setblocking(True)
            call.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return call
        call.close()
    if words == ["refused"]:
        raise ConnectionRefusedError(f"nothing listens on port {port} in the sandbox")
    if words == ["timeout"]:
        raise TimeoutError(f"no connection to port {port} in the sandbox in time")
    if not words:
        raise errors.LocalCloudError("The sandbox has ended")
    raise errors.LocalCloudError(f"No connection to port {port} in the sandbox: {' '.join(words)}")


def _check_listener(words: list[str], descriptor: int | None) -> socket.socket:
    """The listening socket of an answer to ``egress``, looked at as a dial's is."""
    listener = None if descriptor is None else _wrap(descriptor)
    if listener is not None:
        is_tcp = (listener.family, listener.type) == (socket.AF_INET, socket.SOCK_STREAM)
        if words == ["ok"] and is_tcp and _is_listening(listener, channel.EGRESS_PORT):
            return listener
        listener.close()
    if not words:
        raise errors.LocalCloudError("The sandbox has ended")
    raise errors.LocalCloudError(f"The sandbox has no way out: {' '.join(words)}")


def _is_listening(listener: socket.socket, port: int) -> bool:
    accepts = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return bool(accepts and listener.getsockname() == ("127.0.0.1", port))


def _wrap(descriptor: int) -> socket.socket | None:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:  # it is no socket
        os.close(descriptor)
        return None


def _is_connected(call: socket.socket, port: int) -> bool:
    try:
        peer = call.getpeername()
    except OSError:  # the peer has closed it already, or it never was connected
        return False
    return bool(peer == ("127.0.0.1", port))


def parse_ended(words: list[str]) -> Ended | None:
    """The end that a supervisor's ``ended KIND NUMBER REASON`` tells, or None if it is no such line."""
    if len(words) != 4 or words[1] not in ("exit", "signal") or not words[2].isdigit() or words[3] not in _REASONS:
        return None
    number = int(words[2])
    return Ended(number, None, words[3]) if words[1] == "exit" else Ended(None, number, words[3])


def load_ended(folder: str) -> Ended | None:
    """What the supervisor of a VM's folder recorded, or None if it did not live to do so."""
    try:
        with open(os.path.join(folder, channel.ENDED_NAME), "rb") as reader:
            record = json.loads(reader.read(4096))
        return Ended(record["exit_code"], record["signal"], record["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_ended(folder: str, ended: Ended) -> None:
    """Write the record that the supervisor could not write."""
    record = {"exit_code": ended.exit_code, "signal": ended.signal, "reason": ended.reason}
    try:
        with open(os.path.join(folder, channel.ENDED_NAME), "w", encoding="ascii") as writer:
            writer.write(json.dumps(record) + "\n")
    except OSError as error:  # a full disk, or the folder is gone: the end stays the end
        _LOG.warning("%s: the end could not be recorded: %s", folder, error)


def load_groups(folder: str) -> list[str]:
    """The control groups that the VM of a folder may have."""
    try:
        with open(os.path.join(folder, GROUPS_NAME), encoding="utf-8", errors="surrogateescape") as reader:
            return reader.read().splitlines()
    except FileNotFoundError:
        return []


def record_groups(folder: str, groups: Iterable[str]) -> None:
    """Write down the control groups of the VM of a folder, before they are made: a later daemon runs elsewhere."""
    with open(os.path.join(folder, GROUPS_NAME), "w", encoding="utf-8", errors="surrogateescape") as writer:
        writer.writelines(f"{group}\n" for group in groups)


def clean_folder(folder: str, rubbish: Rubbish) -> None:
    """Remove what the driver made for a VM, but for its records in the folder: the console's output and the end."""
    groups = load_groups(folder)
    cgroups.end_processes(group for group in groups if os.path.isdir(group))
    cgroups.remove_groups(groups)
    for name in (LAYER_NAME, STAGE_NAME):
        path = os.path.join(folder, name)
        try:
            os.rmdir(path)  # a supervisor that ended in order has emptied it
        except FileNotFoundError:
            continue
        except OSError:
            rubbish.throw(path)
    for name in (channel.SOCKET_NAME, GROUPS_NAME):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
