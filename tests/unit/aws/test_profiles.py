"""AWS's shared files, held to botocore's reading of them."""

import os

import pytest

from vmnest import errors
from vmnest.aws import profiles

CONFIG = """
[default]
region = us-east-1
aws_access_key_id = AKIDCONFIG
# a comment
[profile dev]
region=eu-west-1
aws_session_token = of-config
services = mine
s3 =
    addressing_style = path
[profile "with space"]
region = ap-south-1
[services mine]
lambda_microvms =
  endpoint_url = http://127.0.0.1:1
  other = x
s3 =
  endpoint_url = http://127.0.0.1:2
[sso-session x]
sso_region = us-east-1
"""
CREDENTIALS = """
[dev]
aws_access_key_id = AKIDDEV
aws_secret_access_key = a/b+c=d%(x)s;#
[only-keys]
aws_access_key_id = AKIDONLY
region = sa-east-1
[profile not-here]
region = x
"""


@pytest.fixture
def environ(tmp_path):
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "config").write_text(CONFIG)
    (folder / "credentials").write_text(CREDENTIALS)
    return {"HOME": str(tmp_path)}


def test_a_profile_is_read_from_both_files(environ):
    found = profiles.load(environ=environ, profile="dev")
    assert found.is_chosen
    assert found.exists
    assert found.get("region") == "eu-west-1"
    assert found.get("aws_secret_access_key") == "a/b+c=d%(x)s;#"
    assert found.services["lambda_microvms"]["endpoint_url"] == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("variables", "profile", "region"),
    [
        ({}, None, "us-east-1"),
        ({"AWS_PROFILE": "dev"}, None, "eu-west-1"),
        ({"AWS_PROFILE": "dev", "AWS_DEFAULT_PROFILE": "with space"}, None, "ap-south-1"),
        ({"AWS_PROFILE": "dev"}, "only-keys", "sa-east-1"),
        ({"AWS_PROFILE": "missing"}, None, ""),
        ({"AWS_PROFILE": "not-here"}, None, ""),
        ({"AWS_PROFILE": "services mine"}, None, ""),
    ],
)
def test_the_profile_that_counts_is_the_one_botocore_takes(environ, monkeypatch, variables, profile, region):
    from botocore.session import Session

    found = profiles.load(environ={**environ, **variables}, profile=profile)
    assert found.get("region") == region
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environ, **variables}.items():
        monkeypatch.setenv(name, value)
    known = Session(profile=profile).full_config["profiles"]
    assert known.get(found.name, {}).get("region", "") == region
    assert found.exists == (found.name in known)


def test_the_files_may_lie_elsewhere(tmp_path):
    (tmp_path / "c").write_text("[default]\nregion = a-1\n")
    (tmp_path / "k").write_text("[default]\naws_access_key_id = K\n")
    environ = {"AWS_CONFIG_FILE": str(tmp_path / "c"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "k")}
    found = profiles.load(environ=environ)
    assert (found.get("region"), found.get("aws_access_key_id")) == ("a-1", "K")


def test_a_profile_may_name_a_ca_bundle(tmp_path):
    (tmp_path / "c").write_text("[default]\nca_bundle = /bundle.pem\n[profile none]\n")
    environ = {"HOME": "/nonexistent", "AWS_CONFIG_FILE": str(tmp_path / "c")}
    assert profiles.ca_bundle(environ=environ) == "/bundle.pem"
    assert profiles.ca_bundle(environ=environ, profile="none") is None
    assert profiles.ca_bundle(environ={**environ, "AWS_CA_BUNDLE": "/other.pem"}) is None


@pytest.mark.parametrize("path", ["none", "none/in/none"])
def test_missing_files_are_empty_ones(tmp_path, path):
    found = profiles.load(environ={"HOME": str(tmp_path / path)})
    assert not found.exists
    assert not found.is_chosen
    assert found.name == "default"


@pytest.mark.parametrize(
    "text",
    [
        b"aws_secret_access_key = hunter2\n",
        b"[a]\n[a]\nx = hunter2\n",
        b"[a]\nx = 1\nx = hunter2\n",
        b"[a\nhunter2",
        b"[a]\nhunter2\n",
        b"\xff\xfe hunter2",
    ],
)
def test_a_damaged_file_is_named_and_not_quoted(tmp_path, text):
    (tmp_path / "k").write_bytes(text)
    with pytest.raises(errors.CredentialsBrokenError, match=str(tmp_path / "k")) as caught:
        profiles.load(environ={"HOME": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "k")})
    assert "hunter2" not in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("second", ["[profile default]", '[profile "default"]', "[profile 'default'] # twice"])
def test_of_two_spellings_of_a_profile_botocore_s_counts(tmp_path, monkeypatch, second, order):
    from botocore.session import Session

    sections = ["[default]\nregion = eu-west-1\n", f"{second}\nendpoint_url = http://b\n"][::order]
    (tmp_path / "c").write_text("".join(sections))
    environ = {"AWS_CONFIG_FILE": str(tmp_path / "c"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert profiles.load(environ=environ).config == Session().get_scoped_config()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xef\xbb\xbf[default]\n", "byte order mark"), ("[default]\n".encode("utf-16"), "not UTF-8")],
    ids=["mark", "UTF-16"],
)
def test_what_an_editor_hides_is_said(tmp_path, content, said):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(errors.CredentialsBrokenError, match=said):
        profiles.load(environ={"HOME": "/nonexistent", "AWS_CONFIG_FILE": str(tmp_path / "c")})


def test_a_folder_in_place_of_a_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(errors.CredentialsBrokenError, match=str(tmp_path)):
        profiles.load(environ={"HOME": "/nonexistent", "AWS_CONFIG_FILE": str(tmp_path)})


def test_a_file_is_read_again_when_it_was_written(tmp_path):
    environ = {"HOME": str(tmp_path)}
    assert profiles.load(environ=environ).get("region") == ""
    (tmp_path / ".aws").mkdir()
    for region in ("eu-west-1", "us-east-1"):
        (tmp_path / ".aws" / "config").write_text(f"[default]\nregion = {region}\n")
        assert profiles.load(environ=environ).get("region") == region
    (tmp_path / ".aws" / "config").unlink()
    assert profiles.load(environ=environ).get("region") == ""


def test_a_file_that_is_written_twice_in_a_tick_is_read_twice(tmp_path):
    path = tmp_path / "config"
    environ = {"HOME": "/nonexistent", "AWS_CONFIG_FILE": str(path)}
    for number in range(50):
        path.write_text(f"[default]\nregion = eu-west-{number % 10}\n")
        assert profiles.load(environ=environ).get("region") == f"eu-west-{number % 10}"


def test_a_file_that_lies_still_is_read_once(tmp_path):
    path = tmp_path / "config"
    path.write_text("[default]\nregion = eu-west-1\n")
    os.utime(path, (1, 1))
    environ = {"HOME": str(tmp_path), "AWS_CONFIG_FILE": str(path)}
    before = profiles._parse_version.cache_info().misses
    for _ in range(5):
        assert profiles.load(environ=environ).get("region") == "eu-west-1"
    assert profiles._parse_version.cache_info().misses == before + 2, "config, and the credentials that are not there"
