"""The supervisor of one VM: parent of its process 1, keeper of its namespaces, and its only door.

A process of its own, stand-alone (see ``drivers.runtime``), single-threaded, with one poll loop; it outlives the
daemon. It reads its configuration (``marshal``: both ends are the same interpreter) from standard input, and lives
outside the VM's pid and mount namespaces but inside its network namespace, so that a dial is a plain connect.

What it must do in this order, and why:

1. open all files of the VM's folder, and as root make the stage: afterwards the way there is closed;
2. give up root for an unused uid, so that nothing inside is anybody on the host;
3. leave the user namespace, then the others (with the capabilities that the first one gave);
4. fork process 1 (``drivers.init``), which makes its own mount namespace;
5. serve: dials, stop, watchers; the console; the maximum duration; the end.

Everything that comes from inside (the ready line, the console, the status line of process 1) is bounded and checked.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import fcntl
import marshal
import os
import select
import struct
import sys
import time

from .drivers import channel, console, disk, init, kernel, mounts, removal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONSOLE_NAME = "console.log"
ENDED_NAME = "ended.json"
_EVENTS = 3
_INSIDE_ID = 1000
_HOSTNAME = "sandbox"
_MAX_CONNECTIONS = 512
_MAX_DIAL_MILLISECONDS = 60_000
_ACCEPT_PAUSE_SECONDS = 0.02
_SIGKILL = 9
_SIGTERM = 15
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def main() -> None:
    """Read the configuration, make the VM, serve it to its end."""
    os.setsid()
    kernel.close_all_but(range(_EVENTS + 1))  # what else the daemon had open is none of our business
    os.set_inheritable(_EVENTS, False)
    events = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, _EVENTS)
    config = marshal.load(sys.stdin.buffer)  # noqa: S302 - from the daemon that started us
    try:
        supervisor = _launch(config, events)
    except init.StepFailedError as failure:
        channel.send(events, "failed", failure.step, failure.number, failure.subject)
        os._exit(1)
    supervisor.serve()
    os._exit(0)  # nothing is left that an interpreter's way out would tidy


def _launch(config: dict[str, Any], events: _socket.socket) -> Supervisor:
    plan = mounts.Plan.from_wire(config["plan"])
    files = Files(plan.folder, skeleton=plan.skeleton)
    uid = config["uid"]
    if uid is not None:
        init.take("mount-namespace", lambda: _isolate_as_root(uid))
        init.take("stage", lambda: mounts.stage(plan))
        init.take("identity", lambda: _become(uid))
    else:
        os.chdir("/")
    _enter_namespaces()
    output, output_end = os.pipe()
    report, report_end = os.pipe()
    ready, ready_end = os.pipe() if config["ready"] else (-1, -1)
    child = os.fork()
    if child == 0:
        for descriptor in (output, report, events.fileno(), *files.descriptors()):
            os.close(descriptor)
        start = init.Main(
            config["argv"],
            config["environment"],
            console=output_end,
            ready=ready_end,
            processes=config["processes"],
            file_bytes=plan.disk_bytes,
        )
        init.run(plan, start, report=report_end, stage=uid is None)
    for descriptor in (output_end, report_end):
        os.close(descriptor)
    if ready >= 0:
        os.close(ready_end)
    pipes = {"console": output, "report": report, "ready": ready}
    supervisor = Supervisor(child, files, pipes=pipes, seconds=config["max_seconds"], first=events)
    if plan.writable == mounts.DISK:
        supervisor.watch_disk(plan.disk_bytes)
    return supervisor


def _isolate_as_root(uid: int) -> None:
    """A mount namespace for the stage. Root in a container may lack CAP_SYS_ADMIN: then by way of a user namespace.

    That one maps root and the sandbox's uid to themselves. Such a map of two takes capabilities outside of it, so a
    process that stays outside writes it.
    """
    try:
        mounts.isolate()
    except PermissionError:
        wake, waker = os.pipe()
        outside = os.fork()
        if outside == 0:
            os.close(waker)  # or it would wait for itself, should we fail
            _map_from_outside(wake, uid)
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(waker, b"x")
        os.close(waker)
        os.close(wake)
        _, status = os.waitpid(outside, 0)
        if status != 0:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), "uid_map") from None
        mounts.isolate()


def _map_from_outside(wake: int, uid: int) -> None:
    status = 1
    try:
        process = os.getppid()
        if not os.read(wake, 1):
            return
        for name in ("uid_map", "gid_map"):
            _write(f"/proc/{process}/{name}", f"0 0 1\n{uid} {uid} 1\n")
        status = 0
    finally:
        os._exit(status)


def _become(uid: int) -> None:
    """Be nobody on this host. The change makes a process undumpable, and its /proc/self root's: undo that."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)


def _enter_namespaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    init.take("user-namespace", lambda: kernel.unshare(kernel.CLONE_NEWUSER))
    init.take("identity-map", lambda: _map_identity(uid, gid))
    rest = kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    init.take("namespaces", lambda: kernel.unshare(rest))
    init.take("loopback", _raise_loopback)
    init.take("hostname", lambda: kernel.set_hostname(_HOSTNAME))


def _map_identity(uid: int, gid: int) -> None:
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{_INSIDE_ID} {uid} 1")
    _write("/proc/self/gid_map", f"{_INSIDE_ID} {gid} 1")


def _write(path: str, text: str) -> None:
    """Write all of it at once: the kernel takes a map in one piece."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _raise_loopback() -> None:
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    try:
        fcntl.ioctl(probe.fileno(), _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    finally:
        probe.close()


class Files:
    """What the supervisor keeps open of ``vms/<id>``: after the change of uid it could not open it any more."""

    __slots__ = ("console", "ended", "layer", "listener", "skeleton")

    def __init__(self, folder: str, *, skeleton: str) -> None:
        os.umask(0o077)
        write = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self.console = os.open(os.path.join(folder, CONSOLE_NAME), write, 0o600)
        self.ended = os.open(os.path.join(folder, ENDED_NAME), write, 0o600)
        self.layer = os.open(os.path.join(folder, "layer"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.skeleton = os.open(skeleton, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self.skeleton, fcntl.LOCK_SH)  # as long as we live, nobody removes it
        self.listener = channel.listen(folder)

    def descriptors(self) -> tuple[int, ...]:
        """All of them."""
        return (self.console, self.ended, self.layer, self.skeleton, self.listener.fileno())


class Supervisor:
    """The poll loop and its state."""

    def __init__(
        self, child: int, files: Files, *, pipes: dict[str, int], seconds: float, first: _socket.socket
    ) -> None:
        self._child = child
        self._pidfd = os.pidfd_open(child)
        self._files = files
        self._report = pipes["report"]
        self._ready = pipes["ready"]
        self._console = console.Console(pipes["console"], files.console)
        self._ends_at = _boot_seconds() + seconds
        self._grace_ends_at: float | None = None
        self._reason = "exited"
        self._status = ("signal", _SIGKILL)
        self._done = False
        self._connections: dict[int, _socket.socket] = {}
        self._watching: set[int] = set()
        self._history: list[str] = []
        # descriptor of the pending connect -> (the connect, who asked, when it is too late)
        self._dials: dict[int, tuple[_socket.socket, int, float]] = {}
        self._disk: disk.DiskWatch | None = None
        self._poll = select.poll()
        self._actions: dict[int, Callable[[], None]] = {}
        self._add(files.listener.fileno(), self._accept)
        self._add(self._report, self._hear_report)
        self._add(self._console.source, self._hear_console)
        if self._ready >= 0:
            self._add(self._ready, self._hear_ready)
        self._connections[first.fileno()] = first
        self._add(first.fileno(), lambda: self._serve_connection(first.fileno()))
        self._watch(first.fileno())

    def watch_disk(self, limit: int) -> None:
        """End the VM when its layer outgrows the limit. (A tmpfs has a size of its own.)"""
        namespace = os.stat("/proc/self/ns/pid_for_children").st_ino
        self._disk = disk.DiskWatch(self._files.layer, limit=limit, namespace=namespace, now=_boot_seconds())

    # -- the loop ------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run until the VM has ended and everything of it is gone."""
        while not self._done:
            timeout = self._next_timeout()
            for descriptor, _ in self._poll.poll(timeout):
                action = self._actions.get(descriptor)
                if action is not None:  # an earlier action of this round may have closed it
                    action()
            self._keep_time()
        self._finish()

    def _add(self, descriptor: int, action: Callable[[], None], events: int = select.POLLIN) -> None:
        self._actions[descriptor] = action
        self._poll.register(descriptor, events)

    def _drop(self, descriptor: int) -> None:
        if self._actions.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _next_timeout(self) -> float:
        times = [self._ends_at, *(deadline for _, _, deadline in self._dials.values())]
        if self._grace_ends_at is not None:
            times.append(self._grace_ends_at)
        if self._disk is not None:
            times.append(self._disk.due)
        now = _boot_seconds()
        if self._console.source >= 0 and self._console.source not in self._actions:
            times.append(now + 1)
        # An hour at most: poll's clock stops while the machine sleeps, ours does not.
        return max(0.0, min(min(times) - now, 3600.0)) * 1000 + 1

    def _keep_time(self) -> None:
        now = _boot_seconds()
        if now >= self._ends_at:
            self._kill("lifetime")
        if self._grace_ends_at is not None and now >= self._grace_ends_at:
            self._kill("stopped")
        if self._disk is not None and now >= self._disk.due and self._disk.step(now):
            self._disk = None
            self._kill("disk")
        for descriptor, (_, asker, deadline) in list(self._dials.items()):
            if now >= deadline:
                self._end_dial(descriptor)
                self._answer(asker, "timeout")
        source = self._console.source
        if source >= 0 and source not in self._actions and self._console.wants_more(now):
            self._add(source, self._hear_console)

    # -- the VM --------------------------------------------------------------------------------------------------------

    def _kill(self, reason: str) -> None:
        if self._reason == "exited":
            self._reason = reason
        self._ends_at = self._ends_at if reason == "stopped" else float("inf")
        self._grace_ends_at = None
        os.kill(self._child, _SIGKILL)  # it cannot have been reaped: only _finish does that

    def _hear_report(self) -> None:
        """Process 1's lines; the end of the pipe is the end of the VM."""
        text = os.read(self._report, 4096)
        for line in text.decode("ascii", "replace").splitlines():
            words = line.split()
            if words[:1] == ["started"] or (words[:1] == ["failed"] and len(words) == 4):
                self._tell(line)
            elif len(words) == 2 and words[0] in ("exit", "signal") and words[1].isdigit():
                self._status = (words[0], int(words[1]))
        if not text:
            self._drop(self._report)
            self._done = True

    def _hear_ready(self) -> None:
        """The agent listens. What it wrote is of no further use, and it gets no second chance to write."""
        told = os.read(self._ready, 4096)
        self._drop(self._ready)
        os.close(self._ready)
        if told:
            self._tell("ready")

    def _hear_console(self) -> None:
        if not self._console.take():
            self._drop(self._console.source)
            self._console.source = -1
        elif not self._console.wants_more(_boot_seconds()):
            self._drop(self._console.source)

    def _finish(self) -> None:
        os.kill(self._child, _SIGKILL)  # if it closed its pipe and lives on, it is not process 1 as we made it
        os.waitpid(self._child, 0)  # returns when the last process of the namespace is gone
        while self._console.source >= 0 and select.select([self._console.source], [], [], 0)[0]:
            self._hear_console()
            if not self._console.wants_more(_boot_seconds()):
                break
        removal.empty_folder(self._files.layer)
        kind, number = self._status
        code, signal = (number, "null") if kind == "exit" else ("null", number)
        record = f'{{"exit_code": {code}, "signal": {signal}, "reason": "{self._reason}"}}\n'
        with contextlib.suppress(OSError):  # a full disk: whoever listens hears it all the same
            os.pwrite(self._files.ended, record.encode(), 0)
        self._tell(f"ended {kind} {number} {self._reason}")

    # -- the door ------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            descriptor, _ = self._files.listener._accept()  # type: ignore[attr-defined]
        except OSError:  # out of descriptors: it stays in the backlog, until a connection or a dial has ended
            time.sleep(_ACCEPT_PAUSE_SECONDS)
            return
        if len(self._connections) >= _MAX_CONNECTIONS:
            os.close(descriptor)
            return
        self._connections[descriptor] = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor)
        self._add(descriptor, lambda: self._serve_connection(descriptor))

    def _serve_connection(self, descriptor: int) -> None:
        try:
            words, passed = channel.receive(self._connections[descriptor])
            if passed is not None:
                os.close(passed)
            if not self._obey(descriptor, words):
                self._hang_up(descriptor)
        except (OSError, ValueError):
            self._hang_up(descriptor)

    def _obey(self, descriptor: int, words: list[str]) -> bool:
        """Carry out one request; False if it is none."""
        if len(words) == 3 and words[0] == "dial" and words[1].isdigit() and words[2].isdigit():
            self._dial(descriptor, port=int(words[1]), milliseconds=min(int(words[2]), _MAX_DIAL_MILLISECONDS))
        elif len(words) == 2 and words[0] == "stop" and words[1].isdigit():
            channel.send(self._connections[descriptor], "stopping")
            self._watch(descriptor)
            self._stop(int(words[1]) / 1000)
        elif words == ["watch"]:
            self._watch(descriptor)
        else:
            return False
        return True

    def _stop(self, grace: float) -> None:
        if grace <= 0:
            self._kill("stopped")
            return
        if self._reason == "exited":
            self._reason = "stopped"
        self._grace_ends_at = _boot_seconds() + grace
        os.kill(self._child, _SIGTERM)

    def _watch(self, descriptor: int) -> None:
        self._watching.add(descriptor)
        channel.send(self._connections[descriptor], "init", self._child, descriptor=self._pidfd)
        for line in self._history:
            channel.send(self._connections[descriptor], line)

    def _tell(self, line: str) -> None:
        self._history.append(line)
        for descriptor in list(self._watching):
            self._answer(descriptor, line)

    def _answer(self, descriptor: int, *words: object, passed: int | None = None) -> None:
        connection = self._connections.get(descriptor)
        if connection is None:
            return  # it hung up while its dial was on the way
        try:
            channel.send(connection, *words, descriptor=passed)
        except OSError:
            self._hang_up(descriptor)

    def _hang_up(self, descriptor: int) -> None:
        self._drop(descriptor)
        self._watching.discard(descriptor)
        self._connections.pop(descriptor).close()

    # -- dials ---------------------------------------------------------------------------------------------------------

    def _dial(self, asker: int, *, port: int, milliseconds: int) -> None:
        call = _socket.socket(
            _socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK, _socket.IPPROTO_TCP
        )
        descriptor = call.fileno()
        self._dials[descriptor] = (call, asker, _boot_seconds() + milliseconds / 1000)
        try:
            call.connect(("127.0.0.1", port))
        except BlockingIOError:
            self._add(descriptor, lambda: self._conclude(descriptor), select.POLLOUT)
            return
        except OSError as error:
            self._report_dial(descriptor, error.errno or errno.EIO)
            return
        except OverflowError:
            self._report_dial(descriptor, errno.EINVAL)
            return
        self._report_dial(descriptor, 0)

    def _conclude(self, descriptor: int) -> None:
        call = self._dials[descriptor][0]
        self._report_dial(descriptor, call.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR))

    def _report_dial(self, descriptor: int, number: int) -> None:
        asker = self._dials[descriptor][1]
        if number == 0:
            self._answer(asker, "ok", passed=descriptor)
        elif number == errno.ECONNREFUSED:
            self._answer(asker, "refused")
        else:
            self._answer(asker, "error", number)
        self._end_dial(descriptor)

    def _end_dial(self, descriptor: int) -> None:
        self._drop(descriptor)
        self._dials.pop(descriptor)[0].close()


def _boot_seconds() -> float:
    """Seconds since boot, those asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
