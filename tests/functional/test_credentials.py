"""Credentials from every source, used by the command line as a real process; and botocore's roles, judged by moto.

The control plane of these tests knows which keys were given out, and verifies each signature with them.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import boto3
import pytest

from tests.support.cli import Cli, Done, bare_environ
from tests.support.emulated import CONTAINER_TOKEN, PORTAL_TOKEN, World, moment
from tests.support.moto_server import serving_moto, switch_on_authentication
from tests.support.paths import AWS_CLI
from tests.support.peers import Answer
from vmnest import errors, transport
from vmnest.aws import chain, signing
from vmnest.deadline import Deadline

ROLE_ARN = "arn:aws:iam::123456789012:role/reader"
SSO_URL = "https://login.example/start"


@dataclass
class User:
    """Somebody with a home folder, a recorded sandbox ``web``, and a control plane."""

    cli: Cli
    world: World
    home: Path

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def ps(self, **environ: str) -> Done:
        return self.cli("ps", "web", "--json", **environ)

    def key_used(self, **environ: str) -> str:
        """The access key that a command signs with, as far as the control plane believes the signature."""
        done = self.ps(**environ)
        assert done.status == 0, done.remarks
        reason = done.data["state_reason"]
        assert reason.endswith(" in eu-west-1")
        return str(reason.split()[1])


@pytest.fixture
def user(tmp_path: Path, world: World) -> User:
    home = tmp_path / "home"
    environ = {**bare_environ(home), "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": world.control_plane().url}
    made = User(Cli(environ), world, home)
    record = {"microvm_id": "microvm-1", "endpoint": "host", "region": "eu-west-1"}
    made.write(".agent_sandbox/state.json", json.dumps({"sandboxes": {"web": record}}))
    return made


# -- where they are from -----------------------------------------------------------------------------------------------


def test_from_the_environment(user: User) -> None:
    access, secret, token = user.world.keys.make("ENV")
    environ = {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token}
    assert user.key_used(**environ) == access


@pytest.mark.parametrize("name", ["config", "credentials"])
def test_from_a_profile(user: User, name: str) -> None:
    access, secret, token = user.world.keys.make("FILE")
    section = "profile p" if name == "config" else "p"
    keys = f"aws_access_key_id = {access}\naws_secret_access_key = {secret}\naws_session_token = {token}\n"
    user.write(f".aws/{name}", f"[{section}]\n{keys}")
    assert user.key_used(AWS_PROFILE="p") == access


def test_plain_keys_load_no_botocore(user: User) -> None:
    access, secret, token = user.world.keys.make("ENV")
    program = (sys.executable, "-X", "importtime", "-m", "vmnest")
    done = user.cli(
        *("ps", "web"),
        program=program,
        AWS_ACCESS_KEY_ID=access,
        AWS_SECRET_ACCESS_KEY=secret,
        AWS_SESSION_TOKEN=token,
    )
    assert done.status == 0
    assert "vmnest.aws.sources" in done.remarks
    assert "vmnest.aws.chain" not in done.remarks
    assert "botocore" not in done.remarks


def test_from_a_process(user: User) -> None:
    access, secret, token = user.world.keys.make("PROC")
    answer = {"Version": 1, "AccessKeyId": access, "SecretAccessKey": secret, "SessionToken": token}
    keys = user.write("keys.json", json.dumps({**answer, "Expiration": moment(3600)}))
    user.write(".aws/config", f"[default]\ncredential_process = cat {keys}\n")
    assert user.key_used() == access


def test_from_an_sso_login(user: User) -> None:
    portal = user.world.portal()
    user.write(
        ".aws/config",
        "[profile p]\nsso_session = s\nsso_account_id = 111122223333\nsso_role_name = reader\n"
        f"[sso-session s]\nsso_start_url = {SSO_URL}\nsso_region = us-east-1\n",
    )
    environ = {"AWS_PROFILE": "p", "AWS_ENDPOINT_URL_SSO": portal.url}
    done = user.ps(**environ)
    assert (done.status, done.error["code"]) == (1, "credentials_broken")
    assert "aws sso login --profile p" in done.error["hint"]
    token = {"startUrl": SSO_URL, "region": "us-east-1", "accessToken": PORTAL_TOKEN, "expiresAt": moment(3600)}
    user.write(f".aws/sso/cache/{hashlib.sha1(b's').hexdigest()}.json", json.dumps(token))
    assert [user.key_used(**environ) for _ in range(2)] == ["ASIASSO1"] * 2
    assert len(portal.requests) == 1


ROLE = (
    "[profile p]\nrole_arn = {arn}\nsource_profile = keys\nregion = us-east-1\n"
    "[profile keys]\naws_access_key_id = AKIDSOURCE\naws_secret_access_key = s\n"
)


def test_from_a_role_that_is_assumed_once_for_many_commands(user: User) -> None:
    sts = user.world.sts()
    user.write(".aws/config", ROLE.format(arn=ROLE_ARN))
    environ = {"AWS_PROFILE": "p", "AWS_ENDPOINT_URL_STS": sts.url}
    assert [user.key_used(**environ) for _ in range(3)] == ["ASIAROLE1"] * 3
    assert len(sts.requests) == 1


def test_a_session_that_was_revoked_is_replaced_without_a_word(user: User) -> None:
    sts = user.world.sts()
    user.write(".aws/config", ROLE.format(arn=ROLE_ARN))
    environ = {"AWS_PROFILE": "p", "AWS_ENDPOINT_URL_STS": sts.url}
    assert user.key_used(**environ) == "ASIAROLE1"
    user.world.keys.given["ASIAROLE1"] = ("another secret", "")
    assert user.key_used(**environ) == "ASIAROLE2"


@pytest.mark.skipif(not AWS_CLI.exists(), reason="needs the AWS CLI")
def test_a_session_is_shared_with_the_aws_cli_both_ways(user: User) -> None:
    sts = user.world.sts()
    user.write(".aws/config", ROLE.format(arn=ROLE_ARN))
    environ = {"AWS_PROFILE": "p", "AWS_ENDPOINT_URL_STS": sts.url}

    def ask_the_aws_cli() -> None:
        line = [str(AWS_CLI), "sts", "get-caller-identity"]
        subprocess.run(line, env={**user.cli.environ, **environ}, check=True, capture_output=True)

    def assumed() -> int:
        return sum(b"Action=AssumeRole&" in request.body for request in sts.requests)

    ask_the_aws_cli()
    assert user.key_used(**environ) == "ASIAROLE1"
    assert assumed() == 1
    for file in (user.home / ".aws" / "cli" / "cache").iterdir():
        file.unlink()
    key = user.key_used(**environ)
    ask_the_aws_cli()
    assert key in sts.requests[-1].get("authorization")
    assert assumed() == 2


def test_from_a_web_identity(user: User) -> None:
    sts = user.world.sts()
    token = user.write("token", "jwt-of-the-cluster")
    environ = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE_ARN, "AWS_ENDPOINT_URL_STS": sts.url}
    assert user.key_used(**environ) == "ASIAROLE1"
    assert b"jwt-of-the-cluster" in sts.requests[0].body


def test_from_a_container(user: User) -> None:
    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{user.world.container().url}/keys",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": CONTAINER_TOKEN,
    }
    assert user.key_used(**environ) == "ASIABOX1"


def test_from_an_instance_and_never_through_a_proxy(user: User) -> None:
    proxy = user.world.start(lambda request: Answer(500))
    environ = {
        "AWS_EC2_METADATA_DISABLED": "false",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": user.world.instance().url,
        "HTTP_PROXY": proxy.url,
        "http_proxy": proxy.url,
    }
    assert user.key_used(**environ) == "ASIAEC21"
    assert proxy.connections == 0


def test_an_instance_s_metadata_can_be_switched_off(user: User) -> None:
    instance = user.world.instance()
    done = user.ps(AWS_EC2_METADATA_SERVICE_ENDPOINT=instance.url)
    assert done.error["code"] == "credentials_not_found"
    assert instance.connections == 0


@pytest.mark.parametrize("verb", [("ls",), ("--help",), ("version",)])
def test_commands_that_need_no_cloud_ask_nobody(user: User, verb: tuple[str, ...]) -> None:
    instance = user.world.instance()
    user.write(".agent_sandbox/state.json", json.dumps({"sandboxes": {}}))
    done = user.cli(
        *verb, AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=instance.url, AWS_PROFILE="nobody"
    )
    assert done.status == 0
    assert instance.connections == 0


def test_metadata_that_is_silent_costs_its_short_timeout(user: User) -> None:
    silent = user.world.stack.enter_context(_silence())
    done = user.ps(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=silent)
    assert "no answer within 1 s" in done.error["message"]


def _silence():
    import contextlib
    import socket

    @contextlib.contextmanager
    def listening() -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"

    return listening()


def test_fifty_sandboxes_wait_once_for_what_is_not_there(user: User) -> None:
    counter = user.home / "count"
    record = {"microvm_id": "microvm-1", "endpoint": "host", "region": "eu-west-1"}
    user.write(".agent_sandbox/state.json", json.dumps({"sandboxes": {f"web{n}": record for n in range(50)}}))
    script = user.write("keys.sh", f"echo x >> {counter}; echo no luck >&2; exit 1\n")
    user.write(".aws/config", f"[default]\ncredential_process = sh {script}\n")
    done = user.cli("ls", "--json")
    assert done.status == 0
    listed = done.data["sandboxes"]
    assert [one["error"]["code"] for one in listed] == ["credentials_broken"] * 50
    assert counter.read_text() == "x\n"


# -- what a user reads -------------------------------------------------------------------------------------------------

PROCESS = "[default]\ncredential_process = {}\n"
FAULTS = {
    "none": ({}, "", "credentials_not_found", "switched off by AWS_EC2_METADATA_DISABLED", "aws configure"),
    "half": ({"AWS_ACCESS_KEY_ID": "A"}, "", "credentials_broken", "AWS_SECRET_ACCESS_KEY is not", "Set both"),
    "ended": (
        {
            "AWS_ACCESS_KEY_ID": "A",
            "AWS_SECRET_ACCESS_KEY": "B",
            "AWS_CREDENTIAL_EXPIRATION": "2020-01-01T00:00:00Z",
        },
        "",
        "credentials_broken",
        "have ended: 2020",
        "Export new ones",
    ),
    "no such profile": (
        {"AWS_PROFILE": "nobody"},
        "",
        "credentials_not_found",
        "no profile 'nobody' in",
        "AWS_PROFILE",
    ),
    "damaged file": ({}, "[default\nx", "credentials_broken", "config cannot be used", "Repair"),
    "process fails": (
        {},
        PROCESS.format("sh -c 'echo log in >&2; exit 1'"),
        "credentials_broken",
        "log in",
        "Run by hand",
    ),
    "process prints a page": ({}, PROCESS.format("echo '<html>'"), "credentials_broken", "understood", "Run by hand"),
    "role without a source": (
        {},
        f"[default]\nrole_arn = {ROLE_ARN}\n",
        "credentials_broken",
        "source_profile",
        "Repair profile default",
    ),
    "role that asks for a code": (
        {"AWS_PROFILE": "p"},
        ROLE.format(arn=ROLE_ARN).replace("source_profile", "mfa_serial = arn:aws:iam::1:mfa/me\nsource_profile"),
        "credentials_broken",
        "MFA code, and there is no terminal",
        "aws sts get-caller-identity",
    ),
}


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case)
def test_credentials_that_are_absent_or_broken_are_said_in_one_line(user: User, case: str) -> None:
    environ, config, code, text, hint = FAULTS[case]
    if config:
        user.write(".aws/config", config)
    done = user.ps(**environ)
    assert done.status == 1
    assert done.error["code"] == code
    assert text in done.error["message"]
    assert hint in done.error["hint"]
    done = user.cli("ps", "web", **environ)
    assert (done.status, done.out) == (1, b"")
    first, second = done.remarks.splitlines()
    assert first.startswith("vmnest: ")
    assert text in first
    assert hint in second


# -- moto as STS, and as the judge of what it gave out -----------------------------------------------------------------

REGION = "us-east-1"
ALLOW_ALL = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
TRUST_ALL = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]}
)


@dataclass
class Judge:
    url: str
    access_key: str
    secret_key: str
    role_arn: str

    def who(self, source: chain.ChainSource) -> tuple[int, bytes]:
        """What GetCallerIdentity, signed by us with the source's keys, answers."""
        body = b"Action=GetCallerIdentity&Version=2011-06-15"
        headers = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")]
        signature = signing.sign(
            method="POST",
            url=f"{self.url}/",
            headers=headers,
            body_sha256=hashlib.sha256(body).hexdigest(),
            credentials=source.get(),
            region=REGION,
            service="sts",
            when=datetime.now(timezone.utc),
        )
        sender = transport.Transport(environ={})
        try:
            with sender.send(
                "POST", f"{self.url}/", headers=[*headers, *signature], body=body, deadline=Deadline(20)
            ) as response:
                return response.status, response.read(2**20)
        finally:
            sender.close()


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with serving_moto() as url:
        session = boto3.Session(aws_access_key_id="setup", aws_secret_access_key="setup", region_name=REGION)
        iam = session.client("iam", endpoint_url=url)
        iam.create_user(UserName="user")
        key = iam.create_access_key(UserName="user")["AccessKey"]
        iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=ALLOW_ALL)
        role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=TRUST_ALL)["Role"]["Arn"]
        iam.put_role_policy(RoleName="reader", PolicyName="all", PolicyDocument=ALLOW_ALL)
        switch_on_authentication(url)
        yield Judge(url, key["AccessKeyId"], key["SecretAccessKey"], role)


@pytest.fixture
def home(tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user of the judge's, in this process."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", judge.url)
    (tmp_path / ".aws").mkdir()
    return tmp_path


def test_an_assumed_role_is_who_it_says(judge: Judge, home: Path) -> None:
    keys = f"aws_access_key_id = {judge.access_key}\naws_secret_access_key = {judge.secret_key}\n"
    (home / ".aws" / "credentials").write_text(f"[keys]\n{keys}")
    (home / ".aws" / "config").write_text(
        f"[profile p]\nrole_arn = {judge.role_arn}\nsource_profile = keys\nrole_session_name = me\n"
    )
    for _ in range(2):  # the second from the cache
        status, body = judge.who(chain.ChainSource("p", environ=os.environ, region=REGION))
        assert status == 200
        assert b"assumed-role/reader/me" in body


def test_a_role_assumed_with_a_wrong_secret_is_refused_by_the_judge(judge: Judge, home: Path) -> None:
    keys = f"aws_access_key_id = {judge.access_key}\naws_secret_access_key = wrong\n"
    (home / ".aws" / "credentials").write_text(f"[keys]\n{keys}")
    (home / ".aws" / "config").write_text(f"[profile p]\nrole_arn = {judge.role_arn}\nsource_profile = keys\n")
    with pytest.raises(errors.CredentialsBrokenError, match="SignatureDoesNotMatch") as caught:
        chain.ChainSource("p", environ=os.environ, region=REGION).get()
    assert "trust policy" in caught.value.hint


def test_a_web_identity_is_who_it_says(judge: Judge, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("a.web.token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", judge.role_arn)
    monkeypatch.setenv("AWS_ROLE_SESSION_NAME", "pod")
    source = chain.ChainSource(environ=os.environ, region=REGION)
    switch_on_authentication(judge.url, after=1)  # this one call is not signed, which moto does not know
    source.get()
    status, body = judge.who(source)
    assert status == 200
    assert b"assumed-role/reader/pod" in body
