"""Heads of requests and answers on their way between a client and the endpoint: pure, and all that is changed.

Bodies are never touched. Of a head, three things are: the fields about a connection rather than what travels through it
(RFC 9110 section 7.6.1), the fields that steer the platform and the relay, and the names that the client and the server
have for each other: ``Host`` one way, ``Location`` and the domains of cookies the other. (The relay sees to ``Host``
and ``Origin`` as the server gets them.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from .._guest.agentd import wire
from ..wire import http1, names
from . import hosts
from .gate import HeaderPairs

__all__ = ["Context", "interim_to_client", "normalize", "passed_trailers", "to_client", "to_upstream", "upgrades"]

_CONNECTION_FIELDS = frozenset({"connection", "keep-alive", "proxy-connection", "te", "upgrade"})
_STEERING_FIELDS = frozenset({wire.RELAY_PORT_HEADER, wire.RELAY_HEADER})
_DROPPED_ONE_WAY = _CONNECTION_FIELDS | _STEERING_FIELDS | {"host"}
_DROPPED_TO_RELAY = _DROPPED_ONE_WAY | {"x-forwarded-host", "x-forwarded-proto", "x-forwarded-for"}
_DROPPED_OTHER_WAY = _CONNECTION_FIELDS | _STEERING_FIELDS
_DROPPED_OF_INTERIM = _DROPPED_OTHER_WAY | http1.FRAMING_FIELDS
_DROPPED_OF_SWITCH = _STEERING_FIELDS | http1.FRAMING_FIELDS
_SUBPROTOCOL = "sec-websocket-protocol"
_LOCATIONS = frozenset({"location", "content-location"})
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "0.0.0.0"})  # noqa: S104 - what servers call themselves
_DOMAIN = re.compile(r";[ \t]*domain[ \t]*=[ \t]*\"?\.?([^;\"]*)\"?[ \t]*(?=;|$)", re.IGNORECASE)
_NO_CONTENT = 204


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


# -- requests ----------------------------------------------------------------------------------------------------------


def normalize(request: http1.Request) -> http1.Request:
    """The request with its target in origin form (RFC 9112 section 3.2), if the client took us for a proxy.

    Raises:
        http1.MessageError: the target or the Host cannot be served.
    """
    named = len(http1.values(request.fields, "host"))
    if named > 1 or (named == 0 and request.minor >= 1):
        raise http1.MessageError("more than one Host" if named else "no Host")
    if request.target.startswith("/") or (request.target == "*" and request.method == "OPTIONS"):
        return request
    scheme, _, rest = request.target.partition("://")
    if request.method == "CONNECT" or scheme.lower() != "http":
        raise http1.MessageError("the request's target is not a path: this is no proxy")
    cut = _end_of_authority(rest)
    target = rest[cut:]
    if not target:
        target = "*" if request.method == "OPTIONS" else "/"
    elif target[0] != "/":
        target = f"/{target}"
    fields = [("Host", rest[:cut]), *http1.without(request.fields, {"host"})]
    return http1.Request(request.method, target, fields, request.minor)


def _end_of_authority(text: str) -> int:
    return next((at for at, character in enumerate(text) if character in "/?#"), len(text))


def upgrades(request: http1.Request) -> list[str]:
    """The protocols that the client would rather speak, as far as they are passed on.

    HTTP/2 is not: it is obsolete in this form (RFC 9113 section 3.1), nobody needs it to go on, and the platform's
    proxy refuses requests that offer it, as those of curl --http2 and of Java do.
    """
    if request.minor < 1 or not http1.asks_upgrade(request):
        return []
    return [name for name in http1.elements(request.fields, "upgrade") if name.lower() not in {"h2c", "h2"}]


def to_upstream(
    request: http1.Request, framing: http1.Framing, *, context: Context, token: HeaderPairs
) -> http1.Request:
    """The request as it goes to the endpoint."""
    relays = context.agent_port is not None
    dropped: Collection[str] = _DROPPED_TO_RELAY if relays else _DROPPED_ONE_WAY
    dropped = _with_named_by_connection(request, dropped)
    if request.minor < 1:
        dropped = {*dropped, "expect"}  # RFC 9110 section 10.1.1: it would not know what a 100 is
    fields = [("Host", context.authority), *_without_platforms(_kept(request.fields, dropped))]
    protocols = upgrades(request)
    if protocols:
        fields += [("Connection", "Upgrade"), ("Upgrade", ", ".join(protocols))]
    if relays:
        fields += _forwarded(request, context.client_address)
        fields.append((wire.RELAY_PORT_HEADER, str(context.remote)))
    fields += token
    fields.append((names.PROXY_PORT_HEADER, str(context.agent_port or context.remote)))
    return http1.Request(request.method, request.target, http1.framed_fields(fields, framing), minor=1)


def _kept(fields: http1.Fields, dropped: Collection[str]) -> list[http1.Field]:
    return [
        field
        for field in fields
        if (name := field[0].lower()) not in dropped and not name.startswith(names.PROXY_HEADER_PREFIX)
    ]


def _with_named_by_connection(head: http1.Request | http1.Response, dropped: Collection[str]) -> Collection[str]:
    options = http1.elements(head.fields, "connection")
    return {*dropped, *(option.lower() for option in options)} if options else dropped


def _without_platforms(fields: list[http1.Field]) -> list[http1.Field]:
    """The platform takes some subprotocols for its own: a client's must not steer it."""
    offered = http1.elements(fields, _SUBPROTOCOL)
    others = [name for name in offered if not _is_platforms(name)]
    if len(others) == len(offered):
        return fields
    kept = http1.without(fields, {_SUBPROTOCOL})
    return [*kept, ("Sec-WebSocket-Protocol", ", ".join(others))] if others else kept


def _is_platforms(protocol: str) -> bool:
    name = protocol.lower()
    return name == names.SUBPROTOCOL_MARKER or name.startswith(f"{names.SUBPROTOCOL_MARKER}.")


def _forwarded(request: http1.Request, client_address: str) -> list[http1.Field]:
    host = http1.first(request.fields, "host")
    passed = [*http1.elements(request.fields, "x-forwarded-for"), client_address]
    told = [] if host is None else [("X-Forwarded-Host", host)]
    return [*told, ("X-Forwarded-Proto", "http"), ("X-Forwarded-For", ", ".join(passed))]


def passed_trailers(trailers: http1.Fields) -> list[http1.Field]:
    """The fields behind a body, either way, without those that steer: some servers take them for part of the head."""
    return _kept(trailers, _DROPPED_OTHER_WAY)


# -- answers -----------------------------------------------------------------------------------------------------------


def interim_to_client(response: http1.Response) -> http1.Response:
    """An interim answer (1xx but 101) as the client gets it."""
    return http1.Response(response.status, response.reason, _kept(response.fields, _DROPPED_OF_INTERIM))


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
    if switches:
        fields = _kept(response.fields, _DROPPED_OF_SWITCH)
    else:
        fields = _kept(response.fields, _with_named_by_connection(response, _DROPPED_OTHER_WAY))
    fields = [_mapped(field, request, context) for field in fields]
    if switches:
        fields = _without_platforms(fields)
    elif framing.kind != http1.NONE:
        fields = http1.framed_fields(fields, out)
    else:
        fields = _without_body(fields, response, request)
    if not keep and not switches:
        fields.append(("Connection", "close"))
    elif keep and request.minor == 0:
        fields.append(("Connection", "keep-alive"))
    return http1.Response(response.status, response.reason, fields)


def _without_body(fields: list[http1.Field], response: http1.Response, request: http1.Request) -> list[http1.Field]:
    """The fields of an answer that has no body: they may tell of the one that it stands for (HEAD, 304).

    But some clients wait for a body that a 204 speaks of, while others know no 204 and need the length of 0 that many
    a server tells with it; and one of HTTP/1.0 knows no codings.
    """
    if response.status == _NO_CONTENT:
        says_nothing = http1.values(fields, "content-length") == ["0"]
        return http1.without(fields, {"transfer-encoding"} if says_nothing else http1.FRAMING_FIELDS)
    return http1.without(fields, {"transfer-encoding"}) if request.minor == 0 else fields


def _mapped(field: http1.Field, request: http1.Request, context: Context) -> http1.Field:
    name = field[0].lower()
    if name in _LOCATIONS:
        return field[0], _map_location(field[1], host=http1.first(request.fields, "host") or "", context=context)
    if name == "set-cookie":
        return field[0], _map_cookie(field[1], context=context)
    return field


def _map_location(location: str, *, host: str, context: Context) -> str:
    """A URL of the server's own in the client's words; any other as it is."""
    scheme, separator, rest = location.partition("://")
    default = hosts.DEFAULT_PORTS.get(scheme.lower())
    cut = _end_of_authority(rest)
    place = hosts.parse(rest[:cut])
    if not separator or default is None or place is None:
        return location
    client = hosts.parse(host)
    if context.agent_port is not None and place == client:
        return location  # the server goes by X-Forwarded-Host
    remote = _port_of(hosts.Place(place.name, place.port or default), context)
    local = context.locals.get(remote) if remote is not None else None
    if local is None:
        return location
    if remote == context.remote and client is not None and client.port:
        local = client.port  # which is another one behind a tunnel of the user's
    name = "localhost" if client is None else client.name
    authority = name if local == hosts.DEFAULT_PORTS["http"] else f"{name}:{local}"
    return f"http://{authority}{rest[cut:]}"


def _port_of(place: hosts.Place, context: Context) -> int | None:
    """The port in the sandbox that this is for the server."""
    endpoint = hosts.parse(context.authority)
    if endpoint is not None and place.name == endpoint.name:
        ports = {endpoint.port} if endpoint.port else set(hosts.DEFAULT_PORTS.values())
        if place.port in ports:
            return context.remote
    return place.port if place.name in _OWN_NAMES else None


def _map_cookie(cookie: str, *, context: Context) -> str:
    """A cookie for the server's own domain becomes one for whatever the client calls it."""
    endpoint = hosts.parse(context.authority)

    def drop(found: re.Match[str]) -> str:
        domain = found[1].strip().lower()
        is_endpoints = endpoint is not None and f".{endpoint.name}".endswith(f".{domain}")
        return "" if domain in {"", "localhost"} or is_endpoints else found[0]

    return _DOMAIN.sub(drop, cookie)
