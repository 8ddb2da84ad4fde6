"""The caller with the classic protocols, against peers that answer from a script: faults, pages, gateways, bodies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.support.clock import FakeClock
from tests.support.peers import Answer, HangUp, Peer, Raw, Request, Serve, json_answer
from vmnest import errors, transport
from vmnest.aws import codec, credentials, retries, service, signing
from vmnest.deadline import Deadline

KEY = credentials.build("AKIDEXAMPLE", "secret-of-the-key", token="token-of-the-key")
HTML = Answer(200, b"<html><head><title>Sign in</title></head></html>", [("Content-Type", "text/xml")])
BAD_GATEWAY = Answer(502, b"<html><title>502 Bad Gateway</title></html>")
ROLE = {"RoleName": "r", "AssumeRolePolicyDocument": "{}"}


def xml(operation: str, content: str = "", *, status: int = 200) -> Answer:
    """A step: an answer in the query protocol."""
    result = f"<{operation}Result>{content}</{operation}Result>" if content else ""
    return Answer(status, f'<{operation}Response xmlns="x">{result}</{operation}Response>'.encode())


def refusal(status: int, code: str, message: str = "because", *, form: str = "query", **headers: str) -> Answer:
    """A step: an error of query, ec2 or S3, with its request id in the body."""
    said = f"<Code>{code}</Code><Message>{message}</Message>"
    body = {
        "query": f"<ErrorResponse><Error>{said}</Error><RequestId>id-1</RequestId></ErrorResponse>",
        "ec2": f"<Response><Errors><Error>{said}</Error></Errors><RequestID>id-1</RequestID></Response>",
        "s3": f"<Error>{said}<RequestId>id-1</RequestId></Error>",
    }[form]
    return Answer(status, body.encode(), [(name.replace("_", "-"), value) for name, value in headers.items()])


def json_refusal(status: int, kind: str, message: str = "because") -> Answer:
    return json_answer(status, {"__type": kind, "message": message}, headers={"x-amzn-RequestId": "id-1"})


CREATED = xml(
    "CreateRole",
    "<Role><Path>/</Path><RoleName>r</RoleName><RoleId>A</RoleId><Arn>arn</Arn>"
    "<CreateDate>2026-01-01T00:00:00Z</CreateDate></Role>",
)
CALLER = xml("GetCallerIdentity", "<Account>000000000001</Account>")


class Calls:
    """One service whose answers come from a script, with a clock that stands still."""

    def __init__(self, name: str, peer: Peer, clock: FakeClock, **options: Any) -> None:
        self.peer = peer
        self.clock = clock
        self.transport = transport.Transport(environ={})
        self.service = service.Service(
            name,
            endpoint=peer.url,
            region="eu-west-1",
            credentials=credentials.StaticSource(KEY),
            transport=self.transport,
            clock=clock,
            **options,
        )

    def call(self, operation: str, params: dict[str, object] | None = None) -> dict[str, object]:
        return self.service.call(operation, params or {}, deadline=Deadline(60, clock=self.clock))

    def pages(self, operation: str, items: str, **params: object) -> Iterator[Any]:
        return self.service.pages(operation, params, deadline=Deadline(60, clock=self.clock), items=items)

    def forms(self) -> list[dict[str, list[str]]]:
        """What the requests of the query protocol said."""
        return [parse_qs(request.body.decode()) for request in self.peer.requests]


Make = Callable[..., Calls]


@pytest.fixture
def calls(serve: Serve, fake_clock: FakeClock) -> Iterator[Make]:
    made: list[Calls] = []

    def build(name: str, *script: object, **options: Any) -> Calls:
        made.append(Calls(name, serve(*script), fake_clock, **options))
        return made[-1]

    yield build
    for one in made:
        one.transport.close()


def check_signature(request: Request, now: float, *, service: str, region: str, payload: str | None = None) -> None:
    verified = signing.verify(
        method=request.method,
        raw_target=request.target,
        headers=request.headers,
        body_sha256=payload or hashlib.sha256(request.body).hexdigest(),
        secret_for=lambda key: KEY.secret_key if key == KEY.access_key else None,
        service=service,
        now=datetime.fromtimestamp(now, timezone.utc),
    )
    assert verified.region == region


# -- one call ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation", "answer", "scope"),
    [
        ("sts", "GetCallerIdentity", CALLER, ("sts", "eu-west-1")),
        ("iam", "ListRoles", xml("ListRoles", "<Roles/>"), ("iam", "us-east-1")),
        ("ec2", "DescribeVpcs", xml("DescribeVpcs"), ("ec2", "eu-west-1")),
        ("logs", "DescribeLogGroups", json_answer(200, {}), ("logs", "eu-west-1")),
        ("cloudwatch", "ListMetrics", xml("ListMetrics", "<Metrics/>"), ("monitoring", "eu-west-1")),
        ("s3", "ListBuckets", Answer(200, b"<ListAllMyBucketsResult/>"), ("s3", "eu-west-1")),
    ],
)
def test_a_call_is_signed_for_the_scope_that_the_rules_name(calls: Make, name, operation, answer, scope):
    one = calls(name, answer)
    one.call(operation)
    (request,) = one.peer.requests
    assert request.get("x-amz-security-token") == "token-of-the-key"
    assert request.get("transfer-encoding") is None
    check_signature(request, one.clock.time(), service=scope[0], region=scope[1])


def test_what_breaks_the_model_is_not_sent(calls: Make):
    one = calls("iam")
    with pytest.raises(errors.RequestInvalidError, match="RoleName"):
        one.call("GetRole")
    assert one.peer.requests == []


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSALS = [
    ("iam", "CreateRole", refusal(404, "NoSuchEntity"), errors.ResourceNotFoundError),
    ("iam", "CreateRole", refusal(409, "EntityAlreadyExists"), errors.ConflictError),
    ("iam", "CreateRole", refusal(409, "DeleteConflict"), errors.ConflictError),
    ("iam", "CreateRole", refusal(409, "ConcurrentModification"), errors.ConflictError),
    ("iam", "CreateRole", refusal(409, "LimitExceeded"), errors.QuotaExceededError),
    ("iam", "CreateRole", refusal(400, "MalformedPolicyDocument", "Syntax errors in policy."), errors.ValidationError),
    ("iam", "CreateRole", refusal(403, "AccessDenied"), errors.AccessDeniedError),
    ("iam", "CreateRole", refusal(403, "InvalidClientTokenId"), errors.SignatureRefusedError),
    ("iam", "CreateRole", refusal(403, "ExpiredToken"), errors.CredentialsExpiredError),
    ("ec2", "DescribeVpcs", refusal(400, "InvalidVpcID.NotFound", form="ec2"), errors.ResourceNotFoundError),
    ("ec2", "DescribeVpcs", refusal(400, "InvalidGroup.Duplicate", form="ec2"), errors.ConflictError),
    ("ec2", "DescribeVpcs", refusal(400, "InvalidPermission.Duplicate", form="ec2"), errors.ConflictError),
    ("ec2", "DescribeVpcs", refusal(400, "DependencyViolation", form="ec2"), errors.ConflictError),
    ("ec2", "DescribeVpcs", refusal(400, "InvalidGroupId.Malformed", form="ec2"), errors.ValidationError),
    ("ec2", "DescribeVpcs", refusal(400, "SecurityGroupLimitExceeded", form="ec2"), errors.QuotaExceededError),
    ("ec2", "DescribeVpcs", refusal(403, "UnauthorizedOperation", form="ec2"), errors.AccessDeniedError),
    ("ec2", "DescribeVpcs", refusal(401, "AuthFailure", form="ec2"), errors.SignatureRefusedError),
    ("logs", "DescribeLogGroups", json_refusal(400, "ResourceNotFoundException"), errors.ResourceNotFoundError),
    ("logs", "DescribeLogGroups", json_refusal(400, "ResourceAlreadyExistsException"), errors.ConflictError),
    ("logs", "DescribeLogGroups", json_refusal(400, "OperationAbortedException"), errors.ConflictError),
    ("logs", "DescribeLogGroups", json_refusal(400, "LimitExceededException"), errors.QuotaExceededError),
    ("logs", "DescribeLogGroups", json_refusal(400, "InvalidParameterException"), errors.ValidationError),
    ("s3", "ListBuckets", refusal(404, "NoSuchBucket", form="s3"), errors.ResourceNotFoundError),
    ("s3", "ListBuckets", refusal(409, "BucketAlreadyExists", form="s3"), errors.ConflictError),
    ("s3", "ListBuckets", refusal(409, "BucketAlreadyOwnedByYou", form="s3"), errors.ConflictError),
    ("s3", "ListBuckets", refusal(409, "BucketNotEmpty", form="s3"), errors.ConflictError),
    ("s3", "ListBuckets", refusal(403, "SignatureDoesNotMatch", form="s3"), errors.SignatureRefusedError),
]


@pytest.mark.parametrize(
    ("name", "operation", "answer", "expected"), REFUSALS, ids=[f"{row[0]}-{row[3].__name__}" for row in REFUSALS]
)
def test_a_refusal_becomes_the_error_of_its_meaning(calls: Make, name, operation, answer, expected):
    one = calls(name, answer)
    with pytest.raises(errors.ServiceError) as caught:
        one.call(operation, ROLE if operation == "CreateRole" else {})
    error = caught.value
    assert type(error) is expected
    assert (error.operation, error.status, error.request_id) == (operation, answer.status, "id-1")
    assert error.message.startswith(f"{operation}: ")
    assert f"({error.error_type})" in error.message
    assert "outcome" not in error.details


def test_the_id_of_the_request_in_the_header_goes_before_that_in_the_body(calls: Make):
    one = calls("s3", refusal(403, "AccessDenied", form="s3", x_amz_request_id="id-2"))
    with pytest.raises(errors.AccessDeniedError) as caught:
        one.call("ListBuckets")
    assert caught.value.request_id == "id-2"
    assert "s3:" in caught.value.hint


@pytest.mark.parametrize("name", ["sts", "ec2", "logs"])
@pytest.mark.parametrize("status", [403, 404, 418])
def test_a_gateway_s_page_is_no_refusal_of_the_service_s(calls: Make, name, status):
    one = calls(name, Answer(status, b"<html><title>Blocked by\npolicy</title></html>"))
    operation = {"sts": "GetCallerIdentity", "ec2": "DescribeVpcs", "logs": "DescribeLogGroups"}[name]
    with pytest.raises(errors.ServiceError, match=r"Blocked by policy \(HTTP") as caught:
        one.call(operation)
    assert not isinstance(caught.value, errors.ResourceNotFoundError)
    assert "proxy" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "operation", "params"),
    [
        ("sts", "GetCallerIdentity", {}),
        ("iam", "ListRoles", {}),
        ("iam", "DeleteRole", {"RoleName": "r"}),
        ("ec2", "DescribeVpcs", {}),
        ("ec2", "DeleteSecurityGroup", {"GroupId": "sg-1"}),
        ("logs", "DescribeLogGroups", {}),
        ("logs", "DeleteLogGroup", {"logGroupName": "g"}),
        ("s3", "ListBuckets", {}),
    ],
)
def test_a_page_under_a_status_of_success_is_no_success(calls: Make, name, operation, params):
    one = calls(name, HTML)
    with pytest.raises(errors.AnswerInvalidError, match=f"{operation}: the answer is not .*: Sign in") as caught:
        one.call(operation, params)
    assert one.peer.url in caught.value.hint
    assert len(one.peer.requests) == 1


# -- again -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation", "failure", "answer"),
    [
        ("iam", "CreateRole", refusal(400, "Throttling", "Rate exceeded"), CREATED),
        ("iam", "CreateRole", refusal(503, "ServiceUnavailable"), CREATED),
        ("iam", "CreateRole", refusal(500, "ServiceFailure"), CREATED),
        ("iam", "CreateRole", BAD_GATEWAY, CREATED),
        ("iam", "CreateRole", HangUp(), CREATED),
        ("iam", "CreateRole", Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n<",)), CREATED),
        ("ec2", "CreateVpc", refusal(503, "RequestLimitExceeded", form="ec2"), xml("CreateVpc")),
        ("ec2", "DescribeVpcs", refusal(500, "InternalError", form="ec2"), xml("DescribeVpcs")),
        ("logs", "CreateLogGroup", json_refusal(400, "ThrottlingException"), Answer()),
        ("logs", "PutLogEvents", json_refusal(400, "ThrottlingException"), json_answer(200, {})),
        ("logs", "CreateLogGroup", json_refusal(500, "ServiceUnavailableException"), Answer()),
        ("s3", "ListBuckets", refusal(503, "SlowDown", form="s3"), Answer(200, b"<ListAllMyBucketsResult/>")),
        ("s3", "ListBuckets", refusal(400, "RequestTimeout", form="s3"), Answer(200, b"<ListAllMyBucketsResult/>")),
        ("cloudwatch", "ListMetrics", refusal(400, "Throttling"), xml("ListMetrics", "<Metrics/>")),
    ],
)
def test_what_passes_is_tried_again_with_the_same_request(calls: Make, name, operation, failure, answer):
    params: dict[str, dict[str, object]] = {
        "CreateRole": dict(ROLE),
        "CreateVpc": {"CidrBlock": "10.0.0.0/16"},
        "CreateLogGroup": {"logGroupName": "g"},
        "PutLogEvents": {"logGroupName": "g", "logStreamName": "s", "logEvents": [{"timestamp": 1, "message": "m"}]},
    }
    one = calls(name, failure, failure, answer)
    one.call(operation, params.get(operation))
    assert len(one.peer.requests) == 3
    assert len({request.body for request in one.peer.requests}) == 1
    assert one.clock.sleeps


@pytest.mark.parametrize(
    ("name", "operation", "params"),
    [
        ("ec2", "CreateVpc", {"CidrBlock": "10.0.0.0/16"}),
        ("iam", "CreateAccessKey", {}),
        (
            "logs",
            "PutLogEvents",
            {"logGroupName": "g", "logStreamName": "s", "logEvents": [{"timestamp": 1, "message": "m"}]},
        ),
    ],
)
def test_what_would_be_made_twice_is_not_tried_again_once_sent(calls: Make, name, operation, params):
    one = calls(name, HangUp())
    with pytest.raises(errors.ConnectionLostError) as caught:
        one.call(operation, params)
    assert len(one.peer.requests) == 1
    assert caught.value.details["outcome"] == "unknown"


def test_what_has_a_token_is_tried_again_with_that_token(calls: Make):
    one = calls("ec2", HangUp(), xml("CreateNatGateway"))
    one.call("CreateNatGateway", {"SubnetId": "subnet-1"})
    tokens = {form["ClientToken"][0] for form in one.forms()}
    assert len(one.peer.requests) == 2
    assert len(tokens) == 1


@pytest.mark.parametrize(
    ("name", "operation"), [("sts", "GetCallerIdentity"), ("iam", "ListRoles"), ("ec2", "DescribeVpcs")]
)
def test_nobody_asks_for_the_outcome_of_a_look_by_post(calls: Make, name, operation):
    one = calls(name, *[HangUp()] * 9)
    with pytest.raises(errors.ConnectionLostError) as caught:
        one.call(operation)
    assert "outcome" not in caught.value.details
    assert one.peer.url in caught.value.hint


def test_a_name_that_is_taken_after_a_lost_answer_may_be_our_own(calls: Make):
    one = calls("iam", HangUp(), refusal(409, "EntityAlreadyExists"))
    with pytest.raises(errors.ConflictError) as caught:
        one.call("CreateRole", dict(ROLE))
    assert caught.value.details["outcome"] == "unknown"


def test_a_principal_made_a_moment_ago_is_waited_for(calls: Make):
    unknown = refusal(400, "MalformedPolicyDocument", 'Invalid principal in policy: "AWS":"arn:aws:iam::1:role/x"')
    one = calls("iam", unknown, unknown, CREATED)
    assert one.call("CreateRole", dict(ROLE))
    one = calls("iam", *[unknown] * 20)
    with pytest.raises(errors.RoleNotReadyError, match="Invalid principal") as caught:
        one.call("CreateRole", dict(ROLE))
    assert len(one.peer.requests) == retries.MAX_ATTEMPTS_ROLE
    assert "principals" in caught.value.hint


def test_the_clock_of_the_service_counts(calls: Make, fake_clock: FakeClock):
    from email.utils import formatdate

    server = fake_clock.time() + 1000
    one = calls("s3", refusal(403, "RequestTimeTooSkewed", form="s3", date=formatdate(server)), HTML)
    with pytest.raises(errors.AnswerInvalidError):
        one.call("ListBuckets")
    check_signature(one.peer.requests[1], server, service="s3", region="eu-west-1")


# -- pages -------------------------------------------------------------------------------------------------------------


def test_pages_follow_one_another_through_empty_ones(calls: Make):
    def page(*names: str, marker: str = "") -> Answer:
        members = "".join(f"<member>{name}</member>" for name in names)
        more = f"<IsTruncated>true</IsTruncated><Marker>{marker}</Marker>" if marker else ""
        return xml("ListRolePolicies", f"<PolicyNames>{members}</PolicyNames>{more}")

    one = calls("iam", page("a", "b", marker="1"), page(marker="2"), page(marker="3"), page("c"))
    assert list(one.pages("ListRolePolicies", "PolicyNames", RoleName="r")) == ["a", "b", "c"]
    assert [form.get("Marker") for form in one.forms()] == [None, ["1"], ["2"], ["3"]]
    assert {form["RoleName"][0] for form in one.forms()} == {"r"}


def test_a_page_is_asked_for_when_it_is_wanted(calls: Make):
    body = b"<DescribeVpcsResponse><vpcSet><item><vpcId>vpc-1</vpcId></item></vpcSet><nextToken>n</nextToken>"
    one = calls("ec2", Answer(200, body + b"</DescribeVpcsResponse>"))
    assert next(one.pages("DescribeVpcs", "Vpcs"))["VpcId"] == "vpc-1"
    assert len(one.peer.requests) == 1


def test_pages_that_go_round_end_in_an_error(calls: Make):
    one = calls("logs", *[json_answer(200, {"logGroups": [], "nextToken": token}) for token in "abab"])
    with pytest.raises(errors.AnswerInvalidError, match="same next page"):
        list(one.pages("DescribeLogGroups", "logGroups"))
    assert len(one.peer.requests) == 3


def test_a_list_that_breaks_off_is_no_list(calls: Make):
    one = calls("iam", xml("ListRoles", "<Roles/><IsTruncated>true</IsTruncated>"))
    with pytest.raises(errors.AnswerInvalidError, match="IsTruncated"):
        list(one.pages("ListRoles", "Roles"))


def test_a_page_that_fails_is_asked_for_again(calls: Make):
    pages = [json_answer(200, {"logGroups": [{"logGroupName": "a"}], "nextToken": "n"}), json_answer(200, {})]
    one = calls("logs", pages[0], json_refusal(400, "ThrottlingException"), pages[1])
    assert [each["logGroupName"] for each in one.pages("DescribeLogGroups", "logGroups")] == ["a"]
    assert [json.loads(request.body).get("nextToken") for request in one.peer.requests] == [None, "n", "n"]


# -- bodies that are not in memory -------------------------------------------------------------------------------------


def test_a_body_is_opened_anew_for_each_attempt(calls: Make):
    opened: list[int] = []

    def pieces() -> Iterator[bytes]:
        opened.append(1)
        yield b"one "
        yield b"two"

    digest = hashlib.sha256(b"one two").hexdigest()
    one = calls("s3", refusal(503, "SlowDown", form="s3"), HangUp(), Answer(200))
    one.call("PutObject", {"Bucket": "bucket", "Key": "k", "Body": codec.Body(pieces, 7, digest)})
    assert len(opened) == 3
    for request in one.peer.requests:
        assert request.body == b"one two"
        assert request.get("content-length") == "7"
        assert request.get("transfer-encoding") is None
        assert request.get("x-amz-content-sha256") == digest
        check_signature(request, one.clock.time(), service="s3", region="eu-west-1")


def test_an_answer_may_stay_on_the_wire(calls: Make):
    one = calls("s3", Answer(200, b"content", [("ETag", '"e"')]))
    members, response = one.service.open("GetObject", {"Bucket": "bucket", "Key": "k"}, deadline=Deadline(20))
    with response:
        assert members["ETag"] == '"e"'
        assert b"".join(response.chunks()) == b"content"


def test_a_refusal_of_a_stream_is_read_and_tried_again(calls: Make):
    one = calls("s3", refusal(503, "SlowDown", form="s3"), refusal(404, "NoSuchKey", form="s3"))
    with pytest.raises(errors.ResourceNotFoundError, match="NoSuchKey"):
        one.service.open("GetObject", {"Bucket": "bucket", "Key": "k"}, deadline=Deadline(60, clock=one.clock))


def test_a_region_that_the_service_names_is_believed_once(calls: Make):
    moved = refusal(400, "AuthorizationHeaderMalformed", form="s3", x_amz_bucket_region="us-west-2")
    one = calls("s3", moved, Answer(200))
    one.call("PutObject", {"Bucket": "bucket", "Key": "k", "Body": b""})
    check_signature(one.peer.requests[1], one.clock.time(), service="s3", region="us-west-2")
    one = calls("s3", moved, moved)
    with pytest.raises(errors.ServiceError, match="AuthorizationHeaderMalformed"):
        one.call("PutObject", {"Bucket": "bucket", "Key": "k", "Body": b""})


def test_nothing_secret_is_in_an_error(calls: Make):
    one = calls("sts", refusal(403, "SignatureDoesNotMatch", f"Authorization: AWS4-HMAC-SHA256 {'a' * 64}"))
    with pytest.raises(errors.SignatureRefusedError) as caught:
        one.call("GetCallerIdentity")
    shown = f"{caught.value} {caught.value!r} {json.dumps(caught.value.to_wire())} {vars(one.service)}"
    for secret in ("secret-of-the-key", "token-of-the-key", "a" * 64):
        assert secret not in shown
