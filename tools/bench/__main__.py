"""vmnest beside the upstream package: ``tools/bench/run`` installs both and starts this.

Absolute times drift on a shared machine; the ratios hold, since both sides run in turn. The goals are for orientation.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import agents
import commands
import figures
import fits
import footprint
import forward
import machine
import mcp_servers
import packing
import sandboxes
import scale
import transfers
from figures import Figure
from fits import Growth

SECTIONS = ("commands", "agents", "transfers", "sandboxes", "forward", "mcp", "packing", "footprint")


def _measure(section: str, *, ours: Path, theirs: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    if section == "commands":
        yield from commands.measure(ours=ours, theirs=theirs, folder=folder, rounds=rounds)
    elif section == "agents":
        yield from agents.measure(ours=ours, theirs=theirs, rounds=_share(rounds, 2))
    elif section == "transfers":
        yield from transfers.measure(ours=ours, theirs=theirs, rounds=_share(rounds, 4))
    elif section == "sandboxes":
        yield from sandboxes.measure(ours=ours, folder=folder, rounds=rounds)
    elif section == "forward":
        yield from forward.measure(ours=ours, theirs=theirs, folder=folder, rounds=_share(rounds, 3))
    elif section == "mcp":
        yield from mcp_servers.measure(ours=ours, theirs=theirs, folder=folder, rounds=_share(rounds, 2))
    elif section == "packing":
        yield from packing.measure(ours=ours, theirs=theirs, folder=folder, rounds=_share(rounds, 3))
    else:
        yield from footprint.measure(ours=ours, theirs=theirs)


def _share(rounds: int, part: int) -> int:
    """Fewer rounds, for what takes long; at least three, unless fewer are wanted."""
    return min(rounds, max(3, rounds // part))


def _measure_all(arguments: argparse.Namespace, folder: Path) -> Iterator[Figure | Growth]:
    places = {"ours": arguments.ours, "theirs": arguments.theirs}
    for section in arguments.only:
        place = folder / section
        place.mkdir()
        if arguments.scale:
            yield from scale.measure(section, places=places, folder=place, rounds=arguments.rounds or 3)
        else:
            yield from _measure(section, **places, folder=place, rounds=arguments.rounds or 15)


def _absolute(text: str) -> Path:
    """Programs are started in other folders, too. A link stays one: Python finds its environment by it."""
    return Path(text).absolute()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it is at least 1")
    return number


def _writable(text: str) -> Path:
    """What is found out after minutes of measuring is found out too late."""
    path = Path(text)
    try:
        path.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write {text}: {error.strerror}") from error
    return path


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench/run", description=__doc__)
    parser.add_argument("--ours", type=_absolute, required=True, help="environment with vmnest")
    parser.add_argument("--theirs", type=_absolute, required=True, help="environment with the upstream package")
    parser.add_argument("--scale", action="store_true", help="how costs grow, in place of what they are")
    parser.add_argument(
        "--only",
        metavar="SECTION[,SECTION]",
        help=f"of {', '.join(SECTIONS)}; with --scale of {', '.join(scale.SECTIONS)}",
    )
    parser.add_argument("--rounds", type=_count, metavar="N", help="rounds of each figure (15; with --scale 3)")
    parser.add_argument("--json", type=_writable, metavar="FILE", help="file to write the figures to")
    arguments = parser.parse_args()
    known = scale.SECTIONS if arguments.scale else SECTIONS
    arguments.only = arguments.only.split(",") if arguments.only else known
    if unknown := [each for each in arguments.only if each not in known]:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(known)}")
    return arguments


def main() -> None:
    arguments = _parse()
    told = machine.describe(ours=arguments.ours, theirs=arguments.theirs)
    print(machine.render(told), fits.HEADING if arguments.scale else figures.HEADING, sep="\n", flush=True)
    found: list[Mapping[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="vmnest-bench-") as folder:
        for figure in _measure_all(arguments, Path(folder)):
            print(figure.render(), flush=True)
            found.append(figure.to_wire())
            if arguments.json:  # each time: what breaks off later does not take it away
                kind = "growth" if arguments.scale else "figures"
                arguments.json.write_text(json.dumps({"machine": told, kind: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
