"""The supervisor of one VM: parent of its process 1, keeper of its namespaces, and its only door.

A process of its own, stand-alone (see ``drivers.runtime``), single-threaded, with one poll loop; it outlives the
daemon. It reads its configuration (``marshal``: both ends are the same interpreter) from standard input, and lives
outside the VM's pid and mount namespaces but inside its network namespace, so that a dial is a plain connect.

What it must do in this order, and why:

1. open all files of the VM's folder, make its control groups where we may, and as root make the stage: afterwards the
   way there is closed;
2. give up root for an unused uid, so that nothing inside is anybody on the host;
3. leave the user namespace, then the others (with the capabilities that the first one gave);
4. fork process 1 (``drivers.init``), which makes its own mount namespace, and put it under the limits before it starts
   anything;
5. serve: dials, freezing, stop, watchers; the console; memory, disk and the maximum duration; the end.

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
import sys
import time

from .drivers import channel, console, disk, enclosure, init, kernel, limits, mounts, removal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_MAX_CONNECTIONS = 512
_MAX_DIAL_MILLISECONDS = 60_000
_ACCEPT_PAUSE_SECONDS = 0.02
_FREEZE_SECONDS = 10.0
_FREEZE_LOOK_SECONDS = 0.001
_ALARM_SECONDS = 2.0
_ALARM_LOOK_SECONDS = 0.01
_SIGKILL = 9
_SIGTERM = 15


def main() -> None:
    """Read the configuration, make the VM, serve it to its end."""
    os.setsid()
    kernel.close_all_but(range(channel.EVENTS + 1))  # what else the daemon had open is none of our business
    os.set_inheritable(channel.EVENTS, False)
    events = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, channel.EVENTS)
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
    files = Files(plan.folder, used=(plan.skeleton, *plan.layers))
    limit = limits.Limits(config["limits"])
    uid = config["uid"]
    if uid is not None:
        init.take("mount-namespace", lambda: enclosure.isolate_as_root(uid))
        init.take("stage", lambda: mounts.stage(plan))
        init.take("identity", lambda: enclosure.become(uid))
    else:
        os.chdir("/")
    enclosure.enter_namespaces()
    egress = enclosure.listen_for_egress() if config["egress"] else None
    output, output_end = os.pipe()
    report, report_end = os.pipe()
    ready, ready_end = os.pipe() if config["ready"] else (-1, -1)
    go_end, go = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (output, report, go, events.fileno(), *files.descriptors(), *limit.group.descriptors()):
            os.close(descriptor)
        if egress is not None:
            egress.close()
        start = init.Main(
            config["argv"],
            config["environment"],
            console=output_end,
            ready=ready_end,
            processes=config["processes"],
            file_bytes=plan.disk_bytes,
            workdir=config["workdir"],
        )
        init.run(plan, start, report=report_end, go=go_end, stage=uid is None)
    for descriptor in (output_end, report_end, go_end):
        os.close(descriptor)
    if ready >= 0:
        os.close(ready_end)
    pipes = {"console": output, "report": report, "ready": ready, "go": go}
    supervisor = Supervisor(child, files, limit, pipes=pipes, seconds=config["max_seconds"], first=events)
    supervisor.egress = egress
    supervisor.keeps_layer = config["keeps_layer"]
    supervisor.hold(writable=plan.writable)
    if plan.writable == mounts.DISK:
        supervisor.watch_disk(plan.disk_bytes)
    return supervisor


class Files:
    """What the supervisor keeps open of ``vms/<id>``: after the change of uid it could not open it any more."""

    __slots__ = ("console", "ended", "layer", "listener", "used")

    def __init__(self, folder: str, *, used: Sequence[str]) -> None:
        """``used``: what lies below the VM's own writes; as long as we live, nobody removes it."""
        os.umask(0o077)
        write = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self.console = os.open(os.path.join(folder, channel.CONSOLE_NAME), write, 0o600)
        self.ended = os.open(os.path.join(folder, channel.ENDED_NAME), write, 0o600)
        self.layer = os.open(os.path.join(folder, "layer"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.used = [os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for path in used]
        for descriptor in self.used:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        self.listener = channel.listen(folder)

    def descriptors(self) -> tuple[int, ...]:
        """All of them."""
        return (self.console, self.ended, self.layer, *self.used, self.listener.fileno())


class Supervisor:
    """The poll loop and its state."""

    def __init__(
        self,
        child: int,
        files: Files,
        limit: limits.Limits,
        *,
        pipes: dict[str, int],
        seconds: float,
        first: _socket.socket,
    ) -> None:
        self._child = child
        self._pidfd = os.pidfd_open(child)
        self._files = files
        self._limits = limit
        self._go = pipes["go"]  # where process 1 waits for a word, and the word
        self._word = init.FREE
        self._writable = mounts.DISK
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
        self._is_frozen = False
        self._look_at = 0.0  # when to look whether it still is
        self._alarmed_until = 0.0
        # who waits for a freeze that has begun, and when it is too late; nobody waits once it is through
        self._freezers: list[int] = []
        self._freeze_ends_at: float | None = None
        # descriptor of the pending connect -> (the connect, who asked, when it is too late)
        self._dials: dict[int, tuple[_socket.socket, int, float]] = {}
        self._disk: disk.DiskWatch | None = None
        self.keeps_layer = False  # what the VM wrote becomes a layer of an image: the daemon takes it
        self.egress: _socket.socket | None = None  # listens inside for whoever wants out; a daemon serves it
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

    def hold(self, *, writable: str) -> None:
        """Put process 1 under the limits while it builds, and let it go on when it has built."""
        self._writable = writable
        if self._limits.apply(self._child):
            self._word = init.PINNED
        self._tell(f"limits {self._limits.enforced}")
        alarm = self._limits.group.alarm
        if alarm is not None:
            self._add(alarm[0], self._hear_alarm, alarm[1])

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
        if self._limits.watch is not None and not self._is_frozen:
            times.append(self._limits.watch.due)
        now = _boot_seconds()
        if self._freeze_ends_at is not None:
            times.append(now + _FREEZE_LOOK_SECONDS)
        if self._is_frozen and self._limits.stopper is not None:
            times.append(self._look_at)
        if self._alarmed_until > 0:
            times.append(now + _ALARM_LOOK_SECONDS)
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
        self._keep_memory(now)
        if self._freeze_ends_at is not None:
            self._look_at_freeze(now)
        self._keep_frozen(now)
        for descriptor, (_, asker, deadline) in list(self._dials.items()):
            if now >= deadline:
                self._end_dial(descriptor)
                self._answer(asker, "timeout")
        source = self._console.source
        if source >= 0 and source not in self._actions and self._console.wants_more(now):
            self._add(source, self._hear_console)

    def _keep_memory(self, now: float) -> None:
        """End the VM as a whole when its memory is used up.

        Where the kernel killed one process, it did so by size: what is left may be a sandbox without its agent.
        """
        watch = self._limits.watch
        is_over = self._alarmed_until > 0 and self._limits.group.has_run_out
        if watch is not None and not self._is_frozen and now >= watch.due:
            with contextlib.suppress(OSError):  # out of descriptors, say: it looks again in a moment
                is_over = watch.step(now)
        if is_over:
            self._limits.watch = None
            self._kill("memory")
        if is_over or now >= self._alarmed_until:
            self._alarmed_until = 0

    # -- the VM --------------------------------------------------------------------------------------------------------

    def _kill(self, reason: str) -> None:
        if self._reason == "exited":
            self._reason = reason
        self._ends_at = self._ends_at if reason == "stopped" else float("inf")
        self._grace_ends_at = None
        os.kill(self._child, _SIGKILL)  # it cannot have been reaped: only _finish does that
        if (self._is_frozen or self._freeze_ends_at is not None) and self._limits.holds_the_killed:
            self._limits.freezer.thaw()
        self._end_freeze("thawed")  # or it would be begun again

    def _hear_report(self) -> None:
        """Process 1's lines; the end of the pipe is the end of the VM."""
        text = os.read(self._report, 4096)
        for line in text.decode("ascii", "replace").splitlines():
            words = line.split()
            if words == ["built"]:
                self._admit()
            elif words[:1] == ["started"] or (words[:1] == ["failed"] and len(words) == 4):
                self._tell(line)
            elif len(words) == 2 and words[0] in ("exit", "signal") and words[1].isdigit():
                self._status = (words[0], int(words[1]))
            elif words == ["stopped"] and self._limits.stopper is not None:
                self._limits.stopper.note_stopped()
        if not text:
            self._drop(self._report)
            self._done = True

    def _admit(self) -> None:
        """Process 1 is where it will stay: it may start the main process."""
        admit = self._limits.admit
        try:
            init.take("watch", lambda: admit(self._child, writable=self._writable, now=_boot_seconds()))
        except init.StepFailedError as failure:
            self._tell(f"failed {failure.step} {failure.number} -")
            self._kill("exited")
            return
        with contextlib.suppress(BrokenPipeError):  # it is dead; that is heard in a moment
            os.write(self._go, self._word)
        os.close(self._go)
        self._go = -1

    def _hear_alarm(self) -> None:
        """The kernel killed something for want of memory, or is about to; it may be something of another VM."""
        self._limits.group.hear_alarm()
        self._alarmed_until = _boot_seconds() + _ALARM_SECONDS

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
        self._kill("exited")  # it has, or closed its pipe and lives on; and what is frozen must be able to die
        os.waitpid(self._child, 0)  # returns when the last process of the namespace is gone
        if self._reason == "exited" and self._limits.group.has_run_out:
            self._reason = "memory"  # the main process was what the kernel took, and its end was heard first
        self._limits.group.remove()
        while self._console.source >= 0 and select.select([self._console.source], [], [], 0)[0]:
            self._hear_console()
            if not self._console.wants_more(_boot_seconds()):
                break
        if not self.keeps_layer:
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
        elif words == ["facts"]:
            channel.send(self._connections[descriptor], "facts", self._limits.enforced, self._temperature())
        elif words == ["egress"]:
            self._hand_egress(descriptor)
        elif words == ["freeze"]:
            self._freeze(descriptor)
        elif words == ["thaw"]:
            self._thaw(descriptor)
        else:
            return False
        return True

    def _stop(self, grace: float) -> None:
        if grace <= 0 or self._is_frozen or self._freeze_ends_at is not None:
            self._kill("stopped")
            return
        if self._reason == "exited":
            self._reason = "stopped"
        self._grace_ends_at = _boot_seconds() + grace
        os.kill(self._child, _SIGTERM)

    def _hand_egress(self, asker: int) -> None:
        if self.egress is None:
            self._answer(asker, "none")
        else:
            self._answer(asker, "ok", passed=self.egress.fileno())

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
        if descriptor in self._freezers:
            self._freezers.remove(descriptor)
        self._connections.pop(descriptor).close()

    # -- freezing ------------------------------------------------------------------------------------------------------

    def _temperature(self) -> str:
        return "frozen" if self._is_frozen else "thawed"

    def _freeze(self, asker: int) -> None:
        if self._is_frozen or self._go >= 0:  # it is, or it is not built yet and cannot be
            self._answer(asker, self._temperature())
            return
        if self._freeze_ends_at is None:
            self._freeze_ends_at = _boot_seconds() + _FREEZE_SECONDS
            with contextlib.suppress(OSError):  # then it is tried again below
                self._limits.freezer.freeze()
        self._freezers.append(asker)

    def _look_at_freeze(self, now: float) -> None:
        """Whether the freeze that has begun is through, or has taken too long; then all goes on."""
        with contextlib.suppress(OSError):  # no process to send the signals, just now
            self._is_frozen = self._limits.freezer.is_frozen()
        if not self._is_frozen:
            if self._freeze_ends_at is None or now < self._freeze_ends_at:
                return
            self._limits.freezer.thaw()
        self._end_freeze(self._temperature())

    def _keep_frozen(self, now: float) -> None:
        """Stop again what woke from being stopped."""
        stopper = self._limits.stopper
        if self._is_frozen and stopper is not None and now >= self._look_at:
            with contextlib.suppress(OSError):  # out of descriptors, say
                stopper.stays_frozen()
            self._look_at = now + stopper.look_seconds

    def _end_freeze(self, word: str) -> None:
        self._freeze_ends_at = None
        askers, self._freezers = self._freezers, []
        for asker in askers:
            self._answer(asker, word)

    def _thaw(self, asker: int) -> None:
        if self._is_frozen or self._freeze_ends_at is not None:
            self._limits.freezer.thaw()
            self._is_frozen = False
            self._end_freeze("thawed")
        self._answer(asker, "thawed")

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
