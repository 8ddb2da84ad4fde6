"""Whole commands of both sides in turn, against a fake cloud, and single calls to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import certificates
import clients
import fake_cloud
import processes
from enclosure import SIDES
from figures import Figure

MB = 1_000_000
CALLS = 1000
ENDPOINT = Path(__file__).with_name("endpoint.py")


def measure(*, ours: Path, theirs: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """``--help``, ``ls``, ``import``, ``ps`` and ``exec``; calls of the control plane."""
    few = min(rounds, max(3, rounds // 4))
    with fake_cloud.FakeCloud().serving() as cloud:
        environ = environment(folder, cloud.url)

        def pair(name: str, *arguments: str, goal: float, times: int = rounds) -> Figure:
            commands = [[str(side / "bin/vmnest"), *arguments] for side in (ours, theirs)]
            return _compare(name, commands, environ=environ, rounds=times, goal=goal)

        imports = [[str(ours / "bin/python"), "-c", "import vmnest"]]
        imports.append([str(theirs / "bin/python"), "-c", "import agent_sandbox"])
        yield pair("--help", "--help", goal=0.12)
        yield pair("ls, no state file", "ls", goal=0.12)
        yield _compare("import", imports, environ=environ, rounds=rounds, goal=0.1)
        yield _compare_peaks("import: peak", imports, environ=environ, rounds=few, goal=0.4)
        write_state(Path(environ["AGENT_SANDBOX_STATE"]), cloud.url)
        yield pair("ps, http, static keys", "ps", "app", goal=0.25)
        yield from _measure_https(ours=ours, theirs=theirs, folder=folder, rounds=rounds)
        cloud.output_bytes = 10 * MB
        yield pair("exec printing 10 MB", "exec", "app", "--", "cat", "log", goal=0.03, times=few)
        printing = [[str(side / "bin/vmnest"), "exec", "app", "--", "cat", "log"] for side in (ours, theirs)]
        yield _compare_peaks("exec printing 10 MB: peak", printing, environ=environ, rounds=few, goal=0.3)
        yield _growth_of_memory(cloud, ours / "bin/vmnest", environ=environ, rounds=few)
    yield _measure_calls({"ours": ours, "theirs": theirs}, folder=folder, rounds=few)


def _compare(
    name: str, commands: Sequence[Sequence[str]], *, environ: dict[str, str], rounds: int, goal: float
) -> Figure:
    ours, theirs = processes.time_in_turn(commands, environ=environ, rounds=rounds)
    return Figure(name, "ms", ours, theirs, goal)


def _compare_peaks(
    name: str, commands: Sequence[Sequence[str]], *, environ: dict[str, str], rounds: int, goal: float
) -> Figure:
    peaks = [[processes.watch_peak_mib(command, environ=environ) for command in commands] for _ in range(rounds)]
    return Figure(name, "MiB", [mine for mine, _ in peaks], [other for _, other in peaks], goal)


def _measure_https(*, ours: Path, theirs: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """The same over TLS, of which the certificate is verified: against a bundle as large as a system's."""
    certificate, key = certificates.make(folder)
    with fake_cloud.FakeCloud((certificate, key)).serving() as cloud:
        bundle = folder / "bundle.pem"
        bundle.write_text(clients.system_bundle().read_text() + Path(certificate).read_text())
        environ = {**environment(folder, cloud.url), "AWS_CA_BUNDLE": str(bundle)}
        commands = [[str(side / "bin/vmnest"), "ps", "app"] for side in (ours, theirs)]
        yield _compare("ps, https, verified", commands, environ=environ, rounds=rounds, goal=0.3)


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


def _measure_calls(places: dict[str, Path], *, folder: Path, rounds: int) -> Figure:
    """GetMicrovm again and again in one process, from a server that costs next to nothing."""
    took: dict[str, list[float]] = {side: [] for side in SIDES}
    server = subprocess.Popen([sys.executable, str(ENDPOINT)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        environ = environment(folder, url)
        for _ in range(rounds):
            for side in SIDES:
                done = clients.work(side, places[side], url=url, action="calls", words=("-", CALLS), environ=environ)
                took[side].append(done.milliseconds * 1e3 / CALLS)
    finally:
        processes.stop(server)
        assert server.stdout is not None
        server.stdout.close()
    return Figure("GetMicrovm, warm", "us", took["ours"], took["theirs"])


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


def write_state(path: Path, url: str, *, count: int = 1) -> None:
    """Record sandboxes whose agents answer at this address: ``app``, ``app-1``, ..."""
    names = ["app", *(f"app-{number}" for number in range(1, count))]
    records = {
        name: {
            "name": name,
            "microvm_id": fake_cloud.microvm_id(number),
            "endpoint": url,
            "image_arn": fake_cloud.IMAGE_ARN,
            "region": "us-east-1",
        }
        for number, name in enumerate(names)
    }
    path.write_text(json.dumps({"sandboxes": records}))
