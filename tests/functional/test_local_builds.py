"""Images that are built on this machine, and MicroVMs that run them: real daemon, boto3 as the client."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import guest_files, make_zip
from tests.support.cloud import LocalCloud, open_cloud
from vmnest import Sandbox
from vmnest.local import build_layers

WAIT_SECONDS = 120
HOOKS = {
    "port": 9000,
    "microvmImageHooks": {
        "ready": "ENABLED", "readyTimeoutInSeconds": 60, "validate": "ENABLED", "validateTimeoutInSeconds": 60,
    },
    "microvmHooks": {
        name: value
        for hook in ("run", "resume", "suspend", "terminate")
        for name, value in ((hook, "ENABLED"), (f"{hook}TimeoutInSeconds", 20))
    },
}  # fmt: skip
VENV = """\
FROM python:3.12-slim
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/opt/agentd PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir idna
COPY agentd /opt/agentd/agentd
COPY greeting.txt /work/
ENV GREETING=/work/greeting.txt
WORKDIR /work
CMD ["python", "-m", "agentd.serve"]
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as one:
        one.client("s3").create_bucket(Bucket="artifacts")
        one.client("iam").create_role(RoleName="build", AssumeRolePolicyDocument=json.dumps(TRUST))
        yield one


TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


def build(cloud: LocalCloud, name: str, members: Any, **more: Any) -> dict[str, Any]:
    """Make an image; its first version once its build has ended."""
    cloud.client("s3").put_object(Bucket="artifacts", Key=f"{name}.zip", Body=make_zip(members).getvalue())
    service = cloud.client()
    made = service.create_microvm_image(
        name=name,
        baseImageArn="arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
        buildRoleArn="arn:aws:iam::000000000000:role/build",
        codeArtifact={"uri": f"s3://artifacts/{name}.zip"},
        **more,
    )
    end = time.monotonic() + WAIT_SECONDS
    while True:
        version: dict[str, Any] = service.get_microvm_image_version(
            imageIdentifier=made["imageArn"], imageVersion="1.0"
        )
        if version["state"] not in ("PENDING", "IN_PROGRESS"):
            return version
        assert time.monotonic() < end
        time.sleep(0.05)


def reasons(cloud: LocalCloud, version: dict[str, Any]) -> set[str]:
    found = cloud.client().list_microvm_image_builds(imageIdentifier=version["imageArn"], imageVersion="1.0")
    return {build["stateReason"] for build in found["items"]}


@pytest.fixture
def as_client(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cloud in this process's environment."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.delenv("AGENT_SANDBOX_WORKDIR", raising=False)


@pytest.mark.usefixtures("as_client")
def test_our_own_guest_image_builds_and_runs(cloud: LocalCloud) -> None:
    version = build(cloud, "guest", guest_files(), hooks=HOOKS, environmentVariables={"EXTRA": "of the image"})
    assert version["state"] == "SUCCESSFUL", reasons(cloud, version)
    with Sandbox.create("own", local=True, image_arn=version["imageArn"]) as box:
        said = box.exec("sh", ["-c", "echo $EXTRA; pwd; ls /opt/agentd/agentd/serve.py; python --version"])
        assert said.stdout_text.split("\n")[:3] == ["of the image", "/work", "/opt/agentd/agentd/serve.py"]
        box.suspend()
        box.resume()
        assert box.exec("cat", ["/proc/1/comm"]).success


@pytest.mark.usefixtures("as_client")
def test_a_file_with_a_virtual_environment_from_the_index_builds_and_runs(cloud: LocalCloud) -> None:
    try:
        socket.create_connection(("pypi.org", 443), timeout=10).close()
    except OSError as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    files = {**guest_files(), "Dockerfile": VENV.encode(), "greeting.txt": b"hello\n"}
    version = build(cloud, "venv", files, hooks=HOOKS)
    assert version["state"] == "SUCCESSFUL", reasons(cloud, version)
    with Sandbox.create("venv", local=True, image_arn=version["imageArn"]) as box:
        program = "import idna, os, sys; print(sys.prefix, open(os.environ['GREETING']).read())"
        said = box.exec("python", ["-c", program])
        assert said.stdout_text == "/opt/venv hello\n\n", said


def test_an_instruction_that_is_not_known_fails_with_its_line(cloud: LocalCloud) -> None:
    version = build(cloud, "odd", {"Dockerfile": "FROM x\nRUN echo\n\nHEALTHCHECK CMD true\nCMD true\n"})
    assert version["state"] == "FAILED"
    assert reasons(cloud, version) == {
        "The container image build failed. Line 4: the instruction HEALTHCHECK is not known here."
    }


def test_an_image_of_any_program_runs_without_hooks(cloud: LocalCloud) -> None:
    dockerfile = 'FROM scratch\nEXPOSE 8080\nWORKDIR /srv/www\nCMD ["python3", "-m", "http.server", "8080"]\n'
    version = build(cloud, "plain", {"Dockerfile": dockerfile})
    assert version["state"] == "SUCCESSFUL", reasons(cloud, version)
    service = cloud.client()
    started = service.run_microvm(imageIdentifier=version["imageArn"])
    try:
        end = time.monotonic() + WAIT_SECONDS
        while (now := service.get_microvm(microvmIdentifier=started["microvmId"]))["state"] == "PENDING":
            assert time.monotonic() < end
        assert now["state"] == "RUNNING"
    finally:
        service.terminate_microvm(microvmIdentifier=started["microvmId"])


def test_layers_are_made_once_and_nothing_else_is_left(cloud: LocalCloud) -> None:
    folder = Path(cloud.folder)
    members = {"Dockerfile": "FROM x\nCOPY a /opt/once/\nCMD sleep 100\n", "a": "a"}
    assert build(cloud, "first", members)["state"] == "SUCCESSFUL"
    made = set(os.listdir(folder / build_layers.FOLDER))
    assert build(cloud, "second", members)["state"] == "SUCCESSFUL"
    assert set(os.listdir(folder / build_layers.FOLDER)) == made
    assert not os.listdir(folder / "builds")
    assert not [name for name in os.listdir(folder / "vms") if name.startswith("build-")]
