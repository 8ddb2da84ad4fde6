"""``vmnest infra`` as a user runs it: over moto with a local cloud, and wholly on this machine."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws_double import ACCOUNT, AwsDouble, open_double
from tests.support.cli import Cli, bare_environ
from tests.support.cloud import LocalCloud
from tests.support.moto_server import ALLOW_ALL
from tests.support.sandbox_yaml import write

DOCKERFILE = """\
FROM python:3.12-slim
COPY program.py /program.py
CMD ["sleep", "600"]
"""
# Calls of a whole ``up`` with a connector that change something, and of its removal; each is one way to be ended.
MOST_CALLS = 40


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsDouble]:
    with open_double() as double:
        yield double


@pytest.fixture
def account(aws: AwsDouble) -> Iterator[AwsDouble]:
    """An account that is empty before and after."""
    assert aws.inventory() == {}
    yield aws
    aws.failing = 0.0
    aws.on_call = lambda number, is_done: None


@pytest.fixture
def infra(account: AwsDouble, tmp_path: Path) -> Cli:
    """The command line in a folder with a small guest and a ``sandbox.yaml``, and with the keys of the account."""
    return prepare(tmp_path, account.environ)


def prepare(folder: Path, environ: dict[str, str]) -> Cli:
    home = folder / "home"
    home.mkdir()
    write(folder / "guest" / "Dockerfile", DOCKERFILE)
    write(folder / "guest" / "program.py", "1\n")
    configure(folder)
    return Cli({**bare_environ(home), **environ}, cwd=folder)


def configure(folder: Path, *, project: str = "demo", more: str = "", name: str = "sandbox.yaml") -> None:
    write(
        folder / name,
        f"project: {project}\nstack: dev\nregion: us-east-1\n"
        f"image:\n  name: {project}-guest\nrole:\n  name: {project}-exec\n{more}",
    )


EGRESS = "network:\n  egress:\n    name: demo-egress\n    vpc_id: {vpc}\n    subnet_ids: [{subnet}]\n"


def with_egress(account: AwsDouble, folder: Path) -> None:
    subnet = account.client("ec2").describe_subnets()["Subnets"][0]
    configure(folder, more=EGRESS.format(vpc=subnet["VpcId"], subnet=subnet["SubnetId"]))


def run(infra: Cli, *words: str, **environ: str) -> Any:
    """The JSON of a verb that succeeds."""
    done = infra("infra", *words, "--json", **environ)
    assert done.status == 0, done.remarks
    return json.loads(done.out)


def actions(infra: Cli, *words: str) -> dict[str, str]:
    (stack,) = run(infra, "preview", *words)["stacks"]
    return {step["resource"]: step["action"] for step in stack["steps"]}


def output(infra: Cli, name: str) -> str:
    return infra("infra", "output", name).text.strip()


def test_the_whole_way_on_aws(account: AwsDouble, infra: Cli, tmp_path: Path) -> None:
    with_egress(account, tmp_path)
    assert set(actions(infra).values()) == {"create"}
    run(infra, "up")
    assert output(infra, "image_arn") == f"arn:aws:lambda:us-east-1:{ACCOUNT}:microvm-image:demo-guest"
    assert output(infra, "egress_network_connector_arn").startswith(f"arn:aws:lambda:us-east-1:{ACCOUNT}:")
    assert set(actions(infra).values()) == {"nothing"}
    assert account.inventory() == {
        "roles": ["demo-egress-operator", "demo-exec"],
        "buckets": [output(infra, "build_bucket")],
        "groups": ["demo-egress"],
        "images": ["demo-guest"],
        "connectors": ["demo-egress"],
    }
    write(tmp_path / "guest" / "program.py", "2\n")
    assert actions(infra)["image"] == "update"
    run(infra, "up")
    assert output(infra, "image_version") == "2.0"
    assert run(infra, "refresh")["stacks"][0]["changes"] == []
    run(infra, "destroy", "--yes")
    assert account.inventory() == {}
    assert infra("infra", "output").text == "{}\n"


def test_what_is_made_is_private_and_may_no_more_than_it_needs(account: AwsDouble, infra: Cli) -> None:
    run(infra, "up")
    bucket = output(infra, "build_bucket")
    s3, iam = account.client("s3"), account.client("iam")
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    (statement,) = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    tags = {tag["Key"]: tag["Value"] for tag in s3.get_bucket_tagging(Bucket=bucket)["TagSet"]}
    assert tags == {"vmnest:managed-by": "vmnest", "vmnest:project": "demo", "vmnest:stack": "dev"}
    policy = iam.get_role_policy(RoleName="demo-exec", PolicyName="vmnest-sandbox")["PolicyDocument"]
    assert [statement["Resource"] for statement in policy["Statement"]] == [
        [f"arn:aws:s3:::{bucket}/vmnest/demo-guest/*"],
        [f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/lambda-microvms/*"],
    ]
    run(infra, "destroy", "--yes")


def test_what_is_reused_stays_as_it_is(account: AwsDouble, infra: Cli, tmp_path: Path) -> None:
    iam, s3, ec2 = account.client("iam"), account.client("s3"), account.client("ec2")
    trust = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}]}
    trust["Statement"][0]["Action"] = "sts:AssumeRole"
    role, operator = (
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", **trust}))
        for name in ("theirs", "their-operator")
    )
    for name in ("theirs", "their-operator"):
        iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=ALLOW_ALL)
    s3.create_bucket(Bucket="their-bucket")
    subnet = ec2.describe_subnets()["Subnets"][0]
    group = ec2.create_security_group(GroupName="theirs", Description="theirs", VpcId=subnet["VpcId"])["GroupId"]
    before = account.inventory()
    write(
        tmp_path / "sandbox.yaml",
        f"""\
        project: demo
        stack: dev
        region: us-east-1
        image: {{name: demo-guest}}
        role: {{arn: {role["Role"]["Arn"]}}}
        bucket: {{name: their-bucket}}
        network:
          egress:
            subnet_ids: [{subnet["SubnetId"]}]
            security_group_id: {group}
            operator_role_arn: {operator["Role"]["Arn"]}
        """,
    )
    assert [name for name, action in actions(infra).items() if action == "reuse"] == [
        *("role", "network_operator_role", "bucket", "security_group"),
    ]
    run(infra, "up")
    assert set(actions(infra).values()) == {"reuse", "nothing"}
    run(infra, "destroy", "--yes")
    assert account.inventory() == before
    assert s3.list_object_versions(Bucket="their-bucket").get("Versions") is None
    s3.delete_bucket(Bucket="their-bucket")
    ec2.delete_security_group(GroupId=group)
    for name in ("theirs", "their-operator"):
        iam.delete_role_policy(RoleName=name, PolicyName="all")
        iam.delete_role(RoleName=name)


def end_at_its_next_call(account: AwsDouble, infra: Cli, *words: str, is_done: bool) -> bool:
    """Run a verb and kill it -9 at its first call that changes something; False if it came to its end without one."""
    started = infra.start("infra", *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = account.changes + 1

    def kill(number: int, is_after: bool) -> None:
        if number == first and is_after == is_done:
            started.send_signal(signal.SIGKILL)
            started.wait()

    account.on_call = kill
    try:
        return started.wait(60) == -signal.SIGKILL
    finally:
        account.on_call = lambda number, is_done: None


def test_an_up_and_a_destroy_that_are_killed_at_every_call_still_come_to_their_end(
    account: AwsDouble, infra: Cli, tmp_path: Path
) -> None:
    with_egress(account, tmp_path)
    assert end_at_its_next_call(account, infra, "up", is_done=False)
    ups = next(n for n in range(MOST_CALLS) if not end_at_its_next_call(account, infra, "up", is_done=True))
    assert ups > 10, "every run but the last was ended after one call"
    assert set(actions(infra).values()) == {"nothing"}
    (image,) = account.client("lambda-microvms").list_microvm_images(nameFilter="demo-guest")["items"]
    assert image["latestActiveImageVersion"] == "1.0", "the version under way was waited for, and none built twice"
    assert end_at_its_next_call(account, infra, "destroy", "--yes", is_done=False)
    ends = next(
        n for n in range(MOST_CALLS) if not end_at_its_next_call(account, infra, "destroy", "--yes", is_done=True)
    )
    assert ends > 5
    assert account.inventory() == {}


def test_one_in_five_calls_that_fails_is_outlasted(account: AwsDouble, infra: Cli) -> None:
    account.failing = 0.2
    run(infra, "up")
    assert set(actions(infra).values()) == {"nothing"}
    run(infra, "destroy", "--yes")
    account.failing = 0.0
    assert account.inventory() == {}


def test_two_projects_at_once_share_one_state_file(account: AwsDouble, infra: Cli, tmp_path: Path) -> None:
    configure(tmp_path, project="one", name="one.yaml")
    configure(tmp_path, project="two", name="two.yaml")
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda file=file: statuses.append(infra("infra", "up", "-f", file).status))
        for file in ("one.yaml", "two.yaml")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [0, 0]
    assert {stack["project"] for stack in run(infra, "output", "--all")["stacks"]} == {"one", "two"}
    assert account.inventory()["images"] == ["one-guest", "two-guest"]
    run(infra, "destroy", "--yes", "-f", "one.yaml", "-f", "two.yaml")
    assert account.inventory() == {}


def test_a_build_that_fails_says_why_and_shows_the_end_of_its_log(infra: Cli, tmp_path: Path) -> None:
    write(tmp_path / "guest" / "Dockerfile", "FROM scratch\nRUN echo before && exit 7\nCMD sleep 600\n")
    done = infra("infra", "up", "--json")
    assert done.status == 1
    error = done.error if done.out == b"" else None
    assert error is not None
    assert error["code"] == "image_build_failed"
    assert any("before" in line for line in error["details"]["log"])
    assert error["details"]["log_group"] == "/aws/lambda-microvms/demo-guest"
    run(infra, "destroy", "--yes")


def test_the_whole_way_on_this_machine(local_cloud: LocalCloud, tmp_path: Path) -> None:
    infra = prepare(tmp_path, {"AGENT_SANDBOX_LOCAL_DIR": local_cloud.folder, "AGENT_SANDBOX_TARGET": "local"})
    assert set(actions(infra).values()) == {"create"}
    run(infra, "up")
    assert output(infra, "image_arn") == "arn:aws:lambda:us-east-1:000000000000:microvm-image:demo-guest"
    assert set(actions(infra).values()) == {"nothing"}
    write(tmp_path / "guest" / "program.py", "2\n")
    assert actions(infra)["image"] == "update"
    run(infra, "up")
    assert output(infra, "image_version") == "2.0"
    run(infra, "destroy", "--yes")
    assert local_cloud.client("s3").list_buckets()["Buckets"] == []
    assert local_cloud.client("iam").list_roles()["Roles"] == []
    images = local_cloud.client().list_microvm_images()["items"]
    assert [image["name"] for image in images if image["name"] != "local"] == []


def test_a_sandbox_starts_from_what_was_made_on_aws(account: AwsDouble, infra: Cli, tmp_path: Path) -> None:
    use_a_sandbox(infra, tmp_path)
    assert account.inventory() == {}


def test_a_sandbox_starts_from_what_was_made_on_this_machine(local_cloud: LocalCloud, tmp_path: Path) -> None:
    environ = {"AGENT_SANDBOX_LOCAL_DIR": local_cloud.folder, "AGENT_SANDBOX_TARGET": "local"}
    use_a_sandbox(prepare(tmp_path, environ), tmp_path)


def use_a_sandbox(infra: Cli, folder: Path) -> None:
    """Without flags, from an image of the guest that comes with vmnest."""
    shutil.rmtree(folder / "guest")
    run(infra, "up")
    created = infra("create", "made")
    assert created.status == 0, created.remarks
    shown = json.loads(infra("inspect", "made", "--json").out)
    assert "microvm-image:demo-guest" in json.dumps(shown)
    assert infra("exec", "made", "--", "echo", "hello").text == "hello\n"
    assert infra("rm", "made").status == 0
    run(infra, "destroy", "--yes")
