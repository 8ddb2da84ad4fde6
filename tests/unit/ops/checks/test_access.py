"""What the checks of AWS have in common."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.support.checks import make_context
from tests.support.peers import Answer, HangUp, Serve, Silence
from tests.support.sandbox_yaml import write
from tests.support.scripted_aws import IMAGE, ROLE, USER, ScriptedAws, denied, refusal, xml_refusal
from vmnest import errors
from vmnest.infra import outputs
from vmnest.infra.state import StackState, Store
from vmnest.ops.checks import SKIPPED, access

NO_REASON = refusal(403, "AccessDeniedException", None)
EXPIRED = refusal(403, "ExpiredTokenException")
PAGE = Answer(200, b"<html></html>")


# -- what is configured ------------------------------------------------------------------------------------------------


def record(aws: ScriptedAws, label: str, **offered: str) -> None:
    project, _, stack = label.partition("/")
    store = Store(aws.environ["AGENT_SANDBOX_INFRA_STATE"])
    store.save(StackState(project, stack, target="aws", region="eu-west-1", outputs=offered))


def bare(aws: ScriptedAws) -> dict[str, str]:
    """The account's environment without choices."""
    return {name: value for name, value in aws.environ.items() if not name.endswith("_ARN")}


def test_the_environment_comes_before_what_infrastructure_offers(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    record(scripted_aws, "demo/dev", image_arn=IMAGE + "-2", execution_role_arn=ROLE + "-2")
    chosen = access.choice(make_context(scripted_aws.environ), "image_arn", outputs.IMAGE)
    assert chosen == (IMAGE, "environment AGENT_SANDBOX_IMAGE_ARN")
    context = make_context(bare(scripted_aws), cwd=tmp_path)
    assert access.choice(context, "image_arn", outputs.IMAGE) == (IMAGE + "-2", "output of demo/dev")
    role = access.choice(context, "execution_role_arn", outputs.EXECUTION_ROLE)
    assert role == (ROLE + "-2", "output of demo/dev")
    assert access.choice(context, "egress_connector", outputs.EGRESS_CONNECTOR) is None


def test_a_role_of_another_account_than_the_image_is_not_taken(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    record(scripted_aws, "demo/dev", image_arn="x", execution_role_arn=ROLE.replace("123456789012", "999999999999"))
    environ = {**bare(scripted_aws), "AGENT_SANDBOX_IMAGE_ARN": IMAGE}
    assert access.choice(make_context(environ, cwd=tmp_path), "execution_role_arn", outputs.EXECUTION_ROLE) is None


def test_a_record_that_cannot_be_read_is_a_result(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    (tmp_path / "infra.json").write_text("{bad")
    context = make_context(bare(scripted_aws), cwd=tmp_path)
    assert isinstance(access.choice(context, "image_arn", outputs.IMAGE), errors.StateFileError)
    assert not isinstance(access.region(context), errors.VmnestError), "the region is known without it"


def test_a_file_that_names_several_stacks_is_a_result(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    record(scripted_aws, "demo/dev", image_arn=IMAGE)
    write(tmp_path / "sandbox.yaml", "not yaml: [")
    found = access.choice(make_context(bare(scripted_aws), cwd=tmp_path), "image_arn", outputs.IMAGE)
    assert isinstance(found, errors.ConfigurationError)


def test_the_region_is_that_of_the_image_that_infrastructure_offers(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    record(scripted_aws, "demo/dev", image_arn=IMAGE.replace("us-east-1", "eu-west-1"))
    found = access.region(make_context(bare(scripted_aws), cwd=tmp_path))
    assert not isinstance(found, errors.VmnestError)
    assert found.name == "eu-west-1"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("environment AWS_REGION", "AWS_REGION"),
        (f"the ARN {IMAGE}", "the image's ARN"),
        ("output of demo/dev", "output of demo/dev"),
        ("flag", "as given"),
    ],
)
def test_sources_are_shown_in_few_words(source: str, shown: str) -> None:
    assert access.shown_source(source) == shown


# -- once, and in time -------------------------------------------------------------------------------------------------


def test_what_several_checks_need_is_asked_for_once(scripted_aws: ScriptedAws) -> None:
    context = make_context(scripted_aws.environ)
    threads = [threading.Thread(target=access.obstacle, args=(context,)) for _ in range(6)]
    threads += [threading.Thread(target=access.caller, args=(context,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(scripted_aws.asked) == ["GetCallerIdentity", "ListMicrovms"]
    who = access.caller(context)
    assert not isinstance(who, errors.VmnestError)
    assert who.arn == USER


def test_a_failure_is_not_repeated_for_each_check(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["ListMicrovms"] = EXPIRED
    context = make_context(scripted_aws.environ)
    assert isinstance(access.first_call(context), errors.CredentialsExpiredError)
    assert isinstance(access.first_call(context), errors.CredentialsExpiredError)
    assert scripted_aws.asked == ["ListMicrovms"]


def test_keys_that_take_their_time_are_given_up(
    scripted_aws: ScriptedAws, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(scripted_aws.home))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    # botocore waits for a container's keys for two seconds, three times.
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", serve(Silence(), Silence(), Silence()).url)
    found = access.standing(make_context(os.environ, seconds=0.3))
    assert isinstance(found, errors.CredentialsBrokenError)
    assert "not answered within 0.3 s" in found.message
    assert "aws sts get-caller-identity" in str(found.hint)


def test_nothing_is_given_more_time_than_there_is() -> None:
    assert access.deadline(make_context({}, seconds=0.5)).seconds == pytest.approx(0.5, abs=0.2)
    assert access.deadline(make_context({}, seconds=60)).seconds == access.PROBE_SECONDS


# -- what to say -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "text", "is_told"),
    [
        ({}, None, False),
        ({"ListMicrovms": denied()}, None, False),
        ({"ListMicrovms": NO_REASON}, "the region refuses the service", True),
        ({"ListMicrovms": EXPIRED}, "AWS refuses the credentials", False),
        (
            {"ListMicrovms": EXPIRED, "GetCallerIdentity": xml_refusal(403, "ExpiredToken")},
            "AWS refuses the credentials",
            True,
        ),
        ({"ListMicrovms": HangUp()}, "the service cannot be reached", False),
        ({"ListMicrovms": HangUp(), "unsigned": HangUp()}, "the service cannot be reached", True),
        ({"ListMicrovms": PAGE}, "something else than the service answers", False),
        ({"ListMicrovms": PAGE, "unsigned": PAGE}, "something else than the service answers", True),
    ],
    ids=[
        *("nothing", "denied", "no reason", "expired", "expired, as STS says, too", "cut", "cut always", "page"),
        "page always",
    ],
)
def test_an_obstacle_is_named_and_told_by_one_check(
    scripted_aws: ScriptedAws, answers: dict[str, Answer], text: str | None, is_told: bool
) -> None:
    scripted_aws.answers.update(answers)
    context = make_context(scripted_aws.environ)
    assert (access.obstacle(context), access.is_told_elsewhere(context)) == (text, is_told)


def test_what_is_missing_before_any_call_is_an_obstacle(scripted_aws: ScriptedAws) -> None:
    environ = bare(scripted_aws)
    without_keys = {**environ, "AWS_SECRET_ACCESS_KEY": ""}
    assert access.obstacle(make_context(without_keys)) == "there are no usable credentials"
    assert access.obstacle(make_context({**environ, "AWS_REGION": ""})) == "there is no region"
    assert access.obstacle(make_context({**environ, "AWS_ENDPOINT_URL": "x"})) == "the endpoint cannot be used"
    assert scripted_aws.asked == []


def test_a_check_may_be_skipped_or_made_of_an_error() -> None:
    skipped = access.skipped("aws.x", title="x", reason="no reason")
    assert (skipped.verdict, skipped.detail) == (SKIPPED, "not looked at: no reason")
    error = errors.RegionNotFoundError("no region", hint="Name one.")
    found = access.of_error("aws.x", error, title="x", data={"a": 1})
    assert (found.detail, found.remedy, found.data) == ("no region", "Name one.", {"code": "region_not_found", "a": 1})
