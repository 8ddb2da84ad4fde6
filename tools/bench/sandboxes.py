"""Local sandboxes: from create to the first answered exec. Upstream has none, so the goal is a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from figures import Figure

import vmnest


def measure(*, ours: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """With the SDK, in this process; the daemon is up and its skeleton layer made, as after any first sandbox."""
    os.environ["AGENT_SANDBOX_LOCAL_DIR"] = str(folder / "local")
    os.environ["AGENT_SANDBOX_STATE"] = str(folder / "state.json")
    try:
        _first_exec(0)
        yield Figure("local: create to first exec, SDK", "ms", [_first_exec(n) for n in range(1, rounds + 1)], goal=250)
    finally:
        os.spawnl(os.P_WAIT, str(ours / "bin/vmnest"), "vmnest", "-q", "local", "down", "--force")


def _first_exec(number: int) -> float:
    start = time.perf_counter()
    with vmnest.Sandbox.create(f"bench-{number}", local=True) as sandbox:
        result = sandbox.exec("true")
        took = (time.perf_counter() - start) * 1e3
    if not result.success:
        raise SystemExit(f"true ended with {result.exit_code}: {result.stderr_text}")
    return took
