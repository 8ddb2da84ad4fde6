"""How costs at the agents grow: with clients of exec, with megabytes of output and of files. See ``enclosure``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import agents
import commands
import enclosure
import fake_cloud
import load
import processes
import transfers
from enclosure import SIDES
from fits import Growth
from transfers import MB, Side

CLIENTS = (1, 8, 64)
# Theirs keeps all of it in memory several times over, and passes output through a highlighter.
OUTPUT_SIZES = {"ours": (1, 10, 100, 1000), "theirs": (1, 10)}
FILE_SIZES = {"ours": (1, 10, 100, 1000), "theirs": (1, 10, 100)}
FLAT = 0.01  # MiB a MB: nothing but noise


def measure(*, ours: Path, theirs: Path, rounds: int) -> Iterator[Growth]:
    """All of it."""
    return enclosure.measure_growth(__file__, ours=ours, theirs=theirs, rounds=rounds)


@contextmanager
def _sides(places: dict[str, Path], folder: Path) -> Iterator[dict[str, Side]]:
    with ExitStack() as stack:
        yield {
            name: Side(
                name,
                environment=places[name],
                agent=stack.enter_context(agents.running(name, environment=places[name], folder=folder)),
            )
            for name in SIDES
        }


def _measure_clients(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Growth]:
    """What each of so many clients waits (as many times longer as there are clients), and what all wait for one."""
    request = load.exec_request("/bin/true")
    rows: dict[str, dict[int, list[float]]] = {side: {count: [] for count in CLIENTS} for side in SIDES}
    each: dict[str, dict[int, list[float]]] = {side: {count: [] for count in CLIENTS} for side in SIDES}
    with ExitStack() as stack:
        both = {
            side: stack.enter_context(agents.running(side, environment=places[side], folder=folder)) for side in SIDES
        }
        for number in range(rounds + 1):
            for count in CLIENTS:
                for side in SIDES:
                    loop = load.Loop(both[side].address, request, agents.EXECS, count)
                    median = loop.run()
                    if number:
                        rows[side][count].append(median)
                        each[side][count].append(loop.milliseconds / agents.EXECS)
    for side in SIDES:
        yield Growth("exec, wait of a client", side, "ms", "client", rows[side])
        yield Growth("exec, time of each", side, "ms", "client", each[side])


def _measure_output(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Growth]:
    """The command line with so much output: time, its memory, the agent's memory."""
    with _sides(places, folder) as sides, fake_cloud.FakeCloud().serving() as cloud:
        environ = commands.environment(folder, cloud.url)
        for name, side in sides.items():
            cloud.endpoint = side.url
            commands.write_state(Path(environ["AGENT_SANDBOX_STATE"]), side.url)
            took: dict[int, list[float]] = {size: [] for size in OUTPUT_SIZES[name]}
            client: dict[int, list[float]] = {size: [] for size in OUTPUT_SIZES[name]}
            agent: dict[int, list[float]] = {size: [] for size in OUTPUT_SIZES[name]}
            for _ in range(rounds):
                for size in OUTPUT_SIZES[name]:
                    script = f"yes '{fake_cloud.LINE.decode().strip()}' | head -c {size * MB}"
                    line = [str(side.environment / "bin/vmnest"), "exec", "app", "--", "sh", "-c", script]
                    took[size].append(processes.time_once(line, environ=environ))
                    processes.reset_peak(side.pid)
                    client[size].append(processes.watch_peak_mib(line, environ=environ))
                    agent[size].append(processes.peak_mib(side.pid))
            flat = FLAT if name == "ours" else None
            yield Growth("exec printing", name, "ms", "MB", took)
            yield Growth("exec printing, command's peak", name, "MiB", "MB", client, flat)
            yield Growth("exec printing, agent's peak", name, "MiB", "MB", agent, flat)


def _measure_files(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Growth]:
    with _sides(places, folder) as sides:
        for action in ("write", "read"):
            for name, side in sides.items():
                found = {
                    size: [transfers.move(side, action, size * MB, folder=folder) for _ in range(rounds)]
                    for size in FILE_SIZES[name]
                }
                flat = FLAT if name == "ours" else None
                for index, (what, unit) in enumerate(
                    (("", "ms"), (", client's peak", "MiB"), (", agent's peak", "MiB"))
                ):
                    values = {size: [row[index] for row in rows] for size, rows in found.items()}
                    yield Growth(f"files: {action}{what}", name, unit, "MB", values, flat if index else None)


def _measure_all(places: dict[str, Path], folder: Path, rounds: int) -> Iterator[Growth]:
    yield from _measure_clients(places, folder=folder, rounds=rounds)
    yield from _measure_output(places, folder=folder, rounds=rounds)
    yield from _measure_files(places, folder=folder, rounds=rounds)


if __name__ == "__main__":
    enclosure.main(_measure_all, description=__doc__)
