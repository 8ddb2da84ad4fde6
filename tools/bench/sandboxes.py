"""Local sandboxes. Upstream has none, so the goals are times.

With the SDK, in this process, and with the command line; the daemon is up and its skeleton layer made, as after any
first sandbox.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import processes
from figures import Figure

import vmnest
from vmnest import registry, target
from vmnest.control import microvms
from vmnest.deadline import Deadline
from vmnest.wire import names

MANY = 200
SETTLE_SECONDS = 120

# The program tells when it wrote; CLOCK_MONOTONIC is the same for it and for us.
STAMP = "import time; time.sleep(0.2); print(time.monotonic_ns(), flush=True); time.sleep(0.2)"


def measure(*, ours: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """From create to the first answered exec; from a program's write to the reader; ``ls`` of many."""
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
        yield _list_of_many(program, folder=folder, rounds=rounds)
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


def _list_of_many(program: str, *, folder: Path, rounds: int) -> Figure:
    """``ls`` of many sandboxes that run, beside ``ls`` of the first of them."""
    few, many = folder / "few.json", folder / "many.json"
    control = target.resolve(local=True).control(deadline=Deadline(SETTLE_SECONDS))
    image = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=names.LOCAL_IMAGE_NAME)
    for number in range(MANY):
        spec = microvms.RunSpec(image, uuid.uuid4().hex, local_options={"memory": 128})
        made = control.microvms.run(spec, deadline=Deadline(SETTLE_SECONDS))
        record = registry.Record(f"box-{number}", microvm_id=made.microvm_id, region=names.LOCAL_REGION, target="local")
        for path in (many, few) if number == 0 else (many,):
            registry.Registry(str(path)).put(record)
    deadline = Deadline(SETTLE_SECONDS)
    while any(each.state == names.PENDING for each in control.microvms.list(deadline=deadline)):
        time.sleep(0.5)
    commands = [["/usr/bin/env", f"AGENT_SANDBOX_STATE={path}", program, "ls"] for path in (many, few)]
    of_many, of_one = processes.time_in_turn(commands, environ=os.environ, rounds=rounds)
    return Figure(f"local: ls of {MANY}, beside ls of 1", "ms", of_many, of_one, goal=2)
