"""Where we work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import notes, peers
from tests.support.cloud import LocalCloud
from vmnest import errors, rendezvous
from vmnest.aws import credentials
from vmnest.deadline import Deadline
from vmnest.target import Target, resolve, resolve_for, unknown_microvm
from vmnest.wire import names

ARN = "arn:aws:lambda:eu-west-1:123456789012:microvm-image:demo"
LOCAL_ARN = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name="local")
ROLE = "arn:aws:iam::123456789012:role/demo"


def aws(**environ: str) -> Target:
    return resolve(local=False, region="eu-west-1", environ=environ)


def local(**environ: str) -> Target:
    return resolve(local=True, environ=environ)


# -- which -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "variable", "kind"),
    [
        (None, None, "aws"),
        (None, "local", "local"),
        (None, "aws", "aws"),
        (True, None, "local"),
        (True, "aws", "local"),
        (False, "local", "aws"),
    ],
)
def test_the_wish_counts_then_the_variable_then_aws(wish: bool | None, variable: str | None, kind: str) -> None:
    environ = {"AGENT_SANDBOX_REGION": "eu-west-1"}
    if variable is not None:
        environ["AGENT_SANDBOX_TARGET"] = variable
    found = resolve(local=wish, environ=environ)
    assert (found.kind, found.is_local) == (kind, kind == "local")


def test_a_target_that_does_not_exist_is_refused() -> None:
    with pytest.raises(errors.SettingError, match="AGENT_SANDBOX_TARGET"):
        resolve(environ={"AGENT_SANDBOX_TARGET": "docker"})


def test_the_region_is_that_of_the_image_unless_one_is_named() -> None:
    assert resolve(arn=ARN, environ={}).region == "eu-west-1"
    assert resolve(environ={"AGENT_SANDBOX_IMAGE_ARN": ARN, "AWS_REGION": "us-west-2"}).region == "eu-west-1"
    assert resolve(arn=ARN, region="us-east-2", environ={}).region == "us-east-2"
    assert resolve(environ={"AWS_REGION": "us-west-2"}).region == "us-west-2"


def test_aws_needs_a_region(tmp_path: Path) -> None:
    with pytest.raises(errors.RegionNotFoundError) as caught:
        resolve(environ={"HOME": str(tmp_path), "AWS_CONFIG_FILE": "/nonexistent"})
    assert "--local" in str(caught.value.hint)


def test_this_machine_has_a_region_of_its_own() -> None:
    assert resolve(local=True, region="eu-west-1", environ={"AWS_REGION": "eu-west-1"}).region == names.LOCAL_REGION


# -- what it starts from -----------------------------------------------------------------------------------------------


def test_on_aws_the_image_is_the_one_given_or_configured() -> None:
    assert aws(AGENT_SANDBOX_IMAGE_ARN=ARN).image() == ARN
    assert aws(AGENT_SANDBOX_IMAGE_ARN=ARN).image(ARN + "-2") == ARN + "-2"
    assert aws().image("by-name") == "by-name"


def test_on_aws_no_image_is_an_error_that_says_how_to_name_one() -> None:
    with pytest.raises(errors.UsageError) as caught:
        aws().image()
    assert "--image" in str(caught.value.hint)


def test_here_the_built_in_image_is_the_default_whatever_is_configured_for_aws() -> None:
    assert local().image() == LOCAL_ARN
    assert local(AGENT_SANDBOX_IMAGE_ARN=ARN).image() == LOCAL_ARN
    assert local(AGENT_SANDBOX_IMAGE_ARN=LOCAL_ARN + "-2").image() == LOCAL_ARN + "-2"
    assert local().image("mine") == LOCAL_ARN.replace(":local", ":mine")
    assert local().image(LOCAL_ARN) == LOCAL_ARN


def test_what_is_no_text_names_no_image() -> None:
    with pytest.raises(errors.UsageError, match="ARN or name"):
        local().image(5)  # type: ignore[arg-type]


def test_an_image_of_the_other_target_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="not an image of the target in use, AWS"):
        aws().image(LOCAL_ARN)
    with pytest.raises(errors.UsageError, match="AWS"):
        aws(AGENT_SANDBOX_IMAGE_ARN=LOCAL_ARN).image()
    with pytest.raises(errors.UsageError, match="this machine"):
        local().image(ARN)


def test_the_role_is_the_one_given_or_configured_and_needs_none_here() -> None:
    assert aws(AGENT_SANDBOX_EXECUTION_ROLE_ARN=ROLE).role() == ROLE
    assert aws(AGENT_SANDBOX_EXECUTION_ROLE_ARN=ROLE).role("other") == "other"
    assert aws().role() is None
    assert local(AGENT_SANDBOX_EXECUTION_ROLE_ARN=ROLE).role() is None
    assert local().role(ROLE) == ROLE


# -- whom it calls -----------------------------------------------------------------------------------------------------


def test_aws_is_called_at_its_endpoint_with_its_keys() -> None:
    with peers.serving(peers.json_answer(200, {"items": [], "nextToken": None})) as peer:
        environ = {"AWS_ENDPOINT_URL": peer.url, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "x"}
        control = aws(**environ).control(deadline=Deadline(10))
        assert list(control.microvms.list(deadline=Deadline(10))) == []
    authorization = peer.requests[0].get("Authorization") or ""
    assert "Credential=AKIDEXAMPLE/" in authorization
    assert "/eu-west-1/lambda/aws4_request" in authorization


def test_here_the_daemon_is_called_and_aws_settings_do_not_matter(local_cloud: LocalCloud) -> None:
    environ = {
        "AGENT_SANDBOX_LOCAL_DIR": local_cloud.folder,
        "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "wrong",
        "AWS_SECRET_ACCESS_KEY": "wrong",
        "AWS_REGION": "eu-west-1",
    }
    control = local(**environ).control(deadline=Deadline(10))
    assert [image.name for image in control.images.list(deadline=Deadline(10))] == ["local"]


def test_a_daemon_that_has_gone_meanwhile_is_started_anew_once(local_cloud: LocalCloud) -> None:
    environ = {"AGENT_SANDBOX_LOCAL_DIR": local_cloud.folder, "HOME": local_cloud.folder, "PATH": "/usr/bin:/bin"}
    control = local(**environ).control(deadline=Deadline(60))
    local_cloud.process.terminate()
    local_cloud.process.wait()
    try:
        assert list(control.microvms.list(deadline=Deadline(60))) == []
        running = rendezvous.read(local_cloud.folder)
        assert running is not None
        assert running.pid != local_cloud.process.pid
    finally:
        _end(local_cloud.folder, environ)


def _end(folder: str, environ: dict[str, str]) -> None:
    from vmnest import daemon

    running = daemon.find(environ)
    if running is not None:
        daemon.ask(running, method="POST", path=rendezvous.SHUTDOWN_PATH, environ=environ, deadline=Deadline(30))
    while rendezvous.is_alive(folder):
        pass


def test_an_endpoint_for_aws_that_is_the_local_cloud_is_refused(shared_cloud: LocalCloud) -> None:
    with pytest.raises(errors.UsageError, match="is the local cloud"):
        aws(**shared_cloud.environ).control(deadline=Deadline(10))
    # Another server on this machine, moto for one, is as good an endpoint as any.
    elsewhere = {**shared_cloud.environ, "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": "http://127.0.0.1:9"}
    aws(**elsewhere).control(deadline=Deadline(10))


CALLER = b"""<GetCallerIdentityResponse><GetCallerIdentityResult><Account>000000000042</Account>
</GetCallerIdentityResult></GetCallerIdentityResponse>"""
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "x"}


def test_the_account_is_the_one_that_the_keys_belong_to() -> None:
    with peers.serving(peers.Answer(200, CALLER)) as peer:
        target = aws(**KEYS, AWS_ENDPOINT_URL_STS=peer.url)
        assert target.account_id(deadline=Deadline(10)) == "000000000042"
    assert peer.requests[0].body == b"Action=GetCallerIdentity&Version=2011-06-15"


def test_an_answer_without_an_account_is_none() -> None:
    empty = CALLER.replace(b"<Account>000000000042</Account>", b"")
    with peers.serving(peers.Answer(200, empty)) as peer, pytest.raises(errors.AnswerInvalidError, match="account"):
        aws(**KEYS, AWS_ENDPOINT_URL_STS=peer.url).account_id(deadline=Deadline(10))


def test_other_keys_than_those_of_the_environment_may_be_given() -> None:
    own = credentials.StaticSource(credentials.build("AKIDOTHER", "x"))
    with peers.serving(peers.Answer(200, CALLER)) as peer:
        environ = {**KEYS, "AWS_ENDPOINT_URL_STS": peer.url}
        Target("aws", region="eu-west-1", environ=environ, credentials=own).account_id(deadline=Deadline(10))
    assert "Credential=AKIDOTHER/" in (peer.requests[0].get("Authorization") or "")


@pytest.mark.parametrize("name", ["iam", "ec2", "logs", "cloudwatch", "s3", "lambda-core"])
def test_each_service_is_called_at_its_own_endpoint(name: str) -> None:
    variable = {"logs": "CLOUDWATCH_LOGS", "lambda-core": "LAMBDA_CORE"}.get(name, name.upper())
    target = aws(**KEYS, **{f"AWS_ENDPOINT_URL_{variable}": "http://127.0.0.1:9", "AWS_ENDPOINT_URL": "http://x"})
    assert target.service(name, deadline=Deadline(10)).endpoint == "http://127.0.0.1:9"
    assert aws(**KEYS).service("iam", deadline=Deadline(10)).endpoint is None


def test_s3_is_the_client_of_the_target_s_region() -> None:
    assert aws(**KEYS).s3(deadline=Deadline(10)).region == "eu-west-1"


@pytest.mark.parametrize("name", ["s3", "iam", "lambda-core"])
def test_no_service_of_aws_is_the_local_cloud(shared_cloud: LocalCloud, name: str) -> None:
    variable = name.replace("-", "_").upper()
    environ = {**shared_cloud.environ, **KEYS, f"AWS_ENDPOINT_URL_{variable}": shared_cloud.daemon.url}
    with pytest.raises(errors.UsageError, match="is the local cloud"):
        aws(**environ).service(name, deadline=Deadline(10))


def test_here_all_services_are_the_daemon(local_cloud: LocalCloud) -> None:
    environ = {"AGENT_SANDBOX_LOCAL_DIR": local_cloud.folder, **KEYS, "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9"}
    target = local(**environ)
    assert target.account_id(deadline=Deadline(10)) == names.LOCAL_ACCOUNT
    assert target.s3(deadline=Deadline(10)).region == names.LOCAL_REGION
    iam, lambda_core = (target.service(name, deadline=Deadline(10)) for name in ("iam", "lambda-core"))
    assert iam.endpoint == lambda_core.endpoint


@pytest.mark.usefixtures("no_daemon")
def test_to_look_at_what_has_ended_starts_no_local_cloud(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    folder.mkdir(mode=0o700)
    control = local(AGENT_SANDBOX_LOCAL_DIR=str(folder)).control(deadline=Deadline(5), start=False)
    notes.leave_note(str(folder), "microvm-1")
    assert control.microvms.get("microvm-1", deadline=Deadline(5)).state == names.TERMINATED
    with pytest.raises(AssertionError, match="was started"):
        control.microvms.suspend("microvm-1", deadline=Deadline(5))
    with pytest.raises(AssertionError, match="was started"):
        local(AGENT_SANDBOX_LOCAL_DIR=str(folder)).control(deadline=Deadline(5))


def test_a_microvm_that_this_machine_knows_is_looked_for_here_unless_the_place_is_chosen(tmp_path: Path) -> None:
    notes.leave_note(str(tmp_path), "microvm-1", has_ended=False)
    environ = {"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path), "AWS_REGION": "eu-west-1"}
    for microvm_id, chosen, kind in (
        ("microvm-1", {}, "local"),
        ("microvm-2", {}, "aws"),
        ("../records/microvm-1", {}, "aws"),
        ("microvm-1", {"local": False}, "aws"),
        ("microvm-1", {"region": "us-east-1"}, "aws"),
    ):
        how: dict[str, Any] = {"local": None, "region": None, **chosen}
        assert resolve_for(microvm_id, environ=environ, **how).kind == kind
    nowhere = {"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path), "AWS_CONFIG_FILE": "/none"}
    with pytest.raises(errors.RegionNotFoundError, match="this machine knows no MicroVM microvm-2, and AWS"):
        resolve_for("microvm-2", local=None, region=None, environ=nowhere)
    told = {**environ, "AGENT_SANDBOX_TARGET": "aws"}
    assert resolve_for("microvm-1", local=None, region=None, environ=told).kind == "aws"


@pytest.mark.parametrize(("place", "said"), [(aws(), "AWS, eu-west-1, knows no"), (local(), "the local cloud of this")])
def test_an_unknown_microvm_is_told_with_the_place_that_was_asked(place: Target, said: str) -> None:
    error = unknown_microvm("microvm-1", place)
    assert error.message.startswith(said)
    assert ("--local on this machine" in (error.hint or "")) == (not place.is_local)
