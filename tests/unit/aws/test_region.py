"""The order in which a region is looked for."""

import pytest

from vmnest import errors
from vmnest.aws import region

ARN = "arn:aws:lambda:eu-west-1:111122223333:microvm-image:demo"


@pytest.fixture
def environ(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = sa-east-1\n[profile p]\nregion = eu-north-1\n")
    return {"HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("flag", "variables", "arn", "profile", "expected"),
    [
        ("us-west-2", {"AGENT_SANDBOX_REGION": "a-1", "AWS_REGION": "b-1"}, ARN, None, "us-west-2"),
        (None, {"AGENT_SANDBOX_REGION": "us-east-2", "AWS_REGION": "b-1"}, ARN, None, "us-east-2"),
        ("", {"AGENT_SANDBOX_REGION": "", "AWS_REGION": "b-1"}, ARN, None, "eu-west-1"),
        (None, {"AWS_REGION": "b-1", "AWS_DEFAULT_REGION": "c-1"}, None, None, "b-1"),
        (None, {"AWS_DEFAULT_REGION": "c-1"}, None, None, "c-1"),
        (None, {"AWS_DEFAULT_REGION": "c-1"}, "demo", None, "c-1"),
        (None, {}, None, None, "sa-east-1"),
        (None, {"AWS_PROFILE": "p"}, None, None, "eu-north-1"),
        (None, {}, None, "p", "eu-north-1"),
    ],
)
def test_the_first_that_says_so_wins(environ, flag, variables, arn, profile, expected):
    assert region.resolve(flag=flag, arn=arn, environ={**environ, **variables}, profile=profile) == expected


def test_no_region_anywhere_says_where_it_was_looked_for():
    with pytest.raises(
        errors.RegionNotFoundError, match="AGENT_SANDBOX_REGION, AWS_REGION, AWS_DEFAULT_REGION"
    ) as caught:
        region.resolve(environ={"HOME": "/nonexistent"})
    assert "--region" in caught.value.hint


@pytest.mark.parametrize(
    "value", ["evil.example/", "us-east-1@evil", "us east", "us-east-1\n", "-a", "a-", "123", "a" * 64, "\u00fc", "a.b"]
)
@pytest.mark.parametrize("variable", ["AGENT_SANDBOX_REGION", "AWS_REGION"])
def test_what_could_be_no_label_of_a_host_is_refused(variable, value):
    with pytest.raises(errors.SettingError, match=variable):
        region.resolve(environ={"HOME": "/nonexistent", variable: value})


@pytest.mark.parametrize(
    ("arn", "expected"),
    [
        (ARN, "eu-west-1"),
        ("arn:aws-cn:lambda:cn-north-1:aws:network-connector:aws-network-connector:X", "cn-north-1"),
        ("arn:aws:iam::111122223333:role/x", ""),
        ("arn:aws:lambda:x", ""),
        ("demo", ""),
        ("", ""),
    ],
)
def test_the_region_of_an_arn(arn, expected):
    assert region.of_arn(arn) == expected


@pytest.mark.parametrize(
    ("flag", "variables", "arn", "source"),
    [
        ("us-west-2", {}, ARN, "flag"),
        (None, {"AGENT_SANDBOX_REGION": "us-east-2"}, ARN, "environment AGENT_SANDBOX_REGION"),
        (None, {"AWS_REGION": "b-1"}, ARN, f"the ARN {ARN}"),
        (None, {"AWS_REGION": "b-1"}, None, "environment AWS_REGION"),
        (None, {"AWS_PROFILE": "p"}, None, "profile p"),
    ],
)
def test_where_a_region_is_from_is_told(environ, flag, variables, arn, source):
    assert region.find(flag=flag, arn=arn, environ={**environ, **variables}).source == source
