"""Images that are built on this machine, and MicroVMs that run them: real daemon, boto3 as the client."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import guest_files, make_zip
from tests.support.cells import Host, make_host
from tests.support.cloud import LocalCloud, end_daemon, open_cloud, start_daemon
from vmnest import Sandbox, rendezvous
from vmnest.local import build_layers
from vmnest.local.drivers import removal

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
        prepare(one)
        yield one


def prepare(cloud: LocalCloud) -> None:
    """What a build needs of the account."""
    cloud.client("s3").create_bucket(Bucket="artifacts")
    cloud.client("iam").create_role(RoleName="build", AssumeRolePolicyDocument=json.dumps(TRUST))


TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


def begin(cloud: LocalCloud, name: str, members: Any, **more: Any) -> dict[str, Any]:
    """Begin to make an image."""
    cloud.client("s3").put_object(Bucket="artifacts", Key=f"{name}.zip", Body=make_zip(members).getvalue())
    made: dict[str, Any] = cloud.client().create_microvm_image(
        name=name,
        baseImageArn="arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
        buildRoleArn="arn:aws:iam::000000000000:role/build",
        codeArtifact={"uri": f"s3://artifacts/{name}.zip"},
        **more,
    )
    return made


def build(cloud: LocalCloud, name: str, members: Any, **more: Any) -> dict[str, Any]:
    """Make an image; its first version once its build has ended."""
    made = begin(cloud, name, members, **more)
    service = cloud.client()
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


# Builds the image whose zip is standard input, twice, and shows what a VM of it finds.
PROGRAM = """
import io, json, os, sys, threading
from vmnest.local import build_cells, builder
from vmnest.local.drivers import select
folder = sys.argv[1]
driver = select(folder=folder, minimum="namespace", visible=(), environ={})
said, one = [], builder.Builder(driver, folder)
spec = builder.BuildSpec("demo", "arn:demo", "1.0", {}, json.loads(sys.argv[2]), 512, ())
artifact = sys.stdin.buffer.read()
try:
    built = [one.build(io.BytesIO(artifact), spec=spec, log=said.append) for _ in range(2)][1]
    layers = tuple(os.path.join(folder, "layers", name) for name in built.layers)
    step = build_cells.Step(("/bin/sh", "-c", sys.argv[3]), layers, environment=built.config.environment)
    shown = []
    build_cells.Cells(driver, folder, disk_bytes=1 << 28).run(step, log=shown.append)
    print(json.dumps({"shown": shown, "log": said}))
except builder.BuildFailed as failed:
    print(json.dumps({"failed": failed.reason, "log": said}))
one.close()
driver.close()
"""
CHANGES = """\
FROM x
RUN rm -r /usr/share/doc && mkdir /usr/share/doc && echo 'echo of us' > /usr/bin/ours && chmod 755 /usr/bin/ours
RUN rm /etc/hostname; echo ours > /etc/ours
COPY agentd /opt/agentd/agentd
ENV PYTHONPATH=/opt/agentd
CMD ["python3", "-m", "agentd.serve"]
"""


@pytest.fixture(params=["this user", "plain user"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    yield from make_host(request.param)


@pytest.fixture
def state(host: Host) -> Iterator[str]:
    """A state folder of the host's user, in memory where that is possible: its skeleton has many directories."""
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else str(host.folder)
    folder = tempfile.mkdtemp(prefix="vmnest-host-", dir=fast)
    if host.uid is not None:
        os.chown(folder, host.uid, host.uid)
    yield folder
    removal.remove_tree(folder)


def test_images_can_change_what_is_the_hosts_for_root_and_for_a_plain_user(host: Host, state: str) -> None:
    artifact = make_zip({**guest_files(), "Dockerfile": CHANGES}).getvalue()
    script = "ours; ls /usr/share/doc | wc -l; test -e /etc/hostname || echo gone; cat /etc/ours; ls /opt/agentd"
    done = subprocess.run(
        [host.python, "-c", PROGRAM, state, json.dumps(HOOKS), script],
        input=artifact, env={"PYTHONPATH": str(host.package), "PATH": "/usr/bin:/bin"}, cwd="/",
        user=host.uid, group=host.uid, extra_groups=None if host.uid is None else [],
        capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report.get("shown") == ["of us", "0", "gone", "ours", "agentd"], report
    assert report["log"].count("  (made before)") == 3


def test_layers_are_made_once_and_nothing_else_is_left(cloud: LocalCloud) -> None:
    folder = Path(cloud.folder)
    members = {"Dockerfile": "FROM x\nCOPY a /opt/once/\nCMD sleep 100\n", "a": "a"}
    assert build(cloud, "first", members)["state"] == "SUCCESSFUL"
    made = set(os.listdir(folder / build_layers.FOLDER))
    assert build(cloud, "second", members)["state"] == "SUCCESSFUL"
    assert set(os.listdir(folder / build_layers.FOLDER)) == made
    assert not os.listdir(folder / "builds")
    assert not [name for name in os.listdir(folder / "vms") if name.startswith("build-")]


def test_a_build_whose_daemon_is_killed_has_failed_and_nothing_of_it_is_left() -> None:
    with contextlib.ExitStack() as stack:
        cloud = stack.enter_context(open_cloud())
        prepare(cloud)
        dockerfile = "FROM x\nRUN echo here > /work/here && sleep 1017\nCMD true\n"
        made = begin(cloud, "long", {"Dockerfile": dockerfile})
        wait_for(lambda: is_running("sleep 1017"))
        cloud.process.kill()
        cloud.process.wait()
        process, line = start_daemon(cloud.folder)
        stack.callback(end_daemon, process, cloud.folder)
        again = LocalCloud(cloud.folder, daemon=rendezvous.parse_ready(line), process=process)
        version = again.client().get_microvm_image_version(imageIdentifier=made["imageArn"], imageVersion="1.0")
        assert version["state"] == "FAILED"
        wait_for(lambda: not is_running("sleep 1017"))
        assert not os.listdir(Path(cloud.folder, "builds"))
        assert not os.listdir(Path(cloud.folder, "vms"))
        wait_for(lambda: not os.listdir(Path(cloud.folder, build_layers.FOLDER)))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(command: str) -> bool:
    return subprocess.run(["pgrep", "-fx", command], capture_output=True, check=False).returncode == 0
