"""What kind of machine and software was measured; nothing that tells which one."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

PROBE = "import importlib.metadata as m, sys; print(m.version('vmnest'), m.version('botocore'), sys.version.split()[0])"


def describe(*, ours: Path, theirs: Path) -> dict[str, object]:
    """The machine, and the versions on both sides."""
    (version, botocore, python), (other, _, _) = (
        subprocess.run([str(side / "bin/python"), "-I", "-c", PROBE], capture_output=True, text=True, check=True)
        .stdout.strip()
        .split()
        for side in (ours, theirs)
    )
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "architecture": platform.machine(),
        "processor": _find("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_find("/proc/meminfo", "MemTotal").split()[0]) / 2**20),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "load": round(os.getloadavg()[0], 1),
        "python": python,
        "botocore": botocore,
        "ours": version,
        "theirs": other,
    }


def render(told: Mapping[str, object]) -> str:
    """One line of it."""
    return (
        f"{told['date']}: vmnest {told['ours']} beside {told['theirs']}, Python {told['python']}, botocore "
        f"{told['botocore']}; {told['cores']} cores ({told['processor']}, {told['architecture']}), "
        f"{told['memory_gib']} GiB, Linux {told['kernel']}, load {told['load']}"
    )


def _find(path: str, key: str) -> str:
    """The value of a line ``key: value``."""
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"
