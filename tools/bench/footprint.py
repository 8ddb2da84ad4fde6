"""What an installation takes: packages and mebibytes, by the metadata of both environments.

Of an environment only what the package itself needs is counted, with compiled files as pip leaves them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from figures import Figure

# Run by the Python of an environment. pip brings the reading of requirements.
PROBE = """
import importlib.metadata, json, re, sys
from pip._vendor.packaging.requirements import Requirement
found, waiting = {}, [(sys.argv[1], sys.argv[2:])]
while waiting:
    name, extras = waiting.pop()
    name = re.sub("[-_.]+", "-", name).lower()
    new = {"", *extras} - found.get(name, set())
    found.setdefault(name, set()).update(new)
    for need in map(Requirement, importlib.metadata.requires(name) or ()):
        if new and (need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in new)):
            waiting.append((need.name, need.extras))
size = native = 0
for name in found:
    for file in importlib.metadata.files(name) or ():
        path = file.locate()
        if path.is_file():
            size += path.stat().st_size
            native += path.suffix == ".so"
json.dump({"packages": len(found), "bytes": size, "native": native}, sys.stdout)
"""


def measure(*, ours: Path, theirs: Path) -> Iterator[Figure]:
    """With and without what an MCP server needs besides; ours needs nothing."""
    for extra, name, goal in (("", "install", 0.52), ("mcp", "install with MCP", 0.36)):
        mine, other = (_count(side, extra) for side in (ours, theirs))
        yield Figure(f"{name}: size", "MiB", [mine["bytes"] / 2**20], [other["bytes"] / 2**20], goal)
        yield Figure(f"{name}: packages", "", [mine["packages"]], [other["packages"]])
        yield Figure(f"{name}: compiled modules", "", [mine["native"]], [other["native"]])


def _count(environment: Path, extra: str) -> dict[str, int]:
    command = [str(environment / "bin/python"), "-I", "-c", PROBE, "vmnest", *([extra] if extra else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return {name: int(value) for name, value in json.loads(done.stdout).items()}
