"""What the sandbox uses of its processors, memory, disk and network, for ``GET /v1/stats``.

What is measured depends on where the agent runs. In a VM, the system's own figures are the sandbox's. Where a control
group bounds it, the group's are. Else, in a PID namespace of its own (a sandbox of the local cloud), the machine's
figures would be those of strangers, and what its processes use is summed up; its load nobody knows.
"""

from __future__ import annotations

import os
import re
import threading
import time

from . import answers, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .routes import Routes
    from .server import Request

_SHORTEST_SECONDS = 0.1  # a share of the processors is not measured over less
_KIB = 1024
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD in include/linux/sched.h
_MEMORY_FIELD = re.compile(rb"^(RssAnon|RssShmem|VmSwap|VmPTE):\s*(\d+) kB", re.MULTILINE)
_ROLES = frozenset({"cpu", "cpuacct", "memory"})
_UNLIMITED_BYTES = 2**60  # version 1 of control groups says "no limit" with a number near 2**63


class StatsApi:
    """Serves the figures. Thread-safe.

    Args:
        workdir: The folder whose disk is told.
        system: Where the figures come from.
        monotonic: The clock.
    """

    def __init__(
        self, *, workdir: bytes, system: System | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._workdir = workdir
        self._system = system or System()
        self._monotonic = monotonic
        self._begin = monotonic()
        self._lock = threading.Lock()
        self._sample = (self._begin, self._system.read_processor_seconds())  # guarded by the lock, as is _share
        self._share = 0.0

    def routes(self) -> Routes:
        """What is served here."""
        return {wire.STATS_PATH: {"GET": self._stats}}

    def _stats(self, request: Request) -> answers.Answer:
        cpus = self._system.count_processors()
        document = {
            "cpus": round(cpus, 2),
            "cpu_percent": round(100 * self._measure_share(cpus), 1),
            "load": self._system.read_load(),
            "memory": self._system.read_memory(),
            "disk": read_disk(self._workdir),
            "processes": self._system.count_processes(),
            **self._read_network(),
            "uptime": round(self._monotonic() - self._begin, 3),
        }
        return answers.build_json(200, document)

    def _read_network(self) -> dict[str, dict[str, int]]:
        traffic = self._system.read_traffic()
        return {} if traffic is None else {"network": {"received": traffic[0], "sent": traffic[1]}}

    def _measure_share(self, cpus: float) -> float:
        """The share of all processors that was in use since the last call, or the one before if that was just now."""
        with self._lock:
            now = self._monotonic()
            then, before = self._sample
            if now - then >= _SHORTEST_SECONDS:
                used = self._system.read_processor_seconds()
                self._sample = (now, used)
                self._share = min(max((used - before) / (now - then) / cpus, 0.0), 1.0)
            return self._share


class System:
    """The figures of the system under ``proc`` and ``cgroups``, folders that only tests have elsewhere."""

    def __init__(self, *, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> None:
        self._proc = proc
        self._group = Group(find_groups(_read(f"{proc}/self/cgroup"), root=cgroups))
        self._is_alone = not self._group.is_known and _is_own_namespace(proc)
        self._ticks = os.sysconf("SC_CLK_TCK")

    def count_processors(self) -> float:
        """How many processors may be used; a part of one where that is the limit."""
        count = float(len(os.sched_getaffinity(0)))
        return min(count, self._group.read_processors() or count)

    def read_processor_seconds(self) -> float:
        """Time that processors were in use, since some moment in the past."""
        used = self._group.read_processor_seconds()
        if used is not None:
            return used
        if self._is_alone:
            return sum(ticks for _, ticks in self._processes()) / self._ticks
        return parse_busy_ticks(_read(f"{self._proc}/stat")) / self._ticks

    def read_memory(self) -> dict[str, int]:
        """Bytes in all, in use, and still to be had."""
        machine = parse_meminfo(_read(f"{self._proc}/meminfo"))
        total, available = machine["MemTotal"], machine.get("MemAvailable", machine["MemFree"])
        limit, used = self._group.read_memory()
        if limit is not None and limit < total:
            return {"total": limit, "used": used, "available": min(max(limit - used, 0), available)}
        if self._is_alone:
            used = sum(self._read_process_memory(pid) for pid, _ in self._processes())
            return {"total": total, "used": used, "available": available}
        return {"total": total, "used": total - available, "available": available}

    def read_load(self) -> list[float] | None:
        """Processes that ran or wanted to, over 1, 5 and 15 minutes; None where that counts those of strangers."""
        return None if self._is_alone else [round(figure, 2) for figure in os.getloadavg()]

    def count_processes(self) -> int:
        """How many there are, the kernel's own left out."""
        return sum(1 for _ in self._processes())

    def read_traffic(self) -> tuple[int, int] | None:
        """Bytes received and sent; None where there is no network."""
        return parse_traffic(_read(f"{self._proc}/net/dev"))

    def _processes(self) -> Iterator[tuple[str, int]]:
        """Number of each process, and the ticks that it and its children that ended have used."""
        for name in os.listdir(self._proc):
            if name.isdigit():
                line = _read(f"{self._proc}/{name}/stat")
                found = parse_process(line)
                if found is not None:
                    yield name, found

    def _read_process_memory(self, pid: str) -> int:
        return sum(int(count) for _, count in _MEMORY_FIELD.findall(_read(f"{self._proc}/{pid}/status"))) * _KIB


class Group:
    """The control group that bounds us, of either version, as far as it can be seen.

    Args:
        folders: See ``find_groups``.
    """

    def __init__(self, folders: dict[str, tuple[int, str]]) -> None:
        self._folders = folders

    @property
    def is_known(self) -> bool:
        return bool(self._folders)

    def read_processors(self) -> float | None:
        """How many processors' time the group may use; None without a limit."""
        version, folder = self._folders.get("cpu", (0, ""))
        if version == 2:
            quota, _, period = _read(f"{folder}/cpu.max").partition(b" ")
        else:
            quota, period = _read(f"{folder}/cpu.cfs_quota_us"), _read(f"{folder}/cpu.cfs_period_us")
        return int(quota) / int(period) if quota.strip().isdigit() and period.strip().isdigit() else None

    def read_processor_seconds(self) -> float | None:
        """Processor time that the group has used; None where it has no limit of it, or is not known."""
        if self.read_processors() is None:
            return None
        version, folder = self._folders.get("cpuacct", (0, ""))
        if version == 2:
            found = re.search(rb"^usage_usec (\d+)$", _read(f"{folder}/cpu.stat"), re.MULTILINE)
            return int(found[1]) / 1e6 if found else None
        nanoseconds = _read(f"{folder}/cpuacct.usage").strip()
        return int(nanoseconds) / 1e9 if nanoseconds.isdigit() else None

    def read_memory(self) -> tuple[int | None, int]:
        """The group's limit (None without one) and what it uses, files that the kernel would give up left out."""
        version, folder = self._folders.get("memory", (0, ""))
        if version == 2:
            limit, used, cache = "memory.max", "memory.current", rb"^inactive_file (\d+)$"
        else:
            limit, used, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", rb"^total_inactive_file (\d+)$"
        figures = [_read(f"{folder}/{name}").strip() for name in (limit, used)] if folder else [b"", b""]
        if not (figures[0].isdigit() and figures[1].isdigit()) or int(figures[0]) >= _UNLIMITED_BYTES:
            return None, 0
        found = re.search(cache, _read(f"{folder}/memory.stat"), re.MULTILINE)
        return int(figures[0]), max(int(figures[1]) - (int(found[1]) if found else 0), 0)


def find_groups(membership: bytes, *, root: str) -> dict[str, tuple[int, str]]:
    """Version and folder of our control group for each of its roles that can be seen, of ``/proc/self/cgroup``.

    A container sees its own group as the root, whatever its path is called outside.
    """
    is_unified = os.path.exists(f"{root}/cgroup.controllers")
    found = {}
    for line in membership.decode("utf-8", "surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        if is_unified == bool(controllers):
            continue
        for role in _ROLES if is_unified else _ROLES & set(controllers.split(",")):
            base = root if is_unified else f"{root}/{controllers}"
            places = [os.path.normpath(f"{base}/{path}"), base]
            here = [place for place in places if os.path.exists(f"{place}/cgroup.procs")]
            if here:
                found[role] = (2 if is_unified else 1, here[0])
    return found


def parse_meminfo(text: bytes) -> dict[str, int]:
    """The lines of ``/proc/meminfo``, in bytes."""
    fields = re.findall(r"^(\w+):\s*(\d+) kB$", text.decode("ascii", "replace"), re.MULTILINE)
    return {name: int(count) * _KIB for name, count in fields}


def parse_busy_ticks(text: bytes) -> int:
    """Ticks of all processors that were not idle and not waiting for a disk, of ``/proc/stat``."""
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts = (int(word) for word in text.split(None, 8)[1:8])
    return user + nice + system + interrupts + soft_interrupts


def parse_process(line: bytes) -> int | None:
    """Ticks used, of a ``/proc/N/stat``; None for a thread of the kernel, or a process that is gone."""
    fields = line.rpartition(b") ")[2].split()
    if len(fields) < 15 or int(fields[6]) & _KERNEL_THREAD:
        return None
    return sum(int(word) for word in fields[11:15])


def parse_traffic(text: bytes) -> tuple[int, int] | None:
    """Bytes received and sent by all interfaces but the loopback, of ``/proc/net/dev``; None if there is no other.

    One that never carried a byte is none: kernels put ends of tunnels that lead nowhere into every network.
    """
    counts = []
    for line in text.splitlines():
        name, _, figures = line.partition(b":")
        fields = figures.split()
        # The two lines above the figures have no colon.
        if name.strip() != b"lo" and len(fields) > 8:
            counts.append((int(fields[0]), int(fields[8])))
    received, sent = (sum(column) for column in zip(*counts)) if counts else (0, 0)
    return (received, sent) if received or sent else None


def read_disk(path: bytes) -> dict[str, int]:
    """Bytes in all, in use, and free to us, of the disk that holds ``path`` or will."""
    while True:
        try:
            figures = os.statvfs(path)
            break
        except OSError:
            if path == b"/":
                raise
            path = os.path.dirname(path)
    unit = figures.f_frsize
    return {
        "total": figures.f_blocks * unit,
        "used": (figures.f_blocks - figures.f_bfree) * unit,
        "free": figures.f_bavail * unit,
    }


def _is_own_namespace(proc: str) -> bool:
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _read(path: str) -> bytes:
    """A small file of the system; nothing where it is not, or goes away."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
