"""A guest agent as a real process on ports of its own.

``agent`` is one that serves; ``start_agent`` makes further ones, with other settings or another interpreter. All of
them are ended with their test, and what they wrote on standard error is shown when the test fails.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

GUEST = ROOT / "guest"
HOOK_PREFIX = "/aws/lambda-microvms/runtime/v1/"
START_SECONDS = 20.0


@dataclass(frozen=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class ExecReply:
    """The answer to an exec, output decoded; ``document`` is the answer as it came, without the output."""

    status: int
    exit_code: int | None
    signal: str | None
    stdout: bytes
    stderr: bytes
    code: str | None
    document: Mapping[str, Any]


@dataclass
class Agent:
    """A running agent and a small client for it. Each request has a connection of its own."""

    process: subprocess.Popen[bytes]
    port: int
    hook_port: int
    workdir: Path
    identity_path: Path
    log_path: Path
    host: str = "127.0.0.1"
    timeout: float = 60.0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> Reply:
        """One request on the agent's port (or ``port``)."""
        connection = http.client.HTTPConnection(self.host, port or self.port, timeout=self.timeout)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, names, response.read())
        finally:
            connection.close()

    def post(self, path: str, document: object) -> Reply:
        """POST a JSON document."""
        return self.request("POST", path, json.dumps(document).encode(), headers={"Content-Type": "application/json"})

    def exec(self, command: str, *args: str, **members: Any) -> ExecReply:
        """Run a command; ``members`` are cwd, env and timeout."""
        reply = self.post("/v1/exec", {"command": command, "args": list(args), **members})
        return decode_exec(reply)

    def shell(self, script: str, **members: Any) -> ExecReply:
        """Run a script with ``sh -c``."""
        return self.exec("sh", "-c", script, **members)

    def hook(self, name: str, body: bytes = b"", *, method: str = "POST") -> Reply:
        """Call a lifecycle hook."""
        return self.request(method, HOOK_PREFIX + name, body, port=self.hook_port)

    def dial(self, port: int | None = None) -> socket.socket:
        """A raw connection; the caller closes it."""
        return socket.create_connection((self.host, port or self.port), timeout=self.timeout)

    def log(self) -> str:
        """What the agent wrote on standard error. Without ``AGENTD_LOG=events`` that is what went wrong."""
        return self.log_path.read_text(errors="replace")


def decode_exec(reply: Reply) -> ExecReply:
    """An exec's answer, decoded."""
    document = reply.json()
    output = {name: base64.b64decode(document.pop(name, ""), validate=True) for name in ("stdout", "stderr")}
    return ExecReply(
        reply.status,
        document.get("exit_code"),
        document.get("signal"),
        output["stdout"],
        output["stderr"],
        document.get("code"),
        document,
    )


@contextmanager
def running_agent(
    folder: Path,
    *,
    environ: Mapping[str, str] | None = None,
    python: str | Path = sys.executable,
    wrapper: Sequence[str] = (),
) -> Iterator[Agent]:
    """An agent that serves on free ports of the loopback.

    Args:
        folder: Where its working directory, identity and log go.
        environ: Variables beside those of the test process.
        python: The interpreter.
        wrapper: Words before the command line, for example ``prlimit``'s.
    """
    folder.mkdir(parents=True, exist_ok=True)
    workdir, identity_path, log_path = folder / "work", folder / "identity", folder / "agent.log"
    reader, writer = os.pipe()
    settings = {
        "AGENTD_PORT": "0",
        "AGENTD_HOOK_PORT": "0",
        "AGENTD_IDENTITY_PATH": str(identity_path),
        "AGENTD_LOG": "off",  # but for what goes wrong
        "AGENTD_READY_FD": str(writer),
        "AGENT_SANDBOX_WORKDIR": str(workdir),
        "HOME": str(folder),  # a login shell reads no profile of whoever runs the tests
        "PYTHONPATH": str(GUEST),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENTD_")}
    with ExitStack() as stack:
        ready = stack.enter_context(open(reader, "rb"))
        log = stack.enter_context(open(log_path, "wb"))
        try:
            process = subprocess.Popen(
                [*wrapper, str(python), "-m", "agentd.serve"],
                env={**inherited, **settings, **(environ or {})},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
            )
        finally:
            os.close(writer)
        stack.callback(end_process, process)
        try:
            if not select.select([ready], [], [], START_SECONDS)[0]:
                raise AssertionError("the agent did not become ready")
            ports = json.loads(ready.readline() or b"{}")
            if not ports:
                raise AssertionError(f"the agent ended: {log_path.read_text()}")
            yield Agent(process, ports["port"], ports["hook_port"], workdir, identity_path, log_path)
        except BaseException:
            print(f"--- {log_path}\n{log_path.read_text(errors='replace')}")
            raise


def end_process(process: subprocess.Popen[bytes]) -> int:
    """TERM, then KILL if that does not help; the exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            return process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent that serves, for one test."""
    with running_agent(tmp_path / "agent") as running:
        yield running


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Makes agents with other settings: takes what ``running_agent`` takes."""
    with ExitStack() as stack:
        count = 0

        def start(**options: Any) -> Agent:
            nonlocal count
            count += 1
            return stack.enter_context(running_agent(tmp_path / f"agent-{count}", **options))

        yield start


@pytest.fixture(scope="module")
def shared_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent for all tests of a module that do not change it."""
    with running_agent(tmp_path_factory.mktemp("agent")) as running:
        yield running
