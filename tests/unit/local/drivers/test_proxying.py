"""How programs in a sandbox learn of the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmnest.local.drivers import proxying

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
BUNDLES = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "REQUESTS_CA_BUNDLE")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "visible" / "bundle.crt"
    path.parent.mkdir()
    path.write_text("certificates")
    return path


def build(bundle: Path, *, visible: Path | None = None, **environ: str) -> dict[str, str]:
    return proxying.build_environment(environ, visible=[str(visible or bundle.parent)], bundles=[str(bundle)])


def test_all_programs_find_the_proxy_and_leave_it_out_for_what_is_inside(bundle: Path) -> None:
    environment = build(bundle)
    assert {environment[name] for name in PROXIES} == {"http://127.0.0.1:3128"}
    assert {environment[name] for name in ("NO_PROXY", "no_proxy")} == {"localhost,127.0.0.1,::1"}
    assert environment["NODE_USE_ENV_PROXY"] == "1"


def test_all_programs_trust_whom_this_machine_trusts(bundle: Path) -> None:
    environment = build(bundle)
    assert {environment[name] for name in BUNDLES} == {str(bundle)}


def test_the_daemons_own_bundle_goes_before_the_systems(bundle: Path) -> None:
    own = bundle.with_name("own.crt")
    own.write_text("certificates")
    assert {build(bundle, SSL_CERT_FILE=str(own))[name] for name in BUNDLES} == {str(own)}


def test_a_bundle_that_cannot_be_seen_inside_is_not_named(bundle: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden.crt"
    hidden.write_text("certificates")
    assert build(bundle, SSL_CERT_FILE=str(hidden))["SSL_CERT_FILE"] == str(bundle)
    link = bundle.with_name("link.crt")
    link.symlink_to(hidden)
    assert build(bundle, SSL_CERT_FILE=str(link))["SSL_CERT_FILE"] == str(bundle)
    assert not set(BUNDLES) & set(build(bundle, visible=tmp_path / "elsewhere"))


def test_a_bundle_that_is_not_there_is_not_named(bundle: Path) -> None:
    bundle.unlink()
    assert not set(BUNDLES) & set(build(bundle))
