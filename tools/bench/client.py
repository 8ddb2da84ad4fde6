"""The library of one side at work; run by ``clients`` with the Python of that side's environment.

    python client.py ours|theirs URL write|read|execs|calls FILE PATH|COUNT

``calls`` asks the control plane at the URL, all else an agent there. Prints what it took and the largest memory of this
process as JSON. Each side does it as its users would: vmnest sends a file, and the upstream package, which knows no
files, what was read from one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

EXECS_AT_ONCE = 8
MICROVM_ID = "microvm-00000000-0000-4000-8000-000000000000"


def _our_calls(count: int) -> Callable[[], None]:
    from vmnest import target
    from vmnest.deadline import Deadline

    microvms = target.resolve(local=False).control(deadline=Deadline(60)).microvms
    microvms.get(MICROVM_ID, deadline=Deadline(60))

    def call_all() -> None:
        for _ in range(count):
            assert microvms.get(MICROVM_ID, deadline=Deadline(60)).state == "RUNNING"

    return call_all


def _their_calls(count: int) -> Callable[[], None]:
    from agent_sandbox.control_plane import ControlPlane  # type: ignore[import-not-found]

    control = ControlPlane()

    async def call_all() -> None:
        for _ in range(count):
            assert (await control.get_microvm(MICROVM_ID)).status == "RUNNING"

    asyncio.run(control.get_microvm(MICROVM_ID))
    return lambda: asyncio.run(call_all())


def _ours(url: str, action: str, local: str, remote: str) -> Callable[[], None]:
    if action == "calls":
        return _our_calls(int(remote))
    from concurrent.futures import ThreadPoolExecutor

    from vmnest.agent.client import AgentClient
    from vmnest.sandbox.files import Files
    from vmnest.transport import Transport

    client = AgentClient(url, headers=lambda _refused: [], transport=Transport(environ={}), port=8080)
    files = Files(lambda _deadline: client)

    def run_all() -> None:
        with ThreadPoolExecutor(EXECS_AT_ONCE) as pool:
            for result in pool.map(lambda _number: client.exec("/bin/true"), range(int(remote))):
                assert result.exit_code == 0

    return {
        "write": lambda: void(files.upload(local, remote)),
        "read": lambda: void(files.download(remote, local)),
        "execs": run_all,
    }[action]


def _theirs(url: str, action: str, local: str, remote: str) -> Callable[[], None]:
    if action == "calls":
        return _their_calls(int(remote))
    # Found by the Python of the other environment only.
    from agent_sandbox.agent_client import AgentClient  # type: ignore[import-not-found]

    async def get_token() -> str:
        return "bench"

    async def work() -> None:
        async with AgentClient(url, get_token, timeout=600) as client:
            if action == "write":
                await client.write_file(remote, Path(local).read_bytes())
            elif action == "read":
                Path(local).write_bytes(await client.read_file(remote))
            else:
                await run_all(client)

    async def run_all(client: AgentClient) -> None:
        numbers = iter(range(int(remote)))

        async def run_some() -> None:
            for _ in numbers:
                result = await client.exec("/bin/true")
                assert result.exit_code == 0

        await asyncio.gather(*(run_some() for _ in range(EXECS_AT_ONCE)))

    return lambda: asyncio.run(work())


def void(_value: object) -> None:
    """Drop a result."""


def _peak_mib() -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main() -> None:
    side, *words = sys.argv[1:]
    work = {"ours": _ours, "theirs": _theirs}[side](*words)
    start = time.perf_counter()
    work()
    json.dump({"milliseconds": (time.perf_counter() - start) * 1e3, "mib": _peak_mib()}, sys.stdout)


if __name__ == "__main__":
    main()
