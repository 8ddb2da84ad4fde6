"""vmnest beside the upstream package: ``tools/bench/run`` installs both and starts this.

Absolute times drift on a shared machine; the ratios hold, since both sides run in turn. The goals are for orientation.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

import agents
import commands
import footprint
import forward
import mcp_servers
import packing
import sandboxes
import transfers
from figures import HEADING, Figure

SECTIONS = ("commands", "agents", "transfers", "sandboxes", "forward", "mcp", "packing", "footprint")


def _measure(arguments: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    ours, theirs, rounds = arguments.ours, arguments.theirs, arguments.rounds
    for section in arguments.only.split(","):
        if section == "commands":
            yield from commands.measure(ours=ours, theirs=theirs, folder=folder, rounds=rounds)
        elif section == "agents":
            yield from agents.measure(ours=ours, theirs=theirs, rounds=max(3, rounds // 2))
        elif section == "transfers":
            yield from transfers.measure(ours=ours, theirs=theirs, rounds=max(3, rounds // 4))
        elif section == "sandboxes":
            yield from sandboxes.measure(ours=ours, folder=folder, rounds=rounds)
        elif section == "forward":
            yield from forward.measure(ours=ours, theirs=theirs, folder=folder, rounds=max(3, rounds // 3))
        elif section == "mcp":
            yield from mcp_servers.measure(ours=ours, theirs=theirs, folder=folder, rounds=max(3, rounds // 2))
        elif section == "packing":
            yield from packing.measure(ours=ours, theirs=theirs, folder=folder, rounds=max(3, rounds // 3))
        elif section == "footprint":
            yield from footprint.measure(ours=ours, theirs=theirs)
        else:
            raise SystemExit(f"no section {section!r}; there are {', '.join(SECTIONS)}")


def _absolute(text: str) -> Path:
    """Programs are started in other folders, too. A link stays one: Python finds its environment by it."""
    return Path(text).absolute()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/bench/run", description=__doc__)
    parser.add_argument("--ours", type=_absolute, required=True, help="environment with vmnest")
    parser.add_argument("--theirs", type=_absolute, required=True, help="environment with the upstream package")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections to run, of %(default)s")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each figure (%(default)s)")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, {arguments.rounds} rounds\n{HEADING}", flush=True)
    figures = []
    with tempfile.TemporaryDirectory(prefix="vmnest-bench-") as folder:
        for figure in _measure(arguments, Path(folder)):
            print(figure.render(), flush=True)
            figures.append(figure)
    if arguments.json:
        arguments.json.write_text(json.dumps([figure.to_wire() for figure in figures], indent=1) + "\n")


if __name__ == "__main__":
    main()
