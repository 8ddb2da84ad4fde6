"""Where credentials come from, held to botocore's own choice."""

import os
import re
import subprocess
import sys

import pytest

from vmnest import errors
from vmnest.aws import chain, sources

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": "secret-env"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home without keys, in a process that cannot reach an instance's metadata."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def write(home, *, config: str = "", keys: str = "") -> dict[str, str]:
    (home / ".aws" / "config").write_text(config)
    (home / ".aws" / "credentials").write_text(keys)
    return {"HOME": str(home)}


KEYS = "[default]\naws_access_key_id = AKIDFILE\naws_secret_access_key = secret-file\n"
CASES = {
    "environment": (ENVIRONMENT, "", "", None),
    "environment with a token": ({**ENVIRONMENT, "AWS_SESSION_TOKEN": "token"}, "", "", None),
    "environment with an old token": (
        {**ENVIRONMENT, "AWS_SESSION_TOKEN": "new", "AWS_SECURITY_TOKEN": "old"},
        "",
        "",
        None,
    ),
    "environment before file": (ENVIRONMENT, "", KEYS, None),
    "environment before a profile of the environment": ({**ENVIRONMENT, "AWS_PROFILE": "default"}, "", KEYS, None),
    "named profile before environment": (ENVIRONMENT, "", KEYS, "default"),
    "file": ({}, "", KEYS, None),
    "empty variable, file": ({"AWS_ACCESS_KEY_ID": ""}, "", KEYS, None),
    "token in file": ({}, "", KEYS + "aws_session_token = tok\n", None),
    "keys in config": (
        {},
        "[profile p]\naws_access_key_id = AKIDCFG\naws_secret_access_key = s\naws_session_token = t\n",
        "",
        "p",
    ),
    "file before config, tokens not mixed": (
        {},
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\naws_session_token = C\n",
        KEYS,
        None,
    ),
    "process": (
        {},
        '[default]\ncredential_process = echo \'{"Version":1,"AccessKeyId":"AKIDP","SecretAccessKey":"sp"}\'\n',
        "",
        None,
    ),
    "file before process": ({}, "[default]\ncredential_process = false\n", KEYS, None),
    "process before config": (
        {},
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
        'credential_process = echo \'{"Version":1,"AccessKeyId":"AKIDP","SecretAccessKey":"sp"}\'\n',
        "",
        None,
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case)
def test_the_source_is_the_one_botocore_takes(home, monkeypatch, case):
    from botocore.session import Session

    variables, config, keys, profile = CASES[case]
    environ = {**write(home, config=config, keys=keys), **variables}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = sources.resolve(environ=environ, profile=profile).get()
    judge = Session(profile=profile).get_credentials().get_frozen_credentials()
    assert found.access_key == judge.access_key
    assert found.secret_key.reveal() == judge.secret_key
    assert (found.token.reveal() if found.token else None) == judge.token


@pytest.mark.parametrize("profile", [None, "default"])
def test_plain_keys_need_no_botocore(home, profile):
    write(home, keys=KEYS)
    program = (
        "import sys, os\n"
        "from vmnest.aws import sources\n"
        f"print(sources.resolve(environ=os.environ, profile={profile!r}).get().access_key)\n"
        "print('botocore' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["AKIDFILE", "False"]


@pytest.mark.parametrize(
    "line",
    [
        "role_arn = arn:aws:iam::111122223333:role/x\nsource_profile = other",
        "web_identity_token_file = /x\nrole_arn = arn:aws:iam::111122223333:role/x",
        "sso_session = x\nsso_account_id = 1\nsso_role_name = r",
        "sso_start_url = https://x\nsso_account_id = 1",
    ],
)
def test_a_profile_that_needs_more_goes_to_the_chain_even_with_keys(home, line):
    environ = write(home, config=f"[default]\n{line}\n", keys=KEYS)
    assert isinstance(sources.resolve(environ=environ).choose(), chain.ChainSource)


def test_web_identity_of_the_environment_comes_before_files(home):
    environ = {**write(home, keys=KEYS), "AWS_WEB_IDENTITY_TOKEN_FILE": "/x", "AWS_ROLE_ARN": "y"}
    assert isinstance(sources.resolve(environ=environ).choose(), chain.ChainSource)


def test_a_profile_that_nobody_knows_is_named(home):
    environ = {**write(home, keys=KEYS), "AWS_PROFILE": "nobody"}
    with pytest.raises(errors.CredentialsNotFoundError, match=r"no profile 'nobody' in .*config or .*credentials"):
        sources.resolve(environ=environ)


@pytest.mark.parametrize(
    ("variables", "keys"),
    [
        ({"AWS_ACCESS_KEY_ID": "A"}, ""),
        ({"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": ""}, ""),
        ({}, "[default]\naws_access_key_id = A\n"),
        ({**ENVIRONMENT, "AWS_CREDENTIAL_EXPIRATION": "tomorrow"}, ""),
    ],
)
def test_half_a_key_is_broken_and_not_absent(home, variables, keys):
    with pytest.raises(errors.CredentialsBrokenError):
        sources.resolve(environ={**write(home, keys=keys), **variables}).get()


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00", "2026-01-31T14:00:00+02:00"])
def test_the_environment_may_say_when_its_keys_expire(text, fake_clock):
    environ = {**ENVIRONMENT, "AWS_CREDENTIAL_EXPIRATION": text}
    source = sources.EnvironmentSource(environ, clock=fake_clock)
    fake_clock.advance(1769860800.0 - fake_clock.time() - 1)
    assert source.get().expires_at == 1769860800.0
    fake_clock.advance(1)
    with pytest.raises(errors.CredentialsBrokenError, match=r"AWS_ACCESS_KEY_ID have ended: 2026-01-31T1") as caught:
        source.get()
    assert "AWS_CREDENTIAL_EXPIRATION" in caught.value.hint


def test_keys_of_the_environment_are_taken_as_they_are_now(home):
    environ = {**write(home, keys=KEYS), **ENVIRONMENT}
    source = sources.resolve(environ=environ)
    assert source.get().access_key == "AKIDENV"
    environ["AWS_ACCESS_KEY_ID"] = "AKIDNEW"
    assert source.get().access_key == "AKIDNEW"
    del environ["AWS_ACCESS_KEY_ID"]
    assert source.get().access_key == "AKIDFILE"
    environ["AWS_PROFILE"] = "nobody"
    with pytest.raises(errors.CredentialsNotFoundError):
        source.get()


def test_keys_that_were_rotated_on_the_disk_are_read_again(home):
    source = sources.resolve(environ=write(home, keys=KEYS))
    assert source.get().access_key == "AKIDFILE"
    write(home, keys=KEYS.replace("AKIDFILE", "AKIDNEXT"))
    assert source.get().access_key == "AKIDNEXT"
    new = home / "new"
    new.write_text(KEYS.replace("AKIDFILE", "AKIDLAST"))
    new.replace(home / ".aws" / "credentials")
    assert source.get().access_key == "AKIDLAST"


def test_keys_that_changed_while_they_were_refused_are_others(home):
    environ = {**write(home, keys=KEYS), **ENVIRONMENT}
    for source in (sources.EnvironmentSource(environ), sources.resolve(environ=environ)):
        environ["AWS_ACCESS_KEY_ID"] = "AKIDENV"
        refused = source.get()
        assert source.renew(refused) is False
        environ["AWS_ACCESS_KEY_ID"] = "AKIDNEW"
        assert source.renew(refused) is True
    source = sources.resolve(environ=write(home, keys=KEYS))
    refused = source.get()
    assert source.renew(refused) is False
    write(home, keys=KEYS.replace("AKIDFILE", "AKIDNEXT"))
    assert source.renew(refused) is True


def test_keys_with_a_line_end_are_broken(home):
    environ = {**write(home), **ENVIRONMENT, "AWS_SESSION_TOKEN": "token\r"}
    with pytest.raises(errors.CredentialsBrokenError, match="session token from AWS_ACCESS_KEY_ID"):
        sources.resolve(environ=environ).get()


def test_a_profile_that_becomes_another_kind_of_source_is_one(home):
    source = sources.resolve(environ=write(home, keys=KEYS))
    assert source.get().access_key == "AKIDFILE"
    write(
        home,
        config='[default]\ncredential_process = echo \'{"Version":1,"AccessKeyId":"AKIDP","SecretAccessKey":"sp"}\'\n',
    )
    assert source.get().access_key == "AKIDP"
    write(home, keys=KEYS)
    assert source.get().access_key == "AKIDFILE"


@pytest.mark.parametrize(
    ("variables", "config", "keys", "origin"),
    [
        (ENVIRONMENT, "", "", "AWS_ACCESS_KEY_ID"),
        ({}, "", KEYS, r"profile 'default' in .*/\.aws/credentials"),
        ({}, KEYS, "", r"profile 'default' in .*/\.aws/config"),
    ],
)
def test_keys_tell_where_they_are_from(home, variables, config, keys, origin):
    environ = {**write(home, config=config, keys=keys), **variables}
    assert re.fullmatch(origin, sources.resolve(environ=environ).get().origin)


def test_one_source_serves_the_whole_process(home):
    (home / "keys.sh").write_text(
        f'echo x >> {home}/count; echo \'{{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "s"}}\'\n'
    )
    write(home, config=f"[default]\ncredential_process = sh {home}/keys.sh\n")
    os.utime(home / ".aws" / "config", (1, 1))  # long ago: what was just written is read again
    os.utime(home / ".aws" / "credentials", (1, 1))
    made = [sources.shared(environ=os.environ, region="eu-west-1") for _ in range(3)]
    assert [source.get().access_key for source in made] == ["AKIDP"] * 3
    assert (home / "count").read_text() == "x\n"
    assert sources.shared(environ=dict(os.environ), region="eu-west-1") is not made[0]


def test_a_variable_that_changes_is_noticed_whatever_it_is(home, monkeypatch):
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "first"))
    for name in ("first", "second"):
        (home / name).write_text(KEYS.replace("AKIDFILE", f"AKID{name}"))
    source = sources.shared(environ=os.environ, region="eu-west-2")
    assert source.get().access_key == "AKIDfirst"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "second"))
    assert source.get().access_key == "AKIDsecond"


def test_keys_are_looked_at_with_where_they_are_from_and_when_they_end(home):
    found = sources.resolve(environ={**ENVIRONMENT, "AWS_CREDENTIAL_EXPIRATION": "2100-01-01T00:00:00Z"}).look()
    assert (found.kind, found.expires_at, found.is_renewed) == ("environment", 4102444800.0, False)
    assert found.credentials.access_key == "AKIDENV"
    found = sources.resolve(environ=write(home, keys=KEYS)).look()
    assert (found.kind, found.expires_at, found.is_renewed) == ("profile", None, False)
    with pytest.raises(errors.CredentialsBrokenError):
        sources.resolve(environ={"AWS_ACCESS_KEY_ID": "AKID"}).look()
