"""Whom to trust, against real servers with certificates of a throw-away authority."""

import ssl
import subprocess
import sys
import warnings

import pytest

from tests.support.authority import Authority, build_authority
from tests.support.peers import Answer, Serve
from vmnest import errors, transport
from vmnest.deadline import Deadline
from vmnest.transport import tls

SECONDS = 10.0


def fetch(url: str, *, verify: bool | str = True, **environ: str) -> bytes:
    sender = transport.Transport(verify=verify, environ=environ)
    try:
        return sender.send("GET", url, deadline=Deadline(SECONDS)).read(1000)
    finally:
        sender.close()


@pytest.fixture
def url(serve: Serve, authority: Authority) -> str:
    return serve(Answer(200, b"secret"), tls=authority.context("127.0.0.1", "localhost")).url


def test_a_named_bundle_is_trusted(url, authority: Authority):
    assert fetch(url, verify=str(authority.bundle)) == b"secret"


def test_a_name_is_checked_as_well_as_an_address(url, authority: Authority):
    assert fetch(url.replace("127.0.0.1", "localhost"), verify=str(authority.bundle)) == b"secret"


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_bundle_of_the_environment_is_trusted(url, authority: Authority, variable):
    assert fetch(url, **{variable: str(authority.bundle)}) == b"secret"


def test_aws_s_own_variable_comes_first(url, authority: Authority):
    assert fetch(url, AWS_CA_BUNDLE=str(authority.bundle), REQUESTS_CA_BUNDLE="/nonexistent") == b"secret"


def test_openssl_s_own_variable_works(url, authority: Authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    assert fetch(url) == b"secret"


def test_a_folder_of_certificates_is_trusted(url, authority: Authority, tmp_path):
    hashed = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", str(authority.bundle)], capture_output=True, text=True, check=True
    )
    (tmp_path / f"{hashed.stdout.strip()}.0").write_bytes(authority.bundle.read_bytes())
    assert fetch(url, verify=str(tmp_path)) == b"secret"


def test_an_unknown_authority_is_refused_with_the_remedy(url):
    with pytest.raises(errors.TlsError, match="certificate") as caught:
        fetch(url)
    assert "AWS_CA_BUNDLE" in caught.value.hint
    assert caught.value.sent is False
    assert caught.value.retryable is False
    assert "\n" not in caught.value.message


def test_another_authority_of_the_same_name_is_refused(url, tmp_path):
    with pytest.raises(errors.TlsError):
        fetch(url, verify=str(build_authority(tmp_path / "other").bundle))


def test_a_certificate_for_another_host_is_refused(serve: Serve, authority: Authority):
    peer = serve(tls=authority.context("other.example"))
    with pytest.raises(errors.TlsError) as caught:
        fetch(peer.url, verify=str(authority.bundle))
    assert "another host" in caught.value.hint
    assert peer.requests == []


def test_an_expired_certificate_is_refused(serve: Serve, authority: Authority):
    peer = serve(tls=authority.context("127.0.0.1", is_expired=True))
    with pytest.raises(errors.TlsError, match="expired") as caught:
        fetch(peer.url, verify=str(authority.bundle))
    assert "clock" in caught.value.hint


def test_a_peer_that_does_not_speak_tls_is_told(serve: Serve):
    peer = serve()
    with pytest.raises(errors.TlsError) as caught:
        fetch(peer.url.replace("http:", "https:"))
    assert "port" in caught.value.hint


def test_tls_where_none_was_expected_is_told(url):
    with pytest.raises(errors.TransportError):
        fetch(url.replace("https:", "http:"))


def test_without_verification_nothing_is_checked_and_nobody_is_warned(url):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert fetch(url, verify=False) == b"secret"
    assert [str(one.message) for one in caught if "nsecure" in str(one.message)] == []


@pytest.mark.parametrize(
    "text", [None, "", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_bundle_that_cannot_be_read_is_named_with_its_source(tmp_path, text):
    path = tmp_path / "bundle.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.SettingError, match=f"AWS_CA_BUNDLE cannot be used: {path}"):
        tls.build_context(True, environ={"AWS_CA_BUNDLE": str(path)})


def test_http_reads_no_bundle(serve: Serve):
    assert fetch(serve(Answer(200, b"x")).url, AWS_CA_BUNDLE="/nonexistent") == b"x"


def test_the_system_s_bundle_is_found_by_an_interpreter_that_looks_elsewhere(tmp_path):
    # As python-build-standalone does: compiled for folders that this machine does not have.
    program = (
        "from vmnest.transport import tls\n"
        "context = tls.build_context(True, environ={})\n"
        "print(context.cert_store_stats()['x509_ca'] > 0)\n"
    )
    environ = {"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": str(tmp_path)}
    if not any(__import__("os").path.isfile(path) for path in tls._SYSTEM_BUNDLES):
        pytest.skip("this machine has no bundle of certificates")
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_old_protocols_are_refused(serve: Serve, authority: Authority):
    context = authority.context("127.0.0.1")
    assert tls.build_context(False, environ={}).minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context is not None
