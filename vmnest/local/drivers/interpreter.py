"""Which Python runs inside a sandbox, and what has to be bound for it.

The first of the system's own that is new enough and complete; else the one that runs us, without its site-packages.
Whether a candidate works is seen inside, by the probe: outside, root's eyes see too much.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

OLDEST = (3, 9)
SYSTEM_CANDIDATES = ("/usr/bin/python3", "/usr/local/bin/python3")
CHECK = f"import sys, http.server, json, ssl; sys.exit(sys.version_info < {OLDEST!r})"


@dataclass(frozen=True)
class Interpreter:
    """A Python for the inside.

    Attributes:
        path: Its path inside, the same as on the host.
        prefix: The directory that must be bound for it, or None if it lies in what is visible anyway.
        masked: Directories of the prefix that show empty.
    """

    path: str
    prefix: str | None = None
    masked: tuple[str, ...] = ()


def list_candidates(*, visible: Sequence[str], system: Sequence[str] = SYSTEM_CANDIDATES) -> Iterator[Interpreter]:
    """The candidates that exist, best first."""
    for path in system:
        if os.access(path, os.X_OK):
            yield Interpreter(path)
    yield own(visible=visible)


def own(*, visible: Sequence[str]) -> Interpreter:
    """The interpreter of this process, by its base prefix: at another path it would not find its library."""
    prefix = os.path.realpath(sys.base_prefix)
    major, minor = sys.version_info[:2]
    path = os.path.join(prefix, "bin", f"python{major}.{minor}")
    if any(prefix == root or prefix.startswith(root + "/") for root in visible):
        return Interpreter(path)
    packages = (
        os.path.join(prefix, "lib", f"python{major}.{minor}", name) for name in ("site-packages", "dist-packages")
    )
    return Interpreter(path, prefix=prefix, masked=tuple(filter(os.path.isdir, packages)))
