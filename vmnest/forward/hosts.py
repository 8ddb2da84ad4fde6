"""Whose requests a listener takes: what ``Host`` and ``Origin`` may say.

A page of any site can have its visitor's browser send requests to this machine. Two things keep such a page from
reaching into a sandbox: names that its owner controls are refused as ``Host`` (DNS rebinding makes such a name lead to
this machine), and its ``Origin`` is passed on as it is, so that the server can refuse it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

__all__ = ["is_allowed", "is_same_origin", "name_of"]

_AUTHORITY = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::(?P<port>[0-9]{1,5}))?")


def name_of(host: str) -> str | None:
    """The name or address in a ``Host``, in lower case and without a port; None if it is malformed."""
    found = _AUTHORITY.fullmatch(host)
    return found["name"].lower().rstrip(".") if found else None


def is_allowed(host: str, *, allowed: Collection[str] = ()) -> bool:
    """Whether a request with that ``Host`` is served.

    Names without a dot, addresses and ``localhost`` belong to nobody who could make them lead here; others have to be
    in ``allowed`` (in lower case).
    """
    name = name_of(host)
    if name is None:
        return False
    return "." not in name or name.endswith(".localhost") or _is_address(name.strip("[]")) or name in allowed


def is_same_origin(origin: str, host: str) -> bool:
    """Whether ``Origin`` is that of the pages which that ``Host`` serves by plain http."""
    scheme, _, authority = origin.partition("://")
    return scheme.lower() == "http" and _with_port(authority) == _with_port(host) is not None


def _with_port(authority: str) -> tuple[str, int] | None:
    found = _AUTHORITY.fullmatch(authority)
    return (found["name"].lower(), int(found["port"] or 80)) if found else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
