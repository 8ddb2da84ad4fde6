"""The way to AWS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.authority import Authority
from tests.support.checks import by_id, make_context
from tests.support.cloud import LocalCloud
from tests.support.peers import Answer, Silence, serving
from tests.support.scripted_aws import REGION, ScriptedAws, denied, refusal
from vmnest import errors
from vmnest.aws import model
from vmnest.ops.checks import (
    FAILED,
    OK,
    SKIPPED,
    UNKNOWN,
    WARNING,
    Check,
    access,
    choices,
    credentials,
    permissions,
    quotas,
    services,
)

NO_REASON = refusal(403, "AccessDeniedException", None)
PAGE = Answer(200, b"<html><title>Log in</title></html>", [("Content-Type", "text/html")])


def look(environ: dict[str, str]) -> dict[str, Check]:
    """What is said of the way."""
    context = make_context(environ)
    return by_id(each for probe in services.PROBES for each in probe(context))


def changed(aws: ScriptedAws, **changes: str | None) -> dict[str, Check]:
    """What is said of it in an environment with these changes."""
    return look({name: value for name, value in {**aws.environ, **changes}.items() if value is not None})


def test_a_way_that_is_open_is_all_right(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws.environ)
    assert {each.verdict for each in found.values()} == {OK}
    assert found["aws.endpoint"].data["url"] == scripted_aws.peer.url
    assert set(scripted_aws.asked) == {"unsigned", "ListMicrovms"}


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "verdict"), [(("lambda-microvms", "lambda-core"), FAILED), (("lambda-core",), WARNING)]
)
def test_an_old_botocore_lacks_the_models(
    scripted_aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: tuple[str, ...], verdict: str
) -> None:
    load = model.load

    def load_some(name: str) -> model.Model:
        return model.load_from(str(tmp_path / "old"), service=name) if name in missing else load(name)

    monkeypatch.setattr(model, "load", load_some)
    found = look(scripted_aws.environ)["aws.models"]
    assert found.verdict == verdict
    assert f"older than {model.BOTOCORE_NEEDED}" in found.detail
    assert found.remedy == f"pip install 'botocore>={model.BOTOCORE_NEEDED}'"
    assert [name for name, version in found.data.items() if version is None] == list(missing)
    if verdict == FAILED:
        assert access.obstacle(make_context(scripted_aws.environ)) == "botocore has no model of the service"


# -- region ------------------------------------------------------------------------------------------------------------


def test_a_region_is_shown_with_who_says_so(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws.environ)["aws.region"]
    assert found.detail == f"{REGION} (the image's ARN)"
    assert found.data["has_service"] is True
    found = changed(scripted_aws, AGENT_SANDBOX_REGION="eu-west-1")["aws.region"]
    assert (found.verdict, found.detail) == (OK, "eu-west-1 (AGENT_SANDBOX_REGION)")
    assert found.data["source"] == "environment AGENT_SANDBOX_REGION"


def test_no_region_says_how_to_name_one(scripted_aws: ScriptedAws) -> None:
    found = changed(scripted_aws, AWS_REGION=None, AGENT_SANDBOX_IMAGE_ARN=None)
    assert found["aws.region"].verdict == FAILED
    assert "AGENT_SANDBOX_REGION" in str(found["aws.region"].remedy)
    assert {found[name].verdict for name in ("aws.endpoint", "aws.clock")} == {SKIPPED}
    assert changed(scripted_aws, AGENT_SANDBOX_REGION="not a region")["aws.region"].verdict == FAILED


def test_a_region_that_only_the_stack_s_file_names_is_gone_by_and_said_to_be_no_one_else_s(
    scripted_aws: ScriptedAws, tmp_path: Path
) -> None:
    (tmp_path / "sandbox.yaml").write_text("project: p\nregion: eu-west-1\n")
    environ = {**scripted_aws.environ}
    for name in ("AWS_REGION", "AGENT_SANDBOX_IMAGE_ARN"):
        environ.pop(name, None)
    context = make_context(environ, cwd=tmp_path)
    found = by_id(each for probe in services.PROBES for each in probe(context))
    assert found["aws.region"].verdict == FAILED
    assert "only sandbox.yaml names one, eu-west-1" in found["aws.region"].detail
    assert "export AGENT_SANDBOX_REGION=eu-west-1" in str(found["aws.region"].remedy)
    assert found["aws.endpoint"].verdict == OK
    told = by_id(services.region(make_context({**environ, "AWS_REGION": "us-east-1"}, cwd=tmp_path)))
    assert told["aws.region"].data["region"] == "us-east-1"
    (tmp_path / "sandbox.yaml").write_text("project: [")
    assert by_id(services.region(make_context(environ, cwd=tmp_path)))["aws.region"].data.get("region") is None


def test_a_denial_without_a_reason_means_that_the_region_has_no_such_service(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["ListMicrovms"] = NO_REASON
    found = changed(scripted_aws, AGENT_SANDBOX_REGION="xx-west-7")["aws.region"]
    assert (found.verdict, found.data["has_service"]) == (FAILED, False)
    assert "us-west-2" in str(found.remedy)


def test_where_aws_has_the_service_such_a_denial_is_the_organization_s(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["ListMicrovms"] = NO_REASON
    found = look(scripted_aws.environ)["aws.region"]
    assert (found.verdict, found.data["has_service"]) == (FAILED, False)
    assert "organization" in str(found.remedy)
    assert "us-west-2" not in str(found.remedy)


def test_a_denial_with_a_reason_comes_from_a_service_that_is_there(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["ListMicrovms"] = denied()
    assert changed(scripted_aws, AGENT_SANDBOX_REGION="xx-west-7")["aws.region"].verdict == OK


def test_a_region_nobody_has_heard_of_is_doubted_where_nobody_can_be_asked(scripted_aws: ScriptedAws) -> None:
    found = changed(scripted_aws, AGENT_SANDBOX_REGION="xx-west-7", AWS_SECRET_ACCESS_KEY=None)["aws.region"]
    assert (found.verdict, found.data["has_service"]) == (WARNING, None)
    assert changed(scripted_aws, AWS_SECRET_ACCESS_KEY=None)["aws.region"].verdict == OK


# -- endpoint ----------------------------------------------------------------------------------------------------------


def test_a_dead_port_is_blamed_on_who_named_it(scripted_aws: ScriptedAws, refused_port: int) -> None:
    url = f"http://127.0.0.1:{refused_port}"
    found = changed(scripted_aws, AWS_ENDPOINT_URL_LAMBDA_MICROVMS=url)
    assert found["aws.endpoint"].verdict == FAILED
    assert "Connection refused" in found["aws.endpoint"].detail
    assert "AWS_ENDPOINT_URL_LAMBDA_MICROVMS" in str(found["aws.endpoint"].remedy)
    assert found["aws.clock"].detail == "not looked at: nobody answers"


def test_an_endpoint_that_is_no_url_is_named(scripted_aws: ScriptedAws) -> None:
    found = changed(scripted_aws, AWS_ENDPOINT_URL_IAM="nonsense")["aws.endpoint"]
    assert found.verdict == FAILED
    assert "AWS_ENDPOINT_URL_IAM" in found.detail


def test_the_endpoints_of_other_services_are_shown(scripted_aws: ScriptedAws) -> None:
    found = changed(
        scripted_aws, AWS_ENDPOINT_URL_LOGS="http://x", AWS_ENDPOINT_URL_CLOUDWATCH_LOGS="http://127.0.0.1:1"
    )
    assert "logs to http://127.0.0.1:1 (AWS_ENDPOINT_URL_CLOUDWATCH_LOGS)" in found["aws.endpoint"].detail
    overrides = found["aws.endpoint"].data["overrides"]
    assert isinstance(overrides, dict)
    assert overrides["s3"] == {"url": scripted_aws.peer.url, "source": "AWS_ENDPOINT_URL"}


@pytest.mark.parametrize("is_all", [True, False])
def test_a_page_in_the_service_s_place_is_told_from_it(scripted_aws: ScriptedAws, is_all: bool) -> None:
    scripted_aws.answers["unsigned"] = PAGE
    if is_all:
        scripted_aws.answers["ListMicrovms"] = PAGE
    found = look(scripted_aws.environ)
    # Where signed calls get through, whatever refuses the others does no harm.
    assert found["aws.endpoint"].verdict == (FAILED if is_all else WARNING)
    assert "Log in" in found["aws.endpoint"].detail
    assert "login page" in str(found["aws.endpoint"].remedy)
    assert found["aws.clock"].verdict == SKIPPED


def test_a_gateway_that_reaches_no_service_is_not_ready(scripted_aws: ScriptedAws) -> None:
    gateway = Answer(502, b"<html>Bad Gateway</html>", [("Content-Type", "text/html")])
    scripted_aws.answers.update(unsigned=gateway, ListMicrovms=gateway)
    assert look(scripted_aws.environ)["aws.endpoint"].verdict == FAILED
    # The service itself, in its own words, is another matter.
    scripted_aws.answers["ListMicrovms"] = refusal(429, "ThrottlingException")
    assert look(scripted_aws.environ)["aws.endpoint"].verdict == WARNING


def test_a_service_that_is_silent_is_not_waited_for(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["unsigned"] = Silence()
    (found,) = services.endpoint(make_context(scripted_aws.environ, seconds=0.4))
    assert found.verdict == FAILED
    assert "did not answer" in found.detail


def test_the_local_cloud_set_for_aws_is_found_out(scripted_aws: ScriptedAws, shared_cloud: LocalCloud) -> None:
    found = changed(scripted_aws, AWS_ENDPOINT_URL=shared_cloud.url, AGENT_SANDBOX_LOCAL_DIR=str(shared_cloud.folder))
    assert found["aws.endpoint"].verdict == FAILED
    assert "is the local cloud" in found["aws.endpoint"].detail
    assert found["aws.endpoint"].remedy == "Use --local, or unset it: AWS_ENDPOINT_URL"


# -- proxies -----------------------------------------------------------------------------------------------------------

ELSEWHERE = "http://service.example"


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy in the process's own environment, which calls go by."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def proxied(aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch, **changes: str) -> dict[str, Check]:
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    return changed(aws, AWS_ENDPOINT_URL=ELSEWHERE, **changes)


@pytest.mark.usefixtures("unused")
def test_a_proxy_is_shown_without_its_login(scripted_aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = scripted_aws.peer.url.replace("//", "//user:pass-word@")
    found = proxied(scripted_aws, monkeypatch, HTTP_PROXY=proxy, NO_PROXY="a.example")
    assert found["aws.proxy"].verdict == OK
    assert found["aws.proxy"].detail == f"{scripted_aws.peer.url} (HTTP_PROXY), but not for a.example"
    assert found["aws.endpoint"].verdict == OK
    assert "pass-word" not in str([each.to_wire() for each in found.values()])


@pytest.mark.usefixtures("unused")
def test_a_proxy_that_cannot_be_reached_is_the_one_to_repair(
    scripted_aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch, refused_port: int
) -> None:
    found = proxied(scripted_aws, monkeypatch, http_proxy=f"http://127.0.0.1:{refused_port}")
    assert found["aws.proxy"].verdict == FAILED
    assert found["aws.proxy"].remedy == "Repair http_proxy, or name service.example in NO_PROXY if no proxy is needed."
    assert found["aws.endpoint"].detail == "not looked at: the way through the proxy fails"


@pytest.mark.usefixtures("unused")
def test_a_proxy_that_is_none_is_named_and_not_quoted(
    scripted_aws: ScriptedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = proxied(scripted_aws, monkeypatch, HTTP_PROXY="socks5://user:pass-word@host:1")["aws.proxy"]
    assert found.verdict == FAILED
    assert "HTTP_PROXY" in found.detail
    assert "pass-word" not in str(found.to_wire())


@pytest.mark.usefixtures("unused")
def test_what_needs_no_proxy_is_not_sent_through_it(scripted_aws: ScriptedAws, refused_port: int) -> None:
    found = changed(scripted_aws, http_proxy=f"http://127.0.0.1:{refused_port}")
    assert found["aws.proxy"].detail == "none for 127.0.0.1, in spite of http_proxy"
    assert found["aws.endpoint"].verdict == OK


# -- trust -------------------------------------------------------------------------------------------------------------


def test_a_bundle_that_cannot_be_read_is_named(scripted_aws: ScriptedAws, tmp_path: Path) -> None:
    found = changed(scripted_aws, AWS_CA_BUNDLE=str(tmp_path / "none.pem"))["aws.trust"]
    assert found.verdict == FAILED
    assert "AWS_CA_BUNDLE" in found.detail
    (tmp_path / "config").write_text(f"[default]\nca_bundle = {tmp_path}/nothing.pem\n")
    assert changed(scripted_aws, AWS_CONFIG_FILE=str(tmp_path / "config"))["aws.trust"].verdict == FAILED
    (tmp_path / "config").write_text("[default\n")
    assert changed(scripted_aws, AWS_CONFIG_FILE=str(tmp_path / "config"))["aws.trust"].verdict == SKIPPED


@pytest.fixture
def encrypted(scripted_aws: ScriptedAws, authority: Authority) -> Iterator[ScriptedAws]:
    """The account behind TLS, with a certificate of an authority that nobody else knows."""
    with serving(tls=authority.context("127.0.0.1")) as peer:
        peer.script = scripted_aws.peer.script
        yield replace(scripted_aws, peer=peer)


def test_a_certificate_that_nobody_trusts_is_told_with_its_remedy(encrypted: ScriptedAws) -> None:
    found = look({**encrypted.environ, "SSL_CERT_FILE": ""})["aws.endpoint"]
    assert found.verdict == FAILED
    assert "AWS_CA_BUNDLE" in str(found.remedy)


def test_a_bundle_that_cannot_be_read_is_told_once(encrypted: ScriptedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nonexistent.pem")  # of the process, as calls go by it
    context = make_context({**encrypted.environ, "AWS_CA_BUNDLE": "/nonexistent.pem"})
    modules = (services, credentials, choices, permissions, quotas)
    found = by_id(each for module in modules for probe in module.PROBES for each in probe(context))
    assert [name for name, each in found.items() if each.verdict not in (OK, SKIPPED)] == ["aws.trust"]


def test_the_bundle_in_use_is_shown(scripted_aws: ScriptedAws, authority: Authority) -> None:
    found = changed(scripted_aws, AWS_CA_BUNDLE=str(authority.bundle))["aws.trust"]
    assert (found.verdict, found.data) == (OK, {"bundle": str(authority.bundle), "source": "AWS_CA_BUNDLE"})


def test_sandboxes_that_are_not_verified_are_a_warning(scripted_aws: ScriptedAws) -> None:
    found = changed(scripted_aws, AGENT_SANDBOX_VERIFY_TLS="0")["aws.trust"]
    assert (found.verdict, found.remedy) == (WARNING, "unset AGENT_SANDBOX_VERIFY_TLS")
    assert changed(scripted_aws, AGENT_SANDBOX_VERIFY_TLS="maybe")["aws.trust"].verdict == OK


# -- the clock ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "text"), [(600.0, "600 s behind"), (-600.0, "600 s ahead of"), (30.0, None)])
def test_a_clock_that_is_off_is_told_with_its_direction(
    scripted_aws: ScriptedAws, offset: float, text: str | None
) -> None:
    scripted_aws.clock_offset = offset
    found = look(scripted_aws.environ)
    assert found["aws.clock"].verdict == (OK if text is None else WARNING)
    behind = found["aws.clock"].data["seconds_behind"]
    assert isinstance(behind, float)
    assert behind == pytest.approx(offset, abs=3)
    if text is not None:
        assert text.split()[1] in found["aws.clock"].detail
        assert "timedatectl" in str(found["aws.clock"].remedy)
    # Calls go through nevertheless.
    assert not isinstance(access.first_call(make_context(scripted_aws.environ)), errors.VmnestError)


def test_a_service_that_does_not_say_what_time_it_is_leaves_it_open(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["unsigned"] = Answer(403, b"{}", [("Date", "noon")])
    assert look(scripted_aws.environ)["aws.clock"].verdict == UNKNOWN
