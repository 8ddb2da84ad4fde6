"""The namespace driver: a VM is a set of Linux namespaces with a supervisor of its own. Nothing to install.

This is its host side: it lays out a VM's folder, spawns the supervisor and waits for the agent. What the VM is made of
stands in ``supervisor``, ``init``, ``mounts`` and ``seccomp``.
"""

from __future__ import annotations

import _socket
import contextlib
import fcntl
import marshal
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import errors, rendezvous
from ...deadline import Deadline
from . import cgroups, channel, mounts, places, proxying
from .init import HOME, READY_DESCRIPTOR
from .interface import ISOLATION_NAMESPACE, Ended, Launch
from .interpreter import Interpreter
from .layers import Skeletons, View, contains
from .machine import (
    LAYER_NAME,
    STAGE_NAME,
    SUPERVISOR_LOG_NAME,
    NamespaceMachine,
    clean_folder,
    load_ended,
    record_groups,
)
from .rubbish import Rubbish
from .runtime import Runtime
from .skeleton import AGENT_FOLDER, PROGRAMS_FOLDER
from .watching import Watcher

START_SECONDS = 30.0
PROCESSES = 4096
_MIB = 2**20
_SIGNALS = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})
_CONSOLE_SHOWN_BYTES = 2000
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What `-m agentd.serve` does, without the 3 ms that runpy takes to be imported.
_AGENT_BOOT = f"import sys; sys.path.insert(0, {AGENT_FOLDER!r}); from agentd import serve; sys.exit(serve.main())"


class StartFailedError(errors.LocalCloudError):
    """A VM did not start. ``step`` names what failed, ``number`` is its errno (0: no system call failed)."""

    def __init__(self, message: str, *, step: str, number: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, details={"step": step, "errno": number})
        self.step = step
        self.number = number


@dataclass(frozen=True)
class Cell:
    """What all VMs of a driver have in common.

    Attributes:
        folder: The state folder.
        runtime: The supervisor's and the agent's files.
        rubbish: What takes the trees that VMs and skeletons leave.
        uid: The uid that sandboxes run as, or None for our own.
        view: What of the host they see.
        writable: How their own writes are kept: one of mounts.DISK, MEMORY, BIND.
        interpreter: The Python inside.
        environ: The daemon's environment; only the variables of CI systems are passed to supervisors.
        places: Where control groups can be made, if anywhere.
    """

    folder: str
    runtime: Runtime
    rubbish: Rubbish
    uid: int | None
    view: View
    writable: str
    interpreter: Interpreter
    environ: Mapping[str, str]
    places: places.Places


class NamespaceDriver:
    """See ``interface.Driver``. Made by ``selection.select``, which probed that it works."""

    name = "namespace"
    isolation = ISOLATION_NAMESPACE

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._skeletons = Skeletons(
            cell.folder,
            runtime=cell.runtime,
            rubbish=cell.rubbish,
            view=cell.view,
            uid=cell.uid,
            interpreter=cell.interpreter,
        )
        self._watcher = Watcher("vmnest-machines")
        self._machines: set[NamespaceMachine] = set()
        cell.rubbish.collect()
        cell.places.sweep()
        self._skeletons.begin()

    def start(self, launch: Launch, *, on_end: Callable[[Ended], None]) -> NamespaceMachine:
        """See ``interface.Driver``."""
        unknown = [path for path in launch.visible if not any(contains(top, path) for top in self.cell.view.visible)]
        if unknown:
            raise errors.LocalCloudError(f"The driver was not made to show {unknown[0]!r} in sandboxes")
        if self.obstacle_to_images and (launch.image_layers or launch.keep_layer_at):
            raise errors.LocalCloudError(f"Images do not work here: {self.obstacle_to_images}")
        machine = spawn(self.cell, launch, skeleton=self.skeleton(), on_end=on_end)
        await_words(machine, "ready" if launch.command is None else "started", folder=launch.folder)
        self.watch(machine)
        return machine

    @property
    def writable(self) -> str:
        """See ``interface.Driver``."""
        return self.cell.writable

    @property
    def obstacle_to_images(self) -> str:
        """See ``interface.Driver``."""
        if self.cell.writable == mounts.DISK:
            return ""
        return (
            f"what sandboxes write cannot be kept in {self.cell.folder}: set AGENT_SANDBOX_LOCAL_DIR to a folder on "
            "ext4, xfs or btrfs, on a machine that has overlayfs for users"
        )

    @property
    def owner(self) -> int | None:
        """See ``interface.Driver``."""
        return self.cell.uid

    def image_base(self) -> str:
        """See ``interface.Driver``."""
        return os.path.basename(self.skeleton())

    def image_environment(self) -> Mapping[str, str]:
        """See ``interface.Driver``."""
        return build_environment({}, interpreter=self.cell.interpreter, ready=False)

    def skeleton(self) -> str:
        """The folder of the skeleton that VMs start on now; waits until there is one."""
        return self._skeletons.ensure()

    def watch(self, machine: NamespaceMachine) -> None:
        """From here on the machine's end is seen, and its ``on_end`` called."""
        self._machines.add(machine)
        self._watcher.add(machine.descriptor, lambda: self._attend(machine))

    def _attend(self, machine: NamespaceMachine) -> bool:
        goes_on = machine.attend()
        if not goes_on:
            self._machines.discard(machine)
        return goes_on

    def adopt(self, folder: str, *, on_end: Callable[[Ended], None]) -> NamespaceMachine | None:
        """See ``interface.Driver``."""
        cell = self.cell
        machine = NamespaceMachine.reconnect(folder, facts=describe(cell), rubbish=cell.rubbish, on_end=on_end)
        if machine is None:
            return None
        if not machine.learn():
            machine.let_go()
            return None
        self.watch(machine)
        return machine

    def discard(self, folder: str) -> Ended | None:
        """See ``interface.Driver``."""
        cell = self.cell
        machine = NamespaceMachine.reconnect(
            folder, facts=describe(cell), rubbish=cell.rubbish, on_end=lambda _ended: None
        )
        if machine is not None:
            self.watch(machine)
            machine.kill()  # a stop would have its layer removed first, which can take long
            machine.wait()
        clean_folder(folder, cell.rubbish)
        return load_ended(folder)

    def close(self) -> None:
        """See ``interface.Driver``."""
        self._watcher.close()
        for machine in list(self._machines):
            machine.let_go()
        self._skeletons.close()


def describe(cell: Cell) -> dict[str, object]:
    """The facts of a machine, but for ``enforced``, which its supervisor tells."""
    return {"isolation": ISOLATION_NAMESPACE, "writable": cell.writable}


def spawn(
    cell: Cell, launch: Launch, *, skeleton: str, on_end: Callable[[Ended], None], ready: bool | None = None
) -> NamespaceMachine:
    """Lay out the VM's folder and start its supervisor; what comes of it is told on the machine's connection."""
    _lay_out(launch.folder, cell.uid)
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
    try:
        want_ready = launch.command is None if ready is None else ready
        config = _configure(cell, launch, skeleton=skeleton, ready=want_ready)
        pid = _spawn_supervisor(cell, launch.folder, events=theirs.fileno(), config=config)
    except BaseException:
        ours.close()
        clean_folder(launch.folder, cell.rubbish)
        raise
    finally:
        theirs.close()
    cell.places.hasten()
    machine = NamespaceMachine(
        launch.folder, connection=ours, pid=pid, facts=describe(cell), rubbish=cell.rubbish, on_end=on_end
    )
    machine.keep_layer_at = launch.keep_layer_at
    return machine


def _lay_out(folder: str, uid: int | None) -> None:
    for name in (LAYER_NAME, STAGE_NAME):
        path = os.path.join(folder, name)
        os.mkdir(path, 0o700)
        if uid is not None:
            os.chown(path, uid, uid)


def _configure(cell: Cell, launch: Launch, *, skeleton: str, ready: bool) -> dict[str, Any]:
    plan = mounts.Plan(
        folder=launch.folder,
        skeleton=skeleton,
        writable=cell.writable,
        visible=cell.view.visible,
        staged=cell.view.staged,
        plain=cell.view.plain,
        prefix=cell.interpreter.prefix,
        masked=cell.interpreter.masked,
        layers=launch.image_layers,
        disk_bytes=launch.disk_bytes,
        shared_memory_bytes=launch.memory_mib * _MIB // 2,
    )
    return {
        "plan": plan.to_wire(),
        "limits": {
            "places": _reserve_groups(cell, launch),
            "name": cgroups.name_group(launch.folder),
            "memory_bytes": launch.memory_mib * _MIB,
            "cpus": launch.cpus,
        },
        "uid": cell.uid,
        "argv": list(launch.command or [cell.interpreter.path, "-I", "-S", "-c", _AGENT_BOOT]),
        "environment": build_environment(_with_way_out(cell, launch), interpreter=cell.interpreter, ready=ready),
        "egress": launch.egress,
        "ready": ready,
        "workdir": launch.workdir or HOME,
        "keeps_layer": launch.keep_layer_at is not None,
        "processes": PROCESSES,
        "max_seconds": float(launch.max_seconds),
    }


def _reserve_groups(cell: Cell, launch: Launch) -> dict[str, tuple[int, str]]:
    """Make the VM's control groups, and write down first where they are: a later daemon may run in other groups."""
    roles = [cgroups.MEMORY, cgroups.FREEZER, *([] if launch.cpus is None else [cgroups.CPU])]
    name = cgroups.name_group(launch.folder)
    record_groups(launch.folder, cell.places.list_groups(name))
    return cell.places.reserve(name, roles=roles)


def build_environment(more: Mapping[str, str], *, interpreter: Interpreter, ready: bool) -> dict[str, str]:
    """The main process's environment: nothing of ours, what every program expects, and what the caller adds."""
    programs = [PROGRAMS_FOLDER]
    if interpreter.prefix is not None:
        programs.append(f"{interpreter.prefix}/bin")
    environment = {
        "PATH": ":".join([_PATH, *programs]),
        "HOME": HOME,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh",
        "LANG": "C.UTF-8",
        **more,
        "AGENTD_BIND": "127.0.0.1",
    }
    if ready:
        environment["AGENTD_READY_FD"] = str(READY_DESCRIPTOR)
    return environment


def _with_way_out(cell: Cell, launch: Launch) -> Mapping[str, str]:
    """What the launch wants in the environment, and how to get out. The launch may know better, or not want to."""
    if not launch.egress:
        return launch.environment
    return {**proxying.build_environment(cell.environ, visible=cell.view.visible), **launch.environment}


def _spawn_supervisor(cell: Cell, folder: str, *, events: int, config: dict[str, Any]) -> int:
    """Start the supervisor with ``events`` as its descriptor EVENTS; its pid. It closes what else it inherits."""
    log_path = os.path.join(folder, SUPERVISOR_LOG_NAME)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    reader, writer = os.pipe()
    # Out of the way of the descriptors that it is to be: onto itself, a dup2 may leave it closed on exec.
    high = fcntl.fcntl(events, fcntl.F_DUPFD_CLOEXEC, channel.EVENTS + 1)
    command = cell.runtime.command("supervisor")
    try:
        pid = os.posix_spawn(
            command[0],
            command,
            {name: cell.environ[name] for name in rendezvous.TRACKING_VARIABLES if name in cell.environ},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, source, target)
                for source, target in ((reader, 0), (log, 1), (log, 2), (high, channel.EVENTS))
            ],
            setsigmask=(),
            setsigdef=_SIGNALS,
        )
    finally:
        for descriptor in (log, reader, high):
            os.close(descriptor)
    with open(writer, "wb") as stream, contextlib.suppress(BrokenPipeError):  # dead at once: its log says why
        stream.write(marshal.dumps(config))
    return pid


def await_words(machine: NamespaceMachine, wanted: str, *, folder: str, seconds: float = START_SECONDS) -> None:
    """Read the machine's frames until one starts with ``wanted``.

    Raises:
        StartFailedError: the start failed, or took too long; the VM is gone then, and cleaned away.
    """
    deadline = Deadline(seconds)
    step = "supervisor"
    while True:
        words = machine.hear(timeout=deadline.remaining())
        if words[:1] == [wanted]:
            return
        if words[:1] == ["failed"]:
            failure = _failure(folder, step=words[1], number=int(words[2]), subject=words[3])
        elif words[:1] == ["ended"] or not words:
            failure = _failure(folder, step=step, seconds=seconds if deadline.expired else None)
        else:
            step = "agent" if words[:1] == ["started"] else step
            continue
        if deadline.expired:
            machine.kill()
        machine.conclude()
        raise failure


def _failure(
    folder: str, *, step: str, number: int = 0, subject: str = "-", seconds: float | None = None
) -> StartFailedError:
    what = f": {os.strerror(number)}" if number else ""
    where = f" ({subject})" if subject != "-" else ""
    when = f" within {seconds:g} s" if seconds is not None else ""
    shown = read_tail(folder)
    message = f"The sandbox did not start{when}; what failed is the step {step}{where}{what}"
    return StartFailedError(message, step=step, number=number, hint=f"The last output was:\n{shown}" if shown else None)


def read_tail(folder: str, *, names: Sequence[str] = (channel.CONSOLE_NAME, SUPERVISOR_LOG_NAME)) -> str:
    """The end of what the main process, or else the supervisor, printed."""
    for name in names:
        try:
            with open(os.path.join(folder, name), "rb") as reader:
                reader.seek(0, os.SEEK_END)
                reader.seek(max(0, reader.tell() - _CONSOLE_SHOWN_BYTES))
                text = reader.read().decode("utf-8", "replace").strip()
        except FileNotFoundError:
            continue
        if text:
            return text
    return ""
