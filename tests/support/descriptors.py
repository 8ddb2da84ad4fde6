"""What a process has open, as the kernel tells it."""

from __future__ import annotations

import contextlib
import os


def targets(pid: int) -> set[str]:
    """What its descriptors lead to: a path, or ``socket:[INODE]`` and the like. It may close some while we look."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found
