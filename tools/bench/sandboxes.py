"""Local sandboxes. Upstream has none, so the goals are times.

With the SDK, in this process, and with the command line; the daemon is up and its skeleton layer made, as after any
first sandbox.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import processes
from figures import Figure

import vmnest
from vmnest import registry, target
from vmnest.control import microvms
from vmnest.deadline import Deadline
from vmnest.wire import names

MANY = 200
CROWD = 50
SETTLE_SECONDS = 120

# The program tells when it wrote; CLOCK_MONOTONIC is the same for it and for us.
STAMP = "import time; time.sleep(0.2); print(time.monotonic_ns(), flush=True); time.sleep(0.2)"


def measure(*, ours: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """From create to the first exec; a crowd; suspend and resume; from a write to its reader; ``ls`` of many."""
    program = str(ours / "bin/vmnest")
    with local_cloud(program, folder=folder):
        first_exec("bench-0")
        times = [first_exec(f"bench-{number}") for number in range(1, rounds + 1)]
        yield Figure("local: create to first exec, SDK", "ms", times, goal=250)
        yield _measure_runs(program, rounds=rounds)
        yield Figure(
            f"local: {CROWD} at once, create to exec, each", "ms", [_meet_crowd() for _ in range(min(rounds, 5))]
        )
        with vmnest.Sandbox.create("bench", local=True) as sandbox:
            yield from _measure_sleep(sandbox, rounds=rounds)
            sdk = [_first_byte(sandbox) for _ in range(rounds)]
            yield Figure("local: write to reader, SDK", "ms", sdk, goal=20)
            yield Figure(
                "local: write to reader, exec", "ms", [_first_byte_of(program) for _ in range(rounds)], goal=20
            )
        yield _list_of_many(program, folder=folder, rounds=rounds)


@contextmanager
def local_cloud(program: str, *, folder: Path) -> Iterator[None]:
    """A local cloud of our own, for this process and those that it starts."""
    os.environ["AGENT_SANDBOX_LOCAL_DIR"] = str(folder / "local")
    os.environ["AGENT_SANDBOX_STATE"] = str(folder / "state.json")
    try:
        yield
    finally:
        os.spawnl(os.P_WAIT, program, "vmnest", "-q", "local", "down", "--force")


def _measure_runs(program: str, *, rounds: int) -> Figure:
    """The whole command line: made, used, ended and cleaned up."""
    (took,) = processes.time_in_turn([[program, "--local", "run", "--", "true"]], environ=os.environ, rounds=rounds)
    return Figure("local: run, the whole command", "ms", took)


def _meet_crowd() -> float:
    """Milliseconds a sandbox, of many that are made and used at the same time."""
    start = time.perf_counter()
    with ThreadPoolExecutor(CROWD) as pool:
        boxes = list(pool.map(lambda number: vmnest.Sandbox.create(f"crowd-{number}", local=True), range(CROWD)))
        results = list(pool.map(lambda box: box.exec("true"), boxes))
        took = (time.perf_counter() - start) * 1e3 / CROWD
        list(pool.map(vmnest.Sandbox.terminate, boxes))
    if not all(result.success for result in results):
        raise SystemExit("true has failed in one of many sandboxes")
    return took


def _measure_sleep(sandbox: vmnest.Sandbox, *, rounds: int) -> Iterator[Figure]:
    """Suspend, and a command that wakes it again."""
    asleep, awake = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        sandbox.suspend()
        asleep.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        sandbox.exec("true")
        awake.append((time.perf_counter() - start) * 1e3)
    yield Figure("local: suspend", "ms", asleep)
    yield Figure("local: exec in a suspended one", "ms", awake)


def first_exec(name: str) -> float:
    """Milliseconds from the making of a sandbox to the end of its first command."""
    start = time.perf_counter()
    with vmnest.Sandbox.create(name, local=True) as sandbox:
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
    start_some(range(MANY), state=many)
    registry.Registry(str(few)).put(registry.Registry(str(many)).all()[0])
    commands = [["/usr/bin/env", f"AGENT_SANDBOX_STATE={path}", program, "ls"] for path in (many, few)]
    of_many, of_one = processes.time_in_turn(commands, environ=os.environ, rounds=rounds)
    return Figure(f"local: ls of {MANY}, beside ls of 1", "ms", of_many, of_one, goal=2)


def start_some(numbers: Iterable[int], *, state: Path) -> None:
    """Start sandboxes of these numbers, record them, and wait until they run."""
    control = target.resolve(local=True).control(deadline=Deadline(SETTLE_SECONDS))
    image = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=names.LOCAL_IMAGE_NAME)
    for number in numbers:
        spec = microvms.RunSpec(image, uuid.uuid4().hex, local_options={"memory": 128})
        made = control.microvms.run(spec, deadline=Deadline(SETTLE_SECONDS))
        record = registry.Record(f"box-{number}", microvm_id=made.microvm_id, region=names.LOCAL_REGION, target="local")
        registry.Registry(str(state)).put(record)
    deadline = Deadline(SETTLE_SECONDS)
    while any(each.state == names.PENDING for each in control.microvms.list(deadline=deadline)):
        time.sleep(0.5)
