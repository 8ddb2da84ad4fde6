"""The classic protocols: requests and hosts held to botocore's clients, answers to what services and gateways send."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import botocore_judge
from vmnest import errors
from vmnest.aws import classic, codec, shapes
from vmnest.transport import Headers

REGIONS = ["us-east-1", "eu-west-1", "us-gov-west-1", "cn-north-1", "us-iso-east-1", "eusc-de-east-1"]
SERVICES = {
    "iam": ("ListRoles", "list_roles", {}),
    "sts": ("GetCallerIdentity", "get_caller_identity", {}),
    "ec2": ("DescribeVpcs", "describe_vpcs", {}),
    "logs": ("DescribeLogGroups", "describe_log_groups", {}),
    "cloudwatch": ("ListMetrics", "list_metrics", {}),
}
HTML = b"<html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>"
XHTML = b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x">\n<html xmlns="y"/>'


def load(service: str, **variant: bool) -> Any:
    return codec.load(service, variant=codec.Variant(**variant))


def answer(body: bytes, status: int = 200, **headers: str) -> codec.Answer:
    fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return codec.Answer(status, Headers(fields), body)


# -- requests ----------------------------------------------------------------------------------------------------------

plain = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
tags = st.lists(st.fixed_dictionaries({"Key": plain, "Value": plain}), max_size=3)
names = st.text("abcXYZ019+=,.@-_", min_size=1, max_size=20)
permissions = st.lists(
    st.fixed_dictionaries(
        {"IpProtocol": st.sampled_from(["tcp", "-1"])},
        optional={
            "FromPort": st.integers(-1, 65535),
            "ToPort": st.integers(-1, 65535),
            "IpRanges": st.lists(st.fixed_dictionaries({"CidrIp": plain}, optional={"Description": plain}), max_size=2),
        },
    ),
    max_size=3,
)
CALLS = {
    ("iam", "CreateRole", "create_role"): st.fixed_dictionaries(
        {"RoleName": names, "AssumeRolePolicyDocument": plain},
        optional={"Description": plain, "Tags": tags, "MaxSessionDuration": st.integers(3600, 43200)},
    ),
    ("iam", "PutRolePolicy", "put_role_policy"): st.fixed_dictionaries(
        {"RoleName": names, "PolicyName": names, "PolicyDocument": plain}
    ),
    ("ec2", "AuthorizeSecurityGroupEgress", "authorize_security_group_egress"): st.fixed_dictionaries(
        {"GroupId": plain}, optional={"IpPermissions": permissions, "DryRun": st.booleans()}
    ),
    ("ec2", "DescribeSubnets", "describe_subnets"): st.fixed_dictionaries(
        {},
        optional={
            "SubnetIds": st.lists(plain, max_size=3),
            "Filters": st.lists(
                st.fixed_dictionaries({"Name": plain, "Values": st.lists(plain, min_size=1, max_size=3)}), max_size=2
            ),
            "NextToken": plain,
        },
    ),
    ("logs", "FilterLogEvents", "filter_log_events"): st.fixed_dictionaries(
        {"logGroupName": st.text("aB0_-/.#", min_size=1, max_size=20)},
        optional={"filterPattern": plain, "startTime": st.integers(0, 2**40), "limit": st.integers(1, 10000)},
    ),
    ("sts", "GetCallerIdentity", "get_caller_identity"): st.just({}),
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[1])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_request_is_the_one_of_botocore_s_client(call, data):
    service, operation, method = call
    params = data.draw(CALLS[call])
    judge = botocore_judge.sent(service, method, params)
    made = load(service)
    request = made.build(operation, params)
    place = made.locate(request, endpoint=None, region="eu-west-1")
    assert (request.method, place.base + request.target) == (judge.method, judge.url.rstrip("/"))
    assert request.body == judge.body
    for name, value in request.headers:
        assert judge.headers[name.lower()] == value


def test_times_are_sent_as_the_protocol_wants_them():
    when = datetime(2026, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    params = {"MetricDataQueries": [{"Id": "a", "Expression": "1.5"}], "StartTime": when, "EndTime": when}
    body = load("cloudwatch").build("GetMetricData", params).body
    assert b"StartTime=2026-02-03T04%3A05%3A06Z" in body
    assert b"Action=GetMetricData&Version=2010-08-01" in body


def test_what_is_none_is_absent():
    made = load("iam")
    absent = made.build("ListRoles", {"PathPrefix": None, "Marker": None})
    assert absent == made.build("ListRoles", {})


def test_a_token_is_made_up_once_in_a_call():
    made = load("ec2")
    body = made.build("CreateNatGateway", {"SubnetId": "subnet-1"}).body
    assert body.count(b"ClientToken=") == 1
    assert b"ClientToken=mine" in made.build("CreateNatGateway", {"SubnetId": "subnet-1", "ClientToken": "mine"}).body
    assert made.operation("CreateNatGateway").token_member == "ClientToken"


@pytest.mark.parametrize(
    ("service", "operation", "params", "member"),
    [
        ("iam", "GetRole", {}, "RoleName"),
        ("iam", "GetRole", {"RoleName": 5}, "RoleName"),
        ("iam", "GetRole", {"RoleName": ""}, "RoleName"),
        ("iam", "GetRole", {"RoleName": "a b"}, "RoleName"),
        ("iam", "GetRole", {"RoleName": "x", "Rolename": "x"}, "Rolename"),
        ("iam", "CreateRole", {"RoleName": "x", "AssumeRolePolicyDocument": "{}", "Tags": [{"Key": "a"}]}, "Value"),
        ("ec2", "DescribeSubnets", {"Filters": [{"Name": 1}]}, "Filters[0].Name"),
        ("ec2", "DescribeSubnets", {"SubnetIds": "subnet-1"}, "SubnetIds"),
        ("logs", "CreateLogGroup", {"logGroupName": "a b"}, "logGroupName"),
        ("sts", "GetCallerIdentity", {"x": 1}, "x"),
        ("cloudwatch", "PutMetricData", {"Namespace": "n", "MetricData": [{"MetricName": "m", "Value": "1"}]}, "Value"),
    ],
)
def test_what_breaks_the_model_is_refused_with_the_member_s_name(service, operation, params, member):
    with pytest.raises(errors.RequestInvalidError) as caught:
        load(service).build(operation, params)
    assert member in caught.value.message
    assert operation in caught.value.message
    assert any(member in one["member"] for one in caught.value.details["violations"])


@pytest.mark.parametrize(
    ("service", "operation", "params"),
    [
        ("iam", "ChangePassword", {"OldPassword": ["secret-word"], "NewPassword": "x"}),
        ("iam", "CreateLoginProfile", {"Password": "secret-word", "PasswordResetRequired": "secret-word"}),
        ("sts", "DecodeAuthorizationMessage", {"EncodedMessage": [b"secret-word"]}),
        ("ec2", "ImportKeyPair", {"KeyName": "k", "PublicKeyMaterial": ["secret-word"]}),
        ("iam", "CreateRole", {"RoleName": {"secret-word": 1}, "AssumeRolePolicyDocument": "{}"}),
    ],
)
def test_no_value_is_in_an_error(service, operation, params):
    with pytest.raises(errors.RequestInvalidError) as caught:
        load(service).build(operation, params)
    assert "secret-word" not in f"{caught.value} {caught.value!r} {json.dumps(caught.value.to_wire())}"


def test_an_operation_that_nobody_knows_is_named():
    with pytest.raises(errors.UnsupportedError, match="iam has no operation MakeCoffee"):
        load("iam").build("MakeCoffee", {})


def test_streams_of_events_are_not_taken_for_answers():
    with pytest.raises(errors.UnsupportedError, match="StartLiveTail"):
        load("logs").build("StartLiveTail", {"logGroupIdentifiers": ["arn"]})


def test_a_service_with_new_protocols_only_is_refused_by_name():
    class Future(classic.Codec):
        @staticmethod
        def adapt(raw: dict[str, Any]) -> None:
            raw["metadata"].update(protocol="smithy-rpc-v2-cbor", protocols=["smithy-rpc-v2-cbor"])

    with pytest.raises(errors.UnsupportedError, match="cloudwatch speaks smithy-rpc-v2-cbor only"):
        Future("cloudwatch", variant=codec.Variant())


# -- places ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("service", SERVICES)
def test_host_and_scope_are_those_of_botocore_s_client(service, region):
    operation, method, params = SERVICES[service]
    made = load(service)
    place = made.locate(made.build(operation, params), endpoint=None, region=region)
    judge = botocore_judge.sent(service, method, params, region=region)
    assert (f"{place.base}/", place.region, place.signing_name) == (judge.url, judge.region, judge.signing_name)


@pytest.mark.parametrize("variant", [{"fips": True}, {"dualstack": True}], ids=["fips", "dualstack"])
@pytest.mark.parametrize("service", SERVICES)
def test_other_hosts_are_chosen_as_botocore_s_client_does(service, variant):
    operation, method, params = SERVICES[service]
    made = load(service, **{f"is_{name}": value for name, value in variant.items()})
    place = made.locate(made.build(operation, params), endpoint=None, region="us-west-2")
    judge = botocore_judge.sent(service, method, params, region="us-west-2", **variant)
    assert (f"{place.base}/", place.region) == (judge.url, judge.region)


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "iam"])
def test_an_endpoint_of_one_s_own_is_used_as_by_botocore_s_client(service):
    operation, method, params = SERVICES[service]
    made = load(service, is_fips=True, is_dualstack=True)
    url = "http://127.0.0.1:9/base"
    request = made.build(operation, params)
    place = made.locate(request, endpoint=url, region="us-west-2")
    judge = botocore_judge.sent(service, method, params, region="us-west-2", url=url)
    assert place.base + request.target == judge.url
    assert (place.region, place.signing_name) == (judge.region, judge.signing_name)


@pytest.mark.parametrize(
    ("region", "scope"),
    [("us-west-2", "us-east-1"), ("cn-northwest-1", "cn-north-1"), ("us-gov-east-1", "us-gov-west-1")],
)
def test_an_endpoint_of_one_s_own_for_a_global_service_keeps_the_scope_of_the_service_s(region, scope):
    # What stands at that endpoint hands the request on to the one IAM of the partition, which knows one region only.
    made = load("iam", is_fips=True)
    place = made.locate(made.build("ListRoles", {}), endpoint="http://127.0.0.1:9", region=region)
    assert place == ("http://127.0.0.1:9", scope, "iam")


def test_where_a_service_has_no_host_it_is_said_so():
    made = load("s3", is_fips=True)
    with pytest.raises(errors.UsageError, match=r"s3 cannot be called like this in cn-north-1: .*FIPS"):
        made.locate(made.build("ListBuckets", {}), endpoint=None, region="cn-north-1")


# -- answers -----------------------------------------------------------------------------------------------------------

CALLER = b"""<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Arn>arn:aws:iam::1:user/x</Arn><UserId>AIDA</UserId><Account>000000000001</Account></GetCallerIdentityResult>
<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></GetCallerIdentityResponse>"""
ROLE = b"""<?xml version="1.0"?><GetRoleResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><GetRoleResult><Role>
<Path>/</Path><RoleName>x</RoleName><RoleId>AROA</RoleId><Arn>arn</Arn><CreateDate>%s</CreateDate>
<AssumeRolePolicyDocument>%s</AssumeRolePolicyDocument></Role></GetRoleResult></GetRoleResponse>"""
SUBNETS = b"""<?xml version="1.0" encoding="UTF-8"?>
<DescribeSubnetsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><subnetSet><item>
<subnetId>subnet-1</subnetId><availableIpAddressCount>5</availableIpAddressCount><defaultForAz>true</defaultForAz>
<tagSet><item><key>Name</key><value>\xc3\xbc &amp; &lt;x&gt;</value></item></tagSet></item></subnetSet>
<nextToken/></DescribeSubnetsResponse>"""


def test_an_answer_is_what_botocore_makes_of_it_without_its_metadata():
    assert load("sts").read("GetCallerIdentity", answer(CALLER)) == {
        "Arn": "arn:aws:iam::1:user/x",
        "UserId": "AIDA",
        "Account": "000000000001",
    }
    assert load("ec2").read("DescribeSubnets", answer(SUBNETS)) == {
        "Subnets": [
            {
                "SubnetId": "subnet-1",
                "AvailableIpAddressCount": 5,
                "DefaultForAz": True,
                "Tags": [{"Key": "Name", "Value": "ü & <x>"}],
            }
        ],
        "NextToken": "",
    }


@pytest.mark.parametrize("written", [b"2026-02-03T04:05:06Z", b"2026-02-03T04:05:06", b"2026-02-03T05:05:06+01:00"])
def test_times_are_read_as_utc(written):
    role = load("iam").read("GetRole", answer(ROLE % (written, b"x")))["Role"]
    assert role["CreateDate"] == datetime(2026, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    assert role["CreateDate"].tzinfo is timezone.utc


def test_a_policy_document_comes_back_as_the_object_that_it_is():
    written = b"%7B%22Version%22%3A%20%222012-10-17%22%2C%22Statement%22%3A%5B%5D%7D"
    role = load("iam").read("GetRole", answer(ROLE % (b"2026-02-03T04:05:06Z", written)))["Role"]
    assert role["AssumeRolePolicyDocument"] == {"Version": "2012-10-17", "Statement": []}


def test_json_answers_are_read():
    made = load("logs")
    body = b'{"logGroups": [{"logGroupName": "g", "creationTime": 5, "new": 1}], "nextToken": null}'
    assert made.read("DescribeLogGroups", answer(body))["logGroups"] == [{"logGroupName": "g", "creationTime": 5}]
    assert made.read("CreateLogGroup", answer(b"")) == {}


@pytest.mark.parametrize(
    ("service", "operation", "body"),
    [
        ("sts", "GetCallerIdentity", b""),
        ("sts", "GetCallerIdentity", b"<GetCallerIdentityResponse/>"),
        ("sts", "GetCallerIdentity", CALLER[:-30]),
        ("sts", "GetCallerIdentity", b"<login>" + CALLER + b"</login>"),
        ("iam", "DeleteRole", b"<page/>"),
        ("iam", "DeleteRole", b"plain"),
        ("iam", "GetRole", b"<GetRoleResponse><GetRoleResult/></GetRoleResponse>"),
        ("iam", "GetRole", ROLE % (b"yesterday", b"x")),
        ("ec2", "DescribeSubnets", SUBNETS.replace(b">5<", b">five<")),
        ("ec2", "DescribeSubnets", b"<DescribeSubnetsResponse>&undefined;</DescribeSubnetsResponse>"),
        ("ec2", "DescribeSubnets", b"<DescribeSubnetsResponse>\x00</DescribeSubnetsResponse>"),
        ("logs", "DescribeLogGroups", b'{"logGroups": 5}'),
        ("logs", "DescribeLogGroups", b'{"logGroups": ["x"]}'),
        ("logs", "GetQueryResults", b'{"results": [5]}'),
    ],
)
def test_success_that_cannot_be_one_is_found(service, operation, body):
    with pytest.raises(shapes.AnswerMalformed):
        load(service).read(operation, answer(body))


@pytest.mark.parametrize(
    "page", [HTML, XHTML, b"  \n" + HTML.upper(), b"<!doctype html><p>", b"<!-- a --><html>", b"x"]
)
@pytest.mark.parametrize("service", ["iam", "ec2", "logs"])
def test_a_page_is_nobody_s_own_body(service, page):
    assert not load(service).is_own_body(page)
    assert load(service).is_page("ListRoles" if service == "iam" else SERVICES[service][0], answer(page, 502))


@pytest.mark.parametrize("body", [CALLER, ROLE, SUBNETS, b"\xef\xbb\xbf" + SUBNETS, b"\n <!-- x --><!-- y --> <a/>"])
def test_xml_is_a_service_s_own_body(body):
    assert load("iam").is_own_body(body)


@pytest.mark.parametrize(
    "body", [b" " * 2**22 + b"x", b"<!--a-->" * 2**19 + b"<html>", b"<?xml" + b" " * 2**22, b"<!-- " * 2**20]
)
def test_no_body_takes_long_to_look_at(body):
    assert not load("iam").is_own_body(body)


BOMB = b"<!DOCTYPE x [<!ENTITY a '%s'>%s]><DescribeSubnetsResponse>&a30;</DescribeSubnetsResponse>" % (
    b"a" * 100,
    b"".join(
        b"<!ENTITY a%d '%s'>" % (level, b"&a%s;" % (b"" if level == 1 else b"%d" % (level - 1)) * 10)
        for level in range(1, 31)
    ),
)


@pytest.mark.parametrize("body", [BOMB, b"<a>" * 200_000, b"<DescribeSubnetsResponse>" + b"<x>" * 200_000])
def test_xml_that_is_made_to_exhaust_a_parser_is_refused(body):
    made = load("ec2")
    with pytest.raises(shapes.AnswerMalformed):
        made.read("DescribeSubnets", answer(body))
    assert made.read_error("DescribeSubnets", answer(body, 500)) == shapes.ErrorAnswer(None, None)


@given(st.binary(max_size=200) | st.text("<>/&;a!?-xml[] \"'", max_size=60).map(str.encode))
@settings(max_examples=200, deadline=None)
def test_no_body_is_more_than_a_malformed_answer(noise):
    for service, operation in (("iam", "ListRoles"), ("ec2", "DescribeVpcs"), ("logs", "DescribeLogGroups")):
        made = load(service)
        for body in (noise, b"<ListRolesResponse>" + noise, b'{"logGroups":' + noise):
            with contextlib.suppress(shapes.AnswerMalformed):
                assert isinstance(made.read(operation, answer(body)), dict)
            made.read_error(operation, answer(body, 400))
            made.is_page(operation, answer(body, 400))


# -- error answers -----------------------------------------------------------------------------------------------------


def test_the_type_of_a_json_error_stands_in_a_header_of_any_case():
    made = load("logs")
    said = made.read_error(
        "DescribeLogGroups", answer(b'{"message": "m"}', 400, X_AmZn_ErrorType="ResourceNotFoundException:http://x")
    )
    assert (said.error_type, said.message) == ("ResourceNotFoundException", "m")
    said = made.read_error("DescribeLogGroups", answer(b'{"__type": "a.b#ThrottlingException"}', 400))
    assert said.error_type == "ThrottlingException"


def test_xml_without_a_code_is_a_page():
    made = load("iam")
    assert made.is_page("ListRoles", answer(b"<error>no</error>", 404))
    assert made.is_page("ListRoles", answer(b"", 404))
    assert not made.is_page("ListRoles", answer(b"<ErrorResponse><Error><Code>X</Code></Error></ErrorResponse>", 404))


@pytest.mark.parametrize(
    ("service", "operation", "is_look", "is_idempotent"),
    [
        ("iam", "GetRole", True, True),
        ("iam", "DeleteRole", False, True),
        ("iam", "CreateRole", False, True),
        ("iam", "CreatePolicyVersion", False, False),
        ("ec2", "DescribeVpcs", True, True),
        ("ec2", "CreateVpc", False, False),
        ("logs", "PutLogEvents", False, False),
        ("logs", "FilterLogEvents", True, True),
        ("cloudwatch", "PutMetricData", False, False),
    ],
)
def test_an_operation_tells_what_a_repeat_would_do(service, operation, is_look, is_idempotent):
    made = load(service).operation(operation)
    assert (made.is_look, made.is_idempotent) == (is_look, is_idempotent)
