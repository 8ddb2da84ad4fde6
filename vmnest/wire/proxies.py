"""Which proxy a request goes through: the environment variables that botocore reads, by the rules it applies to them.

``http_proxy`` and ``https_proxy`` (small letters win over capitals, an empty one in small letters switches off),
``no_proxy`` with ``*``, host and domain suffixes. Loopback never goes through a proxy, whatever the variables say: the
local cloud's credentials must not leave the machine. Pure: the environment comes as an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .. import errors

__all__ = ["Proxy", "choose", "find_variable"]

_PROXY_URL = re.compile(
    r"(?:(?P<scheme>https?)://)?(?:(?P<login>[^/]*)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^/@:\s]+)(?::(?P<port>\d{1,5}))?/?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOOPBACK = re.compile(r"localhost|.+\.localhost|127(?:\.\d{1,3}){1,3}|::1|::ffff:127\..+", re.IGNORECASE)


class Proxy(NamedTuple):
    """An HTTP proxy; ``authorization`` is the value of the header of that name."""

    scheme: str
    host: str
    port: int
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.url!r})"

    @property
    def url(self) -> str:
        """The proxy's URL, without what it is logged in with."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """The host is this machine, by its name or literal address (no look-up is made)."""
    return _LOOPBACK.fullmatch(host) is not None


def choose(*, scheme: str, host: str, port: int | None, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for requests to ``host``, or None.

    Raises:
        errors.SettingError: the variable that applies is no proxy URL; its value is not repeated, for it may hold a
            password.
    """
    if is_loopback(host) or _is_excluded(host, port, find_variable("no", environ)[1]):
        return None
    name, value = find_variable(scheme, environ)
    return _parse(name, value) if value else None


def find_variable(kind: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Name and value of the variable that counts for ``http``, ``https`` or ``no``; the value may hold a password."""
    small, capital = f"{kind}_proxy", f"{kind.upper()}_PROXY"
    if small in environ:
        return small, environ[small]
    # Under CGI a client's "Proxy:" header arrives as HTTP_PROXY (CVE-2016-1000110).
    if kind == "http" and "REQUEST_METHOD" in environ:
        return capital, ""
    return capital, environ.get(capital, "")


def _is_excluded(host: str, port: int | None, no_proxy: str) -> bool:
    if no_proxy.strip() == "*":
        return True
    shown = f"[{host}]" if ":" in host else host
    names = {host.lower(), shown.lower(), f"{shown.lower()}:{port}"}
    for entry in no_proxy.lower().split(","):
        suffix = entry.strip().lstrip(".")
        if suffix and any(name == suffix or name.endswith("." + suffix) for name in names):
            return True
    return False


def _parse(name: str, value: str) -> Proxy:
    match = _PROXY_URL.fullmatch(value.strip())
    if match is None or int(match["port"] or 1) not in range(1, 65536):
        raise errors.SettingError(
            f"{name} is not the URL of an HTTP proxy", hint=f"Set {name} to http://HOST:PORT, or unset it."
        )
    scheme = match["scheme"] or "http"
    return Proxy(
        scheme=scheme,
        host=match["host"].strip("[]"),
        port=int(match["port"] or _DEFAULT_PORTS[scheme]),
        authorization=_basic(match["login"]) if match["login"] else None,
    )


def _basic(login: str) -> str:
    from base64 import b64encode
    from urllib.parse import unquote

    user, _, password = login.partition(":")
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode("ascii")
