"""The agent as a program: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import descriptors, skips
from tests.support.agent import GUEST, Agent, running_agent
from tests.support.paths import find_python
from vmnest._guest.agentd import __version__

ANY_PORT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(GUEST), "AGENTD_PORT": "0", "AGENTD_HOOK_PORT": "0"}


def run_agent(cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run an agent that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "agentd.serve"],
        env={**ANY_PORT, **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("AGENTD_PORT", "http"),
        ("AGENTD_BIND", "everywhere"),
        ("AGENTD_LOG", "all"),
        ("AGENT_SANDBOX_WORKDIR", "work"),
        ("AGENTD_READY_FD", "77"),
    ],
)
def test_a_malformed_variable_is_one_line_and_status_2(tmp_path: Path, variable: str, text: str) -> None:
    done = run_agent(tmp_path, **{variable: text})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"Z agentd: {variable}={text!r}: must be " in done.stderr


@pytest.mark.parametrize("variable", ["AGENTD_PORT", "AGENTD_HOOK_PORT"])
def test_a_port_in_use_is_one_line_that_names_the_variable(tmp_path: Path, variable: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_agent(tmp_path, **{variable: str(taken.getsockname()[1])})
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert variable in done.stderr
    assert "another program listens there" in done.stderr


@pytest.mark.parametrize("name", ["agentd-api", "agentd-hooks"])
def test_when_one_of_its_servers_dies_it_dies(tmp_path: Path, name: str) -> None:
    # From outside a server cannot be ended alone: in this process it fails by itself.
    program = f"""
import threading
from agentd import serve, server
real = server.Listener.serve_forever
def serve_forever(self, poll_interval):
    if threading.current_thread().name == {name!r}:
        raise OSError("the listening socket is gone")
    real(self, poll_interval)
server.Listener.serve_forever = serve_forever
serve.run()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**ANY_PORT, "AGENT_SANDBOX_WORKDIR": str(tmp_path)},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert b"the listening socket is gone" in done.stderr


def test_it_tells_where_it_listens(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent(environ={"AGENTD_LOG": "events"})
    told = f"Z agentd: {__version__} listens on 127.0.0.1, port {agent.port}, hooks {agent.hook_port}\n"
    assert agent.log().endswith(told)


def test_it_listens_on_the_loopback_only_unless_told(agent: Agent) -> None:
    inodes = descriptors.targets(agent.process.pid)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    addresses = {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}
    assert addresses == {"0100007F"}


def test_it_serves_ipv6(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent(environ={"AGENTD_BIND": "::1"})
    agent.host = "::1"
    assert agent.exec("echo", "six").stdout == b"six\n"
    assert agent.hook("validate").status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_with_status_0(agent: Agent, number: signal.Signals) -> None:
    begin = time.monotonic()
    agent.process.send_signal(number)
    assert agent.process.wait(10) == 0
    assert time.monotonic() - begin < 1
    assert agent.log() == ""


def test_its_end_takes_running_commands_with_it(agent: Agent, tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 30 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait; sleep 30"

    def run() -> None:
        with pytest.raises(http.client.RemoteDisconnected):
            agent.shell(script)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 10
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    begin = time.monotonic()
    agent.process.terminate()
    assert agent.process.wait(10) == 0
    assert time.monotonic() - begin < 2
    thread.join()
    pid = (tmp_path / "pid").read_text().strip()
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline + 10
        time.sleep(0.01)


def test_files_of_the_user_do_not_stand_in_for_its_imports(tmp_path: Path) -> None:
    # The agent starts in the working directory, and python -m puts that first on the import path.
    folder = tmp_path / "agent"
    folder.mkdir()
    for name in ("socketserver", "socket", "random", "json", "subprocess", "select", "http"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    with running_agent(folder) as agent:
        assert agent.exec("echo", "hi").stdout == b"hi\n"


REDIRECTIONS = ["<&- >&- 2>&-", "<&-", ">/dev/full 2>&1"]


@pytest.mark.parametrize("redirections", REDIRECTIONS)
def test_its_status_does_not_depend_on_standard_streams(tmp_path: Path, redirections: str) -> None:
    words = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "agentd.serve"]
    environ = {**ANY_PORT, "AGENTD_PORT": "http"}
    assert subprocess.run(words, env=environ, cwd=tmp_path, timeout=30, check=False).returncode == 2
    with running_agent(tmp_path / "agent", wrapper=words[:4]) as agent:
        agent.process.terminate()
        assert agent.process.wait(10) == 0


@pytest.mark.parametrize("redirections", REDIRECTIONS)
def test_it_serves_without_standard_streams(tmp_path: Path, redirections: str) -> None:
    with running_agent(tmp_path / "agent", wrapper=["sh", "-c", f'exec "$@" {redirections}', "sh"]) as agent:
        assert agent.shell("echo out; echo err >&2; cat").stdout == b"out\n"
        assert agent.hook("terminate").status == 200


def test_it_serves_with_signals_ignored_by_its_parent(tmp_path: Path) -> None:
    with running_agent(tmp_path / "agent", wrapper=["env", "--ignore-signal=CHLD,INT"]) as agent:
        # With SIGCHLD ignored the exit code would be lost; with SIGINT ignored a command could not be interrupted.
        assert agent.shell("exit 3").exit_code == 3
        assert agent.shell("kill -INT $$").exit_code == 130


def test_an_announcement_that_nobody_reads_is_no_failure(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "agentd.serve"],
        env={**ANY_PORT, "AGENTD_READY_FD": str(writer)},
        pass_fds=(writer,),
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    with process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_other_pythons_serve_as_well(tmp_path: Path, version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: {version}")
    with running_agent(tmp_path / "agent", python=python, environ={"AGENTD_LOG": "events"}) as agent:
        assert agent.request("GET", "/healthz").json()["status"] == "ok"
        reply = agent.shell("head -c 2000000 /dev/zero; echo err >&2; exit 3")
        assert (reply.exit_code, reply.stdout, reply.stderr) == (3, bytes(2_000_000), b"err\n")
        assert agent.shell("sleep 5 & wait", timeout=0.3).code == "timed_out"
        assert agent.exec("no-such-program").code == "command_not_found"
        assert agent.exec("true", cwd="/no/such").code == "cwd_not_found"
        assert agent.exec("true", "x" * 200_000).code == "argument_too_long"
        assert agent.post("/v1/fs/write", {"path": "f", "content": "aGk="}).json() == {"bytes_written": 2}
        assert agent.post("/v1/fs/read", {"path": "f"}).json()["content"] == "aGk="
        assert agent.request("POST", "/v1/exec", b"{").status == 400
        for name in ("ready", "validate", "run", "suspend", "resume", "terminate"):
            assert agent.hook(name).status == 200
        agent.process.terminate()
        assert agent.process.wait(10) == 0
        assert "hook terminate: 200 after 0." in agent.log()
        assert ".py" not in agent.log()
