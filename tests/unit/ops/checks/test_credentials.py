"""Whose keys they are, where they are from, and until when."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.checks import by_id, make_context
from tests.support.peers import HangUp
from tests.support.scripted_aws import ACCOUNT, USER, ScriptedAws, xml_refusal
from vmnest.aws import chain
from vmnest.ops.checks import FAILED, OK, SKIPPED, UNKNOWN, WARNING, Check, credentials


def look(environ: dict[str, str]) -> dict[str, Check]:
    """What is said of the credentials."""
    context = make_context(environ)
    return by_id(each for probe in credentials.PROBES for each in probe(context))


def keys(aws: ScriptedAws, **changes: str | None) -> Check:
    """The check of the keys, in an environment with these changes."""
    environ = {name: value for name, value in {**aws.environ, **changes}.items() if value is not None}
    return look(environ)["aws.credentials"]


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, timezone.utc).isoformat()


@pytest.fixture
def chained(scripted_aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch) -> ScriptedAws:
    """botocore's chain reads the process's environment: that of the account, without keys."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in scripted_aws.environ.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (scripted_aws.home / ".aws").mkdir()
    return scripted_aws


def configure(aws: ScriptedAws, text: str) -> None:
    (aws.home / ".aws" / "config").write_text(text)


def test_keys_that_are_good_are_named_by_source_and_owner(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws.environ)
    assert [each.verdict for each in found.values()] == [OK, OK]
    assert found["aws.credentials"].detail == "from AWS_ACCESS_KEY_ID"
    assert found["aws.credentials"].data == {
        "state": "found",
        "kind": "environment",
        "origin": "AWS_ACCESS_KEY_ID",
        "access_key": "…MPLE",
        "expires_at": None,
        "is_renewed": False,
    }
    assert found["aws.identity"].data == {"account": ACCOUNT, "arn": USER}


def test_no_secret_is_shown(scripted_aws: ScriptedAws) -> None:
    shown = str([each.to_wire() for each in look({**scripted_aws.environ, "AWS_SESSION_TOKEN": "tok-en"}).values()])
    assert "secret-of-the-test" not in shown
    assert "tok-en" not in shown
    assert "AKIDEXAMPLE" not in shown


@pytest.mark.parametrize(("seconds", "verdict"), [(7200, OK), (600, WARNING)])
def test_when_keys_end_is_told_and_soon_is_a_warning(scripted_aws: ScriptedAws, seconds: float, verdict: str) -> None:
    found = keys(scripted_aws, AWS_SESSION_TOKEN="t", AWS_CREDENTIAL_EXPIRATION=moment(seconds))
    assert found.verdict == verdict
    assert "good until 2" in found.detail
    assert ("(in 1 h 59 min)" if seconds == 7200 else "(in 9 min)") in found.detail
    assert (found.remedy is None) is (verdict == OK)
    assert found.data["expires_at"]


def test_a_session_may_not_say_when_it_ends(scripted_aws: ScriptedAws) -> None:
    found = keys(scripted_aws, AWS_SESSION_TOKEN="t")
    assert (found.verdict, found.data["expires_at"]) == (OK, None)
    assert "unknown" in found.detail


# -- absent, and broken ------------------------------------------------------------------------------------------------


def test_no_keys_anywhere_are_absent(chained: ScriptedAws) -> None:
    found = look(dict(os.environ))
    assert found["aws.credentials"].verdict == FAILED
    assert found["aws.credentials"].data == {"state": "absent", "code": "credentials_not_found"}
    assert "aws configure" in str(found["aws.credentials"].remedy)
    assert found["aws.identity"].verdict == SKIPPED
    assert "no usable credentials" in found["aws.identity"].detail


@pytest.mark.parametrize(
    ("changes", "text", "remedy"),
    [
        ({"AWS_SECRET_ACCESS_KEY": None}, "AWS_SECRET_ACCESS_KEY is not", "Set both"),
        ({"AWS_SECRET_ACCESS_KEY": "a b"}, "characters that none has", "a space"),
        ({"AWS_CREDENTIAL_EXPIRATION": "2020-01-01T00:00:00Z"}, "have ended", "Export new ones"),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_PROFILE": "nobody"}, "no profile 'nobody'", "AWS_PROFILE"),
    ],
    ids=["half", "copied with a space", "ended", "no such profile"],
)
def test_what_is_wrong_with_keys_is_said_with_its_remedy(
    scripted_aws: ScriptedAws, changes: dict[str, str | None], text: str, remedy: str
) -> None:
    found = keys(scripted_aws, **changes)
    assert found.verdict == FAILED
    assert text in found.detail
    assert remedy in str(found.remedy)


def test_an_sso_login_that_has_ended_asks_for_another(chained: ScriptedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(
        chained,
        "[profile p]\nsso_start_url = https://login.example/start\nsso_region = us-east-1\n"
        "sso_account_id = 111122223333\nsso_role_name = reader\n",
    )
    monkeypatch.setenv("AWS_PROFILE", "p")
    found = look(dict(os.environ))["aws.credentials"]
    assert (found.verdict, found.data["state"]) == (FAILED, "broken")
    assert found.remedy == "Log in again: aws sso login --profile p"


def test_a_source_that_takes_its_time_is_not_waited_for(chained: ScriptedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "HURRIED", chain.HURRIED._replace(process=0.3))
    configure(chained, "[default]\ncredential_process = sleep 60\n")
    assert "has not ended after 0.3 s" in look(dict(os.environ))["aws.credentials"].detail


# -- what AWS says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "verdict", "remedy"),
    [
        (xml_refusal(403, "ExpiredToken", "The security token is expired"), FAILED, "aws sso login"),
        (xml_refusal(403, "InvalidClientTokenId", "is invalid"), FAILED, "AWS does not know the access key"),
        (xml_refusal(403, "SignatureDoesNotMatch", "The request signature"), FAILED, "secret key is not"),
        (xml_refusal(403, "AccessDenied", "not authorized"), UNKNOWN, "sts:"),
        (HangUp(), UNKNOWN, "Try again"),
    ],
    ids=["expired", "unknown key", "wrong secret", "denied", "cut"],
)
def test_only_aws_s_own_word_condemns_keys(
    scripted_aws: ScriptedAws, answer: object, verdict: str, remedy: str
) -> None:
    scripted_aws.answers["GetCallerIdentity"] = answer  # type: ignore[assignment]
    found = look(scripted_aws.environ)["aws.identity"]
    assert found.verdict == verdict
    assert remedy in str(found.remedy)


def test_in_a_region_that_may_be_off_keys_are_refused_as_well(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["GetCallerIdentity"] = xml_refusal(403, "InvalidClientTokenId", "is invalid")
    environ = {**scripted_aws.environ, "AGENT_SANDBOX_REGION": "me-south-1"}
    assert "switched on" in str(look(environ)["aws.identity"].remedy)
    assert "switched on" not in str(look(scripted_aws.environ)["aws.identity"].remedy)


def test_an_account_that_cannot_be_reached_is_no_matter_of_keys(scripted_aws: ScriptedAws, refused_port: int) -> None:
    found = look({**scripted_aws.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{refused_port}"})["aws.identity"]
    assert (found.verdict, found.detail) == (SKIPPED, "not looked at: AWS cannot be reached")


def test_without_a_region_nobody_is_asked(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    environ = {name: scripted_aws.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HOME")}
    found = look({**environ, "AGENT_SANDBOX_INFRA_STATE": str(tmp_path / "none.json")})
    assert found["aws.identity"].verdict == SKIPPED
    assert scripted_aws.asked == []


@pytest.mark.parametrize(("seconds", "text"), [(-5, "in 0 min"), (3599, "in 59 min"), (3600, "in 1 h 0 min")])
def test_spans_are_told_in_minutes(seconds: float, text: str) -> None:
    assert credentials.describe_seconds(seconds) == text
