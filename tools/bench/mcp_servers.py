"""The MCP servers of both sides in turn: how soon they answer, and what they take."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import commands
import fake_cloud
import processes
from figures import Figure

PINGS = 200
PROTOCOL = "2025-06-18"  # the newest that both know
GOALS: Mapping[str, tuple[str, float | None]] = {
    "mcp: spawn to initialize": ("ms", 0.06),
    "mcp: spawn to tools/list": ("ms", 0.25),
    "mcp: memory after initialize": ("MiB", 0.25),
    "mcp: memory after tools/list": ("MiB", 0.35),
    "mcp: ping": ("us", 0.5),
    "mcp: sandbox_list, none there": ("us", 0.5),
    "mcp: end of input to exit": ("ms", 0.25),
}


def measure(*, ours: Path, theirs: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """Start, list, memory, pings, a call that asks nobody, and the end."""
    kept: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in GOALS}
    with fake_cloud.FakeCloud().serving() as cloud:
        environ = commands.environment(folder, cloud.url)
        Path(environ["AGENT_SANDBOX_STATE"]).unlink(missing_ok=True)
        for count in range(rounds + 1):
            for index, side in enumerate((ours, theirs)):
                for name, value in _meet(side / "bin/vmnest", environ).items():
                    if count:  # the first round warms the page cache
                        kept[name][index].append(value)
    for name, (unit, goal) in GOALS.items():
        yield Figure(name, unit, *kept[name], goal)


def _meet(program: Path, environ: Mapping[str, str]) -> dict[str, float]:
    """One server, from its start to its end."""
    found: dict[str, float] = {}
    began = time.perf_counter()
    with _serving(program, environ) as server:
        server.ask(
            "initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo={"name": "bench", "version": "0"}
        )
        found["mcp: spawn to initialize"] = _since(began) * 1e3
        found["mcp: memory after initialize"] = processes.rss_mib(server.process.pid)
        server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        server.ask("tools/list")
        found["mcp: spawn to tools/list"] = _since(began) * 1e3
        found["mcp: memory after tools/list"] = processes.rss_mib(server.process.pid)
        found["mcp: ping"] = _time(lambda: server.ask("ping"))
        found["mcp: sandbox_list, none there"] = _time(
            lambda: server.ask("tools/call", name="sandbox_list", arguments={})
        )
        began = time.perf_counter()
        server.end()
        found["mcp: end of input to exit"] = _since(began) * 1e3
    return found


def _since(began: float) -> float:
    return time.perf_counter() - began


def _time(action: object) -> float:
    """Microseconds of one, of many in a row."""
    assert callable(action)
    action()
    began = time.perf_counter()
    for _ in range(PINGS):
        action()
    return _since(began) * 1e6 / PINGS


class _Server:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._count = 0

    def send(self, message: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: object) -> None:
        """Send a request, and wait for its answer, which may be no error."""
        self._count += 1
        self.send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._count:
                if "error" in message or message["result"].get("isError"):
                    raise SystemExit(f"{method}: {line!r}")
                return
        raise SystemExit(f"{method}: the server has ended")

    def end(self) -> None:
        """Close its input, and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.wait(30):
            raise SystemExit(f"the server: exit status {self.process.returncode}")


@contextmanager
def _serving(program: Path, environ: Mapping[str, str]) -> Iterator[_Server]:
    with subprocess.Popen(
        [str(program), "mcp"],
        env=environ,
        cwd=environ["HOME"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield _Server(process)
        finally:
            if process.poll() is None:
                process.kill()
