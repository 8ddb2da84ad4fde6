"""Who may send a request to which port of a VM: the data plane's rules, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..wire import http1, names
from . import connectors, httpd, records, tokens

SUBPROTOCOL_FIELD = "sec-websocket-protocol"
_TEXT = ("Content-Type", "text/plain")
_NO_STORE = ("Cache-Control", "private, no-store")


class RefusedError(Exception):
    """The proxy answers this request itself."""

    def __init__(self, status: int, body: str, *, kind: str | None = None) -> None:
        super().__init__(body)
        self.status = status
        self.body = body
        self.kind = kind

    def reply(self) -> httpd.Reply:
        """The answer, in plain text."""
        fields = [_TEXT, _NO_STORE]
        if self.kind is not None:
            fields.append((names.PROXY_ERROR_HEADER, self.kind))
        return httpd.Reply(self.status, fields, self.body.encode())


def unreachable(kind: str | None) -> httpd.Reply:
    """The answer when there is none of the VM's: no body, and the reason if there is a word for it."""
    named = [] if kind is None else [(names.PROXY_ERROR_HEADER, kind)]
    return httpd.Reply(502, [_NO_STORE, *named])


@dataclass(frozen=True)
class Admitted:
    """A request that may pass.

    Attributes:
        port: The port in the VM.
        fields: The request's fields without what was meant for the proxy.
        upgrades: It asks for a WebSocket.
        marker_offered: Its subprotocols carried the platform's marker, which the client may expect to be selected.
        is_for_shell: It is for the service's own shell, and for no port.
    """

    port: int
    fields: http1.Fields
    upgrades: bool
    marker_offered: bool
    is_for_shell: bool = False


def admit(request: http1.Request, record: records.Record, *, seal: tokens.Seal, now: float) -> Admitted:
    """Check a request.

    Raises:
        RefusedError: the answer in its place.
    """
    upgrades = _check_form(request)
    offer = _Offer(request.fields) if upgrades else _Offer(())
    grant = _authenticate(request, offer, record, seal=seal, now=now)
    port = _port(request, offer, default=names.SHELL_PORT if grant.for_shell else names.DEFAULT_APP_PORT)
    if grant.for_shell:
        # Whatever the path is. A request that is no WebSocket finds nothing there.
        if not upgrades:
            raise RefusedError(502, "", kind=names.APP_CONNECT_FAILED)
        if port != names.SHELL_PORT or not connectors.admits_shell(record.spec.ingress):
            raise RefusedError(403, names.BODY_WRONG_PORT, kind=names.UNAUTHORIZED)
        return Admitted(port, fields=(), upgrades=True, marker_offered=offer.has_marker, is_for_shell=True)
    if not grant.covers(port) or not connectors.admits_http(record.spec.ingress):
        raise RefusedError(403, names.BODY_WRONG_PORT, kind=names.UNAUTHORIZED)
    return Admitted(port, fields=_forwarded(request, offer), upgrades=upgrades, marker_offered=offer.has_marker)


class _Offer:
    """The WebSocket subprotocols that a client offers: the platform's three, and the application's."""

    def __init__(self, fields: http1.Fields) -> None:
        self.token: str | None = None
        self.port: str | None = None
        self.has_marker = False
        self.application: list[str] = []
        for name in http1.elements(fields, SUBPROTOCOL_FIELD):
            if name == names.SUBPROTOCOL_MARKER:
                self.has_marker = True
            elif name.startswith(names.SUBPROTOCOL_AUTH_PREFIX):
                self.token = name.removeprefix(names.SUBPROTOCOL_AUTH_PREFIX)
            elif name.startswith(names.SUBPROTOCOL_PORT_PREFIX):
                self.port = name.removeprefix(names.SUBPROTOCOL_PORT_PREFIX)
            else:
                self.application.append(name)

    @property
    def is_from_platform(self) -> bool:
        """One of the three was there."""
        return self.has_marker or self.token is not None or self.port is not None


def _check_form(request: http1.Request) -> bool:
    """Whether the request asks for a WebSocket; refuses forms that the data plane does not carry."""
    if not request.target.startswith("/") and not (request.method == "OPTIONS" and request.target == "*"):
        raise RefusedError(400, "Malformed request target")
    if len(http1.values(request.fields, "host")) != 1 and request.minor >= 1:
        raise RefusedError(400, "Malformed Host header")
    if not http1.asks_upgrade(request):
        return False
    if [value.lower() for value in http1.values(request.fields, "upgrade")] != ["websocket"]:
        raise RefusedError(400, "Unsupported upgrade")
    return True


def _authenticate(
    request: http1.Request, offer: _Offer, record: records.Record, *, seal: tokens.Seal, now: float
) -> tokens.Grant:
    headers = http1.values(request.fields, names.PROXY_AUTH_HEADER.lower())
    token = headers[0] if headers else (offer.token if offer.has_marker else None)
    if token is None or len(headers) > 1:
        raise RefusedError(403, names.BODY_NO_TOKEN, kind=names.UNAUTHORIZED)
    try:
        grant = seal.open(token)
    except tokens.TokenInvalidError as error:
        raise RefusedError(403, names.BODY_NO_TOKEN, kind=names.UNAUTHORIZED) from error
    if grant.microvm_id != record.microvm_id or now >= grant.expires_at:
        raise RefusedError(403, names.BODY_WRONG_TOKEN, kind=names.UNAUTHORIZED)
    return grant


def _port(request: http1.Request, offer: _Offer, *, default: int) -> int:
    headers = http1.values(request.fields, names.PROXY_PORT_HEADER.lower())
    text = headers[0] if headers else offer.port
    if text is None:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= 5
    if len(headers) > 1 or not is_number or not 1 <= int(text) <= 65535:
        raise RefusedError(400, "Invalid port")
    return int(text)


def _forwarded(request: http1.Request, offer: _Offer) -> Sequence[http1.Field]:
    kept: list[http1.Field] = []
    for name, value in request.fields:
        lowered = name.lower()
        if lowered.startswith(names.PROXY_HEADER_PREFIX) or (lowered == SUBPROTOCOL_FIELD and offer.is_from_platform):
            continue
        kept.append((name, value))
    if offer.is_from_platform and offer.application:
        kept.append(("Sec-WebSocket-Protocol", ", ".join(offer.application)))
    return kept
