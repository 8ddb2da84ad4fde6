"""IAM, STS, EC2, logs and CloudWatch of moto, with its authentication on, as what infrastructure needs of them.

moto computes each signature anew with botocore's signer and asks IAM whether the caller may; boto3 made the users while
it believed everybody, and reads back what our calls made.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest

from tests.support.moto_server import prepare, serving_moto, switch_on_authentication
from vmnest import errors, transport
from vmnest.aws import credentials, service
from vmnest.aws.credentials import Credentials
from vmnest.control import metrics
from vmnest.deadline import Deadline

REGION = "eu-west-1"
LOOKS = [
    ("sts", "GetCallerIdentity"),
    ("iam", "ListRoles"),
    ("ec2", "DescribeVpcs"),
    ("logs", "DescribeLogGroups"),
    ("cloudwatch", "ListMetrics"),
]
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": {"StringLike": {"aws:SourceArn": "arn:aws:lambda:*:1:microvm-image:a b/%20*+ü"}},
        }
    ],
}
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/${aws:username}/*?x=1&y"}],
}
NUMBERS = itertools.count()
ODD = "Grüße, 'quotes' \"double\" & <tags> = 100 % + / \\ ~"


class Cloud:
    """moto's services as our caller sees them. ``user`` and ``role`` may do everything, ``nobody`` nothing."""

    def __init__(self, url: str, sender: transport.Transport) -> None:
        self.url = url
        self.sender = sender
        self.user, self.nobody, self.role = prepare(url)

    def service(self, name: str, by: Credentials | None = None) -> service.Service:
        return service.Service(
            name,
            endpoint=self.url,
            region=REGION,
            credentials=credentials.StaticSource(by or self.user),
            transport=self.sender,
        )

    def call(self, name: str, operation: str, /, *, by: Credentials | None = None, **params: object) -> Any:
        return self.service(name, by).call(operation, params, deadline=Deadline(20))

    def pages(self, name: str, operation: str, items: str, **params: object) -> list[Any]:
        return list(self.service(name).pages(operation, params, deadline=Deadline(20), items=items))

    def boto3(self, name: str) -> Any:
        session = boto3.Session(self.user.access_key, self.user.secret_key.reveal(), region_name=REGION)
        return session.client(name, endpoint_url=self.url)


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with serving_moto() as url:
        sender = transport.Transport(environ={})
        try:
            prepared = Cloud(url, sender)
            switch_on_authentication(url)
            yield prepared
        finally:
            sender.close()


@pytest.fixture
def role(cloud: Cloud) -> str:
    """The name of a new role."""
    name = f"role+=,.@-_{next(NUMBERS)}"
    cloud.call("iam", "CreateRole", RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST), Description=ODD)
    return name


@pytest.fixture
def vpc(cloud: Cloud) -> str:
    """The id of a new VPC."""
    found = cloud.call("ec2", "CreateVpc", CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    assert isinstance(found, str)
    return found


# -- who may call ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "operation"), LOOKS)
@pytest.mark.parametrize("who", ["user", "role"])
def test_a_call_is_accepted(cloud: Cloud, name, operation, who):
    assert isinstance(cloud.call(name, operation, by=getattr(cloud, who)), dict)


@pytest.mark.parametrize(("name", "operation"), LOOKS)
@pytest.mark.parametrize(
    "by",
    [
        lambda cloud: cloud.user._replace(secret_key=credentials.Secret("wrong")),
        lambda cloud: cloud.role._replace(token=credentials.Secret("wrong")),
        lambda cloud: credentials.build("AKIAUNKNOWN", "secret"),
    ],
    ids=["wrong secret", "wrong token", "unknown key"],
)
def test_a_caller_that_is_not_known_is_told_so(cloud: Cloud, name, operation, by):
    with pytest.raises(errors.SignatureRefusedError):
        cloud.call(name, operation, by=by(cloud))


@pytest.mark.parametrize(("name", "operation"), LOOKS[1:])  # anybody may ask who they are
def test_a_caller_without_rights_is_told_which(cloud: Cloud, name, operation):
    with pytest.raises(errors.AccessDeniedError, match=rf"not authorized to perform: \w+:{operation}") as caught:
        cloud.call(name, operation, by=cloud.nobody)
    assert f"{name}:" in caught.value.hint


def test_the_account_is_known(cloud: Cloud):
    answer = cloud.call("sts", "GetCallerIdentity", by=cloud.role)
    assert answer["Account"] == "123456789012"
    assert answer["Arn"].endswith(":assumed-role/role/session")


# -- roles -------------------------------------------------------------------------------------------------------------


def test_a_role_comes_back_as_it_was_made(cloud: Cloud, role):
    found = cloud.call("iam", "GetRole", RoleName=role)["Role"]
    assert found["AssumeRolePolicyDocument"] == TRUST
    assert found["Description"] == ODD
    assert abs(found["CreateDate"] - datetime.now(timezone.utc)) < timedelta(minutes=5)
    theirs = cloud.boto3("iam").get_role(RoleName=role)["Role"]
    assert {key: found[key] for key in theirs if key != "CreateDate"} == {
        key: theirs[key] for key in theirs if key != "CreateDate"
    }


def test_a_role_has_inline_policies(cloud: Cloud, role):
    for name in ("b", "a"):
        cloud.call("iam", "PutRolePolicy", RoleName=role, PolicyName=name, PolicyDocument=json.dumps(POLICY))
    cloud.call("iam", "PutRolePolicy", RoleName=role, PolicyName="a", PolicyDocument=json.dumps(POLICY))
    assert sorted(cloud.pages("iam", "ListRolePolicies", "PolicyNames", RoleName=role)) == ["a", "b"]
    assert cloud.call("iam", "GetRolePolicy", RoleName=role, PolicyName="a")["PolicyDocument"] == POLICY
    with pytest.raises(errors.ConflictError, match="DeleteConflict"):
        cloud.call("iam", "DeleteRole", RoleName=role)
    for name in ("a", "b"):
        cloud.call("iam", "DeleteRolePolicy", RoleName=role, PolicyName=name)
    with pytest.raises(errors.ResourceNotFoundError):
        cloud.call("iam", "GetRolePolicy", RoleName=role, PolicyName="a")


def test_a_role_has_managed_policies(cloud: Cloud, role):
    made = cloud.call("iam", "CreatePolicy", PolicyName=f"{role}-policy", PolicyDocument=json.dumps(POLICY))
    arn = made["Policy"]["Arn"]
    cloud.call("iam", "AttachRolePolicy", RoleName=role, PolicyArn=arn)
    attached = cloud.pages("iam", "ListAttachedRolePolicies", "AttachedPolicies", RoleName=role)
    assert [each["PolicyArn"] for each in attached] == [arn]
    version = cloud.call("iam", "GetPolicyVersion", PolicyArn=arn, VersionId="v1")["PolicyVersion"]
    assert version["Document"] == POLICY
    cloud.call("iam", "DetachRolePolicy", RoleName=role, PolicyArn=arn)
    with pytest.raises(errors.ResourceNotFoundError, match="NoSuchEntity"):
        cloud.call("iam", "DetachRolePolicy", RoleName=role, PolicyArn=arn)
    cloud.call("iam", "DeletePolicy", PolicyArn=arn)


def test_the_trust_of_a_role_is_replaced(cloud: Cloud, role):
    other = {**TRUST, "Statement": [{**TRUST["Statement"][0], "Sid": "Other"}]}
    cloud.call("iam", "UpdateAssumeRolePolicy", RoleName=role, PolicyDocument=json.dumps(other))
    assert cloud.call("iam", "GetRole", RoleName=role)["Role"]["AssumeRolePolicyDocument"] == other


def test_a_role_has_tags(cloud: Cloud, role):
    tags = [{"Key": "vmnest:stack a", "Value": "ü=/+@ x"}, {"Key": "empty", "Value": ""}]
    cloud.call("iam", "TagRole", RoleName=role, Tags=tags)
    assert sorted(cloud.call("iam", "ListRoleTags", RoleName=role)["Tags"], key=str) == sorted(tags, key=str)
    cloud.call("iam", "UntagRole", RoleName=role, TagKeys=["empty"])
    assert cloud.call("iam", "ListRoleTags", RoleName=role)["Tags"] == tags[:1]


def test_a_role_is_made_once_and_goes_once(cloud: Cloud, role):
    with pytest.raises(errors.ConflictError, match="EntityAlreadyExists"):
        cloud.call("iam", "CreateRole", RoleName=role, AssumeRolePolicyDocument=json.dumps(TRUST))
    cloud.call("iam", "DeleteRole", RoleName=role)
    for operation in ("DeleteRole", "GetRole"):
        with pytest.raises(errors.ResourceNotFoundError, match="NoSuchEntity"):
            cloud.call("iam", operation, RoleName=role)


def test_a_policy_that_is_none_is_refused(cloud: Cloud, role):
    with pytest.raises(errors.ValidationError, match="MalformedPolicyDocument"):
        cloud.call("iam", "PutRolePolicy", RoleName=role, PolicyName="a", PolicyDocument='{"Version": "1"}')


def test_roles_come_page_by_page(cloud: Cloud):
    names = {f"page-{number}" for number in range(7)}
    for name in names:
        cloud.call("iam", "CreateRole", RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST), Path="/pages/")
    found = cloud.pages("iam", "ListRoles", "Roles", PathPrefix="/pages/", MaxItems=2)
    assert sorted(each["RoleName"] for each in found) == sorted(names)
    assert all(each["AssumeRolePolicyDocument"] == TRUST for each in found)


# -- networks ----------------------------------------------------------------------------------------------------------


def test_subnets_are_found_by_id_and_by_tag(cloud: Cloud, vpc):
    tags = [{"ResourceType": "subnet", "Tags": [{"Key": "Name", "Value": ODD}]}]
    made = cloud.call("ec2", "CreateSubnet", VpcId=vpc, CidrBlock="10.0.1.0/24", TagSpecifications=tags)["Subnet"]
    cloud.call("ec2", "CreateSubnet", VpcId=vpc, CidrBlock="10.0.2.0/24")
    by_tag = [{"Name": "tag:Name", "Values": [ODD]}, {"Name": "vpc-id", "Values": [vpc]}]
    for params in ({"SubnetIds": [made["SubnetId"]]}, {"Filters": by_tag}):
        (found,) = cloud.call("ec2", "DescribeSubnets", **params)["Subnets"]
        assert found["SubnetId"] == made["SubnetId"]
        assert found["Tags"] == [{"Key": "Name", "Value": ODD}]
        assert isinstance(found["AvailabilityZoneId"], str)
    theirs = cloud.boto3("ec2").describe_subnets(SubnetIds=[made["SubnetId"]])["Subnets"]
    assert [found] == theirs


def test_what_does_not_exist_is_not_found(cloud: Cloud):
    for operation, params in (
        ("DescribeSubnets", {"SubnetIds": ["subnet-0123456789abcdef0"]}),
        ("DescribeVpcs", {"VpcIds": ["vpc-0123456789abcdef0"]}),
        ("DescribeSecurityGroups", {"GroupIds": ["sg-0123456789abcdef0"]}),
        ("DeleteSecurityGroup", {"GroupId": "sg-0123456789abcdef0"}),
    ):
        with pytest.raises(errors.ResourceNotFoundError, match=r"\.NotFound\)"):
            cloud.call("ec2", operation, **params)
    assert cloud.call("ec2", "DescribeSubnets", Filters=[{"Name": "tag:Name", "Values": ["?"]}])["Subnets"] == []


def test_a_security_group_is_made_changed_found_and_removed(cloud: Cloud, vpc):
    tags = [{"ResourceType": "security-group", "Tags": [{"Key": "vmnest:stack", "Value": "a/b"}]}]
    wanted = {"GroupName": "odd name: _1", "Description": "All out, nothing in: a_b.c", "VpcId": vpc}
    group = cloud.call("ec2", "CreateSecurityGroup", **wanted, TagSpecifications=tags)["GroupId"]
    with pytest.raises(errors.ConflictError, match=r"InvalidGroup\.Duplicate"):
        cloud.call("ec2", "CreateSecurityGroup", **wanted)
    rule = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    cloud.call("ec2", "AuthorizeSecurityGroupEgress", GroupId=group, IpPermissions=[rule])
    with pytest.raises(errors.ConflictError, match=r"InvalidPermission\.Duplicate"):
        cloud.call("ec2", "AuthorizeSecurityGroupEgress", GroupId=group, IpPermissions=[rule])
    cloud.call("ec2", "RevokeSecurityGroupEgress", GroupId=group, IpPermissions=[rule])
    by_name = [{"Name": "group-name", "Values": [wanted["GroupName"]]}, {"Name": "vpc-id", "Values": [vpc]}]
    (found,) = cloud.pages("ec2", "DescribeSecurityGroups", "SecurityGroups", Filters=by_name)
    assert (found["GroupId"], found["Description"]) == (group, wanted["Description"])
    assert found["Tags"] == tags[0]["Tags"]
    cloud.call("ec2", "DeleteSecurityGroup", GroupId=group)
    with pytest.raises(errors.ResourceNotFoundError, match=r"InvalidGroup\.NotFound"):
        cloud.call("ec2", "DescribeSecurityGroups", GroupIds=[group])


def test_a_network_in_use_is_not_removed(cloud: Cloud, vpc):
    cloud.call("ec2", "CreateSubnet", VpcId=vpc, CidrBlock="10.0.1.0/24")
    cloud.call("ec2", "CreateSecurityGroup", GroupName="g", Description="d", VpcId=vpc)
    with pytest.raises(errors.ConflictError, match="DependencyViolation") as caught:
        cloud.call("ec2", "DeleteVpc", VpcId=vpc)
    assert "remove that first" in caught.value.hint


def test_what_has_wrong_values_is_refused(cloud: Cloud, vpc):
    with pytest.raises(errors.ValidationError, match="CIDR"):
        cloud.call("ec2", "CreateSubnet", VpcId=vpc, CidrBlock="nonsense")
    cloud.call("ec2", "CreateSubnet", VpcId=vpc, CidrBlock="10.0.9.0/24")
    with pytest.raises(errors.ConflictError, match=r"InvalidSubnet\.Conflict"):
        cloud.call("ec2", "CreateSubnet", VpcId=vpc, CidrBlock="10.0.9.0/24")


# -- logs and metrics --------------------------------------------------------------------------------------------------


def test_logs_are_written_and_read_page_by_page(cloud: Cloud):
    where = {"logGroupName": "/aws/lambda-microvms/odd.name#1", "logStreamName": "2026/11/30[1.0]microvm-1"}
    cloud.call("logs", "CreateLogGroup", logGroupName=where["logGroupName"])
    with pytest.raises(errors.ConflictError, match="ResourceAlreadyExistsException"):
        cloud.call("logs", "CreateLogGroup", logGroupName=where["logGroupName"])
    cloud.call("logs", "CreateLogStream", **where)
    now = int(datetime.now(timezone.utc).timestamp() * 1000)
    lines = [f"{number}: {ODD} \x1b[1m" for number in range(5)]
    events = [{"timestamp": now + number, "message": line} for number, line in enumerate(lines)]
    cloud.call("logs", "PutLogEvents", **where, logEvents=events)
    found = cloud.pages("logs", "FilterLogEvents", "events", logGroupName=where["logGroupName"], limit=2)
    assert [(each["timestamp"], each["message"]) for each in found] == [
        (each["timestamp"], each["message"]) for each in events
    ]
    cloud.call("logs", "DeleteLogGroup", logGroupName=where["logGroupName"])
    with pytest.raises(errors.ResourceNotFoundError):
        cloud.call("logs", "FilterLogEvents", logGroupName=where["logGroupName"])


def test_log_groups_come_page_by_page(cloud: Cloud):
    names = [f"/pages/{number}" for number in range(5)]
    for name in names:
        cloud.call("logs", "CreateLogGroup", logGroupName=name)
    found = cloud.pages("logs", "DescribeLogGroups", "logGroups", logGroupNamePrefix="/pages/", limit=2)
    assert [each["logGroupName"] for each in found] == names


def test_metrics_are_written_and_read(cloud: Cloud):
    now = datetime.now(timezone.utc)
    data = [{"MetricName": "m", "Value": 1.5, "Timestamp": now, "Dimensions": [{"Name": "d", "Value": ODD}]}]
    cloud.call("cloudwatch", "PutMetricData", Namespace="vmnest", MetricData=data)
    (found,) = cloud.pages("cloudwatch", "ListMetrics", "Metrics", Namespace="vmnest")
    assert found["Dimensions"] == data[0]["Dimensions"]
    query = {"Id": "a", "MetricStat": {"Metric": found, "Period": 60, "Stat": "Average"}}
    span = {"StartTime": now - timedelta(hours=1), "EndTime": now + timedelta(hours=1)}
    (result,) = cloud.call("cloudwatch", "GetMetricData", MetricDataQueries=[query], **span)["MetricDataResults"]
    assert result["Values"] == [1.5]
    assert result["Timestamps"][0].tzinfo is timezone.utc


def test_the_figures_of_a_microvm_are_found_among_those_of_others(cloud: Cloud):
    now = datetime.now(timezone.utc)

    def figure(name: str, value: float, minutes: int, microvm_id: str) -> dict[str, object]:
        at = now - timedelta(minutes=minutes)
        where = [{"Name": metrics.DIMENSION, "Value": microvm_id}]
        return {"MetricName": name, "Value": value, "Timestamp": at, "Dimensions": where, "Unit": "Percent"}

    cpu, memory = metrics.METRICS
    data = [figure(cpu, 9, 5, "a"), figure(cpu, 4.5, 2, "a"), figure(cpu, 8, 1, "b"), figure(memory, 7, 1, "b")]
    cloud.call("cloudwatch", "PutMetricData", Namespace=metrics.NAMESPACE, MetricData=data)
    found = metrics.latest(cloud.service("cloudwatch"), "a", deadline=Deadline(20))
    latest = found[cpu]
    assert latest is not None
    assert (latest.value, latest.unit) == (4.5, "Percent")
    assert abs(now - timedelta(minutes=2) - latest.at) <= timedelta(minutes=2)
    assert found[memory] is None
    nobody = cloud.service("cloudwatch", cloud.nobody)
    with pytest.raises(errors.AccessDeniedError):
        metrics.latest(nobody, "a", deadline=Deadline(20))
