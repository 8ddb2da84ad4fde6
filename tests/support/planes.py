"""The two planes of a MicroVM that does not exist: a control plane with a memory, a data plane with a script.

``open_planes`` starts both and writes the record of a sandbox called ``web`` whose MicroVM they pretend to be, so that
the command line and ``Sandbox`` can be run against any answer of the data plane. Tokens are numbered, for each port.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.cli import Cli, Done, bare_environ
from tests.support.control import vm
from tests.support.scripted import Answer, Received, ScriptedServer, Step, answer, json_answer

NAME = "web"
MICROVM_ID = "microvm-1"
_PATH = f"/2025-09-09/microvms/{MICROVM_ID}"
NOT_LISTENING = answer(502, headers=[("x-aws-proxy-error", "APP_CONNECT_FAILED")])
HEALTHY = json_answer(200, {"status": "ok", "version": "1", "features": ["exec_id"]})
BASIC = json_answer(200, {"status": "ok", "version": "1"})  # an agent of the base contract


class ControlPlane:
    """What the service knows of the MicroVM. ``calls`` are the operations in their order.

    Attributes:
        state: The MicroVM's state.
        endpoint: As GetMicrovm answers it.
        ports: The ports of each token, the first one that of ``token-1``.
        broken: What to answer instead of everything.
    """

    def __init__(self, endpoint: str) -> None:
        self.state = "RUNNING"
        self.endpoint = endpoint
        self.ports: list[list[int]] = []
        self.calls: list[str] = []
        self.broken: Answer | None = None
        self._lock = threading.Lock()

    def __call__(self, request: Received) -> Answer:
        path = request.target.replace("%3A", ":")
        with self._lock:
            verb = {_PATH: "get"}.get(path, path.rpartition("/")[2])
            self.calls.append(verb)
            if self.broken is not None:
                return self.broken
            return self._answer(verb, request)

    def _answer(self, verb: str, request: Received) -> Answer:
        if verb == "auth-token":
            wish = request.json()
            assert isinstance(wish, dict)
            self.ports.append([each["port"] for each in wish["allowedPorts"]])
            return json_answer(200, {"authToken": {"X-aws-proxy-auth": f"token-{len(self.ports)}"}})
        if verb == "resume":
            self.state = "RUNNING"
            return json_answer(200, {})
        assert verb == "get", request.target
        return json_answer(200, vm(microvmId=MICROVM_ID, state=self.state, endpoint=self.endpoint))


class Planes:
    """Both planes, and what is needed to work with them."""

    def __init__(self, control: ControlPlane, data: ScriptedServer, environ: Mapping[str, str]) -> None:
        self.control = control
        self.data = data
        self.environ = dict(environ)
        self.cli = Cli(self.environ)

    def exec(self, *words: str, patience: float | None = None, wake: float | None = None, **environ: str) -> Done:
        """``vmnest exec web WORDS``; ``patience`` and ``wake`` are the client's grace and its budget for repeats."""
        changes = {"grace": patience, "wake": wake}
        patch = "".join(
            f"AgentClient.__init__.__kwdefaults__[{name!r}] = {value}\n"
            for name, value in changes.items()
            if value is not None
        )
        program = f"from vmnest.agent.client import AgentClient\n{patch}from vmnest.cli.main import console\nconsole()"
        return self.cli("exec", NAME, *words, program=(sys.executable, "-c", program), **environ)

    @property
    def commands(self) -> list[Received]:
        """The requests to run a command that the data plane has got."""
        return [each for each in self.data.requests if each.target == "/v1/exec"]


@contextmanager
def open_planes(home: Path, *steps: Step, repeat_last: bool = False, has_processes: bool = False) -> Iterator[Planes]:
    """Both planes, and the record of a sandbox that has them; the steps are the data plane's script.

    It stands for an agent of the base contract, unless it ``has_processes``.
    """
    with ExitStack() as stack:
        missing = None if has_processes else "/v1/processes"
        data = stack.enter_context(ScriptedServer(*steps, repeat_last=repeat_last, missing=missing))
        control = ControlPlane(data.url)
        service = stack.enter_context(ScriptedServer(control, repeat_last=True))
        environ = {
            **bare_environ(home),
            "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": service.url,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AGENT_SANDBOX_STATE": str(home / "state.json"),
        }
        record = {"microvm_id": MICROVM_ID, "endpoint": data.url, "region": "us-east-1", "created_at": 1.0}
        (home / "state.json").write_text(json.dumps({"sandboxes": {NAME: record}}))
        yield Planes(control, data, environ)


OpenPlanes = Callable[..., Planes]


@pytest.fixture
def planes(tmp_path: Path) -> Iterator[OpenPlanes]:
    """Opens planes, takes what ``open_planes`` takes after the folder; once a test."""
    with ExitStack() as stack:

        def start(*steps: Step, repeat_last: bool = False, has_processes: bool = False) -> Planes:
            return stack.enter_context(
                open_planes(tmp_path, *steps, repeat_last=repeat_last, has_processes=has_processes)
            )

        yield start
