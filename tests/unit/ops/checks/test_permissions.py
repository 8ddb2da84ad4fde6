"""What the credentials may do."""

from __future__ import annotations

import pytest

from tests.support.checks import by_id, make_context
from tests.support.peers import Answer, HangUp, json_answer
from tests.support.scripted_aws import (
    ACCOUNT,
    IMAGE,
    REGION,
    ROLE,
    USER,
    Said,
    ScriptedAws,
    caller,
    denied,
    refusal,
    role,
    simulating,
    xml_answer,
    xml_refusal,
)
from vmnest import errors
from vmnest.ops.checks import FAILED, OK, SKIPPED, UNKNOWN, WARNING, Check, permissions

EXPIRED = refusal(403, "ExpiredTokenException", "expired")
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/sandbox/me"


def look(aws: ScriptedAws, **changes: str) -> dict[str, Check]:
    """What is said of what may be done."""
    context = make_context({**aws.environ, **changes})
    found = by_id(each for probe in permissions.PROBES for each in probe(context))
    return {name.rpartition(".")[2]: each for name, each in found.items()}


def policy_source(aws: ScriptedAws) -> str:
    """Whose policies the simulator was last asked about."""
    from urllib.parse import parse_qs

    asked = [request for request in aws.peer.requests if b"SimulatePrincipalPolicy" in request.body]
    return parse_qs(asked[-1].body.decode())["PolicySourceArn"][0]


def test_who_may_do_everything_is_told_so(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws)
    assert {each.verdict for each in found.values()} == {OK}
    assert found["launching"].data["lambda:RunMicrovm"] == "allowed"
    assert found["launching"].data["lambda:PassNetworkConnector"] == "allowed"
    assert found["launching"].data["iam:PassRole"] == "allowed"
    assert policy_source(scripted_aws) == USER


# -- what can be done --------------------------------------------------------------------------------------------------


def test_what_may_not_be_listed_is_a_warning_with_its_loss(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers.update(
        ListMicrovms=denied("lambda:ListMicrovms"),
        ListMicrovmImages=denied("lambda:ListMicrovmImages"),
        DescribeLogGroups=denied("logs:DescribeLogGroups"),
    )
    found = look(scripted_aws)
    assert (found["listing"].verdict, found["logs"].verdict) == (WARNING, WARNING)
    assert "lambda:ListMicrovms" in found["listing"].detail
    assert "images have no names" in found["listing"].detail
    assert found["listing"].data == {"lambda:ListMicrovms": False, "lambda:ListMicrovmImages": False}
    assert "prefix lambda:" in str(found["listing"].remedy)
    assert "prefix logs:" in str(found["logs"].remedy)
    assert found["launching"].verdict == OK


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ({"ListMicrovms": EXPIRED}, FAILED),  # STS takes the keys, and this service does not
        ({"ListMicrovms": EXPIRED, "GetCallerIdentity": xml_refusal(403, "ExpiredToken")}, SKIPPED),
        ({"ListMicrovms": HangUp()}, UNKNOWN),
        ({"ListMicrovms": Answer(200, b"<html></html>")}, FAILED),
        ({"ListMicrovms": refusal(403, "AccessDeniedException", None)}, SKIPPED),
        ({"ListMicrovmImages": refusal(500, "InternalServerException")}, UNKNOWN),
    ],
    ids=["expired", "expired everywhere", "cut", "page", "no reason", "fault"],
)
def test_a_call_that_fails_is_told_where_nothing_else_tells_it(
    scripted_aws: ScriptedAws, answers: dict[str, Said], verdict: str
) -> None:
    scripted_aws.answers.update(answers)
    context = make_context(scripted_aws.environ, seconds=2)
    (found,) = permissions.listing(context)
    assert found.verdict == verdict


@pytest.mark.parametrize("name", ["listing", "logs", "launching"])
def test_without_keys_nothing_is_looked_at(scripted_aws: ScriptedAws, name: str) -> None:
    found = look(scripted_aws, AWS_SECRET_ACCESS_KEY="")[name]
    assert (found.verdict, found.detail) == (SKIPPED, "not looked at: there are no usable credentials")


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (errors.AccessDeniedError, WARNING),
        (errors.SignatureRefusedError, FAILED),
        (errors.AnswerInvalidError, FAILED),
        (errors.ThrottledError, UNKNOWN),
        (errors.ServiceFaultError, UNKNOWN),
    ],
)
def test_a_failure_is_as_bad_as_it_is_for_other_calls(kind: type[errors.ServiceError], verdict: str) -> None:
    assert permissions.verdict_of(kind("x", operation="List", status=400)) == verdict


# -- what IAM's simulator says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "resource", "verdict"),
    [
        ("lambda:RunMicrovm", IMAGE, FAILED),
        ("lambda:CreateMicrovmAuthToken", IMAGE, FAILED),
        ("lambda:SuspendMicrovm", IMAGE, WARNING),
        ("lambda:PassNetworkConnector", f"arn:aws:lambda:{REGION}:aws:network-connector:aws-network-connector", FAILED),
        ("iam:PassRole", ROLE, FAILED),
    ],
)
@pytest.mark.parametrize("decision", ["implicitDeny", "explicitDeny"])
def test_an_action_that_is_not_allowed_is_named_with_its_resource(
    scripted_aws: ScriptedAws, action: str, resource: str, verdict: str, decision: str
) -> None:
    scripted_aws.answers["SimulatePrincipalPolicy"] = simulating(action, decision=decision)
    found = look(scripted_aws)["launching"]
    assert found.verdict == verdict
    assert f"{USER} may not do {action} on {resource}" in found.detail
    assert f"Allow {action} on {resource}" in str(found.remedy)
    assert found.data[action] == decision


def test_a_condition_that_the_service_does_not_meet_is_pointed_out(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["SimulatePrincipalPolicy"] = simulating("iam:PassRole", missing=("iam:PassedToService",))
    found = look(scripted_aws)["launching"]
    assert found.verdict == WARNING
    assert "depends on conditions: iam:PassedToService" in found.detail
    assert "known not to meet" in str(found.remedy)


def test_without_an_image_a_denial_proves_nothing(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["SimulatePrincipalPolicy"] = simulating("lambda:RunMicrovm")
    found = look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN="")["launching"]
    assert found.verdict == UNKNOWN
    assert "depends on the image" in found.detail
    scripted_aws.answers["SimulatePrincipalPolicy"] = simulating("lambda:RunMicrovm", decision="explicitDeny")
    assert look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN="")["launching"].verdict == FAILED


def test_results_for_each_resource_count(scripted_aws: ScriptedAws) -> None:
    each = (
        f"<member><EvalResourceName>{IMAGE}</EvalResourceName>"
        "<EvalResourceDecision>explicitDeny</EvalResourceDecision></member>"
    )
    scripted_aws.answers["SimulatePrincipalPolicy"] = xml_answer(
        "SimulatePrincipalPolicy",
        "<EvaluationResults><member><EvalActionName>lambda:RunMicrovm</EvalActionName>"
        "<EvalResourceName>*</EvalResourceName><EvalDecision>allowed</EvalDecision>"
        f"<ResourceSpecificResults>{each}</ResourceSpecificResults></member></EvaluationResults>",
    )
    assert IMAGE in look(scripted_aws)["launching"].detail


def test_a_session_s_policies_are_those_of_its_role(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["GetCallerIdentity"] = caller(SESSION)
    scripted_aws.answers["GetRole"] = role(arn=f"arn:aws:iam::{ACCOUNT}:role/path/sandbox")
    assert look(scripted_aws)["launching"].verdict == OK
    assert policy_source(scripted_aws) == f"arn:aws:iam::{ACCOUNT}:role/path/sandbox"
    scripted_aws.answers["GetRole"] = xml_refusal(403, "AccessDenied")
    look(scripted_aws)
    assert policy_source(scripted_aws) == ROLE


def test_the_root_user_is_asked_nothing(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["GetCallerIdentity"] = caller(f"arn:aws:iam::{ACCOUNT}:root")
    found = look(scripted_aws)["launching"]
    assert (found.verdict, found.detail) == (OK, "the account's root user may do everything")
    assert "SimulatePrincipalPolicy" not in scripted_aws.asked


LAST_WORD = "The first vmnest create tells."
TO_KNOW = f"{LAST_WORD} To know before, allow"


@pytest.mark.parametrize(
    ("answers", "remedy"),
    [
        (
            {"SimulatePrincipalPolicy": xml_refusal(403, "AccessDenied", "not authorized")},
            f"{TO_KNOW} iam:SimulatePrincipalPolicy.",
        ),
        (
            {"GetCallerIdentity": xml_refusal(403, "AccessDenied", "not authorized")},
            f"{TO_KNOW} sts:GetCallerIdentity and iam:SimulatePrincipalPolicy.",
        ),
        ({"GetCallerIdentity": caller(f"arn:aws:sts::{ACCOUNT}:federated-user/me")}, LAST_WORD),
        ({"GetCallerIdentity": caller("nonsense")}, LAST_WORD),
        ({"GetCallerIdentity": json_answer(404, {"message": "not found"})}, LAST_WORD),
        (
            {"SimulatePrincipalPolicy": json_answer(404, {"message": "not found"})},
            "Something else than the service answered: check the endpoint's URL, and what stands before it "
            f"(a proxy). {LAST_WORD}",
        ),
    ],
    ids=["simulator", "identity", "federated", "nonsense", "another's endpoint", "another's simulator"],
)
def test_what_cannot_be_asked_is_not_probed(scripted_aws: ScriptedAws, answers: dict[str, Said], remedy: str) -> None:
    scripted_aws.answers.update(answers)
    found = look(scripted_aws)["launching"]
    assert found.verdict == UNKNOWN
    assert found.detail.startswith("not probed: ")
    assert found.remedy == remedy
