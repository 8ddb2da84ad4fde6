"""Our client speaks with the upstream package's agent; what came of it goes to standard output as JSON.

Run by ``tests/functional/test_upstream_agent.py`` inside a network namespace of its own, since that agent binds all
interfaces: ``python -m tests.support.upstream_dialogue UPSTREAM_PYTHON FOLDER``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.deadline import Deadline
from vmnest.transport import Transport

PORT, HOOK_PORT = 18080, 19000


def main(python: str, folder: Path) -> None:
    transport = Transport(environ={})
    client = connect(transport)
    with upstream_agent(python, folder):
        health = client.wait_ready(deadline=Deadline(60))
        results = {name: outcome(step, client, folder) for name, step in STEPS.items()}
    transport.close()
    json.dump({"health": {"version": health.version, "features": sorted(health.features)}, **results}, sys.stdout)


def connect(transport: Transport) -> AgentClient:
    """A client that knows nothing of the agent yet."""
    url = f"http://127.0.0.1:{PORT}"
    return AgentClient(url, headers=lambda _refused: [], transport=transport, port=PORT, wake=0.5)


@contextmanager
def upstream_agent(python: str, folder: Path) -> Iterator[None]:
    find = "import agent_sandbox, os; print(os.path.join(os.path.dirname(agent_sandbox.__file__), '_bundled_guest'))"
    guest = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    environ = {
        **os.environ,
        "PYTHONPATH": guest,
        "AGENTD_PORT": str(PORT),
        "AGENTD_HOOK_PORT": str(HOOK_PORT),
        "AGENTD_IDENTITY_PATH": str(folder / "identity"),
    }
    with open(folder / "agent.log", "wb") as log:
        process = subprocess.Popen([python, "-m", "agentd.serve"], env=environ, cwd=folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def outcome(step: Callable[[AgentClient, Path], object], client: AgentClient, folder: Path) -> Any:
    begin = time.monotonic()
    try:
        value = step(client, folder)
    except errors.VmnestError as error:
        value = {"error": type(error).__name__, "message": error.message}
        if isinstance(error, errors.CommandTimedOutError):
            value["result"] = to_json(error.result)
    return {"value": value, "seconds": time.monotonic() - begin}


def to_json(result: Any) -> dict[str, object]:
    return {**result._asdict(), "stdout": result.stdout.hex(), "stderr": result.stderr.hex()}


def execute(*words: str, **options: Any) -> Callable[[AgentClient, Path], object]:
    return lambda client, _folder: to_json(client.exec(words[0], words[1:], **options))


def large_output(client: AgentClient, _folder: Path) -> object:
    digest, size = hashlib.sha256(), 0

    def take(data: bytes) -> None:
        nonlocal size
        size += len(data)
        digest.update(data)

    client.exec("head", ["-c", "20000000", "/dev/zero"], on_stdout=take)
    return {"size": size, "matches": digest.hexdigest() == hashlib.sha256(bytes(20_000_000)).hexdigest()}


def roundtrip(client: AgentClient, folder: Path) -> object:
    data = bytes(range(256)) * 1000
    path = folder / "new" / "a b%+é"
    written = client.write_file(str(path), data)
    return {"written": written, "on disk": path.read_bytes() == data, "read": client.read_file(str(path)) == data}


def many(client: AgentClient, _folder: Path) -> object:
    with ThreadPoolExecutor(10) as pool:
        outputs = list(pool.map(lambda number: client.exec("echo", [str(number)]).stdout, range(50)))
    return outputs == [b"%d\n" % number for number in range(50)]


def figures(_client: AgentClient, _folder: Path) -> object:
    with closing(Transport(environ={})) as transport:
        return connect(transport).stats()


STEPS: dict[str, Callable[[AgentClient, Path], object]] = {
    "status and output": execute("sh", "-c", "printf '\\377\\376'; echo err >&2; exit 3"),
    "death by signal": execute("sh", "-c", "kill -9 $$"),
    "environment": execute("printenv", "X", env={"X": 'a"b\nc=d $HOME'}),
    "cwd": execute("pwd", cwd="/"),
    "no such command": execute("no-such-program"),
    "timeout": execute("sleep", "5.231", timeout=1),
    "large output": large_output,
    "files": roundtrip,
    "no such file": lambda client, folder: client.read_file(str(folder / "absent")).hex(),
    "a folder as a file": lambda client, folder: client.read_file(str(folder)).hex(),
    "many at once": many,
    "what it uses": figures,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
