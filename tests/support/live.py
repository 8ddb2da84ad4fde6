"""The clouds that the contract tests run against: the local one and, with ``--live``, AWS itself, by one body.

``pytest tests/contract --live`` takes credentials as boto3 finds them, the region from ``AGENT_SANDBOX_REGION`` or as
boto3 finds it, and in ``AGENT_SANDBOX_IMAGE_ARN`` an image of the folder ``guest`` with all lifecycle hooks on, at port
9000. ``AGENT_SANDBOX_EXECUTION_ROLE_ARN`` is passed on if it is set. What is started costs money: a module starts at
most ``MAX_STARTED`` MicroVMs, none of them lives longer than ``LIFETIME_SECONDS``, and all are terminated in the end.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import mirror
from tests.support.cloud import LocalCloud

LOCAL = "local"
AWS = "aws"
LOCAL_IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
AGENT_PORT = 8080
MIRROR_PORT = 3000
LIFETIME_SECONDS = 600
MAX_STARTED = 40
# How long a state may take to come: generous, since a first launch of an image's version takes 45 s.
STATE_SECONDS = 60.0
ANSWER_SECONDS = 60.0


class Answer(NamedTuple):
    """What the data plane answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Cloud:
    """One of the clouds, as boto3 and a plain HTTP client see it. What it starts does not outlive it.

    Attributes:
        api: boto3's client of the service.
        unchecked: The same, without boto3's own checks of parameters.
        image: ARN of the image that it runs.
        region: Where it is.
    """

    def __init__(self, *, name: str, clients: Mapping[str, Any], image: str, region: str) -> None:
        self.name = name
        self.api = clients["checked"]
        self.unchecked = clients["unchecked"]
        self.image = image
        self.region = region
        self._defaults: dict[str, Any] = {"imageIdentifier": image, "maximumDurationInSeconds": LIFETIME_SECONDS}
        role = os.environ.get("AGENT_SANDBOX_EXECUTION_ROLE_ARN")
        if self.is_live and role:
            self._defaults["executionRoleArn"] = role
        self._started: dict[str, None] = {}
        self._pause = 0.5 if self.is_live else 0.03

    @property
    def is_live(self) -> bool:
        """It is AWS: what it does takes time, and costs."""
        return self.name == AWS

    # -- control plane -------------------------------------------------------------------------------------------------

    def run(self, **params: Any) -> dict[str, Any]:
        """RunMicrovm."""
        assert len(self._started) < MAX_STARTED, "a test starts more than a contract should cost"
        started: dict[str, Any] = self.api.run_microvm(**{**self._defaults, **params})
        self._started[started["microvmId"]] = None
        return started

    def run_ready(self, **params: Any) -> dict[str, Any]:
        """RunMicrovm, and wait until its agent answers."""
        started = self.run(**params)
        self.wait_ready(started)
        return started

    def get(self, vm: Mapping[str, Any]) -> dict[str, Any]:
        """GetMicrovm."""
        found: dict[str, Any] = self.api.get_microvm(microvmIdentifier=vm["microvmId"])
        return found

    def suspend(self, vm: Mapping[str, Any]) -> dict[str, Any]:
        """SuspendMicrovm, and wait until it is."""
        self.api.suspend_microvm(microvmIdentifier=vm["microvmId"])
        return self.wait_for(vm, "SUSPENDED")

    def resume(self, vm: Mapping[str, Any]) -> dict[str, Any]:
        """ResumeMicrovm, and wait until it runs."""
        self.api.resume_microvm(microvmIdentifier=vm["microvmId"])
        return self.wait_for(vm, "RUNNING")

    def terminate(self, vm: Mapping[str, Any]) -> dict[str, Any]:
        """TerminateMicrovm, and wait for the end."""
        self.api.terminate_microvm(microvmIdentifier=vm["microvmId"])
        return self.wait_for(vm, "TERMINATED")

    def wait_for(self, vm: Mapping[str, Any], *states: str, seconds: float = STATE_SECONDS) -> dict[str, Any]:
        """What GetMicrovm says once the state is one of these; states in between need not be seen."""
        end = time.monotonic() + seconds
        while (found := self.get(vm))["state"] not in states:
            assert found["state"] != "TERMINATED", f"ended: {found.get('stateReason')}"
            assert time.monotonic() < end, f"{found['state']}, not {states}, after {seconds:g} s"
            time.sleep(self._pause)
        return found

    def mint(self, vm: Mapping[str, Any], *ports: int, minutes: int = 10) -> dict[str, str]:
        """The headers of a new token for these ports."""
        return self.mint_for(vm, [{"port": port} for port in ports], minutes=minutes)

    def mint_for(self, vm: Mapping[str, Any], allowed: list[dict[str, Any]], *, minutes: int = 10) -> dict[str, str]:
        """The headers of a new token for these members of ``allowedPorts``."""
        minted = self.api.create_microvm_auth_token(
            microvmIdentifier=vm["microvmId"], expirationInMinutes=minutes, allowedPorts=allowed
        )
        token: dict[str, str] = minted["authToken"]
        return token

    # -- data plane ----------------------------------------------------------------------------------------------------

    def connect(self, vm: Mapping[str, Any], *, seconds: float = ANSWER_SECONDS) -> http.client.HTTPConnection:
        """A connection to the endpoint, which AWS names without a scheme."""
        scheme, _, netloc = vm["endpoint"].rpartition("://")
        if scheme == "http":
            return http.client.HTTPConnection(netloc, timeout=seconds)
        return http.client.HTTPSConnection(netloc, timeout=seconds, context=ssl.create_default_context())

    def host(self, vm: Mapping[str, Any]) -> str:
        """What a client calls the endpoint in ``Host``."""
        return str(vm["endpoint"].rpartition("://")[2])

    def websocket_url(self, vm: Mapping[str, Any]) -> str:
        """Where a WebSocket of the endpoint is opened."""
        scheme = "ws" if vm["endpoint"].startswith("http://") else "wss"
        return f"{scheme}://{self.host(vm)}/socket"

    def ask(
        self,
        vm: Mapping[str, Any],
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        content: object = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Answer:
        """One request on a connection of its own, as it is answered."""
        with contextlib.closing(self.connect(vm, seconds=seconds)) as connection:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def wait_ready(self, vm: Mapping[str, Any], *, seconds: float = STATE_SECONDS) -> None:
        """Wait until the agent answers. One request in three after a launch or a resume meets a 502 on AWS."""
        token = self.mint(vm, AGENT_PORT)
        end = time.monotonic() + seconds
        while (answer := self.ask(vm, "GET", "/healthz", headers=token)).status != 200:
            found = self.get(vm)
            assert found["state"] != "TERMINATED", f"ended: {found.get('stateReason')}"
            assert time.monotonic() < end, f"{answer} while {found['state']}"
            time.sleep(self._pause)

    def execute(self, vm: Mapping[str, Any], *words: str, **members: Any) -> tuple[int, str]:
        """Run a command by the agent: exit status and standard output."""
        content = {"command": words[0], "args": list(words[1:]), **members}
        answer = self.ask(vm, "POST", "/v1/exec", headers=self.mint(vm, AGENT_PORT), content=content)
        assert answer.status == 200, answer
        result = json.loads(answer.body)
        return result["exit_code"], base64.b64decode(result["stdout"]).decode()

    def write(self, vm: Mapping[str, Any], path: str, text: str) -> None:
        """Write a file by the agent."""
        content = {"path": path, "content": text, "encoding": "utf-8"}
        answer = self.ask(vm, "POST", "/v1/fs/write", headers=self.mint(vm, AGENT_PORT), content=content)
        assert answer.status == 200, answer

    def start_mirror(self, vm: Mapping[str, Any]) -> dict[str, str]:
        """Start tests/support/mirror.py in the VM; the headers of a request to it."""
        self.write(vm, "mirror.py", Path(mirror.__file__).read_text(encoding="utf-8"))
        line = f"setsid python3 mirror.py {MIRROR_PORT} </dev/null >/dev/null 2>&1 &"
        assert self.execute(vm, "sh", "-c", line) == (0, "")
        headers = {**self.mint(vm, MIRROR_PORT), "X-aws-proxy-port": str(MIRROR_PORT)}
        end = time.monotonic() + ANSWER_SECONDS
        while self.ask(vm, "GET", "/", headers=headers).status == 502:
            assert time.monotonic() < end
            time.sleep(self._pause)
        return headers

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Terminate whatever was started; a failure to end one does not spare the others."""
        with contextlib.ExitStack() as stack:
            for microvm_id in self._started:
                stack.callback(self.api.terminate_microvm, microvmIdentifier=microvm_id)


def _open_local(local: LocalCloud) -> Cloud:
    from botocore.config import Config

    unchecked = Config(parameter_validation=False, proxies={}, retries={"total_max_attempts": 1})
    clients = {"checked": local.client(), "unchecked": local.client(config=unchecked)}
    return Cloud(name=LOCAL, clients=clients, image=LOCAL_IMAGE, region="us-east-1")


def _open_aws() -> Cloud:
    import boto3
    from botocore.config import Config

    image = os.environ.get("AGENT_SANDBOX_IMAGE_ARN")
    if not image:
        pytest.fail("--live needs AGENT_SANDBOX_IMAGE_ARN: an image of the folder guest, with all hooks on")
    session = boto3.session.Session(region_name=os.environ.get("AGENT_SANDBOX_REGION") or image.split(":")[3])
    # An account may run few at a time, and suspend two a second: boto3 waits and tries again.
    retries = {"mode": "standard", "total_max_attempts": 10}
    clients = {
        name: session.client("lambda-microvms", config=Config(retries=retries, parameter_validation=checked))
        for name, checked in (("checked", True), ("unchecked", False))
    }
    return Cloud(name=AWS, clients=clients, image=image, region=session.region_name)


# -- fixtures ----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="run the contract tests against AWS too; that costs money")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cloud_name" in metafunc.fixturenames:
        names = [LOCAL, AWS] if metafunc.config.getoption("--live") else [LOCAL]
        metafunc.parametrize("cloud_name", names, scope="module")


@pytest.fixture(scope="module")
def any_cloud(cloud_name: str, request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """A cloud that must keep the contract: once the local one and, with ``--live``, once AWS."""
    cloud = _open_aws() if cloud_name == AWS else _open_local(request.getfixturevalue("shared_cloud"))
    with contextlib.closing(cloud):
        yield cloud
