"""Whole processes, and what Linux tells about them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20


@dataclass(frozen=True)
class Run:
    """A finished command: wall clock to its reaping, and the kernel's account of its memory."""

    milliseconds: float
    peak_mib: float


def run_once(command: Sequence[str], *, environ: Mapping[str, str]) -> Run:
    """Run a command with its output thrown away; a failing one ends the benchmark, since its time says nothing."""
    to_nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    start = time.perf_counter()
    pid = os.posix_spawn(command[0], list(command), dict(environ), file_actions=to_nowhere)
    _, status, usage = os.wait4(pid, 0)
    took = (time.perf_counter() - start) * 1e3
    if status:
        raise SystemExit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return Run(took, usage.ru_maxrss / 1024)


def run_in_turn(commands: Sequence[Sequence[str]], *, environ: Mapping[str, str], rounds: int) -> tuple[list[Run], ...]:
    """The commands one after another, round by round; a first round, which warms the page cache, is not counted."""
    runs: tuple[list[Run], ...] = tuple([] for _ in commands)
    for count in range(rounds + 1):
        for command, kept in zip(commands, runs, strict=True):
            run = run_once(command, environ=environ)
            if count:
                kept.append(run)
    return runs


def _status_mib(pid: int, key: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"no {key} of process {pid}")


def rss_mib(pid: int) -> float:
    """Resident memory now."""
    return _status_mib(pid, "VmRSS:")


def peak_mib(pid: int) -> float:
    """Largest resident memory since the start or ``reset_peak``."""
    return _status_mib(pid, "VmHWM:")


def reset_peak(pid: int) -> None:
    """Count the peak anew from here."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def stop(process: subprocess.Popen[bytes]) -> None:
    """TERM, and KILL ten seconds later."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
