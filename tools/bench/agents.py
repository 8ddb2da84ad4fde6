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
ASYNCIO = "asyncio"
GOALS = {"start": 0.18, "rss": 0.45, 1: 0.2, 8: None, 64: 0.12}
_PORTS = {"ours": 18380, "theirs": 18390, ASYNCIO: 18400}
# uvloop copies the agent's memory for each command that it starts. Without it theirs is several times faster.
_ON_ASYNCIO = (
    "import functools, uvicorn; uvicorn.run = functools.partial(uvicorn.run, loop='asyncio')\n"
    "from agentd import serve; serve.main()"
)


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
            [str(environment / "bin/python"), *(("-c", _ON_ASYNCIO) if side == ASYNCIO else ("-m", "agentd.serve"))],
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


def _measure_execs(agents: dict[str, Agent], *, connections: int, rounds: int) -> Iterator[Figure]:
    medians: dict[str, list[float]] = {side: [] for side in agents}
    each: dict[str, list[float]] = {side: [] for side in agents}
    request = load.exec_request("/bin/true")
    for count in range(rounds + 1):
        for side in agents:
            loop = load.Loop(agents[side].address, request, EXECS if count else 20, connections)
            median = loop.run()
            if count:
                medians[side].append(median)
                each[side].append(loop.milliseconds / EXECS)
    name = f"agent: exec p50, {connections} client{'s' * (connections > 1)}"
    yield Figure(name, "ms", medians["ours"], medians["theirs"], GOALS[connections])
    goal = 0.8 if connections == 1 else None
    yield Figure(f"{name}, beside theirs on asyncio", "ms", medians["ours"], medians[ASYNCIO], goal)
    if connections > 1:
        yield Figure(f"agent: {connections} clients, time per exec", "ms", each["ours"], each["theirs"])


def _measure_output(agents: dict[str, Agent], *, rounds: int) -> Iterator[Figure]:
    units = {"whole": "ms", "begin": "ms", "peak": "MiB"}
    rows: dict[str, dict[str, list[float]]] = {key: {side: [] for side in SIDES} for key in units}
    request = load.exec_request("head", "-c", str(200_000_000), "/dev/zero")
    for _ in range(rounds):
        for side in SIDES:
            pid = agents[side].process.pid
            processes.reset_peak(pid)
            loop = load.Loop(agents[side].address, request, 1, 1)
            rows["whole"][side].append(loop.run())
            rows["begin"][side] += loop.beginnings
            rows["peak"][side].append(processes.peak_mib(pid))
    for key, name, goal in (
        ("whole", "agent: 200 MB stdout", None),
        ("begin", "agent: 200 MB stdout, first byte", None),
        ("peak", "agent: 200 MB stdout, peak RSS", 0.04),
    ):
        yield Figure(name, units[key], rows[key]["ours"], rows[key]["theirs"], goal)


def _measure_all(places: dict[str, Path], folder: Path, rounds: int) -> Iterator[Figure]:
    yield from _measure_starts(places, folder=folder, rounds=rounds)
    with ExitStack() as stack:
        kinds = {**places, ASYNCIO: places["theirs"]}
        agents = {
            side: stack.enter_context(running(side, environment=place, folder=folder)) for side, place in kinds.items()
        }
        for connections in (1, 8, 64):
            yield from _measure_execs(agents, connections=connections, rounds=rounds)
        yield from _measure_output(agents, rounds=3)


if __name__ == "__main__":
    enclosure.main(_measure_all, description=__doc__)
