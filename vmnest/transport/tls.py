"""Whom to trust: the TLS context, made on the first https request only (a CA bundle costs 15 to 40 ms to read)."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

from .. import errors
from . import resumption

__all__ = ["build_context", "explain"]

# botocore's own order: its variable, then the one that it keeps for the sake of requests.
_BUNDLE_VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")

# Where distributions keep their bundle. An interpreter that was built elsewhere (python-build-standalone, python.org)
# looks in its builder's folders and finds nothing.
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def build_context(verify: bool | str, *, environ: Mapping[str, str]) -> ssl.SSLContext:
    """The context for ``verify``: a bundle's path, True for the system's trust, False for none.

    ``AWS_CA_BUNDLE`` and ``REQUESTS_CA_BUNDLE`` replace the system's trust; ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` move
    it (OpenSSL reads these itself).

    Raises:
        errors.SettingError: the bundle cannot be read; the message names where its path comes from.
    """
    if verify is False:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif isinstance(verify, str):
        context = _from_bundle("the CA bundle", verify)
    else:
        context = _from_environment(environ)
    context.set_alpn_protocols(["http/1.1"])
    resumption.remember_sessions(context)
    return context


def _from_environment(environ: Mapping[str, str]) -> ssl.SSLContext:
    for name in _BUNDLE_VARIABLES:
        if environ.get(name):
            return _from_bundle(name, environ[name])
    context = ssl.create_default_context()
    if not _has_trust(context):
        for path in _SYSTEM_BUNDLES:
            if os.path.isfile(path):
                context.load_verify_locations(cafile=path)
                break
    return context


def _has_trust(context: ssl.SSLContext) -> bool:
    """Some authority is loaded, or lies in the folder from which OpenSSL reads on demand."""
    if context.cert_store_stats()["x509_ca"]:
        return True
    folder = ssl.get_default_verify_paths().capath
    try:
        return folder is not None and any(name.endswith(".0") for name in os.listdir(folder))
    except OSError:
        return False


def _from_bundle(source: str, path: str) -> ssl.SSLContext:
    path = os.path.expanduser(path)
    try:
        if os.path.isdir(path):
            return ssl.create_default_context(capath=path)
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise errors.SettingError(
            f"{source} cannot be used: {path}: {reason}", hint="Name a readable PEM file of CA certificates, or none."
        ) from error


def explain(error: BaseException, origin: str) -> errors.TlsError:
    """The TlsError for what a handshake raised, with the remedy that fits."""
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    lowered = str(reason).lower()
    if "mismatch" in lowered or "doesn't match" in lowered:
        hint = "The certificate is for another host: check the endpoint's URL, and the proxy if there is one."
    elif "expired" in lowered or "not yet valid" in lowered:
        hint = "Check this machine's clock; if it is right, the certificate is out of date."
    elif "certificate" in lowered or "issuer" in lowered:
        hint = "If a proxy opens TLS here, name its CA certificate in AWS_CA_BUNDLE; else check the URL."
    else:
        hint = "Check the scheme and the port: the peer may not speak TLS there."
    return errors.TlsError(f"no trusted TLS connection to {origin}: {reason}", hint=hint)
