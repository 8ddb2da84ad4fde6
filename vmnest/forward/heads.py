"""Heads of requests and answers on their way between a client and the endpoint: pure, and all that is changed.

Bodies are never touched. Of a head, three things are: the fields about a connection rather than what travels through it
(RFC 9110 section 7.6.1), the fields that steer the platform and the relay, and the names that the client and the server
have for each other: ``Host`` and ``Origin`` one way, ``Location`` and the domains of cookies the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from .._guest.agentd import wire
from ..wire import http1, names
from . import hosts
from .gate import HeaderPairs

__all__ = ["Context", "interim_to_client", "normalize", "to_client", "to_upstream"]

_CONNECTION_FIELDS = frozenset({"connection", "keep-alive", "proxy-connection", "te", "upgrade"})
_STEERING_FIELDS = frozenset({wire.RELAY_PORT_HEADER, wire.RELAY_HEADER})
_FORWARDED_FIELDS = frozenset({"x-forwarded-host", "x-forwarded-proto", "x-forwarded-for"})
_SUBPROTOCOL = "sec-websocket-protocol"
_LOCATIONS = frozenset({"location", "content-location"})
_OWN_ADDRESSES = frozenset({"localhost", "127.0.0.1", "[::1]", "0.0.0.0"})  # noqa: S104 - what servers call themselves
_DEFAULT_PORTS = {"http": 80, "https": 443}
_DOMAIN = re.compile(r";[ \t]*domain[ \t]*=[ \t]*\"?\.?([^;\"]*)\"?[ \t]*(?=;|$)", re.IGNORECASE)


class Context(NamedTuple):
    """Between whom an exchange is.

    Attributes:
        remote: The port in the sandbox.
        authority: What the endpoint's ``Host`` is.
        agent_port: The agent's port, if the request goes through its relay; None: it goes straight to ``remote``.
        locals: All forwarded ports: that in the sandbox → that of this machine.
        client_address: Where the client is.
    """

    remote: int
    authority: str
    agent_port: int | None
    locals: Mapping[int, int]
    client_address: str


def normalize(request: http1.Request) -> http1.Request:
    """The request with its target in origin form (RFC 9112 section 3.2), if the client took us for a proxy.

    Raises:
        http1.MessageError: the target or the Host cannot be served.
    """
    hosts_named = len(http1.values(request.fields, "host"))
    if hosts_named > 1 or (hosts_named == 0 and request.minor >= 1):
        raise http1.MessageError("more than one Host" if hosts_named else "no Host")
    if request.target.startswith("/") or (request.target == "*" and request.method == "OPTIONS"):
        return request
    scheme, _, rest = request.target.partition("://")
    if request.method == "CONNECT" or scheme.lower() != "http":
        raise http1.MessageError("the request's target is not a path: this is no proxy")
    cut = next((at for at, character in enumerate(rest) if character in "/?#"), len(rest))
    target = rest[cut:] if rest[cut : cut + 1] == "/" else f"/{rest[cut:]}"
    fields = [("Host", rest[:cut]), *http1.without(request.fields, {"host"})]
    return http1.Request(request.method, target, fields, request.minor)


def to_upstream(
    request: http1.Request, framing: http1.Framing, *, context: Context, token: HeaderPairs
) -> http1.Request:
    """The request as it goes to the endpoint."""
    relays = context.agent_port is not None
    dropped = _CONNECTION_FIELDS | _STEERING_FIELDS | {"host"} | _named_by_connection(request)
    if relays:
        dropped |= _FORWARDED_FIELDS
    host = http1.first(request.fields, "host")
    fields = [("Host", context.authority), *_kept(request.fields, dropped)]
    if http1.asks_upgrade(request):
        fields += [("Connection", "Upgrade"), ("Upgrade", http1.first(request.fields, "upgrade") or "")]
        fields = _without_platform_protocols(fields)
    if relays:
        fields += _forwarded(request, host=host, client_address=context.client_address)
        fields.append((wire.RELAY_PORT_HEADER, str(context.remote)))
    fields += token
    fields.append((names.PROXY_PORT_HEADER, str(context.agent_port or context.remote)))
    return http1.Request(request.method, request.target, http1.framed_fields(fields, framing), minor=1)


def _kept(fields: http1.Fields, dropped: frozenset[str] | set[str]) -> list[http1.Field]:
    return [
        field
        for field in fields
        if (name := field[0].lower()) not in dropped and not name.startswith(names.PROXY_HEADER_PREFIX)
    ]


def _named_by_connection(head: http1.Request | http1.Response) -> frozenset[str]:
    return frozenset(option.lower() for option in http1.elements(head.fields, "connection"))


def _without_platform_protocols(fields: list[http1.Field]) -> list[http1.Field]:
    """The platform takes some subprotocols for its own: a client's must not steer it."""
    if names.SUBPROTOCOL_MARKER not in " ".join(http1.values(fields, _SUBPROTOCOL)):
        return fields
    offered = [name for name in http1.elements(fields, _SUBPROTOCOL) if not _is_platforms(name)]
    kept = http1.without(fields, {_SUBPROTOCOL})
    return [*kept, ("Sec-WebSocket-Protocol", ", ".join(offered))] if offered else kept


def _is_platforms(protocol: str) -> bool:
    return protocol == names.SUBPROTOCOL_MARKER or protocol.startswith(f"{names.SUBPROTOCOL_MARKER}.")


def _forwarded(request: http1.Request, *, host: str | None, client_address: str) -> list[http1.Field]:
    passed = [*http1.values(request.fields, "x-forwarded-for"), client_address]
    told = [] if host is None else [("X-Forwarded-Host", host)]
    return [*told, ("X-Forwarded-Proto", "http"), ("X-Forwarded-For", ", ".join(passed))]


# -- answers -----------------------------------------------------------------------------------------------------------


def interim_to_client(response: http1.Response) -> http1.Response:
    """An interim answer (1xx but 101) as the client gets it."""
    dropped = _CONNECTION_FIELDS | _STEERING_FIELDS | {"content-length", "transfer-encoding"}
    return http1.Response(response.status, response.reason, _kept(response.fields, dropped))


def to_client(
    response: http1.Response,
    request: http1.Request,
    *,
    framing: http1.Framing,
    out: http1.Framing,
    context: Context,
    keep: bool,
) -> http1.Response:
    """The final answer as the client gets it.

    Args:
        response: As it came from the endpoint.
        request: What the client has asked.
        framing: How the answer's body comes.
        out: How it goes on.
        context: Between whom it is.
        keep: Whether the client may send another request.
    """
    switches = response.status == http1.SWITCHING_PROTOCOLS
    dropped = set(_STEERING_FIELDS)
    if not switches:
        dropped |= _CONNECTION_FIELDS | _named_by_connection(response)
    if response.status == 204 or switches:  # they have no body, whatever they say; a client might wait for one
        dropped |= {"content-length", "transfer-encoding"}
    host = http1.first(request.fields, "host")
    fields = [_mapped(field, host=host, context=context) for field in _kept(response.fields, dropped)]
    if switches:
        fields = _without_marker(fields, request)
    elif framing.kind != http1.NONE:
        # An answer without a body (HEAD, 304) tells the length of the one it stands for: that is left as it is.
        fields = http1.framed_fields(fields, out)
    if not keep and not switches:
        fields.append(("Connection", "close"))
    elif keep and request.minor == 0:
        fields.append(("Connection", "keep-alive"))
    return http1.Response(response.status, response.reason, fields)


def _without_marker(fields: list[http1.Field], request: http1.Request) -> list[http1.Field]:
    """Where the server selects no subprotocol the platform may name its own, which the client has not offered."""
    return [field for field in fields if field[0].lower() != _SUBPROTOCOL or not _is_platforms(field[1].strip())]


def _mapped(field: http1.Field, *, host: str | None, context: Context) -> http1.Field:
    name = field[0].lower()
    if name in _LOCATIONS:
        return field[0], _map_location(field[1], host=host, context=context)
    if name == "set-cookie":
        return field[0], _map_cookie(field[1], context=context)
    return field


def _map_location(location: str, *, host: str | None, context: Context) -> str:
    """A URL of the server's own in the client's words; any other as it is."""
    scheme, separator, _ = location.partition("://")
    if not separator or scheme.lower() not in _DEFAULT_PORTS:
        return location
    start = len(scheme) + len(separator)
    end = next((at for at in range(start, len(location)) if location[at] in "/?#"), len(location))
    local = _local_port(location[start:end], scheme=scheme.lower(), context=context)
    if local is None:
        return location
    name = (hosts.name_of(host) if host else None) or "localhost"
    authority = name if local == _DEFAULT_PORTS["http"] else f"{name}:{local}"
    return f"http://{authority}{location[end:]}"


def _local_port(authority: str, *, scheme: str, context: Context) -> int | None:
    """The port of this machine that leads to where ``authority`` is for the server."""
    name = hosts.name_of(authority)
    if name is None:
        return None
    if authority.lower() == context.authority.lower() or (
        name == hosts.name_of(context.authority) and scheme == "https"
    ):
        return context.locals.get(context.remote)
    try:
        port = urlsplit(f"//{authority}").port
    except ValueError:
        return None
    return context.locals.get(port or _DEFAULT_PORTS[scheme]) if name in _OWN_ADDRESSES else None


def _map_cookie(cookie: str, *, context: Context) -> str:
    """A cookie for the server's own domain becomes one for whatever the client calls it."""
    endpoint = hosts.name_of(context.authority) or ""

    def drop(found: re.Match[str]) -> str:
        domain = found[1].strip().lower()
        is_own = domain in {"", "localhost", endpoint} or endpoint.endswith(f".{domain}")
        return "" if is_own else found[0]

    return _DOMAIN.sub(drop, cookie)
