"""What a local sandbox may reach: the rules of ``--egress-allow``, as users write them and as they are judged.

=========================  ===========================================================================
``HOST``                   that host, at ports 80 and 443
``HOST:PORT``              that host, at that port only
``*.HOST``, ``*.HOST:P``   every name below that one, but not that one itself
``internet``               every host with a public address, at every port but that of mail (25)
=========================  ===========================================================================

A host is a name or an address (``hostnames``). One that a rule names itself may have any address, this machine's own
included; of what a wildcard or ``internet`` admits, only public addresses are reached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .. import errors
from . import hostnames

__all__ = ["ANYWHERE", "INTERNET", "NOWHERE", "PUBLIC", "Rule", "Rules", "parse"]

INTERNET = "internet"
_NOTHING = "none"
DEFAULT_PORTS = (80, 443)
MAX_RULES = 256
_WILDCARD = "*."
# What clouds keep closed as well: an open way to mail servers makes spam of a sandbox's mistakes.
_NOT_INTERNET = frozenset({25})

# How far a rule lets a request go.
ANYWHERE = "anywhere"  # whatever address the host has
PUBLIC = "public"  # if the host has a public address
NOWHERE = "nowhere"


class Rule(NamedTuple):
    """One rule. ``host`` is in its one form, and empty for ``internet``."""

    host: str
    ports: tuple[int, ...] = DEFAULT_PORTS
    is_wildcard: bool = False

    @property
    def text(self) -> str:
        """The rule as users write it."""
        if not self.host:
            return INTERNET
        port = None if self.ports == DEFAULT_PORTS else self.ports[0]
        return (_WILDCARD if self.is_wildcard else "") + hostnames.show(self.host, port)

    def judge(self, host: str, port: int) -> str:
        """How far it lets a request to that host and port go."""
        if not self.host:
            return NOWHERE if port in _NOT_INTERNET else PUBLIC
        if port not in self.ports:
            return NOWHERE
        if self.is_wildcard:
            is_below = host.endswith(f".{self.host}") and not hostnames.is_address(host)
            return PUBLIC if is_below else NOWHERE
        return ANYWHERE if host == self.host else NOWHERE


class Rules(NamedTuple):
    """All rules of a sandbox; without any it reaches nothing."""

    rules: tuple[Rule, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The rules as users write them."""
        return tuple(rule.text for rule in self.rules)

    def judge(self, host: str, port: int) -> str:
        """How far a request to a host, in its one form, and a port may go."""
        verdicts = {rule.judge(host, port) for rule in self.rules}
        return next((verdict for verdict in (ANYWHERE, PUBLIC) if verdict in verdicts), NOWHERE)


def parse(texts: Iterable[str]) -> Rules:
    """The rules, without repetitions.

    Raises:
        errors.UsageError: one is no rule, or there are too many.
    """
    rules = tuple(dict.fromkeys(_parse(text) for text in texts))
    if len(rules) > MAX_RULES:
        raise errors.UsageError(f"more than {MAX_RULES} hosts are allowed")
    return Rules(rules)


def _parse(text: str) -> Rule:
    if not isinstance(text, str):
        raise errors.UsageError(f"what is allowed must be texts: {text!r}")
    text = text.strip()
    if text.lower() == INTERNET:
        return Rule("", ())
    if text.lower() == _NOTHING:
        raise errors.UsageError("none is no host", hint="Without any rule nothing is reached: leave it out.")
    is_wildcard = text.startswith(_WILDCARD)
    try:
        host, ports = _split(text.removeprefix(_WILDCARD))
        if is_wildcard and hostnames.is_address(host):
            raise hostnames.HostError(f"no names are below an address: {text!r}")
    except hostnames.HostError as error:
        raise _no_rule(text, error) from None
    return Rule(host, ports, is_wildcard)


def _split(text: str) -> tuple[str, tuple[int, ...]]:
    if text.count(":") > 1 and not text.startswith("["):  # an IPv6 address, which has no port then
        return hostnames.parse(text), DEFAULT_PORTS
    host, port = hostnames.parse_authority(text, default_port=DEFAULT_PORTS[0])
    has_port = text.rpartition("]")[2].count(":") == 1
    return host, (port,) if has_port else DEFAULT_PORTS


def _no_rule(text: str, error: hostnames.HostError) -> errors.UsageError:
    hint = f"Allow HOST, HOST:PORT, *.DOMAIN or {INTERNET}: pypi.org, db.example.com:5432, *.pythonhosted.org"
    if text in {"*", "*.", "*.*"}:
        hint = f"For everything public allow {INTERNET}."
    elif "/" in text:
        hint = f"Allow a host alone, without scheme and path. {hint}"
    shown = repr(text[:300])
    reason = error.message.removesuffix(f": {shown}")  # it need not be told twice
    return errors.UsageError(f"not allowed to a sandbox as egress: {shown} ({reason})", hint=hint)
