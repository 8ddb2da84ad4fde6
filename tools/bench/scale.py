"""How costs grow: ``tools/bench/run --scale``. With sandboxes, with clients, with megabytes; both sides where both can.

Each line has its slope, which is the price of one more. What is flat has a slope of nearly nothing, and what is in
proportion a power of 1; a power above 1 is a defect.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import commands
import fake_cloud
import forward
import packing
import processes
import sandboxes
import scale_agents
from enclosure import SIDES
from fits import Growth

SECTIONS = ("ls", "sandboxes", "agents", "forward", "packing")
SANDBOXES = (1, 10, 50, 200)
MEGABYTES = (1, 10, 100, 1000)
FORWARDED = {"ours": MEGABYTES, "theirs": (1, 10, 100)}  # theirs holds four times as much in memory
FLAT = scale_agents.FLAT


def measure(section: str, *, places: dict[str, Path], folder: Path, rounds: int) -> Iterator[Growth]:
    """One of the sections."""
    if section == "ls":
        yield from _measure_lists(places, folder=folder, rounds=rounds)
    elif section == "sandboxes":
        yield from _measure_sandboxes(places["ours"], folder=folder, rounds=rounds)
    elif section == "agents":
        yield from scale_agents.measure(ours=places["ours"], theirs=places["theirs"], rounds=rounds)
    elif section == "forward":
        yield from _measure_forward(places, folder=folder, rounds=rounds)
    else:
        yield from _measure_packing(places, folder=folder, rounds=rounds)


def _measure_lists(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Growth]:
    """``ls`` of so many sandboxes on AWS, whose answers take no time."""
    rows: dict[str, dict[int, list[float]]] = {side: {} for side in SIDES}
    with fake_cloud.FakeCloud().serving() as cloud:
        environ = commands.environment(folder, cloud.url)
        listing = [[str(places[side] / "bin/vmnest"), "ls"] for side in SIDES]
        for count in SANDBOXES:
            cloud.count = count
            commands.write_state(Path(environ["AGENT_SANDBOX_STATE"]), cloud.url, count=count)
            for side, took in zip(SIDES, processes.time_in_turn(listing, environ=environ, rounds=rounds), strict=True):
                rows[side][count] = took
    for side in SIDES:
        yield Growth("ls", side, "ms", "sandbox", rows[side])


def _measure_sandboxes(ours: Path, *, folder: Path, rounds: int) -> Iterator[Growth]:
    """What so many local sandboxes take: memory, and of the time of the next one and of ``ls``."""
    program = str(ours / "bin/vmnest")
    rows: dict[str, dict[int, list[float]]] = defaultdict(dict)
    with sandboxes.local_cloud(program, folder=folder):
        sandboxes.first_exec("first")
        running = 0
        for count in SANDBOXES:
            sandboxes.start_some(range(running, count), state=folder / "state.json")
            running = count
            rows["memory"][count] = [processes.family_mib(str(folder))]
            listing = processes.time_in_turn([[program, "ls"]], environ=os.environ, rounds=rounds)
            rows["ls"][count] = listing[0]
            rows["next"][count] = [sandboxes.first_exec(f"next-{number}") for number in range(rounds)]
    yield Growth("local: memory of all", "ours", "MiB", "sandbox", rows["memory"], 15)
    yield Growth("local: ls", "ours", "ms", "sandbox", rows["ls"])
    yield Growth("local: one more, create to exec", "ours", "ms", "sandbox", rows["next"])


def _measure_forward(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Growth]:
    """A GET of so many megabytes."""
    with forward.forwarders(places, folder=folder) as both:
        for side, one in both.items():
            took: dict[int, list[float]] = defaultdict(list)
            peaks: dict[int, list[float]] = defaultdict(list)
            for _ in range(rounds):
                for size in FORWARDED[side]:
                    processes.reset_peak(one.process.pid)
                    start = time.perf_counter()
                    one.get(f"/bytes/{size * packing.MB}")
                    took[size].append((time.perf_counter() - start) * 1e3)
                    peaks[size].append(processes.peak_mib(one.process.pid))
            yield Growth("forward: GET", side, "ms", "MB", took)
            yield Growth("forward: GET, peak", side, "MiB", "MB", peaks, FLAT if side == "ours" else None)


def _measure_packing(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Growth]:
    """A zip of so many megabytes."""
    programs = {"ours": packing.OURS, "theirs": packing.THEIRS}
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    took: dict[str, dict[int, list[float]]] = {side: {} for side in SIDES}
    peaks: dict[str, dict[int, list[float]]] = {side: {} for side in SIDES}
    for size in MEGABYTES:
        tree = folder / f"tree-{size}"
        packing.make_tree(tree, megabytes=size)
        lines = [
            packing.pack_command(places[side], programs[side], tree=tree, made=folder / "made.zip") for side in SIDES
        ]
        times = processes.time_in_turn(lines, environ=environ, rounds=min(rounds, 2))
        for side, line, values in zip(SIDES, lines, times, strict=True):
            took[side][size] = values
            peaks[side][size] = [processes.watch_peak_mib(line, environ=environ)]
        shutil.rmtree(tree)
    for side in SIDES:
        yield Growth("zip", side, "ms", "MB", took[side])
        yield Growth("zip, peak", side, "MiB", "MB", peaks[side])
