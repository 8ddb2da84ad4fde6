"""Whatever a project and a stack are called, AWS takes the names that are made of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.infra import naming
from vmnest.infra.spec import Stack
from vmnest.infra.state import Resource, StackState

VALID_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


@given(project=st.text(min_size=1, max_size=80), stack=st.text(min_size=1, max_size=80))
def test_every_stack_has_a_bucket_name_that_s3_takes(project: str, stack: str) -> None:
    name = naming.bucket(Stack(project=project, stack=stack), account_id="111122223333", region="us-east-1")
    assert VALID_BUCKET.fullmatch(name)
    assert ".." not in name


def test_a_bucket_is_named_by_its_stack_its_account_and_its_region() -> None:
    def name(project: str = "demo", stack: str = "dev", account: str = "1", region: str = "us-east-1") -> str:
        return naming.bucket(Stack(project=project, stack=stack), account_id=account, region=region)

    assert name().startswith("demo-dev-")
    assert name() == name()
    others = {name(project="demo2"), name(stack="prod"), name(account="2"), name(region="eu-west-1")}
    assert len(others) == 4
    assert name() not in others
    assert name(project="a-b", stack="c") != name(project="a", stack="b-c")


def test_a_bucket_that_was_made_keeps_its_name() -> None:
    made = StackState("demo", "dev", resources={"bucket": Resource("s3-bucket", "demo-dev-0a1b2c3d", True)})
    theirs = StackState("demo", "dev", resources={"bucket": Resource("s3-bucket", "theirs", False)})
    assert naming.recorded_bucket(made) == "demo-dev-0a1b2c3d"
    assert naming.recorded_bucket(theirs) is None
    assert naming.recorded_bucket(StackState("demo", "dev")) is None


def test_a_zip_is_named_by_its_image_and_its_content() -> None:
    assert naming.artifact_key("guest", "ab" * 32) == f"vmnest/guest/{'ab' * 32}.zip"
    assert naming.artifact_key("guest", "cd").startswith(naming.artifact_folder("guest"))


@pytest.mark.parametrize("name", ["agent-sandbox-egress", "x" * 64])
def test_an_operator_role_has_a_name_that_iam_takes(name: str) -> None:
    made = naming.operator_role(name)
    assert len(made) <= 64
    assert made.endswith("-operator")


def test_a_role_is_found_by_its_arn_also_below_a_path() -> None:
    assert naming.role_of_arn("arn:aws:iam::1:role/a/b/exec") == "exec"
    assert naming.role_of_arn(naming.role_arn("exec", partition="aws", account_id="1")) == "exec"


def test_arns_name_the_part_of_aws_that_they_are_of() -> None:
    arn = naming.image_arn("guest", partition="aws-cn", region="cn-north-1", account_id="1")
    assert arn == "arn:aws-cn:lambda:cn-north-1:1:microvm-image:guest"


def test_what_was_replaced_is_told_from_what_took_its_place() -> None:
    assert naming.slot(naming.retired("role", "old")) == "role"
    assert naming.slot("role") == "role"
    assert naming.slot(naming.retired("image", "arn:aws:lambda:x:1:microvm-image:y")) == "image"
