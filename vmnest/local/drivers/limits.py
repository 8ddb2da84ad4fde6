"""What holds a VM to its CPUs and its memory, and what freezes it: control groups where we may have them.

Stand-alone (see ``runtime``). Without a group for memory a watch sums up (``memory``); without one for CPU time the VM
gets as many whole CPUs as cover its share, and may not choose others; without one for freezing there are signals
(``stopping``).
"""

from __future__ import annotations

import os

from . import cgroups, memory, mounts, stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    class Freezer(Protocol):
        def freeze(self) -> None: ...

        def is_frozen(self) -> bool: ...

        def thaw(self) -> None: ...


CGROUP = "cgroup"
WATCH = "watch"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Limits:
    """A VM's limits. Its verbs are called in the order in which they stand here."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Open the groups, while we may. ``config`` has what ``reserve`` put there."""
        self._memory_bytes: int = config["memory_bytes"]
        self._cpus: float | None = config["cpus"]
        self.group = cgroups.Group(config["places"], config["name"])
        self.group.open(memory_bytes=self._memory_bytes, cpus=self._cpus)
        self.watch: memory.MemoryWatch | None = None
        self.stopper: stopping.SignalFreezer | None = None

    @property
    def enforced(self) -> str:
        """CGROUP if that is what holds the VM to all that was asked for; known after ``apply``."""
        wanted = {cgroups.MEMORY} if self._cpus is None else {cgroups.MEMORY, cgroups.CPU}
        return CGROUP if wanted <= self.group.roles.keys() else WATCH

    def apply(self, child: int) -> bool:
        """Put the VM's process 1 under the limits; whether it has CPUs that it must not leave."""
        self.group.attach(child)
        if self._cpus is None or cgroups.CPU in self.group.roles:
            return False
        os.sched_setaffinity(child, pick_cpus(os.sched_getaffinity(0), self._cpus))
        return True

    def admit(self, child: int, *, writable: str, now: float) -> None:
        """Once process 1 is in its new root, and can be looked at still: open what a watch needs."""
        if cgroups.MEMORY in self.group.roles and cgroups.FREEZER in self.group.roles:
            return
        root = f"/proc/{child}/root"
        proc = os.open(f"{root}/proc", _FOLDER)
        if cgroups.FREEZER not in self.group.roles:
            self.stopper = stopping.SignalFreezer(proc)
        if cgroups.MEMORY not in self.group.roles:
            folders = [os.open(f"{root}/dev/shm", _FOLDER)]  # noqa: S108 - the sandbox's, no place for files of ours
            if writable != mounts.DISK:
                folders.append(os.open(f"{root}/work", _FOLDER))
            self.watch = memory.MemoryWatch(proc, limit=self._memory_bytes, folders=folders, now=now)

    @property
    def freezer(self) -> Freezer:
        """What freezes the VM; known after ``admit``."""
        return self.stopper or self.group

    @property
    def holds_the_killed(self) -> bool:
        """Whether what is frozen does not die before it is thawed."""
        return self.group.roles.get(cgroups.FREEZER, (2, ""))[0] == 1


def pick_cpus(available: set[int], cpus: float) -> set[int]:
    """As few CPUs as cover a share; which ones is left to chance, so that VMs spread."""
    ordered = sorted(available)
    start = int.from_bytes(os.urandom(4), "big") % len(ordered)
    return {ordered[(start + step) % len(ordered)] for step in range(min(int(-(-cpus // 1)), len(ordered)))}
