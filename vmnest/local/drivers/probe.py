"""Can this machine isolate sandboxes? A full sandbox is made and used once; what fails is told with its remedy."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace

from ... import errors
from . import layers, mounts, removal
from .interface import EXITED, Launch
from .interpreter import CHECK, Interpreter
from .machine import NamespaceMachine
from .namespace import Cell, StartFailedError, await_words, spawn

_PORT = 8080
_SECONDS = 20.0
_TRIAL = "/usr/.vmnest-probe"
_ANSWER = b"here"
_BAD_INTERPRETER = 3
_BAD_OVERLAY = 4

# Runs inside. A directory that the skeleton made is removed and made again: in an overlay that takes a whiteout and an
# opaque directory, which some file systems refuse. On a read-only bind (EROFS) there is nothing to try.
_PROGRAM = f"""
import errno, os, socket, sys
try:
    {CHECK.replace("; ", chr(10) + "    ").replace("sys.exit(", "too_old = (")}
except ImportError:
    too_old = True
if too_old:
    sys.exit({_BAD_INTERPRETER})
try:
    os.rmdir({_TRIAL!r})
    os.mkdir({_TRIAL!r})
except OSError as error:
    if error.errno not in (errno.EROFS, errno.ENOENT):
        sys.exit({_BAD_OVERLAY})
listener = socket.create_server(("127.0.0.1", {_PORT}))
os.write(3, b"x")
call, _ = listener.accept()
call.sendall({_ANSWER!r})
"""

_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_DEBIAN_SWITCH = "/proc/sys/kernel/unprivileged_userns_clone"
_LIMITS = "/proc/sys/user"
# step -> the kinds of namespaces that it makes, each of which may be limited to none
_KINDS = {"user-namespace": ("user",), "namespaces": ("pid", "net", "ipc", "uts"), "mount-namespace": ("mnt",)}
_OVERLAY_STEPS = ("root", "overlay")
_INTERPRETER_STEPS = ("interpreter", "exec")

_IN_CONTAINER = (
    "In a container, start it with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`, "
    "or with `--privileged`."
)
_MOUNTS = (
    "Mounts in a user namespace are refused. If a security module (AppArmor, SELinux) restricts them, allow them for "
    f"this program, or run it with sudo. {_IN_CONTAINER}"
)
_NAMESPACES = (
    "The kernel must have user, pid, network, IPC and UTS namespaces, and unprivileged programs must be allowed to use "
    f"them. {_IN_CONTAINER}"
)
# step -> what to do about it
REMEDIES = {
    "supervisor": "The supervisor process died at once; its output says why. Is the Python that runs vmnest complete?",
    "internal": "This is a fault of vmnest: please report it with the output above.",
    "identity": "Root must be able to become another user (CAP_SETUID, CAP_SETGID), or run vmnest as a plain user.",
    "user-namespace": _NAMESPACES,
    "identity-map": _NAMESPACES,
    "namespaces": _NAMESPACES,
    "loopback": f"The loopback interface of a new network namespace could not be switched on. {_IN_CONTAINER}",
    "hostname": _NAMESPACES,
    "mount-namespace": _MOUNTS,
    "stage": f"The state folder could not be shown in a private mount. {_MOUNTS}",
    "root": f"Linux 5.12 or newer is needed. {_MOUNTS}",
    "visible": f"The machine's programs could not be shown read-only; Linux 5.12 or newer is needed. {_MOUNTS}",
    "overlay": "The state folder's file system refuses what overlays need: set AGENT_SANDBOX_LOCAL_DIR to a folder on "
    "ext4, xfs or btrfs.",
    "proc": "A /proc of the sandbox's own is refused, as where parts of /proc are masked. In Docker or Podman add "
    "`--security-opt systempaths=unconfined` (Podman: `unmask=ALL`), or start it with `--privileged`.",
    "dev": f"The basic devices (/dev/null and the like) must exist in /dev. {_MOUNTS}",
    "devpts": f"The kernel must have devpts. {_MOUNTS}",
    "sys": f"/sys/devices/system/cpu could not be shown read-only. {_MOUNTS}",
    "pivot": f"The new root could not be entered (a root on an initramfs cannot be left). {_MOUNTS}",
    "title": f"The sandbox's own /proc could not be read. {_IN_CONTAINER}",
    "tether": "The kernel refuses PR_SET_PDEATHSIG; vmnest does not run a sandbox that could outlive its supervisor.",
    "watch": "The sandbox's processes could not be looked at, and no control group limits them. Is /proc mounted with "
    "hidepid?",
    "limits": "Resource limits could not be lowered: look at `ulimit -a`.",
    "keyring": f"A new session keyring is refused. {_IN_CONTAINER}",
    "capabilities": f"Capabilities could not be dropped. {_IN_CONTAINER}",
    "no-new-privileges": "The kernel refuses no_new_privs; Linux 5.12 or newer is needed.",
    "seccomp": "The kernel must have seccomp filters (CONFIG_SECCOMP_FILTER), on x86_64 or aarch64.",
    "dumpable": "The kernel refuses PR_SET_DUMPABLE.",
    "exec": "Install Python 3.9 or newer as /usr/bin/python3 (with its ssl module), or run vmnest with one that others "
    "may read and execute.",
    "interpreter": "Install Python 3.9 or newer as /usr/bin/python3 (with its ssl module).",
    "agent": "The program in the sandbox started and did not answer; its output says why.",
    "dial": f"The sandbox's own loopback could not be used. {_IN_CONTAINER}",
}


def run(cell: Cell, *, candidates: Sequence[Interpreter], writables: Sequence[str] = ()) -> Cell:
    """Find the best way of keeping writes, and the first interpreter, that a sandbox works with.

    Args:
        cell: What is to be tried; its ``writable`` and ``interpreter`` are replaced in what is returned.
        candidates: Interpreters, the best first.
        writables: Ways of keeping writes, the best first; none for all.

    Raises:
        errors.IsolationUnavailableError: no sandbox; the message names the step, the hint its remedy.
    """
    ways = list(writables or (mounts.DISK, mounts.MEMORY, mounts.BIND))
    pythons = list(candidates)
    while True:
        trial = replace(cell, writable=ways[0], interpreter=pythons[0])
        try:
            _try_once(trial)
        except StartFailedError as failure:
            if failure.step in _OVERLAY_STEPS and len(ways) > 1:
                ways.pop(0)
            elif failure.step in _INTERPRETER_STEPS and len(pythons) > 1:
                pythons.pop(0)
            else:
                raise explain(failure) from failure
        else:
            return trial


def explain(failure: StartFailedError) -> errors.IsolationUnavailableError:
    """The error that a user reads, with the remedy of the step that failed."""
    remedy = _find_switch(failure.step, failure.number) or REMEDIES.get(failure.step, REMEDIES["internal"])
    shown = f"\n{failure.hint}" if failure.hint else ""
    return errors.IsolationUnavailableError(
        f"Programs cannot be isolated on this machine. {failure.message}",
        hint=f"{remedy}{shown}",
        details=failure.details,
    )


def _find_switch(step: str, number: int, *, read: Callable[[str], str] | None = None) -> str | None:
    """The remedy of a kernel setting that is known to cause such a failure, if it is set so here."""
    read = read or _read_setting
    if step not in ("user-namespace", "identity-map", "namespaces", "mount-namespace", "stage", "loopback"):
        return None
    # Such a limit holds for root as well.
    off = [
        f"user.max_{kind}_namespaces"
        for kind in _KINDS.get(step, ())
        if read(f"{_LIMITS}/max_{kind}_namespaces") == "0"
    ]
    if number == errno.ENOSPC and off:
        return f"Namespaces are switched off: `sudo sysctl -w {' '.join(f'{name}=10000' for name in off)}`."
    if step == "user-namespace" and read(_DEBIAN_SWITCH) == "0":
        return "User namespaces are switched off for users: `sudo sysctl -w kernel.unprivileged_userns_clone=1`."
    if number in (errno.EPERM, errno.EACCES) and read(_APPARMOR) == "1":
        return (
            "AppArmor restricts user namespaces here (Ubuntu 23.10 and later): "
            "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or run with sudo."
        )
    return None


def _read_setting(path: str) -> str:
    try:
        with open(path, encoding="ascii") as reader:
            return reader.read(32).strip()
    except OSError:  # this kernel has no such setting
        return ""


def _try_once(cell: Cell) -> None:
    """Make one sandbox with a small skeleton, use it, and remove all of it."""
    home = tempfile.mkdtemp(prefix="probe-", dir=cell.folder)
    try:
        skeleton = os.path.join(home, "skeleton")
        build = layers.Build(
            skeleton, runtime=cell.runtime, view=cell.view, uid=cell.uid, interpreter=cell.interpreter,
            walk=False, extra=(f"layer{_TRIAL}",),
        )  # fmt: skip
        build.finish()
        folder = os.path.join(home, "vm")
        os.mkdir(folder, 0o700)
        launch = Launch(
            microvm_id="probe", folder=folder, environment={}, memory_mib=64, disk_bytes=16 * 2**20,
            max_seconds=_SECONDS, command=(cell.interpreter.path, "-I", "-S", "-c", _PROGRAM),
        )  # fmt: skip
        _use(spawn(cell, launch, skeleton=skeleton, on_end=lambda _ended: None, ready=True), folder)
    finally:
        removal.remove_tree(home)


def _use(machine: NamespaceMachine, folder: str) -> None:
    """Wait for the program inside, call it, and see it end well."""
    try:
        await_words(machine, "ready", folder=folder, seconds=_SECONDS)
    except StartFailedError as failure:
        raise _interpret(failure, machine) from failure
    answer = b""
    trouble = ""
    try:
        with machine.dial(_PORT, timeout=5) as call:
            call.settimeout(5)
            answer = call.recv(len(_ANSWER), 0x100)  # MSG_WAITALL
    except (OSError, errors.LocalCloudError) as error:
        trouble = str(error)
    while machine.hear(timeout=_SECONDS):
        pass
    machine.conclude()
    if answer != _ANSWER or machine.ended is None or machine.ended.reason != EXITED:
        raise StartFailedError(f"The sandbox was made, and could not be reached: {trouble}", step="dial")


def _interpret(failure: StartFailedError, machine: NamespaceMachine) -> StartFailedError:
    """The program's own exit statuses, as steps."""
    if failure.step != "agent" or machine.ended is None:
        return failure
    step = {_BAD_OVERLAY: "overlay", _BAD_INTERPRETER: "interpreter"}.get(machine.ended.exit_code or 0, "interpreter")
    return StartFailedError(failure.message, step=step, hint=failure.hint)
