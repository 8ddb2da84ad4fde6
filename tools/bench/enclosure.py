"""A part of the benchmark in a network namespace of its own, where nothing but loopback exists.

The upstream agent listens on all interfaces, and a program that runs whatever it is told does not belong there. So a
module that needs both agents starts itself again under ``unshare --net``, and prints its figures as JSON.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from figures import Figure
from fits import Growth

SIDES = ("ours", "theirs")
Measure = Callable[[dict[str, Path], Path, int], Iterable[Figure | Growth]]
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def measure(program: str, *, ours: Path, theirs: Path, rounds: int) -> Iterator[Figure]:
    """Run a module in a network namespace and hand on the figures that it prints."""
    for row in _rows(program, ours=ours, theirs=theirs, rounds=rounds):
        yield Figure(**row)


def measure_growth(program: str, *, ours: Path, theirs: Path, rounds: int) -> Iterator[Growth]:
    """The same of a module that prints how something grows."""
    for row in _rows(program, ours=ours, theirs=theirs, rounds=rounds):
        sizes = {int(size): values for size, values in row.pop("rows").items()}
        yield Growth(**row, rows=sizes)


def _rows(program: str, *, ours: Path, theirs: Path, rounds: int) -> Iterator[dict[str, Any]]:
    unshare = shutil.which("unshare")
    if unshare is None:
        raise SystemExit("unshare (util-linux) is needed to keep the upstream agent off the network")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [unshare, *user, "--net", sys.executable, program, str(ours), str(theirs), "--rounds", str(rounds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise SystemExit(f"{Path(program).stem} could not be measured: exit status {process.returncode}")


def main(measure_all: Measure, *, description: str | None) -> None:
    """The program inside: what ``measure_all`` finds in both environments goes to standard output, a line a figure."""
    parser = argparse.ArgumentParser(description=description)
    for side in SIDES:
        parser.add_argument(side, type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    _bring_loopback_up()
    with tempfile.TemporaryDirectory() as folder:
        places = {side: getattr(arguments, side) for side in SIDES}
        for figure in measure_all(places, Path(folder), arguments.rounds):
            print(json.dumps(asdict(figure)), flush=True)


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
