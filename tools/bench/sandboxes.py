"""Local sandboxes. Upstream has none, so the goals are times.

With the SDK, in this process, and with the command line; the daemon is up and its skeleton layer made, as after any
first sandbox.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from figures import Figure

import vmnest

# The program tells when it wrote; CLOCK_MONOTONIC is the same for it and for us.
STAMP = "import time; time.sleep(0.2); print(time.monotonic_ns(), flush=True); time.sleep(0.2)"


def measure(*, ours: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """From create to the first answered exec; from a program's write to the reader of its output."""
    os.environ["AGENT_SANDBOX_LOCAL_DIR"] = str(folder / "local")
    os.environ["AGENT_SANDBOX_STATE"] = str(folder / "state.json")
    program = str(ours / "bin/vmnest")
    try:
        _first_exec(0)
        yield Figure("local: create to first exec, SDK", "ms", [_first_exec(n) for n in range(1, rounds + 1)], goal=250)
        with vmnest.Sandbox.create("bench", local=True) as sandbox:
            sdk = [_first_byte(sandbox) for _ in range(rounds)]
            yield Figure("local: write to reader, SDK", "ms", sdk, goal=20)
            yield Figure(
                "local: write to reader, exec", "ms", [_first_byte_of(program) for _ in range(rounds)], goal=20
            )
    finally:
        os.spawnl(os.P_WAIT, program, "vmnest", "-q", "local", "down", "--force")


def _first_exec(number: int) -> float:
    start = time.perf_counter()
    with vmnest.Sandbox.create(f"bench-{number}", local=True) as sandbox:
        result = sandbox.exec("true")
        took = (time.perf_counter() - start) * 1e3
    if not result.success:
        raise SystemExit(f"true ended with {result.exit_code}: {result.stderr_text}")
    return took


def _first_byte(sandbox: vmnest.Sandbox) -> float:
    with sandbox.spawn("python3", ["-c", STAMP]) as process:
        chunk = next(iter(process))
        return (time.monotonic_ns() - int(chunk.data)) / 1e6


def _first_byte_of(program: str) -> float:
    """The same at the other end of a pipe from the command line."""
    with subprocess.Popen([program, "exec", "bench", "--", "python3", "-c", STAMP], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.monotonic_ns() - int(line)
    return took / 1e6
