"""The metadata service of an instance, emulated in both versions, and absent in all ways."""

from datetime import datetime, timedelta, timezone

import pytest

from tests.support.emulated import INSTANCE_TOKEN, World, moment
from tests.support.peers import Answer, HangUp, Serve, Silence, json_answer
from vmnest import errors
from vmnest.aws import instance

KEYS = {"Code": "Success", "AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T"}


def seconds_left(expiry: str) -> float:
    end = datetime.strptime(expiry, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return (end - datetime.now(timezone.utc)) / timedelta(seconds=1)


def test_a_token_is_fetched_first_and_used(world: World):
    peer = world.instance()
    asked = instance.InstanceMetadata(url=peer.url)
    found = asked.retrieve_iam_role_credentials()
    assert (found["role_name"], found["access_key"], found["token"]) == ("instance-role", "ASIAEC21", "token-EC2-1")
    assert [request.method for request in peer.requests] == ["PUT", "GET", "GET"]
    assert [request.get("x-aws-ec2-metadata-token") for request in peer.requests] == [None, *[INSTANCE_TOKEN] * 2]
    assert peer.requests[0].target == "/latest/api/token"
    assert asked.outcome == "role instance-role"


def test_a_proxy_is_never_asked(world: World, monkeypatch):
    proxy = world.start(lambda request: Answer(500))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    # Not loopback by its name: what is loopback would go straight there anyway.
    asked = instance.InstanceMetadata(url="http://metadata.invalid", timeout=0.5)
    assert asked.retrieve_iam_role_credentials() == {}
    assert proxy.requests == []
    assert asked.outcome == "cannot be reached"


def test_the_first_version_is_asked_where_the_second_is_not(world: World):
    peer = world.instance(version=1)
    assert instance.InstanceMetadata(url=peer.url).retrieve_iam_role_credentials()["access_key"] == "ASIAEC21"
    asked = instance.InstanceMetadata(url=peer.url, is_v1_allowed=False)
    assert asked.retrieve_iam_role_credentials() == {}
    assert asked.outcome == "gives no token"


def test_a_token_that_does_not_come_is_done_without(serve: Serve):
    peer = serve(Silence(), Answer(200, b"r"), json_answer(200, {**KEYS, "Expiration": moment(3600)}))
    asked = instance.InstanceMetadata(url=peer.url, timeout=0.2)
    assert asked.retrieve_iam_role_credentials()["access_key"] == "A"


def test_switched_off_it_is_not_asked(world: World):
    peer = world.instance()
    asked = instance.InstanceMetadata(url=peer.url, is_enabled=False)
    assert asked.retrieve_iam_role_credentials() == {}
    assert asked.outcome == "switched off by AWS_EC2_METADATA_DISABLED"
    assert peer.connections == 0


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([Silence(), Silence()], "no answer within 0.2 s"),
        ([HangUp()], "cannot be reached"),
        ([Answer(400)], "answers 400"),
        ([Answer(302)], "answers 302"),
        ([Answer(200, b"<html>Log in here</html>")], "answers what is no token"),
        ([Answer(200, b"token\r\nX-Header: x")], "answers what is no token"),
        ([Answer(200, b"\xff")], "answers what is no token"),
        ([Answer(200, b"t"), Answer(404)], "has no role"),
        ([Answer(200, b"t"), Answer(200, b"")], "has no role"),
        ([Answer(200, b"t"), Answer(200, b"<html>page</html>")], "has no role"),
        ([Answer(200, b"t"), Answer(500)], "answers 500"),
        ([Answer(200, b"t"), Answer(200, b"r"), Answer(500)], "its role r gives no keys (HTTP 500)"),
        ([Answer(200, b"t"), Answer(200, b"r"), Answer(200, b"{")], "its role r gives no keys (HTTP 200)"),
        ([Answer(200, b"t"), Answer(200, b"r"), Answer(200, b"[1]")], "its role r gives no keys (HTTP 200)"),
        ([Answer(200, b"t"), Answer(200, b"r"), json_answer(200, KEYS)], "its role r gives no keys (Success)"),
        (
            [Answer(200, b"t"), Answer(200, b"r"), json_answer(200, {"Code": "AssumeRoleUnauthorizedAccess"})],
            "its role r gives no keys (AssumeRoleUnauthorizedAccess)",
        ),
    ],
)
def test_what_gives_no_keys_says_why(serve: Serve, script, outcome):
    peer = serve(*script)
    asked = instance.InstanceMetadata(url=peer.url, timeout=0.2)
    assert asked.retrieve_iam_role_credentials() == {}
    assert asked.outcome == outcome


def test_a_request_is_made_again_as_often_as_configured(serve: Serve):
    peer = serve(HangUp(), Answer(200, b"t"), Answer(200, b"r"), json_answer(200, {**KEYS, "Expiration": moment(7200)}))
    asked = instance.InstanceMetadata(url=peer.url, attempts=2)
    assert 7000 < seconds_left(asked.retrieve_iam_role_credentials()["expiry_time"]) <= 7200


@pytest.mark.parametrize(
    "end",
    [moment(-7200), moment(60), "nonsense", "2026-13-01T00:00:00Z"],
    ids=["has ended", "ends soon", "no time", "no month"],
)
def test_keys_that_end_too_soon_are_used_for_a_while(serve: Serve, end):
    peer = serve(Answer(200, b"t"), Answer(200, b"r"), json_answer(200, {**KEYS, "Expiration": end}))
    found = instance.InstanceMetadata(url=peer.url).retrieve_iam_role_credentials()
    assert 1190 < seconds_left(found["expiry_time"]) <= 1201


def test_an_address_that_is_none_names_the_variable():
    with pytest.raises(errors.SettingError, match="AWS_EC2_METADATA_SERVICE_ENDPOINT is no http"):
        instance.InstanceMetadata(url="metadata")
