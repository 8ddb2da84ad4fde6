"""Image, role and connector: which, who says so, whether they can be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.checks import by_id, make_context
from tests.support.peers import json_answer
from tests.support.scripted_aws import (
    ACCOUNT,
    CONNECTOR,
    IMAGE,
    ROLE,
    Said,
    ScriptedAws,
    denied,
    image,
    image_item,
    refusal,
    role,
    trust,
    version,
    xml_refusal,
)
from vmnest.ops.checks import FAILED, OK, SKIPPED, UNKNOWN, WARNING, Check, choices
from vmnest.wire import names

OTHER = "999999999999"
MISSING = refusal(404, "ResourceNotFoundException", f"MicroVMImage not found for MicroVMImageID: {IMAGE}")


def look(aws: ScriptedAws, *, region: str | None = None, **changes: str) -> dict[str, Check]:
    """What is said of the choices."""
    context = make_context({**aws.environ, **changes})
    context.region = region
    found = by_id(each for probe in choices.PROBES for each in probe(context))
    return {name.rpartition(".")[2]: each for name, each in found.items()}


def test_choices_that_can_be_used_are_shown_with_who_says_so(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws)
    assert {each.verdict for each in found.values()} == {OK}
    assert found["image"].detail == f"{IMAGE} (AGENT_SANDBOX_IMAGE_ARN), version 1.0"
    assert found["image"].data["source"] == "environment AGENT_SANDBOX_IMAGE_ARN"
    assert found["role"].detail == f"{ROLE} (AGENT_SANDBOX_EXECUTION_ROLE_ARN), trusts lambda.amazonaws.com"
    assert found["connector"].detail.startswith("none")


# -- image -------------------------------------------------------------------------------------------------------------


def test_no_image_says_how_to_get_one(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN="")["image"]
    assert found.verdict == FAILED
    for way in ("vmnest infra up", "vmnest image build", "AGENT_SANDBOX_IMAGE_ARN", "--image"):
        assert way in str(found.remedy)


def test_an_image_may_be_chosen_by_its_name(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["ListMicrovmImages"] = json_answer(200, {"items": [image_item()], "nextToken": None})
    found = look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN="demo")["image"]
    assert (found.verdict, found.data["image_arn"]) == (OK, IMAGE)
    found = look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN="nobody")["image"]
    assert found.verdict == FAILED
    assert "does not exist" in found.detail


def test_an_image_that_is_missing_is_no_choice(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["GetMicrovmImage"] = MISSING
    found = look(scripted_aws)["image"]
    assert found.verdict == FAILED
    assert "does not exist" in found.detail
    assert "vmnest image build" in str(found.remedy)


def test_an_image_of_another_region_is_found_without_asking(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws, region="eu-west-1")["image"]
    assert found.verdict == FAILED
    assert "is in us-east-1, and sandboxes are to be in eu-west-1 (as given)" in found.detail
    assert "GetMicrovmImage" not in scripted_aws.asked


@pytest.mark.parametrize("answer", [denied(), refusal(403, "AccessDeniedException", None), MISSING])
def test_an_image_of_another_account_is_told_so(scripted_aws: ScriptedAws, answer: Said) -> None:
    scripted_aws.answers["GetMicrovmImage"] = answer
    found = look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN=IMAGE.replace(ACCOUNT, OTHER))["image"]
    assert found.verdict == FAILED
    assert f"belongs to account {OTHER}, and the credentials to {ACCOUNT}" in found.detail
    assert "AWS_PROFILE" in str(found.remedy)


def test_an_image_of_this_machine_is_no_image_of_aws(scripted_aws: ScriptedAws) -> None:
    arn = names.image_arn(region="us-east-1", account=names.LOCAL_ACCOUNT, name="mine")
    found = look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN=arn)["image"]
    assert found.verdict == FAILED
    assert "--local" in str(found.remedy)


def test_an_image_that_may_not_be_looked_at_may_still_be_used(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["GetMicrovmImage"] = denied("lambda:GetMicrovmImage")
    found = look(scripted_aws)["image"]
    assert found.verdict == WARNING
    assert "lambda:GetMicrovmImage" in found.detail


def versions(aws: ScriptedAws, *known: tuple[str, str, str], **members: object) -> Check:
    """The check of an image with these versions: number, state, status."""
    items = [version(number, state=state, status=status) for number, state, status in known]
    aws.answers["GetMicrovmImage"] = json_answer(200, image(**members))  # type: ignore[arg-type]
    aws.answers["ListMicrovmImageVersions"] = json_answer(200, {"items": items, "nextToken": None})
    aws.answers["GetMicrovmImageVersion"] = lambda request: json_answer(
        200, next(item for item in items if item["imageVersion"] == request.target.rpartition("/")[2])
    )
    return look(aws)["image"]


def test_an_image_whose_versions_are_all_inactive_cannot_be_started_from(scripted_aws: ScriptedAws) -> None:
    found = versions(scripted_aws, ("9.0", "FAILED", "INACTIVE"), ("10.0", "SUCCESSFUL", "INACTIVE"), active=None)
    assert found.verdict == FAILED
    assert "9.0 is FAILED and INACTIVE, 10.0 is SUCCESSFUL and INACTIVE" in found.detail
    assert "--image-version 10.0 --status ACTIVE" in str(found.remedy)


def test_a_version_that_was_switched_off_since_is_noticed(scripted_aws: ScriptedAws) -> None:
    assert versions(scripted_aws, ("1.0", "SUCCESSFUL", "INACTIVE"), active="1.0").verdict == FAILED


def test_an_image_whose_builds_failed_says_where_to_look(scripted_aws: ScriptedAws) -> None:
    found = versions(scripted_aws, ("1.0", "FAILED", "INACTIVE"), active=None, state="CREATE_FAILED")
    assert found.verdict == FAILED
    assert "vmnest image logs demo" in str(found.remedy)


def test_an_image_that_is_being_built_is_to_be_waited_for(scripted_aws: ScriptedAws) -> None:
    found = versions(scripted_aws, ("1.0", "IN_PROGRESS", "INACTIVE"), active=None, state="CREATING")
    assert found.verdict == FAILED
    assert "Wait until it is built" in str(found.remedy)


def test_an_older_version_will_do_while_a_new_one_is_built(scripted_aws: ScriptedAws) -> None:
    known = (("1.0", "SUCCESSFUL", "ACTIVE"), ("2.0", "IN_PROGRESS", "INACTIVE"))
    found = versions(scripted_aws, *known, active="1.0", state="UPDATING")
    assert (found.verdict, found.detail[-20:]) == (OK, "ersion 1.0, UPDATING")
    assert versions(scripted_aws, *known, active=None).verdict == OK, "the service's own word came late"


def test_versions_that_may_not_be_looked_at_leave_it_open(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["GetMicrovmImageVersion"] = denied("lambda:GetMicrovmImageVersion")
    assert look(scripted_aws)["image"].verdict == WARNING


def test_a_record_of_stacks_that_is_damaged_leaves_no_choice(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    (tmp_path / "infra.json").write_text("{bad")
    found = look(scripted_aws, AGENT_SANDBOX_IMAGE_ARN="", AGENT_SANDBOX_EXECUTION_ROLE_ARN="")
    assert [each.verdict for each in found.values()] == [FAILED, FAILED, FAILED]
    assert "infra.json" in found["image"].detail


def test_choices_are_shown_though_nobody_can_be_asked(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws, AWS_SECRET_ACCESS_KEY="", AGENT_SANDBOX_EGRESS_CONNECTOR=CONNECTOR)
    for name, value in (("image", IMAGE), ("role", ROLE), ("connector", CONNECTOR)):
        assert found[name].verdict == SKIPPED
        assert found[name].data["value"] == value
        assert value in found[name].detail
    assert scripted_aws.asked == []


# -- role --------------------------------------------------------------------------------------------------------------


def test_a_role_is_not_needed(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws, AGENT_SANDBOX_EXECUTION_ROLE_ARN="")["role"]
    assert (found.verdict, found.data) == (OK, {"value": None, "source": None})


@pytest.mark.parametrize(
    ("answer", "verdict", "text"),
    [
        (xml_refusal(404, "NoSuchEntity", "The role cannot be found"), FAILED, "does not exist"),
        (xml_refusal(403, "AccessDenied", "not authorized"), UNKNOWN, "could not be looked at"),
        (role(arn=ROLE.replace("role/", "role/path/")), FAILED, "that role is arn:aws:iam::123456789012:role/path/"),
        (role(trusting=trust(Principal={"Service": "ec2.amazonaws.com"})), FAILED, "does not trust lambda.amazonaws"),
        (role(trusting=trust(Principal={"AWS": "*"})), FAILED, "does not trust lambda.amazonaws.com"),
        (role(trusting=trust(Effect="Deny")), FAILED, "does not trust lambda.amazonaws.com"),
        (role(trusting=trust(Action="sts:TagSession")), FAILED, "does not trust lambda.amazonaws.com"),
        (role(trusting="no policy"), FAILED, "does not trust lambda.amazonaws.com"),
        (role(trusting=json.dumps({"Statement": ["x", 5]})), FAILED, "does not trust lambda.amazonaws.com"),
        (
            role(trusting=trust(Condition={"StringEquals": {"aws:SourceAccount": OTHER}})),
            FAILED,
            "for another account only",
        ),
        (role(trusting=trust(Condition={"StringEquals": {"aws:SourceAccount": [OTHER, ACCOUNT]}})), OK, "trusts"),
        (role(trusting=trust(Principal={"Service": ["ec2.amazonaws.com", "lambda.amazonaws.com"]})), OK, "trusts"),
        (role(trusting=trust(Action=["sts:TagSession", "STS:AssumeRole"])), OK, "trusts"),
        (role(trusting=trust(Principal="*", Action="*")), OK, "trusts"),
    ],
    ids=str,
)
def test_a_role_must_exist_and_trust_the_service(
    scripted_aws: ScriptedAws, answer: Said, verdict: str, text: str
) -> None:
    scripted_aws.answers["GetRole"] = answer
    found = look(scripted_aws)["role"]
    assert found.verdict == verdict
    assert text in found.detail
    assert (found.remedy is None) is (verdict == OK)


@pytest.mark.parametrize("value", ["sandbox", "arn:aws:iam::123456789012:user/me", "arn:aws:iam::123456789012"])
def test_what_is_no_role_is_found_without_asking(scripted_aws: ScriptedAws, value: str) -> None:
    found = look(scripted_aws, AGENT_SANDBOX_EXECUTION_ROLE_ARN=value)["role"]
    assert found.verdict == FAILED
    assert "is not the ARN of a role" in found.detail
    assert "GetRole" not in scripted_aws.asked


def test_a_role_of_another_account_cannot_be_passed(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws, AGENT_SANDBOX_EXECUTION_ROLE_ARN=ROLE.replace(ACCOUNT, OTHER))["role"]
    assert found.verdict == FAILED
    assert f"belongs to account {OTHER}" in found.detail


# -- connector ---------------------------------------------------------------------------------------------------------


def connector(aws: ScriptedAws, answer: Said | None = None, value: str = CONNECTOR) -> Check:
    """The check of a connector."""
    if answer is not None:
        aws.answers["GetNetworkConnector"] = answer
    return look(aws, AGENT_SANDBOX_EGRESS_CONNECTOR=value)["connector"]


def state(name: str, reason: str | None = None) -> Said:
    return json_answer(200, {"Arn": CONNECTOR, "Id": "nc-1", "Name": "vpc", "State": name, "StateReason": reason})


def test_a_connector_must_be_active(scripted_aws: ScriptedAws) -> None:
    assert connector(scripted_aws).verdict == OK
    found = connector(scripted_aws, state("PENDING"))
    assert (found.verdict, found.remedy) == (WARNING, "Wait some minutes.")
    found = connector(scripted_aws, state("FAILED", "no addresses left"))
    assert found.verdict == WARNING, "sandboxes that do not ask for it need none"
    assert "no addresses left" in found.detail


def test_a_connector_that_is_missing_or_elsewhere_is_a_warning(scripted_aws: ScriptedAws) -> None:
    missing = refusal(404, "ResourceNotFoundException", "Network connector not found")
    assert connector(scripted_aws, missing).verdict == WARNING
    assert connector(scripted_aws, value=CONNECTOR.replace("us-east-1", "eu-west-1")).verdict == WARNING
    assert connector(scripted_aws, missing, value=CONNECTOR.replace(ACCOUNT, OTHER)).verdict == WARNING
    assert connector(scripted_aws, refusal(500, "ServiceException")).verdict == UNKNOWN


@pytest.mark.parametrize("value", ["INTERNET_EGRESS", names.managed_connector_arn(region="x", name="INTERNET_EGRESS")])
def test_the_service_s_own_connector_is_not_asked_for(scripted_aws: ScriptedAws, value: str) -> None:
    found = connector(scripted_aws, value=value)
    assert found.verdict == OK
    assert "GetNetworkConnector" not in scripted_aws.asked
