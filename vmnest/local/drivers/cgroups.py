"""The control groups of one VM: made by its supervisor, in the places that ``places`` found.

Stand-alone (see ``runtime``). The supervisor makes a VM's *group* in each place while it still has the daemon's
privileges, keeps open what it needs of them, and removes them at the end: the places belong to the sandboxes' uid.

Both versions are spoken, and both at once: https://docs.kernel.org/admin-guide/cgroup-v2.html, and for version 1
https://docs.kernel.org/admin-guide/cgroup-v1/ (memory.rst, freezer-subsystem.rst) and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import time

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    # role -> (version, directory)
    Table = Mapping[str, tuple[int, str]]

MEMORY = "memory"
CPU = "cpu"
FREEZER = "freezer"
_CPU_PERIOD_MICROSECONDS = 100_000
_LEAST_QUOTA_MICROSECONDS = 1000
_SIGKILL = 9
_REMOVE_SECONDS = 0.5
_PAUSE_SECONDS = 0.002
_LOOKS_BEFORE_THAW = 50


def name_group(folder: str) -> str:
    """What a VM's groups are called: no other existing folder's have that name."""
    return f"{os.path.basename(folder)}-{os.stat(folder).st_ino:x}"


def list_groups(places: Table, name: str) -> list[str]:
    """The directories that a VM's groups may have."""
    return sorted({os.path.join(place, name) for _, place in places.values()})


class Group:
    """A VM's groups. What cannot be used is not in ``roles``."""

    def __init__(self, places: Table, name: str) -> None:
        self._name = name
        self._descriptors: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._looks = 0
        self.roles: dict[str, tuple[int, str]] = {}
        for role, (version, place) in places.items():
            self.roles[role] = (version, os.path.join(place, name))

    def open(self, *, memory_bytes: int, cpus: float | None) -> None:
        """Set their limits, and open what is used. From here on no privileges are needed, nor a way to them."""
        for role in list(self.roles):
            try:
                self._open_role(role, memory_bytes=memory_bytes, cpus=cpus or 0)
            except OSError as error:
                _warn(f"no control group for {role}: {error}")
                self._give_up(role)

    def _open_role(self, role: str, *, memory_bytes: int, cpus: float) -> None:
        version, group = self.roles[role]
        place = os.path.dirname(group)
        if place not in self._places:
            self._places[place] = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._open("attach " + place, f"{group}/cgroup.procs", os.O_WRONLY)
        if role == MEMORY:
            self._limit_memory(version, group, memory_bytes)
        elif role == CPU:
            _limit_cpu(version, group, cpus)
        elif version == 2:
            self._open("freeze", f"{group}/cgroup.freeze", os.O_WRONLY)
            self._open("frozen", f"{group}/cgroup.events", os.O_RDONLY)
        else:
            self._open("freeze", f"{group}/freezer.state", os.O_RDWR)

    def _open(self, key: str, path: str, flags: int) -> None:
        self._descriptors[key] = os.open(path, flags | os.O_CLOEXEC)

    def _limit_memory(self, version: int, group: str, size: int) -> None:
        limit, swap = ("memory.max", "memory.swap.max") if version == 2 else (
            "memory.limit_in_bytes", "memory.memsw.limit_in_bytes",
        )  # fmt: skip
        kernel.write(f"{group}/{limit}", str(size))
        _write_if_there(f"{group}/{swap}", "0" if version == 2 else str(size))  # there is none without swap accounting
        if version == 2:
            _write_if_there(f"{group}/memory.oom.group", "1")
            self._open("oom", f"{group}/memory.events", os.O_RDONLY)
            return
        self._open("oom", f"{group}/memory.oom_control", os.O_RDONLY)
        self._descriptors["oom event"] = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        event = f"{self._descriptors['oom event']} {self._descriptors['oom']}"
        kernel.write(f"{group}/cgroup.event_control", event)

    def _give_up(self, role: str) -> None:
        _, group = self.roles.pop(role)
        if any(other == group for _, other in self.roles.values()):
            return
        place = os.path.dirname(group)
        self._close("attach " + place)
        if place in self._places:
            _remove(self._name, parent=self._places[place])
            os.close(self._places.pop(place))

    def _close(self, key: str) -> None:
        if key in self._descriptors:
            os.close(self._descriptors.pop(key))

    def descriptors(self) -> tuple[int, ...]:
        """All that is open; a child that is not ours any more closes them."""
        return (*self._descriptors.values(), *self._places.values())

    def attach(self, process: int) -> None:
        """Put a process that has no children yet under the limits. It may take some 20 ms: a kernel's grace period."""
        for role, (_, group) in list(self.roles.items()):
            descriptor = self._descriptors.get("attach " + os.path.dirname(group))
            if descriptor is None:
                continue
            try:
                os.write(descriptor, str(process).encode())
            except OSError as error:
                _warn(f"the control group for {role} was refused: {error}")
                self._give_up(role)

    # -- memory

    @property
    def alarm(self) -> tuple[int, int] | None:
        """What to poll, and for what, to hear that the memory was used up."""
        if MEMORY not in self.roles:
            return None
        if self.roles[MEMORY][0] == 1:
            return self._descriptors["oom event"], select.POLLIN
        return self._descriptors["oom"], select.POLLPRI

    def hear_alarm(self) -> None:
        """After the alarm: let it be able to go off again. What it was about shows in ``has_run_out``, by and by.

        Version 1 gives it before it kills, and to all groups below the one that is full.
        """
        if self.roles[MEMORY][0] == 1:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._descriptors["oom event"])

    @property
    def has_run_out(self) -> bool:
        """Whether the kernel killed a process of the VM for want of memory."""
        if MEMORY not in self.roles:
            return False
        words = os.pread(self._descriptors["oom"], 4096, 0).split()
        return words[words.index(b"oom_kill") + 1] != b"0" if b"oom_kill" in words else False

    # -- freezing

    def freeze(self) -> None:
        """Begin to freeze."""
        os.pwrite(self._descriptors["freeze"], b"1" if self.roles[FREEZER][0] == 2 else b"FROZEN", 0)

    def thaw(self) -> None:
        """Let go on; also what is not frozen yet."""
        os.pwrite(self._descriptors["freeze"], b"0" if self.roles[FREEZER][0] == 2 else b"THAWED", 0)

    def is_frozen(self) -> bool:
        """Whether everything is; to be asked until it is so.

        Version 1 can get stuck half-way when processes fork meanwhile. Asked again it goes on, at the latest when
        everything ran for a moment.
        """
        if self.roles[FREEZER][0] == 2:
            return b"frozen 1" in os.pread(self._descriptors["frozen"], 4096, 0)
        if os.pread(self._descriptors["freeze"], 64, 0).strip() == b"FROZEN":
            return True
        self._looks += 1
        if self._looks % _LOOKS_BEFORE_THAW == 0:
            self.thaw()
        self.freeze()
        return False

    def remove(self) -> None:
        """Remove them, once no process is left."""
        for place in self._places.values():
            _remove(self._name, parent=place)


def _limit_cpu(version: int, group: str, cpus: float) -> None:
    quota = max(_LEAST_QUOTA_MICROSECONDS, int(cpus * _CPU_PERIOD_MICROSECONDS))
    if version == 2:
        kernel.write(f"{group}/cpu.max", f"{quota} {_CPU_PERIOD_MICROSECONDS}")
    else:
        kernel.write(f"{group}/cpu.cfs_period_us", str(_CPU_PERIOD_MICROSECONDS))
        kernel.write(f"{group}/cpu.cfs_quota_us", str(quota))


# -- groups whose supervisor is gone -----------------------------------------------------------------------------------


def end_processes(groups: Iterable[str]) -> None:
    """Kill what is left in groups, frozen or not; groups that are not there are fine."""
    for group in groups:
        try:
            kernel.write(f"{group}/cgroup.kill", "1")
        except OSError:  # no such group, or Linux before 5.14, or version 1
            _end_each(group)


def _end_each(group: str) -> None:
    try:
        pids = [int(pid) for pid in read(f"{group}/cgroup.procs").split()]
    except OSError:
        return
    for pid in pids:
        try:
            os.kill(pid, _SIGKILL)
        except ProcessLookupError:
            continue
    _write_if_there(f"{group}/freezer.state", "THAWED")


def remove_groups(groups: Iterable[str]) -> None:
    """Remove groups whose processes have ended, and places in which none is left; what is not there is fine."""
    for group in groups:
        _remove(group)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(group))


def _remove(group: str, *, parent: int | None = None) -> None:
    """rmdir, again for a while: the last process may have been waited for and still be on its way out of the group."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            os.rmdir(group, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                _warn(f"the control group {group} stays: {error}")
                return
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _warn(text: str) -> None:
    """A line for the supervisor's log, or the daemon's."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def read(path: str) -> str:
    """The text of a file of a group."""
    with open(path, encoding="ascii") as reader:
        return reader.read()


def _write_if_there(path: str, text: str) -> None:
    try:
        kernel.write(path, text)
    except FileNotFoundError:
        return
