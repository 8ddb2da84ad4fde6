"""Whether there is a next attempt, without a server."""

import pytest

from vmnest import errors
from vmnest.aws import model, retries


def service_error(kind: type[errors.ServiceError], retry_after: float | None = None) -> errors.ServiceError:
    return kind("m", operation="Op", status=500, retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "repeatable", "expected"),
    [
        (service_error(errors.ThrottledError), False, True),
        (service_error(errors.CapacityError), False, True),
        (service_error(errors.RoleNotReadyError), False, True),
        (service_error(errors.ValidationError), True, False),
        (service_error(errors.ServiceFaultError), False, False),
        (service_error(errors.ServiceFaultError), True, True),
        (service_error(errors.QuotaExceededError), True, False),
        (service_error(errors.AccessDeniedError), True, False),
        (service_error(errors.AnswerInvalidError), True, False),
        (errors.ConnectError("m"), False, True),
        (errors.ProxyError("m"), False, True),
        (errors.ConnectionLostError("m"), False, False),
        (errors.ConnectionLostError("m"), True, True),
        (errors.ReadTimeoutError("m"), False, False),
        (errors.ReadTimeoutError("m"), True, True),
        (errors.TlsError("m"), True, False),
        (errors.AnswerTooLargeError("m"), True, False),
    ],
)
def test_harm_decides(error, repeatable, expected):
    made = retries.Retries(is_repeatable=repeatable)
    assert (made.delay_after(error, left=None) is not None) is expected
    assert made.attempts == (2 if expected else 1)


@pytest.mark.parametrize(("left", "expected"), [(None, True), (10.0, True), (5.0, False), (0.0, False)])
def test_a_wait_must_leave_time_for_the_attempt(left, expected):
    made = retries.Retries(is_repeatable=True)
    error = service_error(errors.ThrottledError, retry_after=5.0)
    assert (made.delay_after(error, left=left) is not None) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("GetMicrovm", True),
        ("RunMicrovm", True),
        ("TerminateMicrovm", True),
        ("SuspendMicrovm", True),
        ("UpdateMicrovmImage", True),
        ("CreateMicrovmAuthToken", True),
        ("UpdateMicrovmImageVersion", True),
    ],
)
def test_every_operation_that_we_make_can_be_repeated(name, expected):
    assert retries.is_repeatable(model.load("lambda-microvms").operation(name)) is expected


def test_what_the_caller_knows_to_pass_is_waited_for():
    made = retries.Retries(is_repeatable=False)
    error = service_error(errors.ResourceNotFoundError)
    assert made.delay_after(error, left=None) is None
    assert made.delay_after(error, left=None, is_passing=True) is not None
    assert made.attempts == 2


@pytest.mark.parametrize(
    ("kind", "attempts"),
    [
        (errors.ServiceFaultError, retries.MAX_ATTEMPTS),
        (errors.ThrottledError, retries.MAX_ATTEMPTS_THROTTLED),
        (errors.RoleNotReadyError, retries.MAX_ATTEMPTS_ROLE),
    ],
)
def test_patience_has_an_end(kind, attempts):
    made = retries.Retries(is_repeatable=True)
    while made.delay_after(service_error(kind), left=None) is not None:
        pass
    assert made.attempts == attempts


@pytest.mark.parametrize(
    ("name", "is_look", "is_harmless"),
    [
        ("DescribeSubnets", True, True),
        ("GetRole", True, True),
        ("ListRoles", True, True),
        ("HeadBucket", True, True),
        ("FilterLogEvents", True, True),
        ("PutRolePolicy", False, True),
        ("AttachRolePolicy", False, True),
        ("DeleteSecurityGroup", False, True),
        ("AuthorizeSecurityGroupEgress", False, True),
        ("CreateRole", False, True),
        ("CreateSecurityGroup", False, True),
        ("CreateTags", False, True),
        ("AssumeRole", False, True),
        ("CreateVpc", False, False),
        ("CreatePolicyVersion", False, False),
        ("RunInstances", False, False),
        ("PutLogEvents", False, False),
        ("PutMetricData", False, False),
        ("Settle", False, False),
        ("getRole", False, False),
        ("", False, False),
    ],
)
def test_the_name_of_a_classic_operation_tells_what_it_does(name, is_look, is_harmless):
    assert (retries.is_look(name), retries.is_harmless_twice(name)) == (is_look, is_harmless)
