"""How a sandbox's programs find the way out: the variables that name the proxy, and whom they trust behind it.

There is no one variable that all programs heed. Both cases of the proxies' names are in use, and several tools bring
certificates of their own instead of the system's, where a company's own authority, say, is not among them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from . import channel
from .layers import contains

_URL = f"http://127.0.0.1:{channel.EGRESS_PORT}"
_INSIDE = "localhost,127.0.0.1,::1"
_BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, and with it Python's own modules, Ruby and more
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
)
# Where distributions keep the bundle of all certificates: Debian, Fedora, SUSE, Alpine; the rest link to one of these.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def build_environment(
    environ: Mapping[str, str], *, visible: Sequence[str], bundles: Sequence[str] = _BUNDLES
) -> dict[str, str]:
    """What a sandbox with egress finds in its environment.

    Args:
        environ: The daemon's environment: its ``SSL_CERT_FILE`` goes before the system's bundle.
        visible: The host's directories that can be read inside.
        bundles: Where the system may keep its bundle.
    """
    environment = {"NODE_USE_ENV_PROXY": "1"}  # without it, Node's own fetch heeds no proxy
    for name, value in (("HTTP_PROXY", _URL), ("HTTPS_PROXY", _URL), ("NO_PROXY", _INSIDE)):
        environment.update({name: value, name.lower(): value})
    for path in _candidates(environ, bundles):
        if os.path.isfile(path) and _is_visible(path, visible):
            environment.update(dict.fromkeys(_BUNDLE_VARIABLES, path))
            break
    return environment


def _candidates(environ: Mapping[str, str], bundles: Sequence[str]) -> Iterator[str]:
    if environ.get("SSL_CERT_FILE"):
        yield environ["SSL_CERT_FILE"]
    yield from bundles


def _is_visible(path: str, visible: Sequence[str]) -> bool:
    """The path itself, and what it leads to."""
    return all(any(contains(top, each) for top in visible) for each in (path, os.path.realpath(path)))
