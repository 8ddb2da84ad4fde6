"""One connection, made by urllib3: name look-up, TLS, CONNECT through a proxy.

urllib3's pools, and ``request`` and ``getresponse`` of its connections, are passed by. They rewrite the request target
(``%2f`` becomes ``%2F``, ``#`` ends it), merge repeated header fields, retry by themselves, and wait for a full buffer
where a stream must be handed on as it comes. What they inherit from ``http.client`` — ``putrequest``, ``putheader``,
``endheaders``, ``send`` — does none of that, and is the same in urllib3 1.26 and 2.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import ssl
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import SSLError as Urllib3SSLError
from urllib3.util.connection import is_connection_dropped

from .. import errors
from ..wire.proxies import Proxy
from . import tls
from .answers import Patience, WireAnswer, failure_of_reading

_IS_URLLIB3_1: bool = urllib3.__version__.startswith("1.")  # type: ignore[attr-defined]

_PIECE_BYTES = 2**18
_REASON_CHARACTERS = 200

# Small requests leave at once; a peer that vanished is noticed in minutes, not in the kernel's two hours.
_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
if sys.platform == "linux":
    _SOCKET_OPTIONS += [
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    ]


# Bytes, pieces of them, or a function that makes the pieces.
Body = bytes | Iterable[bytes] | Callable[[], Iterable[bytes]]


class _SourceError(Exception):
    """The request's own body failed, not the connection: carries what it raised."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


class Origin(NamedTuple):
    """Where a request goes: one pool each."""

    scheme: str
    host: str
    port: int | None

    @property
    def authority(self) -> str:
        """Host, and the port unless it is the scheme's own: what the ``Host`` field says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


class Request(NamedTuple):
    """A request as it goes out; ``target`` and ``headers`` letter for letter."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: Body | None
    is_chunked: bool


class _ProxyTrust(NamedTuple):
    """urllib3's ``ProxyConfig``, whose members differ between 1.26 and 2."""

    ssl_context: ssl.SSLContext
    use_forwarding_for_https: bool = False
    assert_hostname: None = None
    assert_fingerprint: None = None


class Connection:
    """A connection to one origin, used by one exchange at a time."""

    def __init__(self, raw: HTTPConnection, *, origin: Origin, proxy: Proxy | None) -> None:
        assert raw.sock is not None
        self._raw = raw
        # http.client lets go of the socket when an answer says that it is the last one; it is still being read then.
        self._sock = raw.sock
        self.origin = origin
        self._proxy = proxy
        self.idle_since = 0.0

    def is_usable(self, *, since: float) -> bool:
        """Idle from ``since`` on or later, and not ended by the peer as far as we can see."""
        return self.idle_since >= since and not is_connection_dropped(self._raw)

    def exchange(self, request: Request, patience: Patience) -> WireAnswer:
        """Send the request and wait for the head of the answer.

        Raises:
            errors.TransportError: no answer; the connection is closed then. ``patience.answered`` tells whether the
                peer had begun one.
        """
        patience.begin()
        try:
            self._send(request, patience)
            answer = self._receive(patience)
        except _SourceError as error:
            self.close()
            raise error.reason from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise failure_of_reading(error, origin=str(self.origin), patience=patience) from error
        except BaseException:
            self.close()
            raise
        if answer.status == http.client.PROXY_AUTHENTICATION_REQUIRED and self._proxy is not None:
            self.close()
            raise _proxy_error(self._proxy, self.origin, "it asks for a login (407)")
        return answer

    def close(self) -> None:
        """End the connection."""
        self.interrupt()
        self._raw.close()

    def detach(self) -> socket.socket:
        """Give the socket away; the taker closes it.

        Raises:
            errors.ProxyError: the way to the origin carries requests, and nothing else.
        """
        # Through some proxies a plain connection is none. TLS within TLS is urllib3's own kind of socket, which loses
        # bytes if it must not block.
        if self._is_forwarded or not isinstance(self._sock, socket.socket):
            self.close()
            raise errors.ProxyError(
                f"no connection but for requests to {self.origin} through this proxy",
                hint="Name the host in NO_PROXY, or use a proxy that is reached by http for https.",
            )
        self._raw.sock = None
        return self._sock

    def let_go(self) -> None:
        """Close a forked child's share of a connection, of which its parent hears nothing."""
        self._raw.close()

    def interrupt(self) -> None:
        """End the conversation from another thread: the one that reads wakes up, and closes."""
        # TLS within TLS is urllib3's own kind of socket, which cannot shut down; the one that it wraps can.
        sock: socket.socket = getattr(self._sock, "socket", self._sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    def _send(self, request: Request, patience: Patience) -> None:
        raw = self._raw
        self._sock.settimeout(patience.seconds())
        raw.putrequest(request.method, self._target(request), skip_host=True, skip_accept_encoding=True)
        for name, value in (*request.headers, *self._proxy_headers()):
            raw.putheader(name, value)
        raw.endheaders()
        if request.body is None:
            return
        try:
            self._send_body(request, patience)
        except (BrokenPipeError, ConnectionResetError):
            # A peer that refuses early (413, 403) answers and hangs up while we still send: its answer may be there.
            return

    def _send_body(self, request: Request, patience: Patience) -> None:
        raw = self._raw
        for piece in _pieces(request.body):
            if piece:
                self._sock.settimeout(patience.seconds())
                raw.send(b"%x\r\n" % len(piece) + piece + b"\r\n" if request.is_chunked else piece)
                patience.sent_bytes += len(piece)
        if request.is_chunked:
            raw.send(b"0\r\n\r\n")

    def _receive(self, patience: Patience) -> WireAnswer:
        # Set for this exchange only: urllib3 makes an answer of its own while it opens a tunnel.
        self._raw.response_class = functools.partial(WireAnswer, patience=patience)  # type: ignore[assignment]
        answer = http.client.HTTPConnection.getresponse(self._raw)
        assert isinstance(answer, WireAnswer)
        return answer

    @property
    def _is_forwarded(self) -> bool:
        return self._proxy is not None and self.origin.scheme == "http"

    def _target(self, request: Request) -> str:
        return f"{self.origin}{request.target}" if self._is_forwarded else request.target

    def _proxy_headers(self) -> Iterable[tuple[str, str]]:
        if self._is_forwarded and self._proxy is not None and self._proxy.authorization:
            yield "Proxy-Authorization", self._proxy.authorization


def _pieces(body: Body | None) -> Iterable[bytes | memoryview]:
    if not isinstance(body, bytes):
        return _guarded(body)
    # A timeout bounds a whole ``sendall``: in pieces, it bounds the peer's silence and not the size of the body.
    view = memoryview(body)
    return (view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES))


def _guarded(body: Iterable[bytes] | Callable[[], Iterable[bytes]] | None) -> Iterable[bytes]:
    """The pieces; an error of theirs, such as that of a file, must not pass for one of the connection."""
    try:
        yield from (body() if callable(body) else body) or ()
    except Exception as error:
        raise _SourceError(error) from error


def open_connection(
    origin: Origin, *, proxy: Proxy | None, timeout: float | None, context: Callable[[], ssl.SSLContext]
) -> Connection:
    """Connect to ``origin``, through ``proxy`` if there is one; ``context`` is asked only if TLS is spoken.

    ``timeout`` bounds each address that is tried and each handshake; looking a name up has the resolver's own bound.

    Raises:
        errors.ConnectError: no connection.
        errors.TlsError: the certificate is not trusted, or the peer does not speak TLS.
        errors.ProxyError: the proxy cannot be reached, or refuses.
    """
    raw = _prepare(origin, proxy=proxy, timeout=timeout, context=context)
    try:
        raw.connect()
    except (OSError, HTTPError, http.client.HTTPException, ValueError) as error:
        raw.close()
        raise _failure_of_connecting(error, origin=origin, proxy=proxy) from error
    return Connection(raw, origin=origin, proxy=proxy)


def _prepare(
    origin: Origin, *, proxy: Proxy | None, timeout: float | None, context: Callable[[], ssl.SSLContext]
) -> HTTPConnection:
    options: dict[str, object] = {"timeout": timeout, "socket_options": _SOCKET_OPTIONS}
    host, port = (origin.host, origin.port) if proxy is None else (proxy.host, proxy.port)
    if proxy is not None:
        options["proxy"] = urllib3.util.parse_url(proxy.url)
        if proxy.scheme == "https":
            options["proxy_config"] = _ProxyTrust(context())
    if origin.scheme == "http" and (proxy is None or proxy.scheme == "http"):
        return _connection_class("http")(host, port, **options)
    trust = context()
    raw = _connection_class("https")(host, port, ssl_context=trust, **options)
    if _IS_URLLIB3_1:
        _trust_in_urllib3_1(raw, trust)
    if proxy is not None and origin.scheme == "https":
        login = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
        _tunnel(raw, origin, proxy=proxy, login=login)
    return raw


def _trust_in_urllib3_1(raw: HTTPConnection, trust: ssl.SSLContext) -> None:
    # 1.26 sets the context's mode from the connection's, and compares names itself if the context does not: if the
    # context does, it cannot connect to addresses.
    trust.check_hostname = False
    raw.set_cert(cert_reqs=trust.verify_mode)  # type: ignore[attr-defined]


def _tunnel(raw: HTTPConnection, origin: Origin, *, proxy: Proxy, login: Mapping[str, str]) -> None:
    if _IS_URLLIB3_1:
        http.client.HTTPConnection.set_tunnel(raw, origin.host, origin.port or 443, headers=login)
        raw.tls_in_tls_required = proxy.scheme == "https"  # type: ignore[attr-defined]
    else:
        raw.set_tunnel(origin.host, origin.port or 443, headers=login, scheme=proxy.scheme)


def _connection_class(scheme: str) -> Callable[..., HTTPConnection]:
    return HTTPSConnection if scheme == "https" else HTTPConnection


def _failure_of_connecting(error: BaseException, *, origin: Origin, proxy: Proxy | None) -> errors.TransportError:
    causes = list(_chain(error))
    for cause in causes:
        if isinstance(cause, (ssl.SSLError, Urllib3SSLError)) or type(cause).__name__ == "CertificateError":
            return tls.explain(cause, str(origin))
    reason = _reason(error, causes)
    if proxy is not None:
        return _proxy_error(proxy, origin, reason)
    return errors.ConnectError(
        f"cannot connect to {origin}: {reason}", hint="Check the endpoint, the region and this machine's network."
    )


def _proxy_error(proxy: Proxy, origin: Origin, reason: str) -> errors.ProxyError:
    return errors.ProxyError(
        f"no way to {origin} through the proxy {proxy.url}: {reason}",
        hint="Check HTTP_PROXY and HTTPS_PROXY; name hosts to reach directly in NO_PROXY.",
    )


def _reason(error: BaseException, causes: list[BaseException]) -> str:
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"the name does not resolve ({cause.strerror})"
        if isinstance(cause, (TimeoutError, ConnectTimeoutError)) and not isinstance(cause, NewConnectionError):
            return "no connection within the time allowed"
        if isinstance(cause, OSError):
            return errors.quote(cause.strerror or str(cause), limit=_REASON_CHARACTERS)  # a proxy's own words
    return errors.quote(str(error) or type(error).__name__, limit=_REASON_CHARACTERS)


def _chain(error: BaseException | None) -> Iterable[BaseException]:
    """Causes first: urllib3 wraps what the system said, 1.26 without naming it as the cause."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return reversed(found)
