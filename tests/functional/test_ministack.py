"""The command line against ministack: an independent reading of all services that infrastructure and images need."""

from __future__ import annotations

import io
import json
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.authority import Authority
from tests.support.cli import Cli, Done, bare_environ
from tests.support.ministack import ACCOUNT, BASE_IMAGE, USER, Ministack, open_ministack, refuse
from tests.support.paths import MINISTACK_PYTHON
from tests.support.relaying import Answer
from tests.support.sandbox_yaml import write

pytestmark = pytest.mark.skipif(not MINISTACK_PYTHON.exists(), reason="ministack is not installed (tools/test --all)")

EGRESS = "network:\n  egress: {{name: demo-egress, vpc_id: {vpc}, subnet_ids: [{subnet}]}}\n"
IMAGE = f"arn:aws:lambda:us-east-1:{ACCOUNT}:microvm-image:demo-guest"


@pytest.fixture(scope="module")
def ministack(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Ministack]:
    with open_ministack(tmp_path_factory.mktemp("ministack"), authority=authority) as double:
        yield double


@pytest.fixture
def account(ministack: Ministack) -> Iterator[Ministack]:
    """An account that is empty before, and must be after."""
    ministack.reset()
    yield ministack
    assert ministack.inventory() == {}


@pytest.fixture
def cli(account: Ministack, tmp_path: Path) -> Cli:
    """The command line in a folder with a small guest and a ``sandbox.yaml``, and with the keys of the account."""
    home = tmp_path / "home"
    home.mkdir()
    write(tmp_path / "guest" / "Dockerfile", "FROM python:3.12-slim\nCOPY program.py /\nCMD sleep 600\n")
    write(tmp_path / "guest" / "program.py", "1\n")
    configure(tmp_path)
    return Cli({**bare_environ(home), **account.user}, cwd=tmp_path)


def configure(folder: Path, *, project: str = "demo", more: str = "", name: str = "sandbox.yaml") -> None:
    names = f"image: {{name: {project}-guest, memory: 1024}}\nrole: {{name: {project}-exec}}\n"
    write(folder / name, f"project: {project}\nregion: us-east-1\n{names}{more}")


def with_egress(account: Ministack, folder: Path) -> None:
    subnet = account.client("ec2").describe_subnets()["Subnets"][0]
    configure(folder, more=EGRESS.format(vpc=subnet["VpcId"], subnet=subnet["SubnetId"]))


def run(cli: Cli, *words: str) -> Done:
    """A verb that succeeds."""
    done = cli(*words)
    assert done.status == 0, done.remarks
    return done


def actions(cli: Cli) -> dict[str, str]:
    (stack,) = run(cli, "infra", "preview", "--json").data["stacks"]
    return {step["resource"]: step["action"] for step in stack["steps"]}


def test_infrastructure_is_made_changed_and_removed(account: Ministack, cli: Cli, tmp_path: Path) -> None:
    with_egress(account, tmp_path)
    assert set(actions(cli).values()) == {"create"}
    outputs = json.loads(run(cli, "infra", "up").text)
    assert set(actions(cli).values()) == {"nothing"}
    assert account.inventory() == {
        "roles": ["demo-egress-operator", "demo-exec"],
        "buckets": [outputs["build_bucket"]],
        "groups": ["demo-egress"],
        "images": ["demo-guest"],
        "connectors": ["demo-egress"],
    }
    check_connector(account, outputs)
    assert artifact_of(account, "1")["program.py"] == b"1\n"
    write(tmp_path / "guest" / "program.py", "2\n")
    assert actions(cli)["image"] == "update"
    assert json.loads(run(cli, "infra", "up").text)["image_version"] == "2"
    assert artifact_of(account, "2")["program.py"] == b"2\n"
    assert run(cli, "infra", "refresh", "--json").data["stacks"][0]["changes"] == []
    assert run(cli, "infra", "output", "image_arn").text == f"{IMAGE}\n"
    assert run(cli, "infra", "destroy", "--yes").text == "demo/dev: removed 7\n"
    assert run(cli, "infra", "destroy", "--yes").text == "demo/dev: removed 0\n"


def check_connector(account: Ministack, outputs: Any) -> None:
    """It is as the outputs say, and the service read all of it."""
    found = account.client("lambda-core").get_network_connector(Identifier=outputs["egress_network_connector_arn"])
    assert found["Configuration"]["VpcEgressConfiguration"] == {
        "SubnetIds": outputs["subnet_ids"],
        "SecurityGroupIds": [outputs["security_group_id"]],
        "NetworkProtocol": "IPv4",
        "AssociatedComputeResourceTypes": ["MicroVm"],
    }
    assert found["OperatorRole"] == f"arn:aws:iam::{ACCOUNT}:role/demo-egress-operator"


def artifact_of(account: Ministack, version: str) -> dict[str, bytes]:
    """The files that a version of the image was asked to be made of."""
    found = account.client("lambda-microvms").get_microvm_image_version(imageIdentifier=IMAGE, imageVersion=version)
    assert (found["baseImageArn"], found["resources"]) == (BASE_IMAGE, [{"minimumMemoryInMiB": 1024}])
    assert found["buildRoleArn"] == f"arn:aws:iam::{ACCOUNT}:role/demo-exec"
    bucket, _, key = found["codeArtifact"]["uri"].removeprefix("s3://").partition("/")
    body = account.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_image_is_built_looked_at_and_removed(cli: Cli) -> None:
    run(cli, "infra", "up")
    built = run(cli, "image", "build", "guest", "-n", "second", "-m", "512", "-e", "KEY=value")
    arn = IMAGE.replace("demo-guest", "second")
    assert built.text == f"{arn}\n"
    listed = run(cli, "image", "ls", "--json").data["images"]
    assert [each["name"] for each in listed] == ["demo-guest", "second"]
    assert BASE_IMAGE in run(cli, "image", "ls", "--managed").text
    shown = json.loads(run(cli, "image", "inspect", "second").text)
    assert (shown["image_arn"], shown["version"]["memory"], shown["version"]["variables"]) == (arn, 512, ["KEY"])
    assert "512 MiB" in run(cli, "image", "versions", "second").text
    assert "nothing is logged of version 1" in run(cli, "image", "logs", "second").remarks
    pruned = run(cli, "image", "prune", "--yes", "--json").data
    assert "second" in json.dumps(pruned)
    assert "demo-guest" not in json.dumps(pruned)
    run(cli, "infra", "destroy", "--yes")


def test_a_sandbox_is_made_suspended_resumed_and_ended(account: Ministack, cli: Cli, shared_agent: Agent) -> None:
    account.agent = shared_agent.url
    run(cli, "infra", "up")
    assert run(cli, "create", "box", "-q").text == "box\n"
    assert run(cli, "exec", "box", "--", "echo", "hello").text == "hello\n"
    assert run(cli, "ps", "box", "--json").data["state"] == "RUNNING"
    run(cli, "stop", "box")
    assert run(cli, "ps", "box", "--json").data["state"] == "SUSPENDED"
    run(cli, "start", "box")
    assert run(cli, "ps", "box", "--json").data["state"] == "RUNNING"
    (found,) = account.client("lambda-microvms").list_microvms()["items"]
    run(cli, "rm", "box")
    found = account.client("lambda-microvms").get_microvm(microvmIdentifier=found["microvmId"])
    assert (found["state"], found["executionRoleArn"]) == ("TERMINATED", f"arn:aws:iam::{ACCOUNT}:role/demo-exec")
    run(cli, "infra", "destroy", "--yes")


DENIED = (
    *("iam:PutRolePolicy", "s3:PutBucketPolicy", "s3:PutObject", "POST /2025-09-09/microvm-images"),
    *("ec2:CreateSecurityGroup", "POST /2026-04-04/network-connectors"),
)


def test_what_is_not_allowed_is_named_and_up_goes_on_once_it_is(account: Ministack, cli: Cli, tmp_path: Path) -> None:
    with_egress(account, tmp_path)
    made: list[int] = []
    for action in DENIED:
        deny(account, action)
        done = cli("infra", "up")
        assert (done.status, done.out) == (1, b"")
        assert f"not authorized to perform: {action}" in done.remarks
        assert "Allow the named action" in done.remarks
        assert "What was done by then is recorded: vmnest infra up goes on from there." in done.remarks
        assert account.user["AWS_SECRET_ACCESS_KEY"] not in done.remarks
        made.append(sum(map(len, account.inventory().values())))
    assert made == sorted(made)
    deny(account, None)
    run(cli, "infra", "up")
    assert set(actions(cli).values()) == {"nothing"}
    deny(account, "iam:DeleteRole")
    done = cli("infra", "destroy", "--yes", "--json")
    assert (done.status, set(done.error["details"]["left"])) == (
        1,
        {"iam-role demo-exec", "iam-role demo-egress-operator"},
    )
    assert account.inventory() == {"roles": ["demo-egress-operator", "demo-exec"]}
    deny(account, None)
    run(cli, "infra", "destroy", "--yes")


def deny(account: Ministack, action: str | None) -> None:
    """The user may not do this: an action of IAM, or a request of Lambda's, whose actions ministack knows not."""
    is_request = action is not None and " " in action

    def answer(call: str) -> Answer | None:
        text = f"User: tester is not authorized to perform: {action}"
        return refuse(403, "AccessDeniedException", text) if call == action else None

    account.on_call = answer if is_request else lambda call: None
    account.deny(USER, *([action] if action and not is_request else []))


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, "The secret key is not the access key's: check both."),
        ({"AWS_ACCESS_KEY_ID": "AKIANOBODYSKEY"}, "AWS does not know the access key"),
        ({"AWS_ENDPOINT_URL": "https://127.0.0.1:1"}, "cannot connect to https://127.0.0.1:1"),
        ({"AWS_CA_BUNDLE": ""}, "no trusted TLS connection"),
    ],
    ids=["secret", "key", "endpoint", "trust"],
)
def test_what_is_wrong_with_the_way_to_the_account_is_said(cli: Cli, environ: dict[str, str], said: str) -> None:
    done = cli("infra", "up", **environ)
    assert (done.status, done.out) == (1, b"")
    assert said in done.remarks
    for secret in (cli.environ["AWS_SECRET_ACCESS_KEY"], "another"):
        assert secret not in done.remarks.replace("another's", "")


def test_up_is_interrupted_and_goes_on(account: Ministack, cli: Cli) -> None:
    started = cli.start("infra", "up")

    def interrupt(call: str) -> None:
        if call.endswith(".zip") and call.startswith("PUT"):
            started.send_signal(signal.SIGINT)

    account.on_call = interrupt
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out) == (130, b"")
    assert b"stopped; what was done by then is recorded" in err
    assert set(account.inventory()) == {"roles", "buckets"}
    account.on_call = lambda call: None
    again = run(cli, "infra", "up")
    assert "role: made" not in again.remarks
    assert set(actions(cli).values()) == {"nothing"}
    run(cli, "infra", "destroy", "--yes")


def test_two_projects_at_once(account: Ministack, cli: Cli, tmp_path: Path) -> None:
    configure(tmp_path, project="one", name="one.yaml")
    configure(tmp_path, project="two", name="two.yaml")
    both = ("-f", "one.yaml", "-f", "two.yaml")
    done = run(cli, "infra", "up", *both)
    assert [stack["image_version"] for stack in json.loads(done.text)["stacks"]] == ["1", "1"]
    assert "[one/dev] role: made one-exec\n" in done.remarks
    assert account.inventory()["images"] == ["one-guest", "two-guest"]
    assert run(cli, "infra", "destroy", "--yes", *both).text == "one/dev: removed 4\ntwo/dev: removed 4\n"
