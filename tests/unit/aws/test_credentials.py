"""Where credentials come from, held to botocore's own choice; and that secrets do not print."""

import os
import subprocess
import sys
import threading

import pytest

from vmnest import errors
from vmnest.aws import credentials

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


def test_a_secret_does_not_print():
    made = credentials.build("AKID", "hunter2", token="hunter3")
    shown = (
        f"{made} {made!r} {made.secret_key} {made.secret_key!r} {made.secret_key:>20} {[made.token]} %s" % made.token
    )
    assert "hunter" not in shown
    assert made.secret_key.reveal() == "hunter2"
    assert made.secret_key == credentials.Secret("hunter2") != credentials.Secret("x")
    assert len({made.secret_key, credentials.Secret("hunter2")}) == 1


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
    found = credentials.resolve(environ=environ, profile=profile).get()
    judge = Session(profile=profile).get_credentials().get_frozen_credentials()
    assert found.access_key == judge.access_key
    assert found.secret_key.reveal() == judge.secret_key
    assert (found.token.reveal() if found.token else None) == judge.token


@pytest.mark.parametrize("profile", [None, "default"])
def test_plain_keys_need_no_botocore(home, profile):
    write(home, keys=KEYS)
    program = (
        "import sys, os\n"
        "from vmnest.aws import credentials\n"
        f"print(credentials.resolve(environ=os.environ, profile={profile!r}).get().access_key)\n"
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
    assert isinstance(credentials.resolve(environ=environ), credentials.ChainSource)


def test_web_identity_of_the_environment_comes_before_files(home):
    environ = {**write(home, keys=KEYS), "AWS_WEB_IDENTITY_TOKEN_FILE": "/x", "AWS_ROLE_ARN": "y"}
    assert isinstance(credentials.resolve(environ=environ), credentials.ChainSource)


def test_nothing_anywhere_says_where_it_was_looked_for(home):
    source = credentials.resolve(environ={"HOME": str(home)})
    with pytest.raises(errors.CredentialsNotFoundError, match=r"AWS_ACCESS_KEY_ID.*~/\.aws/credentials") as caught:
        source.get()
    assert "--local" in caught.value.hint


def test_a_profile_that_nobody_knows_is_named(home):
    environ = {**write(home, keys=KEYS), "AWS_PROFILE": "nobody"}
    with pytest.raises(errors.CredentialsNotFoundError, match=r"no profile 'nobody' in .*config or .*credentials"):
        credentials.resolve(environ=environ)


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
        credentials.resolve(environ={**write(home, keys=keys), **variables})


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00", "2026-01-31T14:00:00+02:00"])
def test_the_environment_may_say_when_its_keys_expire(text):
    environ = {**ENVIRONMENT, "AWS_CREDENTIAL_EXPIRATION": text}
    assert credentials.resolve(environ=environ).get().expires_at == 1769860800.0


def test_a_source_that_fails_is_broken_and_not_absent(home):
    environ = write(home, config="[default]\ncredential_process = false\n")
    with pytest.raises(errors.CredentialsBrokenError, match="source of AWS credentials fails") as caught:
        credentials.resolve(environ=environ).get()
    assert "\n" not in caught.value.message


def test_keys_that_expire_are_taken_anew(home):
    counter = home / "count"
    script = home / "keys.py"
    script.write_text(
        "import datetime, json, pathlib\n"
        f"path = pathlib.Path({str(counter)!r})\n"
        "count = int(path.read_text()) + 1 if path.exists() else 1\n"
        "path.write_text(str(count))\n"
        "end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'AKID{count}', 'SecretAccessKey': 's', 'SessionToken': 't',\n"
        "                  'Expiration': end.isoformat()}))\n"
    )
    environ = write(home, config=f"[default]\ncredential_process = {sys.executable} {script}\n")
    source = credentials.resolve(environ=environ)
    # Botocore renews what has less than ten minutes left.
    assert source.get().access_key != source.get().access_key


def test_a_chain_is_walked_once_by_many_threads(home):
    counter = home / "count"
    keys = '{"Version":1,"AccessKeyId":"AKIDP","SecretAccessKey":"sp"}'
    script = home / "keys.sh"
    script.write_text(f"echo x >> {counter}\necho '{keys}'\n")
    environ = write(home, config=f"[default]\ncredential_process = sh {script}\n")
    source = credentials.resolve(environ=environ)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(source.get().access_key)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["AKIDP"] * 8
    assert counter.read_text() == "x\n"
