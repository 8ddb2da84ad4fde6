"""Where control groups of VMs can be made: for memory, for CPU time, and for freezing.

A *place* is a directory of our own below the group that the daemon is in, so that whatever limits the daemon limits
its VMs as well; with the unified hierarchy alone all three are the same. Where that hierarchy exists, even without
controllers beside those of version 1, it is what freezes: a group frozen by version 1 cannot be killed before it is
thawed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable

from . import cgroups, kernel

_LOG = logging.getLogger(__name__)

_ATTEMPTS = 5
_OURS = "vmnest-processes"
_DELEGATED = ("user.delegate", "trusted.delegate")


def find_own(mounts: str, membership: str) -> dict[str, tuple[int, str]]:
    """For each role the directory of the group that we are in, of what /proc/self/{mountinfo,cgroup} say."""
    paths = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    unified: str | None = None
    found: dict[str, tuple[int, str]] = {}
    for line in mounts.splitlines():
        fields, _, source = line.partition(" - ")
        root, point = (_unescape(field) for field in fields.split()[3:5])
        kind, _, options = source.split(" ", 2)
        if kind == "cgroup2" and unified is None:
            unified = _place(point, root, paths.get(""))
        elif kind == "cgroup":
            for role in (cgroups.MEMORY, cgroups.CPU, cgroups.FREEZER):
                place = _place(point, root, paths.get(role)) if role in options.split(",") else None
                if place is not None:
                    found.setdefault(role, (1, place))
    if unified is not None:
        if os.path.basename(unified) == _OURS:  # an earlier daemon moved us down
            unified = os.path.dirname(unified)
        found[cgroups.FREEZER] = (2, unified)
        for role in {cgroups.MEMORY, cgroups.CPU} - paths.keys():
            found[role] = (2, unified)
    return found


def _unescape(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field


def _place(point: str, root: str, path: str | None) -> str | None:
    """Where the group ``path`` of a hierarchy shows, of which ``root`` is mounted on ``point``; None: nowhere."""
    inside = f"{path}/".startswith(f"{root.rstrip('/')}/") if path is not None else False
    if path is None or not inside or "/.." in path:
        return None
    return f"{point}{path[len(root.rstrip('/')) :]}".rstrip("/")


class Places:
    """The places of one state folder. They are there while VMs are in them. Thread-safe."""

    def __init__(self, own: cgroups.Table, *, name: str, uid: int | None) -> None:
        """``own`` is where we are ourselves; ``uid`` (None: ourselves) may fill the places."""
        self._own = own
        self._name = name
        self._uid = uid
        self._made: cgroups.Table = {}

    @classmethod
    def of_folder(cls, folder: str, *, uid: int | None) -> Places:
        """Those of a state folder, below the groups that this process is in."""
        place = os.stat(folder)
        try:
            own = find_own(cgroups.read("/proc/self/mountinfo"), cgroups.read("/proc/self/cgroup"))
        except FileNotFoundError:  # a kernel without control groups
            own = {}
        return cls(own, name=f"vmnest-{place.st_dev:x}-{place.st_ino:x}", uid=uid)

    def list_groups(self, name: str) -> list[str]:
        """The directories of the groups that a VM called ``name`` may have."""
        self._ensure()
        return cgroups.list_groups(self._made, name)

    def reserve(self, name: str, *, roles: Iterable[str]) -> dict[str, tuple[int, str]]:
        """Make the groups of a VM, for those of ``roles`` for which there is a place; the places of these."""
        for _ in range(_ATTEMPTS):
            self._ensure()
            found = {role: self._made[role] for role in roles if role in self._made}
            groups = cgroups.list_groups(found, name)
            try:
                for group in groups:
                    os.mkdir(group, 0o755)
            except FileNotFoundError:  # the last VM in a place ended just now, and the place went with it
                cgroups.remove_groups(groups)
            except FileExistsError:  # of a VM whose folder was removed before its groups could be
                cgroups.end_processes(groups)
                cgroups.remove_groups(groups)
            else:
                return found
        _LOG.warning("no control groups for %s", name)
        return {}

    def _ensure(self) -> None:
        if not self._made or not all(os.path.isdir(place) for _, place in self._made.values()):
            self._made = make_places(self._own, name=self._name, uid=self._uid)

    def sweep(self) -> None:
        """Remove empty groups: of VMs that ended while no daemon was there, and whose folders are gone since.

        For a daemon's start, when no VM is about to start. Groups of VMs that run stay.
        """
        self._ensure()
        for place in {place for _, place in self._made.values()}:
            with contextlib.suppress(FileNotFoundError):
                for entry in os.scandir(place):
                    if entry.is_dir():
                        with contextlib.suppress(OSError):  # it is in use
                            os.rmdir(entry.path)
            with contextlib.suppress(OSError):
                os.rmdir(place)

    def hasten(self) -> None:
        """Wait for what moving a process waits for, some 10 ms: a grace period of the kernel.

        Who moves one soon after need not wait. So this is done, by moving ourselves to where we are, while a
        supervisor starts.
        """
        for role in self._made:
            try:
                kernel.write(os.path.join(self._own[role][1], "cgroup.procs"), str(os.getpid()))
            except OSError:
                continue
            return


def make_places(own: cgroups.Table, *, name: str, uid: int | None) -> dict[str, tuple[int, str]]:
    """Make the places, called ``name``, which ``uid`` (None: ourselves) may fill; those that cannot be are left out."""
    places = {}
    # Memory first: it cannot be handed on beside processes, and says so, while CPU time can, but then spoils the group
    # for all else: https://docs.kernel.org/admin-guide/cgroup-v2.html#threads.
    controllers = [role for role in (cgroups.MEMORY, cgroups.CPU) if own.get(role, (0, ""))[0] == 2]
    if cgroups.MEMORY not in controllers:
        controllers = []
    for role, (version, group) in own.items():
        try:
            above = _find_unified(group, controllers) if version == 2 and controllers else group
            place = os.path.join(above, name)
            os.makedirs(place, mode=0o755, exist_ok=True)
            if uid is not None:
                os.chown(place, uid, -1)
            if version == 2 and role in controllers:
                _enable(place, [role])
            places[role] = (version, place)
        except OSError:  # not ours to use, or read-only, as in most containers
            continue
    return places


def _find_unified(own: str, controllers: list[str]) -> str:
    """The group for our place: one that hands its controllers on, which one with processes cannot, but for the root.

    That is our own; else, where it was delegated to us, our own once its processes have moved down into one of its
    own; else, for root, the one above, as it is.
    """
    if _try_enable(own, controllers) or (_is_delegated(own) and _move_down(own) and _try_enable(own, controllers)):
        return own
    above = os.path.dirname(own)
    if os.geteuid() == 0 and cgroups.MEMORY in cgroups.read(os.path.join(above, "cgroup.subtree_control")).split():
        return above
    return own


def _try_enable(group: str, controllers: Iterable[str]) -> bool:
    try:
        _enable(group, controllers)
    except OSError:
        return False
    return True


def _is_delegated(group: str) -> bool:
    """Whether systemd handed the group over for us to divide: https://systemd.io/CGROUP_DELEGATION/."""
    return any(mark in os.listxattr(group) for mark in _DELEGATED)


def _move_down(own: str) -> bool:
    below = os.path.join(own, _OURS)
    os.makedirs(below, exist_ok=True)
    for pid in cgroups.read(os.path.join(own, "cgroup.procs")).split():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            kernel.write(os.path.join(below, "cgroup.procs"), pid)
    return True


def _enable(group: str, controllers: Iterable[str]) -> None:
    """Hand controllers on to the groups below. Memory is a must; without CPU time there are other means."""
    for controller in controllers:
        try:
            kernel.write(os.path.join(group, "cgroup.subtree_control"), f"+{controller}")
        except OSError:
            if controller == cgroups.MEMORY:
                raise
