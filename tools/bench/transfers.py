"""Bytes through both agents: files, output of a command line, a thousand processes. A program of its own, see
``enclosure``.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import agents
import clients
import commands
import enclosure
import fake_cloud
import processes
from agents import Agent
from enclosure import SIDES
from figures import Figure

MB = 1_000_000
FILE_BYTES = 100 * MB
SMALL_FILE_BYTES = 10 * MB
OUTPUT_MB = {"ours": 200, "theirs": 5}  # theirs would take minutes; it is a rate that is compared
PROCESSES = 1000


def measure(*, ours: Path, theirs: Path, rounds: int) -> Iterator[Figure]:
    """Files written and read, output printed, processes run."""
    return enclosure.measure(__file__, ours=ours, theirs=theirs, rounds=rounds)


class Side:
    """One side: its agent, its library and its command line."""

    def __init__(self, name: str, *, environment: Path, agent: Agent) -> None:
        self.name = name
        self.environment = environment
        self.pid = agent.process.pid
        host, port = agent.address
        self.url = f"http://{host}:{port}"

    def work(self, action: str, local: object, remote: object) -> tuple[float, float, float]:
        """What the library took (ms), and the largest memory (MiB) of it and of the agent meanwhile."""
        processes.reset_peak(self.pid)
        done = clients.work(self.name, self.environment, url=self.url, action=action, words=(local, remote))
        return done.milliseconds, done.mib, processes.peak_mib(self.pid)


def _measure_files(sides: list[Side], *, action: str, folder: Path, rounds: int) -> Iterator[Figure]:
    """Times, and what the tenfold size adds to the memory of either end."""
    rows: dict[str, dict[str, list[float]]] = {
        key: {side.name: [] for side in sides} for key in ("milliseconds", "client", "agent")
    }
    for count in range(rounds + 1):
        for side in sides:
            _, client_before, agent_before = move(side, action, SMALL_FILE_BYTES, folder=folder)
            milliseconds, client, agent = move(side, action, FILE_BYTES, folder=folder)
            if count:
                for row, value in zip(
                    rows.values(), (milliseconds, client - client_before, agent - agent_before), strict=True
                ):
                    row[side.name].append(value)
    for key, name, unit, goal in (
        ("milliseconds", " 100 MB", "ms", 0.25),
        ("client", ", the client's growth", "MiB", 0.1),
        ("agent", ", the agent's growth", "MiB", 0.1),
    ):
        yield Figure(f"files: {action}{name}", unit, rows[key]["ours"], rows[key]["theirs"], goal)


def move(side: Side, action: str, size: int, *, folder: Path) -> tuple[float, float, float]:
    """Move a file of noise by the library, and see that it arrived; what ``Side.work`` tells."""
    here, there = folder / f"here-{side.name}", folder / f"there-{side.name}"
    source, copy = (here, there) if action == "write" else (there, here)
    block = os.urandom(MB)
    with open(source, "wb") as file:
        for _ in range(size // MB):
            file.write(block)
    measured = side.work(action, here, there)
    if not filecmp.cmp(source, copy, shallow=False):
        raise SystemExit(f"{side.name}: {action}: the copy is another")
    source.unlink()
    copy.unlink()
    return measured


def _measure_output(sides: list[Side], *, folder: Path, rounds: int) -> Figure:
    """Lines of text from a program in the sandbox to the standard output of the command line."""
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    with fake_cloud.FakeCloud().serving() as cloud:
        environ = commands.environment(folder, cloud.url)
        for count in range(rounds + 1):
            for side in sides:
                cloud.endpoint = side.url
                commands.write_state(Path(environ["AGENT_SANDBOX_STATE"]), side.url)
                script = f"yes '{fake_cloud.LINE.decode().strip()}' | head -c {OUTPUT_MB[side.name] * MB}"
                line = [str(side.environment / "bin/vmnest"), "exec", "app", "--", "sh", "-c", script]
                took = processes.time_once(line, environ=environ)
                if count:
                    times[side.name].append(took / OUTPUT_MB[side.name])
    return Figure("exec printing, a MB of it", "ms", times["ours"], times["theirs"], 0.05)


def _measure_command(sides: list[Side], *, folder: Path, rounds: int) -> Figure:
    """The whole command line for a short command."""
    with fake_cloud.FakeCloud().serving() as cloud:
        environ = commands.environment(folder, cloud.url)
        times: dict[str, list[float]] = {side.name: [] for side in sides}
        for count in range(rounds + 1):
            for side in sides:
                cloud.endpoint = side.url
                commands.write_state(Path(environ["AGENT_SANDBOX_STATE"]), side.url)
                line = [str(side.environment / "bin/vmnest"), "exec", "app", "--", "echo", "hi"]
                took = processes.time_once(line, environ=environ)
                if count:
                    times[side.name].append(took)
    return Figure("exec echo, http, static keys", "ms", times["ours"], times["theirs"], 0.3)


def _measure_processes(sides: list[Side], *, rounds: int) -> Iterator[Figure]:
    """Time for a thousand, and what they leave behind in the agent."""
    rows: dict[str, dict[str, list[float]]] = {
        key: {side.name: [] for side in sides} for key in ("milliseconds", "descriptors", "mib")
    }
    for side in sides:
        side.work("execs", "-", PROCESSES // 5)
    for _ in range(rounds):
        for side in sides:
            descriptors, mib = processes.count_descriptors(side.pid), processes.rss_mib(side.pid)
            rows["milliseconds"][side.name].append(side.work("execs", "-", PROCESSES)[0])
            rows["descriptors"][side.name].append(processes.count_descriptors(side.pid) - descriptors)
            rows["mib"][side.name].append(processes.rss_mib(side.pid) - mib)
    yield Figure("1,000 processes, 8 at once", "ms", rows["milliseconds"]["ours"], rows["milliseconds"]["theirs"])
    # Differences near zero: a ratio of them says nothing.
    yield Figure("1,000 processes: descriptors left", "", rows["descriptors"]["ours"], goal=0)
    yield Figure("1,000 processes: memory left", "MiB", rows["mib"]["ours"], goal=0.5)


@contextmanager
def _sides(places: dict[str, Path], *, folder: Path) -> Iterator[list[Side]]:
    """Both with agents that were just started: what one measurement leaves in memory slows the next."""
    with ExitStack() as stack:
        yield [
            Side(
                name,
                environment=places[name],
                agent=stack.enter_context(agents.running(name, environment=places[name], folder=folder)),
            )
            for name in SIDES
        ]


def _measure_all(places: dict[str, Path], folder: Path, rounds: int) -> Iterator[Figure]:
    with _sides(places, folder=folder) as sides:
        for action in ("write", "read"):
            yield from _measure_files(sides, action=action, folder=folder, rounds=rounds)
    with _sides(places, folder=folder) as sides:
        yield _measure_command(sides, folder=folder, rounds=2 * rounds)
        yield _measure_output(sides, folder=folder, rounds=rounds)
    with _sides(places, folder=folder) as sides:
        yield from _measure_processes(sides, rounds=rounds)


if __name__ == "__main__":
    enclosure.main(_measure_all, description=__doc__)
