"""Whose requests a listener takes: what ``Host`` and ``Origin`` may say.

A page of any site can have its visitor's browser send requests to this machine. Two things keep such a page from
reaching into a sandbox: names that its owner controls are refused as ``Host`` (DNS rebinding makes such a name lead to
this machine), and its ``Origin`` is passed on as it is, so that the server can refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from .. import errors

__all__ = ["DEFAULT_PORTS", "Place", "is_allowed", "is_same_origin", "parse", "parse_allowed"]

DEFAULT_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::([0-9]{0,5}))?")


class Place(NamedTuple):
    """Where an authority leads: a name or address in lower case (IPv6 in brackets), and the port if it has one."""

    name: str
    port: int | None


def parse(authority: str) -> Place | None:
    """What ``Host``, or a URL between scheme and path, names; None if it is malformed, or has a user."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    name, port = found[1].lower().rstrip("."), int(found[2]) if found[2] else None
    return Place(name, port) if name and (port or 0) <= _LAST_PORT else None


def parse_allowed(name: str) -> str:
    """A name that ``Host`` may say, as users write it, in the form that ``is_allowed`` takes.

    Raises:
        errors.UsageError: it is no name.
    """
    place = parse(name)
    if place is None or place.port is not None:
        hint = "Write the name alone, as it stands between http:// and the port: devbox.example.com"
        raise errors.UsageError(f"not a name of this machine: {name!r}", hint=hint)
    return place.name


def is_allowed(host: str, *, allowed: Collection[str] = ()) -> bool:
    """Whether a request with that ``Host`` is served.

    Names without a dot, addresses and ``localhost`` belong to nobody who could make them lead here; others have to be
    in ``allowed``.
    """
    place = parse(host)
    if place is None:
        return False
    head, dot, last = place.name.rpartition(".")
    # No domain ends with a number: what does is an address, also one in an old short form (127.1).
    return not dot or last == "localhost" or last.isdigit() or head.startswith("[") or place.name in allowed


def is_same_origin(origin: str, host: str) -> bool:
    """Whether ``Origin`` is that of the pages which that ``Host`` serves by plain http."""
    scheme, _, authority = origin.partition("://")
    if scheme.lower() != "http":
        return False
    theirs, own = parse(authority), parse(host)
    if theirs is None or own is None:
        return False
    default = DEFAULT_PORTS["http"]
    return (theirs.name, theirs.port or default) == (own.name, own.port or default)
