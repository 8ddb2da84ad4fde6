"""Both agents side by side under the same load. A program of its own: it runs in a network namespace.

The upstream agent listens on all interfaces, and a program that runs whatever it is told does not belong there. So
``measure`` starts this file under ``unshare --net``, where nothing but loopback exists.
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
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import load
import processes
from figures import Figure

SIDES = ("ours", "theirs")
EXECS = 300
GOALS = {"start": 0.25, "rss": 0.5, 1: 0.25, 8: None, 64: 0.15}
_PORTS = {"ours": 18380, "theirs": 18390}
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def measure(*, ours: Path, theirs: Path, rounds: int) -> Iterator[Figure]:
    """Run this file in a network namespace and hand on what it prints."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise SystemExit("unshare (util-linux) is needed to keep the upstream agent off the network")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [unshare, *user, "--net", sys.executable, __file__, str(ours), str(theirs), "--rounds", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"the agents could not be measured: exit status {done.returncode}")
    for row in json.loads(done.stdout):
        yield Figure(**row)


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


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
def _running(side: str, *, environment: Path, folder: Path) -> Iterator[Agent]:
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
            with _running(side, environment=places[side], folder=folder) as agent:
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


def _measure_all(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Figure]:
    yield from _measure_starts(places, folder=folder, rounds=rounds)
    with ExitStack() as stack:
        agents = {side: stack.enter_context(_running(side, environment=places[side], folder=folder)) for side in SIDES}
        for connections in (1, 8, 64):
            yield _measure_execs(agents, connections=connections, rounds=rounds)
        yield from _measure_output(agents, rounds=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for side in SIDES:
        parser.add_argument(side, type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    _bring_loopback_up()
    with tempfile.TemporaryDirectory() as folder:
        places = {side: getattr(arguments, side) for side in SIDES}
        figures = list(_measure_all(places, folder=Path(folder), rounds=arguments.rounds))
    rows = [{key: getattr(figure, key) for key in ("name", "unit", "ours", "theirs", "goal")} for figure in figures]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
