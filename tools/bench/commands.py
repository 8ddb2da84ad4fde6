"""Whole commands of both sides in turn, against a fake cloud."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import fake_cloud
import processes
from figures import Figure

MB = 1_000_000


def measure(*, ours: Path, theirs: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """``--help``, ``ls``, ``import``, ``ps`` and ``exec``."""
    with fake_cloud.FakeCloud().serving() as cloud:
        environ = environment(folder, cloud.url)

        def pair(name: str, *arguments: str, goal: float, times: int = rounds) -> Figure:
            commands = [[str(side / "bin/vmnest"), *arguments] for side in (ours, theirs)]
            return _compare(name, commands, environ=environ, rounds=times, goal=goal)

        imports = [[str(ours / "bin/python"), "-c", "import vmnest"]]
        imports.append([str(theirs / "bin/python"), "-c", "import agent_sandbox"])
        yield pair("--help", "--help", goal=0.12)
        yield pair("ls, no state file", "ls", goal=0.12)
        yield _compare("import", imports, environ=environ, rounds=rounds, goal=0.15)
        write_state(Path(environ["AGENT_SANDBOX_STATE"]), cloud.url)
        yield pair("ps, static keys", "ps", "app", goal=0.25)
        cloud.output_bytes = 10 * MB
        few = max(3, rounds // 4)
        yield pair("exec printing 10 MB", "exec", "app", "--", "cat", "log", goal=0.05, times=few)
        yield _growth_of_memory(cloud, ours / "bin/vmnest", environ=environ, rounds=few)


def _compare(
    name: str, commands: Sequence[Sequence[str]], *, environ: dict[str, str], rounds: int, goal: float
) -> Figure:
    ours, theirs = processes.time_in_turn(commands, environ=environ, rounds=rounds)
    return Figure(name, "ms", ours, theirs, goal)


def _growth_of_memory(cloud: fake_cloud.FakeCloud, program: Path, *, environ: dict[str, str], rounds: int) -> Figure:
    """What 200 MB of output add to the peak of 10 MB. Theirs would take minutes and over a gigabyte: left out."""
    command = [str(program), "exec", "app", "--", "cat", "log"]
    growths = []
    for _ in range(rounds):
        peaks = []
        for size in (10 * MB, 200 * MB):
            cloud.output_bytes = size
            peaks.append(processes.watch_peak_mib(command, environ=environ))
        growths.append(peaks[1] - peaks[0])
    return Figure("exec, 200 MB: peak above 10 MB's", "MiB", growths, goal=5)


def environment(folder: Path, url: str) -> dict[str, str]:
    """What a command line needs to take the fake cloud for AWS."""
    return {
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
        "AGENT_SANDBOX_STATE": str(folder / "state.json"),
        "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": url,
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def write_state(path: Path, url: str) -> None:
    """Record a sandbox whose agent answers at this address."""
    record = {
        "name": "app",
        "microvm_id": fake_cloud.MICROVM_ID,
        "endpoint": url,
        "image_arn": fake_cloud.IMAGE_ARN,
        "region": "us-east-1",
    }
    path.write_text(json.dumps({"sandboxes": {"app": record}}))
