"""Process 1: its child's status, forwarded signals, and orphans."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent import GUEST

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def can_unshare() -> bool:
    return subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="user namespaces are refused here")


def run(child: str, *, wrapper: list[str] | None = None) -> subprocess.Popen[bytes]:
    """A process that splits; ``child`` is what the agent's side then does."""
    program = f"import os, signal, subprocess, sys, time\nfrom agentd import reaper\nreaper.split()\n{child}\n"
    return subprocess.Popen(
        [*(wrapper or []), sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(GUEST)},
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("child", "status"),
    [
        ("pass", 0),
        ("sys.exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143),
    ],
    ids=["zero", "seven", "kill", "term"],
)
def test_it_ends_with_the_agents_status(child: str, status: int) -> None:
    with run(child) as process:
        assert process.wait(20) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_go_to_the_agent(number: signal.Signals) -> None:
    child = f"""
signal.signal({int(number)}, lambda *_: sys.exit(42))
print("ready", flush=True)
time.sleep(30)
"""
    with run(child) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == 42


def test_the_agent_has_no_signal_blocked() -> None:
    child = "print([line for line in open('/proc/self/status') if line.startswith('SigBlk')][0].split()[1])"
    with run(child) as process:
        assert process.stdout is not None
        assert process.stdout.read().strip() == b"0" * 16


@needs_namespaces
def test_as_process_1_it_reaps_orphans() -> None:
    # The shell ends at once; its background child becomes process 1's, ends, and must not stay as a zombie.
    child = """
assert os.getppid() == 1
reader, writer = os.pipe()
subprocess.run(["sh", "-c", "(sleep 0.1) & echo $!"], check=True, stdout=writer)
pid = os.read(reader, 20).decode().strip()
for _ in range(1000):
    if not os.path.exists(f"/proc/{pid}"):
        print("reaped")
        break
    time.sleep(0.01)
"""
    with run(child, wrapper=UNSHARE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"reaped\n"
        assert process.wait(20) == 0


@needs_namespaces
def test_the_agent_as_process_1_serves_reaps_and_ends_on_term(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*UNSHARE, sys.executable, "-m", "agentd.serve"],
        env={
            **os.environ,
            "PYTHONPATH": str(GUEST),
            "AGENTD_PORT": "0",
            "AGENTD_HOOK_PORT": "0",
            "AGENTD_READY_FD": "1",
            "AGENTD_IDENTITY_PATH": str(tmp_path / "identity"),
            "AGENT_SANDBOX_WORKDIR": str(tmp_path / "work"),
        },
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/v1/exec", json.dumps({"command": "sh", "args": ["-c", "echo $PPID"]}))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert base64.b64decode(answer["stdout"]) != b"1\n"
        # unshare --fork hands TERM to nobody: find process 1 of the namespace, its child.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        assert process.wait(20) == 0
