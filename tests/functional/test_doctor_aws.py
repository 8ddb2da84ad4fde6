"""``doctor`` of an account of other parties' making: moto is its IAM and STS, a local cloud the rest of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws_double import ACCOUNT, REGION, AwsDouble, open_double
from tests.support.cli import Cli, Done
from vmnest.wire import names

IMAGE = names.image_arn(region=REGION, account=ACCOUNT, name="local")
_LOOKING = re.compile(
    r"(?:unsigned|lambda) GET \S+|(?:logs|servicequotas) POST /"
    r"|sts GetCallerIdentity|iam (?:GetRole|SimulatePrincipalPolicy)"
)
ROLE = f"arn:aws:iam::{ACCOUNT}:role/sandbox"


@pytest.fixture(scope="module")
def double() -> Iterator[AwsDouble]:
    with open_double() as double:
        yield double


@pytest.fixture
def doctor(double: AwsDouble, tmp_path: Path) -> Cli:
    """The command line in an environment for that account."""
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return Cli({**double.environ, **home, "AGENT_SANDBOX_IMAGE_ARN": IMAGE, "AGENT_SANDBOX_EXECUTION_ROLE_ARN": ROLE})


def checks(done: Done) -> dict[str, Any]:
    """The checks of AWS by their ids."""
    return {each["id"]: each for each in done.data["checks"] if each["area"] == "aws"}


def trusting(service: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_an_account_that_is_ready_is_told_from_one_that_is_not(double: AwsDouble, doctor: Cli) -> None:
    iam = double.client("iam")
    iam.create_role(RoleName="sandbox", AssumeRolePolicyDocument=trusting("ec2.amazonaws.com"))
    calls = len(double.calls)
    done = doctor("doctor", "--json")
    found = checks(done)
    assert (done.status, done.data["ready"]) == (1, False)
    assert found["aws.identity"]["detail"] == f"arn:aws:iam::{ACCOUNT}:user/tester in account {ACCOUNT}"
    assert [name for name, each in found.items() if each["verdict"] == "failed"] == ["aws.role"]
    assert "does not trust lambda.amazonaws.com" in found["aws.role"]["detail"]
    assert [call for call in double.calls[calls:] if not _LOOKING.fullmatch(call)] == []

    iam.update_assume_role_policy(RoleName="sandbox", PolicyDocument=trusting("lambda.amazonaws.com"))
    done = doctor("doctor", "--json")
    assert (done.status, done.data["targets"]["aws"]["ready"]) == (0, True)
    assert [name for name in ("aws.role", "aws.image") if checks(done)[name]["verdict"] != "ok"] == []


def test_keys_that_are_wrong_are_the_only_thing_to_repair(doctor: Cli) -> None:
    found = checks(doctor("doctor", "--json", AWS_SECRET_ACCESS_KEY="wrong"))
    assert [name for name, each in found.items() if each["verdict"] == "failed"] == ["aws.identity"]
    assert "secret key" in found["aws.identity"]["remedy"]
