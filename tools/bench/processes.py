"""Whole processes, and what Linux tells about them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def time_once(command: Sequence[str], *, environ: Mapping[str, str]) -> float:
    """Milliseconds from just before a command's start to its reaping. Its output is thrown away.

    A failing one ends the benchmark, since its time says nothing.
    """
    to_nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    start = time.perf_counter()
    pid = os.posix_spawn(command[0], list(command), dict(environ), file_actions=to_nowhere)
    _, status = os.waitpid(pid, 0)
    took = (time.perf_counter() - start) * 1e3
    if status:
        raise SystemExit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return took


def watch_peak_mib(command: Sequence[str], *, environ: Mapping[str, str]) -> float:
    """The largest resident memory of a command, looked at until it ends.

    The kernel's own account (``ru_maxrss``) would count this process too, whose memory the child starts with.
    """
    process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, _status_mib(process.pid, "VmHWM:") or 0.0)
        time.sleep(0.002)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return peak


def time_in_turn(
    commands: Sequence[Sequence[str]], *, environ: Mapping[str, str], rounds: int
) -> tuple[list[float], ...]:
    """The commands one after another, round by round; a first round, which warms the page cache, is not counted."""
    times: tuple[list[float], ...] = tuple([] for _ in commands)
    for count in range(rounds + 1):
        for command, kept in zip(commands, times, strict=True):
            took = time_once(command, environ=environ)
            if count:
                kept.append(took)
    return times


def _status_mib(pid: int, key: str) -> float | None:
    """A figure of the process's status; None once it is a zombie."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    return None


def count_descriptors(pid: int) -> int:
    """How many files it has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def rss_mib(pid: int) -> float:
    """Resident memory now."""
    return _status_mib(pid, "VmRSS:") or 0.0


def peak_mib(pid: int) -> float:
    """Largest resident memory since the start or ``reset_peak``."""
    return _status_mib(pid, "VmHWM:") or 0.0


def reset_peak(pid: int) -> None:
    """Count the peak anew from here."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def family_mib(word: str) -> float:
    """What all processes take that name something in their command lines, and their descendants: each page once."""
    parents, members = {}, set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[int(name)] = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
            if word.encode() in Path("/proc", name, "cmdline").read_bytes():
                members.add(int(name))
    members.discard(os.getpid())
    while children := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= children
    return sum(_proportion_mib(pid) for pid in members)


def _proportion_mib(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def stop(process: subprocess.Popen[bytes]) -> None:
    """TERM, and KILL ten seconds later."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
