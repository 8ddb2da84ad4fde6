"""The agent beside the upstream package: its client drives ours, and both agents give the same answers.

Upstream's agent binds all interfaces, so it runs in a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import GUEST, Agent
from tests.support.paths import UPSTREAM_PYTHON

needs_upstream = pytest.mark.skipif(not UPSTREAM_PYTHON.exists(), reason="the upstream package is not installed")

# Upstream's own client; what it sees is printed as JSON.
CLIENT = """
import asyncio, json, sys
from agent_sandbox.agent_client import AgentClient
from agent_sandbox.errors import AgentError

async def token():
    return "a token"

async def main(endpoint, folder):
    async with AgentClient(endpoint, token, proxy_port=8080) as client:
        seen = {"health": await client.health()}
        result = await client.exec("sh", ["-c", "printf '\\\\377out'; echo err >&2; exit 3"])
        seen["exec"] = [result.exit_code, list(result.stdout), result.stderr.decode()]
        result = await client.exec("sh", ["-c", "pwd; echo $X"], cwd="/", env={"X": "a b"}, timeout=20)
        seen["options"] = [result.exit_code, result.stdout.decode()]
        await client.write_file(folder + "/a/b", bytes(range(256)))
        seen["read"] = list(await client.read_file(folder + "/a/b"))
        result = await client.exec("head", ["-c", "3000000", "/dev/zero"])
        seen["large"] = result.stdout == bytes(3000000)
        for name, call in {
            "timeout": client.exec("sleep", ["20"], timeout=0.2),
            "command": client.exec("no-such-program"),
            "file": client.read_file(folder + "/none"),
        }.items():
            try:
                await call
            except AgentError as error:
                seen[name] = str(error).split("{")[0]
        print(json.dumps(seen))

asyncio.run(main(*sys.argv[1:]))
"""

# Sends the requests of a file to an agent that it starts first; prints statuses and documents.
DRIVER = """
import http.client, json, subprocess, sys, time
command, cwd, requests = json.loads(sys.argv[1])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
agent = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def ask(method, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=30)
    connection.request(method, path, body and body.encode(), {"Content-Type": "application/json"})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, response.headers.get_content_type(), json.loads(data)
try:
    for _ in range(600):
        try:
            ask("GET", "/healthz", None)
            break
        except OSError:
            time.sleep(0.05)
    print(json.dumps([ask(*request) for request in requests]))
finally:
    agent.terminate()
    agent.wait()
"""


@needs_upstream
def test_the_upstream_client_drives_our_agent(agent: Agent, tmp_path: Path) -> None:
    command = [str(UPSTREAM_PYTHON), "-c", CLIENT, agent.url, str(tmp_path)]
    seen = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
    assert seen == {
        "health": True,
        "exec": [3, [255, *b"out"], "err\n"],
        "options": [0, "/\na b\n"],
        "read": list(range(256)),
        "large": True,
        "timeout": "exec failed (504): ",
        "command": "exec failed (400): ",
        "file": "fs.read failed (404): ",
    }


def post(route: str, /, **document: Any) -> tuple[str, str, str | None]:
    return "POST", route, json.dumps(document)


def requests(folder: Path) -> dict[str, tuple[str, str, str | None]]:
    """Requests whose answers the base contract fixes, by what they ask."""
    run, read, write = "/v1/exec", "/v1/fs/read", "/v1/fs/write"
    return {
        "health": ("GET", "/healthz", None),
        "exec": post(run, command="sh", args=["-c", "echo out; echo err >&2; exit 3"]),
        "binary": post(run, command="printf", args=[r"\377\376"]),
        "cwd": post(run, command="pwd", cwd="/usr"),
        "env": post(run, command="printenv", args=["X"], env={"X": 'a"b\nc=d $HOME'}),
        "nulls": post(run, command="true", args=[], cwd=None, env=None, timeout=None),
        "timeout": post(run, command="sleep", args=["20"], timeout=0.2),
        "command": post(run, command="no-such-program"),
        "write": post(write, path=f"{folder}/a/b", content="aGkK"),
        "text": post(write, path=f"{folder}/t", content="hi", encoding="utf-8"),
        "read": post(read, path=f"{folder}/a/b"),
        "missing": post(read, path=f"{folder}/none"),
        "directory": post(read, path=str(folder)),
        "write directory": post(write, path=str(folder), content=""),
        "bad base64": post(write, path=f"{folder}/x", content="a"),
        "route": ("GET", "/v1/nothing", None),
        "method": ("GET", "/v1/exec", None),
    }


def drive(command: list[str], *, cwd: Path, folder: Path) -> dict[str, tuple[int, str, Any]]:
    """What an agent answers, by what was asked."""
    folder.mkdir()
    asked = requests(folder)
    argument = json.dumps([command, str(cwd), list(asked.values())])
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", DRIVER, argument],
        env={**os.environ, "AGENT_SANDBOX_WORKDIR": str(folder), "AGENTD_IDENTITY_PATH": str(folder / "identity")},
        capture_output=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0 and b"unshare" in done.stderr:
        pytest.skip(f"a network namespace of its own: {done.stderr.decode()}")
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip(asked, map(tuple, json.loads(done.stdout)), strict=True))


@needs_upstream
def test_both_agents_give_the_same_answers(tmp_path: Path) -> None:
    find = "import agent_sandbox, os; print(os.path.dirname(agent_sandbox.__file__))"
    package = subprocess.run([UPSTREAM_PYTHON, "-c", find], check=True, capture_output=True, text=True).stdout.strip()
    theirs = drive(
        [str(UPSTREAM_PYTHON), "-m", "agentd.serve"], cwd=Path(package, "_bundled_guest"), folder=tmp_path / "theirs"
    )
    ours = drive([sys.executable, "-m", "agentd.serve"], cwd=GUEST, folder=tmp_path / "ours")
    for name, (status, content_type, document) in theirs.items():
        assert ours[name][:2] == (status, content_type), name
        answer = ours[name][2]
        # Ours may have more members, but all of theirs.
        assert set(document) <= set(answer), name
        if status == 200:
            assert {key: answer[key] for key in document if key != "version"} == {
                key: value for key, value in document.items() if key != "version"
            }, name
        else:
            assert isinstance(answer["detail"], str), name
            assert answer["code"], name
