"""Names of hosts as they stand in URLs, in ``Host`` and in a client's rules, each in one form.

Two programs that read one name differently are a way around whatever only one of them checks. So a host has exactly one
form here, and what could be read as another host is refused rather than repaired: addresses in short, octal, decimal or
hexadecimal forms (``127.1``, ``0x7f000001``), zones of IPv6 addresses, and whatever is neither a name nor an address.

- A name is in lower case, without the dot at its end, and in ASCII. One in other letters has its ASCII form (IDNA),
  unless that differs between the versions of the standard (``ß``, ``ς`` and joiners).
- An IPv4 address has four decimal numbers without leading zeros.
- An IPv6 address is in its short form, without brackets.
"""

from __future__ import annotations

import ipaddress
import re

from .. import errors

__all__ = ["HostError", "is_address", "parse", "parse_authority", "show"]

_LONGEST_NAME = 253
_LAST_PORT = 65535
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What browsers take for an address, in whichever form: the last label is a number.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_AMBIGUOUS = frozenset("ßςẞ\u200c\u200d")
_AUTHORITY = re.compile(r"(?:\[(?P<literal>[^\[\]@/?#]*)\]|(?P<name>[^\[\]:@/?#]*))(?::(?P<port>[0-9]{1,5}))?")


class HostError(errors.UsageError):
    """What should name a host does not, or not only one."""


def parse(text: str) -> str:
    """The one form of the host that ``text`` names: a name, or an address (one of IPv6 without brackets).

    Raises:
        HostError: it names none.
    """
    if ":" in text:
        return _parse_ipv6(text)
    name = _to_ascii(text).lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _parse_ipv4(name, text)
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise HostError(f"not the name of a host: {text[:_LONGEST_NAME]!r}")
    return name


def parse_authority(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``[IPV6]:PORT``, or either without a port if there is a default for it.

    Raises:
        HostError: it is none.
    """
    found = _AUTHORITY.fullmatch(text)
    if found is None or (found["port"] is None and default_port is None):
        raise HostError(f"not HOST:PORT: {text[:_LONGEST_NAME]!r}")
    port = default_port if found["port"] is None else int(found["port"])
    assert port is not None
    if not 1 <= port <= _LAST_PORT:
        raise HostError(f"no port: {text[:_LONGEST_NAME]!r}")
    if found["literal"] is not None:
        return _parse_ipv6(found["literal"]), port
    return parse(found["name"]), port


def is_address(host: str) -> bool:
    """Whether a host, in its one form, is an address and not a name."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def show(host: str, port: int | None = None) -> str:
    """A host in its one form, and a port, as they stand in URLs."""
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def _parse_ipv4(name: str, text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        raise HostError(
            f"not an IPv4 address of four decimal numbers: {text[:_LONGEST_NAME]!r}",
            hint="Short, octal and hexadecimal forms are refused: programs differ in how they read them.",
        ) from None


def _parse_ipv6(text: str) -> str:
    try:
        if "%" in text:
            raise ValueError("a zone")
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise HostError(f"not an IPv6 address: {text[:_LONGEST_NAME]!r}") from None


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        if _AMBIGUOUS & set(text):
            raise UnicodeError("it has two forms")
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise HostError(
            f"not a name that has one ASCII form: {text[:_LONGEST_NAME]!r}", hint="Write that form: xn--..."
        ) from None
