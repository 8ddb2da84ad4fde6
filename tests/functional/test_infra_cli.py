"""The command line of infrastructure as real processes: on a terminal, stopped, twice at once, and what others read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.paths import ROOT, UPSTREAM_PYTHON
from tests.support.sandbox_yaml import write, write_stack
from tests.support.terminals import Terminal
from vmnest.infra.state import Resource, StackState, Store

IMAGE = "arn:aws:lambda:us-east-1:111122223333:microvm-image:guest"
ROLE = "arn:aws:iam::111122223333:role/exec"


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture
def cli(cloud: LocalCloud, tmp_path: Path) -> Cli:
    """The command line in a folder with a small guest, on this machine."""
    home = tmp_path / "home"
    home.mkdir()
    write(tmp_path / "small" / "Dockerfile", "FROM scratch\nCOPY program.py /\nCMD sleep 600\n")
    write(tmp_path / "small" / "program.py", "1\n")
    write_stack(tmp_path / "sandbox.yaml")
    own = {"AGENT_SANDBOX_LOCAL_DIR": cloud.folder, "AGENT_SANDBOX_TARGET": "local"}
    return Cli({**bare_environ(home), "PYTHONPATH": str(ROOT), **own}, cwd=tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "home" / ".agent_sandbox" / "infra-state.json"))


SDK = """
import sys
from vmnest import Sandbox

with Sandbox.create(local=True) as sandbox:
    print(sandbox.record.image_arn, sandbox.record.sources)
"""


def test_sandboxes_start_from_the_stack_that_is_up_wherever_they_are_made(cli: Cli, tmp_path: Path) -> None:
    # No file of its own: the guest that comes with vmnest, whose agent can be spoken to.
    write(tmp_path / "sandbox.yaml", "project: demo\nimage: {name: demo-guest}\n")
    up = cli("infra", "up")
    assert up.status == 0, up.remarks
    assert "the guest that comes with vmnest is used" in up.remarks
    image = json.loads(up.text)["image_arn"]
    assert image.endswith(":000000000000:microvm-image:demo-guest")
    made = cli("create", "wired")
    assert (made.status, made.text) == (0, "wired\n")
    assert "vmnest: image and role: output of demo/dev\n" in made.remarks
    assert cli("create", "-q", "quiet").remarks == ""
    assert cli("--json", "create", "told").data["sources"]["image_arn"] == "output of demo/dev"
    shown = json.loads(cli("inspect", "wired").text)
    assert (shown["image_arn"], shown["record"]["sources"]["image_arn"]) == (image, "output of demo/dev")
    ran = cli("run", "--", "printenv", "AWS_LAMBDA_MICROVM_IMAGE_NAME")
    assert ran.text == "demo-guest\n"
    elsewhere = Cli(cli.environ, cwd=tmp_path / "small")
    done = elsewhere("-c", SDK, program=[sys.executable])
    assert done.text == f"{image} {{'image_arn': 'output of demo/dev', 'execution_role_arn': 'output of demo/dev'}}\n"
    built_in = cli("--json", "create", "-i", "local", "other").data
    assert built_in["image_arn"].endswith(":microvm-image:local")
    cli("rm", "wired", "quiet", "told", "other")
    # A stack of this machine is none for AWS.
    there = cli("create", "x", AGENT_SANDBOX_TARGET="aws", AWS_REGION="us-east-1")
    assert there.status == 2
    assert "no image to start from" in there.remarks
    assert cli("infra", "destroy", "--yes").status == 0
    assert cli("--json", "create", "last").data["image_arn"].endswith(":microvm-image:local")
    cli("rm", "last")


def test_on_a_terminal_it_shows_what_is_under_way_and_asks_before_it_destroys(cli: Cli, tmp_path: Path) -> None:
    program = [*PROGRAM, "infra"]
    with Terminal([*program, "up"], env={**cli.environ, "TERM": "xterm"}, cwd=tmp_path) as up:
        seen = up.read_until(b'"image_version": "1.0"')
        assert up.wait() == 0
    assert b"\rimage: " in seen
    assert b"\x1b[Kimage: made arn:" in seen
    with Terminal([*program, "preview"], env={**cli.environ, "TERM": "xterm"}, cwd=tmp_path) as preview:
        preview.read_until(b"demo/dev on this machine: 4 as they are")
        assert preview.wait() == 0
    with Terminal([*program, "destroy"], env={**cli.environ, "TERM": "xterm"}, cwd=tmp_path) as asking:
        asking.read_until(b"Remove this? [y/N] ")
        asking.signal(signal.SIGINT)
        assert asking.wait() == 130
    assert cli("infra", "output", "project").text == "demo\n"
    with Terminal([*program, "destroy"], env={**cli.environ, "TERM": "xterm"}, cwd=tmp_path) as asking:
        asking.read_until(b"Remove this? [y/N] ")
        asking.type(b"y\n")
        asking.read_until(b"demo/dev: removed 4")
        assert asking.wait() == 0
    assert cli("infra", "output").text == "{}\n"


def test_it_is_stopped_and_goes_on_and_nobody_else_is_at_it_meanwhile(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "small" / "Dockerfile", "FROM scratch\nRUN sleep 4\nCMD sleep 600\n")
    up = cli.start("infra", "up")
    assert up.stderr is not None
    for line in iter(up.stderr.readline, b""):
        if b"being built" in line:
            break
    up.send_signal(signal.SIGSTOP)  # so that it is at it for as long as we like
    busy = cli("infra", "up", "--json")
    assert (busy.status, busy.error["code"]) == (1, "infrastructure")
    assert "another vmnest changes the infrastructure of demo/dev right now" in busy.error["message"]
    up.send_signal(signal.SIGINT)
    up.send_signal(signal.SIGCONT)
    out, err = up.communicate(timeout=60)
    assert (up.returncode, out) == (130, b"")
    assert b"stopped; what was done by then is recorded" in err
    assert b"vmnest: interrupted" in err
    again = cli("infra", "up")
    assert again.status == 0, again.remarks
    assert json.loads(again.text)["image_version"]
    assert "role: made" not in again.remarks
    assert cli("infra", "preview", "--json").data["stacks"][0]["has_changes"] is False
    assert cli("infra", "destroy", "-y", "-q").text == "demo/dev: removed 4\n"


WATCHED = """
import sys
from vmnest.cli.main import main

status = main(sys.argv[1:])
print(status, "yaml" in sys.modules, "botocore" in sys.modules, "vmnest.infra.config" in sys.modules)
"""


@pytest.mark.parametrize(
    ("words", "is_read"),
    [
        (["-i", IMAGE, "--role", ROLE], False),
        (["-i", IMAGE], False),  # the stack of that image is found by its ARN
        (["-i", f"{IMAGE}-2"], True),
        ([], True),
    ],
    ids=["image and role", "image of the stack", "another image", "nothing"],
)
def test_yaml_is_loaded_only_for_what_is_not_given(
    cli: Cli, store: Store, tmp_path: Path, words: list[str], is_read: bool
) -> None:
    store.save(StackState("demo", "dev", outputs={"image_arn": IMAGE, "execution_role_arn": ROLE}))
    write(tmp_path / "sandbox.yaml", "project: demo\n")
    keys = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    arguments = ["create", "x", *words, "--wait-timeout", "0.2"]
    done = cli("-c", WATCHED, *arguments, program=[sys.executable], AGENT_SANDBOX_TARGET="aws", **keys)
    assert done.text == f"1 {is_read} False {is_read}\n"


@pytest.fixture
def upstream() -> Path:
    """The program of 0.1.2."""
    if not UPSTREAM_PYTHON.exists():
        pytest.skip("the upstream package is not installed (tools/test --all)")
    return UPSTREAM_PYTHON.with_name("vmnest")


def test_0_1_2_reads_what_we_record_and_we_what_it_records(
    cli: Cli, store: Store, tmp_path: Path, upstream: Path
) -> None:
    (tmp_path / "sandbox.yaml").unlink()
    write_stack(tmp_path / "sandbox.yaml")
    stack = StackState("demo", "dev", region="us-east-1", outputs={"image_arn": IMAGE, "execution_role_arn": ROLE})
    store.save(stack.with_resource("role", Resource("iam-role", "exec", attrs={"arn": ROLE})))
    environ = {name: value for name, value in cli.environ.items() if name not in ("PYTHONPATH", "PYTHONWARNINGS")}

    def theirs(*words: str) -> str:
        done = subprocess.run(
            [upstream, "infra", *words], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert json.loads(theirs("output"))["image_arn"] == IMAGE
    assert json.loads(theirs("output", "--all"))["count"] == 1
    # It writes the file anew, without our schema number.
    subprocess.run(
        [upstream.with_name("python"), "-c", REWRITE, store.path],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert "schema" not in json.loads(Path(store.path).read_text())
    assert cli("infra", "output", "execution_role_arn", AGENT_SANDBOX_TARGET="aws").text == f"{ROLE}\n"
    found = store.load("demo/dev")
    assert found is not None
    assert found.resources["role"] == Resource("iam-role", "exec", attrs={"arn": ROLE})


REWRITE = """
import pathlib, sys
from agent_sandbox.infra.state import InfraStateStore

store = InfraStateStore(pathlib.Path(sys.argv[1]))
store.save(store.load("demo", "dev"))
"""


@pytest.mark.parametrize(
    "text",
    [
        "project: a\nstack: b\nregion: eu-west-1\nimage: {name: x, guest_dir: ./small, base_image_version: '1'}\n",
        "image: {guest_dir: small}\nnetwork: {egress: {subnet_ids: [subnet-1], name: out}}\n",
        "image: {guest_dir: small}\nrole:\nbucket:\nnetwork:\n  egress:\n",
        "image: {guest_dir: small}\nnetwork: {egress: {name: out}}\nrole: {name: r, extra_policy_arns: []}\n",
        "project: a\nimage: {guest_dir: small}\n---\nproject: b\nimage: {guest_dir: small}\n",
    ],
    ids=["names", "subnets", "empty mappings", "a connector's name alone", "two documents"],
)
def test_files_mean_what_they_mean_to_0_1_2(cli: Cli, tmp_path: Path, upstream: Path, text: str) -> None:
    write(tmp_path / "sandbox.yaml", text)
    told = []
    for python, program in ((str(upstream.with_name("python")), THEIRS), (sys.executable, OURS)):
        environ = dict(cli.environ) if program is OURS else {"PATH": cli.environ["PATH"], "HOME": cli.environ["HOME"]}
        done = subprocess.run(
            [python, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
        )
        told.append(json.loads(done.stdout))
    assert told[0] == told[1]


THEIRS = """
import json
from agent_sandbox.infra.config import load_setups

print(json.dumps([
    [each.project, each.stack, each.image.name, each.guest_dir_abs, each.image.base_image_version, each.role.name,
     each.role.arn, each.bucket.name, each.network.enabled, each.network.egress.subnet_ids]
    for each in load_setups()
]))
"""
OURS = """
import json
from vmnest.infra.config import load

print(json.dumps([
    [each.project, each.stack, each.image.name, each.image.guest_dir, each.image.base_image_version or "",
     each.role.name, each.role.arn or "", each.bucket.name or "", each.egress is not None,
     list(each.egress.subnet_ids) if each.egress else []]
    for each in load()
]))
"""
