"""What an error answer means, as far as it needs no server (test_service reaches every class)."""

from email.utils import formatdate

import pytest

from vmnest import errors
from vmnest.aws import refusals


def refusal(**facts) -> refusals.Refusal:
    facts = {"operation": "Op", "region": "xx-1", "status": 400, "error_type": None, "message": "m", **facts}
    return refusals.Refusal(**facts)


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("Throttling", 400, errors.ThrottledError),
        ("FancyThrottlingThing", 420, errors.ThrottledError),
        ("throttlingException", 400, errors.ThrottledError),
        ("SlowDown", 503, errors.ThrottledError),
        ("AuthFailure", 401, errors.SignatureRefusedError),
        (None, 401, errors.SignatureRefusedError),
        ("RequestLimitExceeded", 503, errors.ThrottledError),
        ("RequestThrottled", 400, errors.ThrottledError),
        ("ServiceUnavailable", 503, errors.ThrottledError),
        ("RequestTimeout", 400, errors.ServiceFaultError),
        ("SecurityGroupLimitExceeded", 400, errors.QuotaExceededError),
        ("LimitExceeded", 409, errors.QuotaExceededError),
        ("NetworkConnectorLimitExceededException", 400, errors.QuotaExceededError),
        ("TooManyBuckets", 400, errors.QuotaExceededError),
        ("InvalidSubnetID.NotFound", 400, errors.ResourceNotFoundError),
        ("InvalidPermission.NotFound", 400, errors.ResourceNotFoundError),
        ("InvalidGroup.Duplicate", 400, errors.ConflictError),
        ("InvalidSubnet.Conflict", 400, errors.ConflictError),
        ("InvalidGroup.InUse", 400, errors.ConflictError),
        ("InvalidGroup.NotFoundation", 400, errors.ValidationError),
        ("DeleteConflict", 409, errors.ConflictError),
        ("ResourceAlreadyExistsException", 400, errors.ConflictError),
        ("OptInRequired", 401, errors.AccessDeniedError),
        ("SomethingNew", 404, errors.ResourceNotFoundError),
        ("SomethingNew", 500, errors.ServiceFaultError),
        ("SomethingNew", 422, errors.ServiceError),
    ],
)
def test_the_type_decides_and_then_the_status(kind, status, expected):
    assert type(refusals.to_error(refusal(error_type=kind, status=status))) is expected


def test_a_service_that_is_down_is_not_told_from_one_that_is_asked_too_often():
    assert "Try again" in (refusals.to_error(refusal(error_type="ServiceUnavailable", status=503)).hint or "")


@pytest.mark.parametrize(
    ("region", "hint"),
    [("xx-1", "xx-1 does not offer the service: try us-east-1"), ("us-east-1", "this account may not")],
)
def test_nobody_is_sent_to_the_region_that_has_just_refused(region, hint):
    error = refusals.to_error(refusal(status=403, message=None, region=region, service="lambda-microvms"))
    assert type(error) is errors.AccessDeniedError
    assert hint in error.hint
    assert f"try {region}" not in error.hint


@pytest.mark.parametrize(
    ("facts", "kind", "hint"),
    [
        ({"error_type": "UnrecognizedClientException", "status": 403}, errors.SignatureRefusedError, "does not know"),
        ({"error_type": "InvalidClientTokenId", "status": 403}, errors.SignatureRefusedError, "does not know"),
        ({"error_type": "SignatureDoesNotMatch", "status": 403}, errors.SignatureRefusedError, "secret key is not"),
        ({"error_type": "ExpiredToken", "status": 403}, errors.CredentialsExpiredError, "aws sso login"),
        ({"error_type": "MissingAuthenticationToken", "status": 403}, errors.SignatureRefusedError, "belong together"),
        (
            {"message": "The role x cannot be assumed by Lambda."},
            errors.RoleNotReadyError,
            "trust lambda.amazonaws.com",
        ),
        (
            {"message": "... due to invalid ConnectorOperatorRole permissions"},
            errors.RoleNotReadyError,
            "Allow the operator role",
        ),
        (
            {"error_type": "MalformedPolicyDocument", "message": 'Invalid principal in policy: "AWS":"x"'},
            errors.RoleNotReadyError,
            "principals in the policy exist",
        ),
        (
            {"error_type": "MalformedPolicyDocument", "message": "Syntax error"},
            errors.ValidationError,
            "Check what was",
        ),
        ({"error_type": "EntityAlreadyExists", "status": 409}, errors.ConflictError, "use it, or choose another name"),
        ({"error_type": "BucketNotEmpty", "status": 409}, errors.ConflictError, "remove that first"),
        ({"error_type": "OptInRequired", "status": 401}, errors.AccessDeniedError, "Switch the service"),
        ({"error_type": "AccessDenied", "status": 403}, errors.AccessDeniedError, "prefix lambda:"),
        ({"error_type": "AccessDenied", "status": 403, "service": "iam"}, errors.AccessDeniedError, "prefix iam:"),
        ({"error_type": "UnauthorizedOperation", "service": "ec2"}, errors.AccessDeniedError, "prefix ec2:"),
        ({"status": 403, "message": None, "service": "s3"}, errors.AccessDeniedError, "prefix s3:"),
        ({"status": 403, "message": None, "service": "service-quotas"}, errors.AccessDeniedError, "servicequotas:"),
        ({"status": 402}, errors.QuotaExceededError, "End sandboxes"),
        (
            {"status": 402, "message": "Account 1 has reached the maximum number of concurrent builds allowed."},
            errors.QuotaExceededError,
            "until other builds have ended",
        ),
        (
            {"status": 402, "message": "MicroVM image arn:x has reached the maximum number of versions."},
            errors.QuotaExceededError,
            "vmnest image prune --versions",
        ),
        (
            {"status": 402, "message": "Account 1 has reached the maximum number of MicroVM images."},
            errors.QuotaExceededError,
            "vmnest image prune",
        ),
        ({"error_type": "LimitExceeded", "service": "iam"}, errors.QuotaExceededError, "Delete what nobody needs"),
        ({"message": "Role cannot be deleted"}, errors.ValidationError, "Check what was given"),
        ({"status": 409}, errors.ConflictError, "again in a moment"),
        ({"status": 418}, errors.ServiceError, "check the endpoint's URL"),
        ({"status": 101, "message": None}, errors.ServiceError, "check the endpoint's URL"),
        ({"status": 403, "message": "role x cannot be assumed"}, errors.AccessDeniedError, "Allow the named action"),
        ({"status": 403, "message": None}, errors.AccessDeniedError, "region xx-1"),
        (
            {
                "error_type": "InvalidSignatureException",
                "message": "Credential should be scoped to a valid region, not 'x'.",
            },
            errors.SignatureRefusedError,
            "another region than xx-1",
        ),
        ({"error_type": "RequestExpired"}, errors.SignatureRefusedError, "clock"),
        ({"status": 301}, errors.ServiceError, "has moved"),
        ({"status": 404, "is_page": True}, errors.ServiceError, "Something else than the service"),
        ({"status": 403, "is_page": True}, errors.AccessDeniedError, "Something else than the service"),
        ({"status": 502, "is_page": True}, errors.ServiceFaultError, "Try again"),
    ],
    ids=str,
)
def test_each_refusal_has_its_own_remedy(facts, kind, hint):
    error = refusals.to_error(refusal(**facts))
    assert type(error) is kind
    assert hint in error.hint


def test_an_error_that_only_the_service_knows_is_nobody_else_s():
    error = refusals.to_error(refusal(error_type="PreconditionFailed", status=412, service="s3"))
    assert type(error) is errors.ServiceError
    assert error.hint is None


def test_a_fault_of_the_service_tells_the_request_for_its_support():
    facts = {"status": 500, "error_type": "InternalServerException", "request_id": "1-2-3"}
    assert refusals.to_error(refusal(**facts)).message == "Op: m (InternalServerException, request 1-2-3)"
    error = refusals.to_error(refusal(**{**facts, "status": 400}))
    assert "1-2-3" not in error.message
    assert error.to_wire()["details"]["request_id"] == "1-2-3"


def test_a_message_is_one_bounded_line():
    error = refusals.to_error(refusal(message="a\nb\t c" + "x" * 10_000))
    assert "\n" not in error.message
    assert "a b c" in error.message
    assert len(error.message) < 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("5", 5.0),
        (" 0 ", 0.0),
        ("-1", None),
        ("soon", None),
        ("1.5", None),
        ("\u0665", None),
        ("9" * 30, 1e30),
        ("9" * 5000, float("inf")),
        (formatdate(1_800_000_010), 10.0),
        (formatdate(1_700_000_000), 0.0),
    ],
)
def test_both_forms_of_retry_after_are_read(text, expected):
    assert refusals.parse_retry_after(text, date=1_800_000_000.0) == expected


def test_a_date_to_wait_for_needs_the_server_s_own_date():
    assert refusals.parse_retry_after(formatdate(1_800_000_010), date=None) is None


@pytest.mark.parametrize("text", [None, "", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT", "1", "\0"])
def test_a_date_that_is_none_is_none(text):
    assert refusals.parse_date(text) is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", None),
        (b"  \n ", None),
        (b"plain text", "plain text"),
        (b"<HTML><TITLE >Bad\n Gateway</TITLE>", "Bad Gateway"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"<title></title>", None),
    ],
)
def test_a_page_is_told_by_its_title_or_beginning(body, expected):
    assert refusals.gateway_text(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<ErrorResponse><Error><Code>Denied</Code><Message>no\n way</Message></Error>", ("Denied", "no way")),
        (b"<Error><Code>Denied</Code></Error>", ("Denied", None)),
        (b"<title>502 Bad Gateway</title>", (None, "502 Bad Gateway")),
        (b"", (None, None)),
    ],
)
def test_an_error_in_xml_is_read_and_other_pages_are_told(body, expected):
    assert refusals.parse_page(body) == expected


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("RequestTimeTooSkewed", None, True),
        ("InvalidSignatureException", "Signature expired: 1 is now earlier than 2", True),
        ("InvalidSignatureException", "Signature not yet current: 1", True),
        ("InvalidSignatureException", "The request signature we calculated does not match", False),
        ("ExpiredTokenException", "The security token included in the request is expired", False),
        (None, None, False),
    ],
)
def test_a_refusal_for_the_clock_is_told_from_others(kind, message, expected):
    assert refusals.is_about_the_clock(refusal(error_type=kind, message=message)) is expected


@pytest.mark.parametrize("message", [None, "User: x is not authorized"])
def test_the_service_s_own_words_are_kept_apart(message):
    refusal = refusals.Refusal(operation="Op", region="xx-1", status=403, error_type=None, message=message)
    assert refusals.to_error(refusal).reason == message
