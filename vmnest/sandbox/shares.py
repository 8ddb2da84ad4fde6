"""What a sandbox on this machine uses, as shares of what it may use: its agent sees the whole machine's figures.

The service there tells the limits (``localDetails``). On AWS a MicroVM sees what is its own, and nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..agent.stats import Disk, Memory, Stats

__all__ = ["limited"]

_MIB = 2**20
_EXACT = "cgroup"  # what holds a sandbox to a part of a CPU; else it has as many whole ones as cover its share


def limited(found: Stats, details: object) -> Stats:
    """The figures of a sandbox that has these limits.

    Args:
        found: What its agent says.
        details: The service's ``localDetails``; anything else limits nothing.
    """
    if not isinstance(details, Mapping):
        return found
    found = _limit_cpus(found, _positive(details.get("cpus")), is_exact=details.get("enforced") == _EXACT)
    memory, disk = (_positive(details.get(name)) for name in ("memory", "disk"))
    if memory is not None:
        found = found._replace(memory=_limit_memory(found.memory, int(memory * _MIB)))
    return found if disk is None else found._replace(disk=_limit_disk(found.disk, int(disk * _MIB)))


def _limit_cpus(found: Stats, limit: float | None, *, is_exact: bool) -> Stats:
    if limit is not None and not is_exact:
        limit = float(math.ceil(limit))
    if limit is None or found.cpus is None or found.cpus <= limit:
        return found
    share = found.cpu_percent
    return found._replace(
        cpus=limit, cpu_percent=None if share is None else round(min(100.0, share * found.cpus / limit), 1)
    )


def _limit_memory(memory: Memory, limit: int) -> Memory:
    if memory.total is None or memory.total <= limit:
        return memory
    left = None if memory.used is None else max(0, limit - memory.used)
    return memory._replace(total=limit, available=left)


def _limit_disk(disk: Disk, limit: int) -> Disk:
    """What is used of a disk that others use too, nobody has counted."""
    if disk.total is None or disk.total <= limit:
        return disk
    return Disk(total=limit, used=None, free=None if disk.free is None else min(disk.free, limit))


def _positive(value: object) -> float | None:
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e12
    return float(value) if is_one else None  # type: ignore[arg-type] # that is what was looked at
