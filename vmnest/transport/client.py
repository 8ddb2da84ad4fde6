"""The one ``send``: takes a connection, makes one exchange, hands the answer out as a stream."""

from __future__ import annotations

import atexit
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence

from .. import __version__, errors, settings
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import proxies
from . import tls
from .answers import Patience, Response
from .connections import Body, Connection, Origin, Request, open_connection

CONNECT_TIMEOUT_SECONDS = 10.0

_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})
# Servers drop idle connections after a minute or so without a word that reaches us in time. What cannot be repeated
# takes a connection only while it is fresh.
_IDLE_LIMIT_SECONDS = 55.0
_IDLE_LIMIT_UNREPEATABLE_SECONDS = 5.0
_MAX_IDLE_PER_ORIGIN = 16
# A connection that was closed while it was idle shows it within a round trip. What ends later was cut: by a suspend,
# perhaps, which a repeat would undo.
_STALE_SECONDS = 1.0
_STALE_BYTES = 256 * 1024  # of the body, before that shows

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][!-~]*)?",
    re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_NAME = _METHOD
_HEADER_VALUE = re.compile(r"[\t !-~\x80-\xff]*")


class _Pool:
    """Idle connections of one process, by origin. ``lock`` guards ``idle``."""

    def __init__(self, clock: Clock) -> None:
        self.pid = os.getpid()
        self._clock = clock
        self.lock = threading.Lock()
        self.idle: dict[Origin, list[Connection]] = {}

    def take(self, origin: Origin, *, idle_limit: float) -> Connection | None:
        """The connection that was used last, if one is usable; others are closed on the way."""
        while True:
            with self.lock:
                stack = self.idle.get(origin)
                connection = stack.pop() if stack else None
            if connection is None or connection.is_usable(since=self._clock.monotonic() - idle_limit):
                return connection
            connection.close()

    def give(self, connection: Connection) -> bool:
        """Keep it for the next request; False if there are enough."""
        connection.idle_since = self._clock.monotonic()
        with self.lock:
            stack = self.idle.setdefault(connection.origin, [])
            if len(stack) >= _MAX_IDLE_PER_ORIGIN:
                return False
            stack.append(connection)
            return True

    def empty(self) -> list[Connection]:
        """Take all of them out."""
        with self.lock:
            found = [connection for stack in self.idle.values() for connection in stack]
            self.idle.clear()
            return found


class Transport:
    """Sends HTTP requests over pooled connections. Safe for threads, and after ``fork``: a child opens its own.

    Args:
        verify: True for the system's trust (or ``AWS_CA_BUNDLE``), the path of a CA bundle, or False for none.
        environ: Where proxy and bundle variables are read from, on use; the process's own by default.
        clock: Tells how long a connection has been idle.
    """

    def __init__(
        self, *, verify: bool | str = True, environ: Mapping[str, str] | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._verify = verify
        self._environ = environ
        self._clock = clock
        self._pool = _Pool(clock)
        self._context: ssl.SSLContext | None = None

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Body | None = None,
        deadline: Deadline,
        connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
        read_timeout: float | None = None,
        on_silence: Callable[[], object] | None = None,
        retry_stale: bool = True,
    ) -> Response:
        """Send one request and return its answer, whatever the status; the body is still on the wire.

        The request target goes out as it stands in ``url``. A body that is no bytes goes out in chunks, unless the
        headers hold its length; a function is called anew for each attempt. What the body's pieces raise is raised
        here, and the connection is closed. Redirects are not followed, bodies are not decoded.

        Args:
            deadline: The end of the whole exchange, the reading of the body included.
            read_timeout: The longest silence of the peer.
            on_silence: Called at the end of each such silence, and the wait goes on, unless it raises: then the
                exchange is over. Without it, the silence ends it.
            retry_stale: A pooled connection may turn out, at once, to have been closed by the peer. Repeat the request
                on a new one if nothing was answered, even when the method is not idempotent.

        Raises:
            errors.UsageError: the URL, the method or a header cannot be sent.
            errors.TransportError: no answer (see its subclasses).
        """
        origin, request = _build(method, url, headers=headers, body=body)
        is_repeatable = retry_stale or request.method in _IDEMPOTENT
        can_replay = body is None or isinstance(body, bytes) or callable(body)
        limit = _IDLE_LIMIT_SECONDS if is_repeatable and can_replay else _IDLE_LIMIT_UNREPEATABLE_SECONDS
        patience = Patience(deadline, read_timeout, on_silence)
        connection = self._own_pool().take(origin, idle_limit=limit)
        if connection is not None:
            began = self._clock.monotonic()
            try:
                return self._exchange(connection, request, patience)
            except errors.ConnectionLostError:
                is_late = self._clock.monotonic() - began > _STALE_SECONDS or patience.sent_bytes > _STALE_BYTES
                if is_late or patience.answered or not (is_repeatable and can_replay):
                    raise
        return self._exchange(self._open(origin, deadline, connect_timeout), request, patience)

    def dial(
        self,
        method: str,
        url: str,
        *,
        headers: Sequence[tuple[str, str]],
        deadline: Deadline,
        connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
    ) -> tuple[Connection, Request]:
        """A connection of one's own for a request that has not been sent: see ``upgrade``."""
        origin, request = _build(method, url, headers=headers, body=None)
        return self._open(origin, deadline, connect_timeout), request

    def close(self) -> None:
        """Close the idle connections. The transport can be used again."""
        for connection in self._own_pool().empty():
            connection.close()

    def _open(self, origin: Origin, deadline: Deadline, connect_timeout: float) -> Connection:
        if deadline.expired:
            raise errors.ConnectError(f"no time left to connect to {origin}")
        environ = settings.environment() if self._environ is None else self._environ
        proxy = proxies.choose(scheme=origin.scheme, host=origin.host, port=origin.port, environ=environ)
        return open_connection(
            origin, proxy=proxy, timeout=deadline.clamp(connect_timeout), context=lambda: self._trust(environ)
        )

    def _exchange(self, connection: Connection, request: Request, patience: Patience) -> Response:
        pool = self._own_pool()

        def release(reusable: bool) -> None:
            if not (reusable and pool is self._pool and pool.give(connection)):
                connection.close()

        answer = connection.exchange(request, patience)
        return Response(
            answer,
            origin=str(connection.origin),
            patience=patience,
            release=release,
            interrupt=connection.interrupt,
        )

    def _own_pool(self) -> _Pool:
        # A child of fork shares its parent's sockets, and its lock may be held by a thread that is not there: it uses
        # neither. Two threads of the child may each make a pool here; one is lost, which costs a connection.
        if self._pool.pid != os.getpid():
            inherited, self._pool = self._pool, _Pool(self._clock)
            for connection in [each for stack in inherited.idle.values() for each in stack]:
                connection.let_go()
        return self._pool

    def _trust(self, environ: Mapping[str, str]) -> ssl.SSLContext:
        if self._context is None:
            self._context = tls.build_context(self._verify, environ=environ)
        return self._context


def _build(method: str, url: str, *, headers: Sequence[tuple[str, str]], body: Body | None) -> tuple[Origin, Request]:
    match = _URL.fullmatch(url)
    if match is None or int(match["port"] or 1) not in range(1, 65536):
        raise errors.UsageError(f"no http or https URL that can be requested: {_shown(url)!r}")
    if not _METHOD.fullmatch(method):
        raise errors.UsageError(f"not an HTTP method: {method!r}")
    scheme = match["scheme"].lower()
    port = int(match["port"]) if match["port"] else None
    origin = Origin(scheme, match["host"].strip("[]").lower(), None if port == _DEFAULT_PORTS[scheme] else port)
    target = match["target"] or "/"
    fields, is_chunked = _complete(method, origin, headers=headers, body=body)
    return origin, Request(method, target if target[0] == "/" else f"/{target}", fields, body, is_chunked)


def _complete(
    method: str, origin: Origin, *, headers: Sequence[tuple[str, str]], body: Body | None
) -> tuple[list[tuple[str, str]], bool]:
    """The header fields to send, and whether the body goes in chunks."""
    for name, value in headers:
        # The value is not repeated: it may be a token.
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise errors.UsageError(f"header {name!r} has characters that cannot be sent")
    names = {name.lower() for name, _ in headers}
    fields = [] if "host" in names else [("Host", origin.authority)]
    fields += headers
    if "user-agent" not in names:
        fields.append(("User-Agent", f"vmnest/{__version__}"))
    if "accept-encoding" not in names:
        fields.append(("Accept-Encoding", "identity"))
    if "content-length" in names or "transfer-encoding" in names:
        return fields, "transfer-encoding" in names
    if isinstance(body, bytes) or (body is None and method in {"POST", "PUT", "PATCH"}):
        fields.append(("Content-Length", str(len(body or b""))))
    elif body is not None:
        fields.append(("Transfer-Encoding", "chunked"))
        return fields, True
    return fields, False


def _shown(url: str) -> str:
    """A URL for a message: without query and login, which may be secrets."""
    return re.sub(r"//[^/?]*@", "//", url.split("?", 1)[0])[:200]


_SHARED: dict[bool | str, Transport] = {}


def shared(verify: bool | str = True) -> Transport:
    """The process's transport with that trust: the system's, that of a CA bundle, or none (see ``Transport``)."""
    found = _SHARED.get(verify)
    return found if found is not None else _SHARED.setdefault(verify, Transport(verify=verify))


def _close_shared() -> None:
    # Idle connections are closed, not dropped: with warnings switched on Python would complain at the end.
    for transport in _SHARED.values():
        transport.close()


atexit.register(_close_shared)
