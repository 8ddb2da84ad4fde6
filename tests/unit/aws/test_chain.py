"""botocore's chain, seen to give keys from emulated counterparts of every provider, and to fail in words."""

import getpass
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.emulated import CONTAINER_TOKEN, PORTAL_TOKEN, World, moment
from tests.support.paths import ROOT
from tests.support.peers import Answer, Silence, json_answer
from vmnest import errors
from vmnest.aws import chain, model, sources

SSO_URL = "https://login.example/start"
ROLE_ARN = "arn:aws:iam::111122223333:role/reader"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home without keys, in a process that cannot reach an instance's metadata."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def write(home: Path, config: str) -> None:
    (home / ".aws" / "config").write_text(config)


def write_token(home: Path, key: str, **members: object) -> None:
    """A token in the cache that ``aws sso login`` fills."""
    import hashlib

    folder = home / ".aws" / "sso" / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    token = {"startUrl": SSO_URL, "region": "us-east-1", "accessToken": PORTAL_TOKEN, "expiresAt": moment(3600)}
    (folder / f"{hashlib.sha1(key.encode()).hexdigest()}.json").write_text(json.dumps({**token, **members}))


def get(**options: object):
    return chain.ChainSource(environ=os.environ, **options).get()


# botocore looks for SSO's tokens in the home that it had when it was imported.
IN_CHILD = """
import json, os, sys
from tests.support.clock import FakeClock
from vmnest import errors
from vmnest.aws import chain
clock = FakeClock()
source = chain.ChainSource("p", environ=os.environ, clock=clock)
for line in sys.stdin:
    clock.advance(chain.REMEMBER_FAILURE_SECONDS)
    try:
        found = source.get()
        print(json.dumps({"key": found.access_key, "origin": found.origin, "token": bool(found.token)}), flush=True)
    except errors.CredentialsBrokenError as error:
        print(json.dumps(error.to_wire()), flush=True)
"""


@pytest.fixture
def ask(home):
    """Asks a source in a process of its own, the same one each time."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", IN_CHILD],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:

        def get_in_child() -> dict[str, object]:
            child.stdin.write("\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        yield get_in_child
        child.stdin.close()
        assert child.wait(20) == 0


# -- each provider -----------------------------------------------------------------------------------------------------


def process(home: Path, answer: str) -> None:
    script = home / "keys.sh"
    script.write_text(f"cat <<'E'\n{answer}\nE\n")
    write(home, f"[default]\ncredential_process = sh {script}\n")


def test_a_process_gives_keys(home):
    process(home, '{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "sp"}')
    found = get()
    assert (found.access_key, found.secret_key.reveal(), found.token) == ("AKIDP", "sp", None)
    assert found.origin == "the credential_process of profile default"


@pytest.fixture
def portal(home, world: World, monkeypatch):
    peer = world.portal()
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", peer.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO_OIDC", peer.url)
    return peer


def test_a_process_does_not_take_what_is_piped_to_us(home):
    process(home, '{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "sp"}')
    with (home / "keys.sh").open("a") as script:
        script.write("cat >&2\n")
    program = (
        "import os, sys\nfrom vmnest.aws import chain\n"
        "print(chain.ChainSource(environ=os.environ).get().access_key, sys.stdin.read())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, input="for us", capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("AKIDP for us\n", "")


def test_an_sso_login_gives_keys(home, portal, ask):
    write(
        home,
        f"[profile p]\nsso_start_url = {SSO_URL}\nsso_region = us-east-1\nsso_account_id = 111122223333\n"
        "sso_role_name = reader\n",
    )
    write_token(home, SSO_URL)
    assert ask() == {"key": "ASIASSO1", "origin": "the SSO login of profile p", "token": True}
    assert len(portal.requests) == 1


SSO_SESSION = (
    "[profile p]\nsso_session = s\nsso_account_id = 111122223333\nsso_role_name = reader\n"
    f"[sso-session s]\nsso_start_url = {SSO_URL}\nsso_region = us-east-1\n"
    "sso_registration_scopes = sso:account:access\n"
)


def test_an_sso_session_that_ends_is_renewed_by_its_refresh_token(home, portal, ask):
    write(home, SSO_SESSION)
    renewal = {
        "clientId": "c",
        "clientSecret": "x",
        "registrationExpiresAt": moment(9e6),
        "refreshToken": "first",
        "accessToken": "old",
        "expiresAt": moment(60),
    }
    write_token(home, "s", **renewal)
    assert ask()["key"] == "ASIASSO1"
    assert [request.target.partition("?")[0] for request in portal.requests] == ["/token", "/federation/credentials"]
    assert json.loads(portal.requests[0].body)["refreshToken"] == "first"


def test_a_role_is_assumed_with_another_profile_s_keys(home, world: World, monkeypatch):
    peer = world.sts()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", peer.url)
    write(
        home,
        f"[default]\nregion = us-east-1\n[profile p]\nrole_arn = {ROLE_ARN}\nsource_profile = keys\n"
        "[profile keys]\naws_access_key_id = AKIDSOURCE\naws_secret_access_key = s\n",
    )
    found = get(profile="p", region="eu-west-1")
    assert (found.access_key, found.origin) == ("ASIAROLE1", "the role of profile p")
    assert "AKIDSOURCE" in peer.requests[0].get("authorization")
    assert "/eu-west-1/sts/" in peer.requests[0].get("authorization"), "neither profile nor variable names a region"


def test_a_role_is_assumed_with_the_instance_s_keys_and_no_proxy(home, world: World, monkeypatch):
    metadata, peer = world.instance(), world.sts()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", peer.url)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
    write(home, f"[profile p]\nregion = eu-west-1\nrole_arn = {ROLE_ARN}\ncredential_source = Ec2InstanceMetadata\n")
    assert get(profile="p").access_key == "ASIAROLE2"
    assert "ASIAEC21" in peer.requests[0].get("authorization")


def test_a_role_is_assumed_with_keys_of_the_environment(home, world: World, monkeypatch):
    peer = world.sts()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", peer.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    write(home, f"[profile p]\nregion = eu-west-1\nrole_arn = {ROLE_ARN}\ncredential_source = Environment\n")
    assert get(profile="p").access_key == "ASIAROLE1"
    assert "AKIDENV" in peer.requests[0].get("authorization")


def test_a_web_identity_gives_keys(home, world: World, monkeypatch):
    peer = world.sts()
    (home / "token").write_text("jwt-of-the-cluster")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", peer.url)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE_ARN)
    found = get(region="eu-west-1")
    assert found.access_key == "ASIAROLE1"
    assert "WebIdentityToken=jwt-of-the-cluster" in peer.requests[0].body.decode()
    assert "web identity" in found.origin


@pytest.mark.parametrize("is_file", [False, True])
def test_a_container_gives_keys(home, world: World, monkeypatch, is_file):
    box, proxy = world.container(), world.start(lambda request: Answer(500))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{box.url}/keys")
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    if is_file:
        (home / "token").write_text(CONTAINER_TOKEN)
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(home / "token"))
    else:
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER_TOKEN)
    found = get()
    assert (found.access_key, found.origin) == ("ASIABOX1", "the container's role")
    assert proxy.connections == 0


def test_an_instance_gives_keys_whatever_the_proxy(home, world: World, monkeypatch):
    metadata, proxy = world.instance(), world.start(lambda request: Answer(500))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{metadata.url}/")
    monkeypatch.setenv("http_proxy", proxy.url)
    found = get()
    assert (found.access_key, found.origin) == ("ASIAEC21", "the instance's role")
    assert proxy.connections == 0


def test_the_settings_of_the_instance_s_metadata_are_botocore_s(home, world: World, monkeypatch):
    metadata = world.instance(version=1)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    write(
        home,
        f"[default]\nec2_metadata_service_endpoint = {metadata.url}\nec2_metadata_v1_disabled = true\n",
    )
    with pytest.raises(errors.CredentialsNotFoundError, match="instance's metadata: gives no token"):
        get()


# -- renewal -----------------------------------------------------------------------------------------------------------


def test_keys_that_are_about_to_end_are_renewed(home, world: World, monkeypatch):
    # Botocore renews what has less than ten minutes left.
    world.keys.lifetime = 300
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", world.container().url)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER_TOKEN)
    source = chain.ChainSource(environ=os.environ)
    first = source.get().access_key
    assert source.get().access_key != first
    world.keys.lifetime = 3600
    last = source.get().access_key
    assert source.get().access_key == last


def test_a_renewal_that_fails_while_the_keys_are_good_is_no_failure(home, world: World, monkeypatch):
    world.keys.lifetime = 800  # between the quarter of an hour in which it is tried and the ten minutes when it must be
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    script = home / "keys.sh"
    keys = {"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": moment(800)}
    script.write_text(f"[ -e {home}/used ] && exit 1; touch {home}/used; echo '{json.dumps(keys)}'\n")
    write(home, f"[default]\ncredential_process = sh {script}\n")
    source = chain.ChainSource(environ=os.environ)
    assert [source.get().access_key for _ in range(3)] == ["A"] * 3


def test_many_threads_ask_the_source_once(home):
    counter, keys = home / "count", '{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "sp"}'
    process(home, f"{keys}")
    with (home / "keys.sh").open("a") as script:
        script.write(f"echo x >> {counter}\n")
    source = chain.ChainSource(environ=os.environ)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(source.get().access_key)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["AKIDP"] * 8
    assert counter.read_text() == "x\n"


def test_a_failure_is_remembered_for_a_moment_only(home, fake_clock: FakeClock):
    counter = home / "count"
    (home / "keys.sh").write_text(f"echo x >> {counter}; echo no luck >&2; exit 1\n")
    write(home, f"[default]\ncredential_process = sh {home}/keys.sh\n")
    source = chain.ChainSource(environ=os.environ, clock=fake_clock)
    raised: list[errors.VmnestError] = []
    for _ in range(9):
        with pytest.raises(errors.CredentialsBrokenError, match="no luck") as caught:
            source.get()
        raised.append(caught.value)
    assert counter.read_text() == "x\n"
    assert len(set(map(id, raised))) == 9, "each thread has an error of its own"
    assert len({(error.message, error.hint) for error in raised}) == 1
    fake_clock.advance(chain.REMEMBER_FAILURE_SECONDS)
    process(home, '{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "sp"}')
    assert source.get().access_key == "AKIDP"


def test_a_child_of_fork_finds_its_own_keys_though_the_parent_was_finding(home):
    process(home, '{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "sp"}')
    source = chain.ChainSource(environ=os.environ)
    with source._own_state().lock:  # as a thread of the parent's would hold it
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, source.get().access_key.encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            assert stream.read() == b"AKIDP"
        os.waitpid(child, 0)


# -- the AWS CLI's cache of roles, and codes ---------------------------------------------------------------------------


@pytest.fixture
def role(home, world: World, monkeypatch):
    peer = world.sts()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", peer.url)
    monkeypatch.setenv("AWS_PROFILE", "p")
    write(
        home,
        f"[profile p]\nregion = eu-west-1\nrole_arn = {ROLE_ARN}\nsource_profile = keys\n"
        "[profile keys]\naws_access_key_id = AKIDSOURCE\naws_secret_access_key = s\n",
    )
    return peer


def test_a_role_is_assumed_once_for_many_commands(home, role):
    assert [get().access_key for _ in range(3)] == ["ASIAROLE1"] * 3
    assert len(role.requests) == 1
    (file,) = (home / ".aws" / "cli" / "cache").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_who_has_no_folder_for_aws_gets_none(home, role, monkeypatch, tmp_path):
    (home / ".aws" / "config").rename(home / "config")
    (home / ".aws").rmdir()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "config"))
    assert [get().access_key for _ in range(2)] == ["ASIAROLE1", "ASIAROLE2"]
    assert not (home / ".aws").exists()


def test_a_session_that_has_ended_is_not_taken_from_the_cache(home, role, world: World):
    world.keys.lifetime = 60
    assert [get().access_key for _ in range(2)] == ["ASIAROLE1", "ASIAROLE2"]


def test_a_session_that_was_revoked_is_replaced_past_the_cache(home, role):
    get()
    source = sources.resolve(environ=os.environ)
    refused = source.get()
    assert refused.access_key == "ASIAROLE1"
    assert source.renew(refused) is True
    assert source.get().access_key == "ASIAROLE2"
    assert source.renew(refused) is True, "another thread has been faster"
    assert [source.get().access_key, get().access_key] == ["ASIAROLE2"] * 2
    assert len(role.requests) == 2


def test_keys_without_another_session_stay_refused(home):
    process(home, '{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "sp"}')
    source = chain.ChainSource(environ=os.environ)
    assert source.renew(source.get()) is False


@pytest.mark.parametrize("content", ["", "{", "[]", '{"Credentials": {}}'])
def test_a_cache_that_is_damaged_is_done_without(home, role, content):
    get()
    (file,) = (home / ".aws" / "cli" / "cache").iterdir()
    file.write_text(content)
    assert get().access_key == "ASIAROLE2"
    assert get().access_key == "ASIAROLE2"


def test_a_cache_that_cannot_be_written_is_done_without(home, role):
    (home / ".aws" / "cli").write_text("in the way")
    assert [get().access_key for _ in range(2)] == ["ASIAROLE1", "ASIAROLE2"]


def test_a_code_is_asked_for_at_a_terminal_only(home, role, monkeypatch):
    with (home / ".aws" / "config").open("a") as config:
        config.write("[profile mfa]\nmfa_serial = arn:aws:iam::111122223333:mfa/me\n")
        config.write(f"region = eu-west-1\nrole_arn = {ROLE_ARN}\nsource_profile = keys\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(errors.CredentialsBrokenError, match="MFA code, and there is no terminal") as caught:
        get(profile="mfa")
    assert "aws sts get-caller-identity" in caught.value.hint
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(errors.CredentialsBrokenError):
        get(profile="mfa")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(getpass, "getpass", lambda prompt: "123456")
    assert get(profile="mfa").access_key == "ASIAROLE1"
    assert "TokenCode=123456" in role.requests[0].body.decode()


# -- how things stand --------------------------------------------------------------------------------------------------


def look(**options: object):
    return sources.resolve(environ=os.environ, **options).look()


def test_how_long_a_session_lasts_is_told_to_the_second(home, role, world: World):
    for world.keys.lifetime in (5000, 40_000):
        found = look(profile="p")
        assert (found.kind, found.is_renewed) == ("assume-role", True)
        assert found.expires_at == pytest.approx(time.time() + world.keys.lifetime, abs=10)
        shutil.rmtree(home / ".aws" / "cli")


def test_what_a_container_and_an_instance_give_is_told_apart(home, world: World, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", world.instance().url)
    assert (look().kind, look().is_renewed) == ("instance", True)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", world.container().url)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER_TOKEN)
    found = look()
    assert (found.kind, found.credentials.origin) == ("container", "the container's role")
    assert found.expires_at == pytest.approx(time.time() + 3600, abs=10)


def test_a_process_may_give_keys_without_an_end(home):
    process(home, '{"Version": 1, "AccessKeyId": "AKIDP", "SecretAccessKey": "sp"}')
    found = look()
    assert (found.kind, found.expires_at, found.is_renewed) == ("process", None, False)


def test_who_only_wants_to_know_is_asked_for_no_code(home, role, monkeypatch):
    write(
        home,
        f"[profile mfa]\nmfa_serial = arn:aws:iam::111122223333:mfa/me\nregion = eu-west-1\nrole_arn = {ROLE_ARN}\n"
        "source_profile = keys\n[profile keys]\naws_access_key_id = AKIDSOURCE\naws_secret_access_key = s\n",
    )
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(getpass, "getpass", lambda prompt: pytest.fail("asked"))
    with pytest.raises(errors.CredentialsBrokenError, match="MFA code, and nobody is asked") as caught:
        look(profile="mfa", is_hurried=True)
    assert "aws sts get-caller-identity" in caught.value.hint


def test_who_only_wants_to_know_waits_less(home, world: World, monkeypatch):
    monkeypatch.setattr(chain, "HURRIED", chain.HURRIED._replace(process=0.3, metadata=0.3))
    write(home, "[default]\ncredential_process = sleep 300\n")
    with pytest.raises(errors.CredentialsBrokenError, match=r"not ended after 0\.3 s"):
        look(is_hurried=True)
    write(home, "")
    silent = world.start(lambda request: Silence())
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", silent.url)
    monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "60")
    monkeypatch.setenv("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "10")
    with pytest.raises(errors.CredentialsNotFoundError, match=r"no answer within 0\.3 s"):
        look(is_hurried=True)


# -- absent, and broken ------------------------------------------------------------------------------------------------


def test_nothing_anywhere_says_where_it_was_looked_for(home, monkeypatch):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "elsewhere"))
    with pytest.raises(errors.CredentialsNotFoundError) as caught:
        sources.resolve(environ=os.environ).get()
    for part in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", f"{home}/.aws/credentials", f"{home}/elsewhere"):
        assert part in caught.value.message
    assert "AWS_CONTAINER_CREDENTIALS_FULL_URI" in caught.value.message
    assert "switched off by AWS_EC2_METADATA_DISABLED" in caught.value.message
    assert "--local" in caught.value.hint


def test_metadata_that_does_not_answer_is_not_waited_for(home, monkeypatch):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(errors.CredentialsNotFoundError, match="instance's metadata: cannot be reached"):
        get()


PROCESS = "[default]\ncredential_process = {}\n"
BROKEN = {
    "fails": (PROCESS.format("sh -c 'echo log in first >&2; exit 3'"), "log in first", "Run by hand"),
    "fails without a word": (PROCESS.format("false"), "custom-process", "Run by hand"),
    "prints no JSON": (PROCESS.format("echo hello"), "cannot be understood", "Run by hand"),
    "prints another JSON": (PROCESS.format("echo []"), "cannot be understood", "Run by hand"),
    "prints no text": (PROCESS.format("printf '\\377'"), "cannot be understood", "Run by hand"),
    "does not exist": (PROCESS.format("/nowhere/keys"), "/nowhere/keys: No such file", "check the path"),
    "cannot be run": (PROCESS.format("/etc/passwd"), "/etc/passwd: Permission denied", "check the path"),
    "lacks a key": (PROCESS.format("echo '{\"Version\": 1}'"), "AccessKeyId", "Run by hand"),
    "has an empty key": (
        PROCESS.format('echo \'{"Version": 1, "AccessKeyId": "", "SecretAccessKey": ""}\''),
        "gives no keys",
        "Repair",
    ),
    "has a key that is no text": (
        PROCESS.format('echo \'{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": 5}\''),
        "the credential_process of profile default gives no keys",
        "Repair",
    ),
    "has half a pair": (
        "[default]\naws_access_key_id =\naws_secret_access_key = x\n",
        "profile default in the config file gives no keys",
        "Repair",
    ),
    "is ended": (
        PROCESS.format(
            'echo \'{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "SessionToken": "C", '
            '"Expiration": "2020-01-01T00:00:00Z"}\''
        ),
        "expired",
        "clock",
    ),
    "has an end that is none": (
        PROCESS.format(
            'echo \'{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "SessionToken": "C", '
            '"Expiration": "soon"}\''
        ),
        "soon",
        "Run by hand",
    ),
    "quotes badly": (PROCESS.format("sh -c 'x"), "cannot be understood", "Run by hand"),
    "names no source profile": (
        f"[default]\nrole_arn = {ROLE_ARN}\nsource_profile = nobody\n",
        "nobody",
        "Repair profile default",
    ),
    "names itself": (
        f"[default]\nrole_arn = {ROLE_ARN}\nsource_profile = a\n[profile a]\nrole_arn = x\nsource_profile = default\n",
        "[Ii]nfinite loop",
        "Repair profile default",
    ),
    "names no source": (f"[default]\nrole_arn = {ROLE_ARN}\n", "source_profile", "Repair profile default"),
    "has no token": (
        f"[default]\nweb_identity_token_file = /nowhere/token\nrole_arn = {ROLE_ARN}\nregion = us-east-1\n",
        "/nowhere/token: No such file",
        "check the path",
    ),
    "is not logged in": (
        SSO_SESSION.replace("[profile p]", "[default]"),
        "[Tt]oken",
        "aws sso login --profile default",
    ),
}


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case)
def test_a_source_that(home, case):
    config, text, hint = BROKEN[case]
    write(home, config)
    with pytest.raises(errors.CredentialsBrokenError, match=text) as caught:
        get()
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.__cause__ is not None or "gives no keys" in text
    assert not caught.value.message.endswith(":")


def test_a_process_that_does_not_end_is_ended(home, monkeypatch):
    monkeypatch.setattr(chain, "USUAL", chain.USUAL._replace(process=0.5))
    # Its child holds the pipes open when it is gone itself.
    (home / "keys.sh").write_text(f"sleep 300 &\necho $! > {home}/child\nwait\n")
    write(home, f"[default]\ncredential_process = sh {home}/keys.sh\n")
    with pytest.raises(errors.CredentialsBrokenError, match=r"not ended after 0\.5 s") as caught:
        get()
    os.kill(int((home / "child").read_text()), signal.SIGKILL)
    assert "Run it by hand" in caught.value.hint


def test_a_damaged_token_of_sso_asks_for_a_login(home, portal, ask):
    write(home, SSO_SESSION)
    for damage in ({"expiresAt": "soon"}, {"expiresAt": 5}):
        write_token(home, "s", **damage)
        assert "aws sso login --profile p" in ask()["hint"]


@pytest.mark.parametrize("name", ["AWS_METADATA_SERVICE_TIMEOUT", "AWS_METADATA_SERVICE_NUM_ATTEMPTS"])
@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_settings_of_the_instance_s_metadata_that_are_none_are_named(home, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(errors.SettingError) as caught:
        get()
    assert name in caught.value.hint


def test_an_sso_login_that_has_ended_asks_for_another(home, portal, ask):
    write(
        home,
        f"[profile p]\nsso_start_url = {SSO_URL}\nsso_region = us-east-1\nsso_account_id = 111122223333\n"
        "sso_role_name = reader\n",
    )
    for token in ({"expiresAt": moment(-60)}, {"accessToken": "revoked"}):
        write_token(home, SSO_URL, **token)
        error = ask()
        assert "expired or is otherwise invalid" in error["message"]
        assert "aws sso login --profile p" in error["hint"]


def test_a_login_repairs_the_source_of_a_running_program(home, portal, ask):
    write(home, SSO_SESSION)
    assert "does not exist" in ask()["message"]
    write_token(home, "s")
    assert ask()["key"] == "ASIASSO1"


def refused(kind: str, message: str) -> Answer:
    body = f"<ErrorResponse><Error><Code>{kind}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return Answer(403, body.encode(), [("Content-Type", "text/xml")])


@pytest.mark.parametrize(
    ("answer", "text", "hint"),
    [
        (refused("AccessDenied", "not authorized to perform: sts:AssumeRole"), "AccessDenied", "trust policy"),
        (refused("ExpiredToken", "The security token is expired"), "ExpiredToken", "Renew"),
        (Answer(200, b"<html>login</html>", [("Content-Type", "text/html")]), "", ""),
        (json_answer(400, {"message": None}), "", ""),
    ],
)
def test_a_role_that_cannot_be_assumed_says_why(home, world: World, monkeypatch, answer, text, hint):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", world.start(lambda request: answer).url)
    monkeypatch.setenv("AWS_PROFILE", "p")
    write(
        home,
        f"[profile p]\nregion = eu-west-1\nrole_arn = {ROLE_ARN}\nsource_profile = keys\n"
        "[profile keys]\naws_access_key_id = AKIDSOURCE\naws_secret_access_key = s\n",
    )
    with pytest.raises(errors.CredentialsBrokenError) as caught:
        get()
    assert text in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.hint


def test_an_sts_that_cannot_be_reached_is_said_so(home, monkeypatch, refused_port):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{refused_port}")
    (home / "token").write_text("some-jwt")
    write(home, f"[default]\nregion = eu-west-1\nrole_arn = {ROLE_ARN}\nweb_identity_token_file = {home}/token\n")
    with pytest.raises(errors.CredentialsBrokenError, match="Could not connect") as caught:
        get()
    assert "network" in caught.value.hint


@pytest.mark.parametrize("url", ["http://metadata.example/x", "ftp://127.0.0.1/", "nonsense"])
def test_a_container_s_address_that_is_not_allowed_is_said_so(home, monkeypatch, url):
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
    with pytest.raises(errors.CredentialsBrokenError):
        get()


def test_nothing_secret_is_in_an_error(home):
    process(home, '{"Version": 2, "AccessKeyId": "AKIDP", "SecretAccessKey": "hunter2"}')
    with pytest.raises(errors.CredentialsBrokenError) as caught:
        get()
    assert "hunter2" not in f"{caught.value} {caught.value.to_wire()}"


def test_without_botocore_it_says_what_to_install(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(errors.DependencyMissingError, match="need botocore") as caught:
        get()
    assert caught.value.hint == f"Install it: pip install 'botocore>={model.BOTOCORE_NEEDED}'"
