"""Both agents side by side under the same load. A program of its own, see ``enclosure``."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import enclosure
import load
import processes
from enclosure import SIDES
from figures import Figure

EXECS = 300
GOALS = {"start": 0.25, "rss": 0.5, 1: 0.25, 8: None, 64: 0.15}
_PORTS = {"ours": 18380, "theirs": 18390}


def measure(*, ours: Path, theirs: Path, rounds: int) -> Iterator[Figure]:
    """Start and memory of the agents, and commands through them."""
    return enclosure.measure(__file__, ours=ours, theirs=theirs, rounds=rounds)


class Agent:
    """An agent that answers on ``address``; ``milliseconds`` is what it took to get there."""

    def __init__(self, side: str, *, environment: Path, folder: Path) -> None:
        port = _PORTS[side]
        self.address = ("127.0.0.1", port)
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [str(environment / "bin/python"), "-m", "agentd.serve"],
            cwd=_guest_folder(environment),
            env=_agent_environment(port, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not self._is_healthy():
            if self.process.poll() is not None or time.perf_counter() - start > 30:
                raise SystemExit(f"{side}: the agent did not answer /healthz")
            time.sleep(0.002)
        self.milliseconds = (time.perf_counter() - start) * 1e3

    def _is_healthy(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=5) as sock:
                sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")
                return sock.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


def _guest_folder(environment: Path) -> Path:
    """The folder of the side's installed package that holds ``agentd``."""
    (folder,) = environment.glob("lib/python3*/site-packages/*/_*guest")
    return folder


def _agent_environment(port: int, folder: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "AGENTD_PORT": str(port),
        "AGENTD_HOOK_PORT": str(port + 1),
        "AGENTD_IDENTITY_PATH": str(folder / "identity"),
        "AGENT_SANDBOX_WORKDIR": str(folder),
    }


@contextmanager
def running(side: str, *, environment: Path, folder: Path) -> Iterator[Agent]:
    agent = Agent(side, environment=environment, folder=folder)
    try:
        yield agent
    finally:
        processes.stop(agent.process)


def _measure_starts(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Figure]:
    milliseconds: dict[str, list[float]] = {side: [] for side in SIDES}
    mib: dict[str, list[float]] = {side: [] for side in SIDES}
    for count in range(rounds + 1):
        for side in SIDES:
            with running(side, environment=places[side], folder=folder) as agent:
                if count:
                    milliseconds[side].append(agent.milliseconds)
                    mib[side].append(processes.rss_mib(agent.process.pid))
    yield Figure("agent: start to /healthz", "ms", milliseconds["ours"], milliseconds["theirs"], GOALS["start"])
    yield Figure("agent: RSS after start", "MiB", mib["ours"], mib["theirs"], GOALS["rss"])


def _measure_execs(agents: dict[str, Agent], *, connections: int, rounds: int) -> Figure:
    medians: dict[str, list[float]] = {side: [] for side in SIDES}
    request = load.exec_request("/bin/true")
    for count in range(rounds + 1):
        for side in SIDES:
            loop = load.Loop(agents[side].address, request, EXECS if count else 20, connections)
            median = loop.run()
            if count:
                medians[side].append(median)
    name = f"agent: exec p50, {connections} client{'s' * (connections > 1)}"
    return Figure(name, "ms", medians["ours"], medians["theirs"], GOALS[connections])


def _measure_output(agents: dict[str, Agent], *, rounds: int) -> Iterator[Figure]:
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    peaks: dict[str, list[float]] = {side: [] for side in SIDES}
    request = load.exec_request("head", "-c", str(200_000_000), "/dev/zero")
    for _ in range(rounds):
        for side in SIDES:
            pid = agents[side].process.pid
            processes.reset_peak(pid)
            seconds[side].append(load.Loop(agents[side].address, request, 1, 1).run())
            peaks[side].append(processes.peak_mib(pid))
    yield Figure("agent: 200 MB stdout", "ms", seconds["ours"], seconds["theirs"])
    yield Figure("agent: 200 MB stdout, peak RSS", "MiB", peaks["ours"], peaks["theirs"], 0.04)


def _measure_all(places: dict[str, Path], folder: Path, rounds: int) -> Iterator[Figure]:
    yield from _measure_starts(places, folder=folder, rounds=rounds)
    with ExitStack() as stack:
        agents = {side: stack.enter_context(running(side, environment=places[side], folder=folder)) for side in SIDES}
        for connections in (1, 8, 64):
            yield _measure_execs(agents, connections=connections, rounds=rounds)
        yield from _measure_output(agents, rounds=3)


if __name__ == "__main__":
    enclosure.main(_measure_all, description=__doc__)
