"""Connections to the outside: a name is looked up once, and what it led to is what is connected to.

Who looks twice can be shown a public address first and then another (DNS rebinding). Where this machine itself goes out
through a proxy, that one looks names up again; so what leads to no public address as seen from here is refused before,
and what the proxy's own network holds is for the proxy to guard.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ... import deadline, errors
from ...wire import egress, hostnames, http1, proxies, streams
from . import addresses

__all__ = ["CONNECT_SECONDS", "ForbiddenError", "Line", "Outlet", "UnreachableError", "resolve"]

CONNECT_SECONDS = 10.0
_ATTEMPT_SECONDS = 5.0  # for one of several addresses
_TUNNEL_SECONDS = 20.0  # for a proxy, which connects for us meanwhile
_MAX_ADDRESSES = 16
_MAX_PROXY_HEAD_BYTES = 65536
_NOBODYS = {socket.AF_INET: "240.0.0.1", socket.AF_INET6: "100::ffff"}  # reserved, and to nowhere

Resolve = Callable[[str], Sequence[str]]
Connect = Callable[[socket.socket, tuple[str, int]], object]
# Gets each socket before it connects, to end it from another thread, and to close it in the end.
Watch = Callable[[socket.socket], None]


class ForbiddenError(Exception):
    """The host may not be reached; the text says why."""


class UnreachableError(Exception):
    """The host may be reached, but cannot be; the text says why, and ``status`` is what a proxy answers."""

    def __init__(self, why: str, *, status: int = 502) -> None:
        super().__init__(why)
        self.status = status


class Line(NamedTuple):
    """A connection: to the host itself, or (``proxy``) to a proxy that wants requests with whole URLs."""

    stream: streams.Stream
    proxy: proxies.Proxy | None = None


def resolve(host: str) -> list[str]:
    """The addresses of a name, in the system's order.

    Raises:
        OSError: it has none.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def is_own(address: str) -> bool:
    """Whether an address is one of this machine's: then a socket can be bound to it.

    Where sockets can be bound to any address (``ip_nonlocal_bind``), it is one if connections to it come from it too;
    that does not hold for further addresses of one network. No packet is sent for either.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if not _can_bind(family, _NOBODYS[family]):
        return _can_bind(family, address)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
    except OSError:  # no way there at all
        return False


def _can_bind(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


class Outlet:
    """Makes connections for all sandboxes. Thread-safe.

    Args:
        environ: Where the proxies of this machine are named, as for all of its programs.
        resolve: Looks a name up.
        is_own: Whether a public address is this machine's.
        connect: Connects a socket to an address and a port.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        resolve: Resolve = resolve,
        is_own: Callable[[str], bool] = is_own,
        connect: Connect = socket.socket.connect,
    ) -> None:
        self._environ = dict(environ or {})
        self._resolve = resolve
        self._is_own = is_own
        self._connect_socket = connect

    def open(self, host: str, port: int, *, verdict: str, is_clear: bool, watch: Watch) -> Line:
        """A connection to a host, in its one form.

        Args:
            host, port: Where to.
            verdict: What the rules say: ``egress.ANYWHERE`` or ``egress.PUBLIC``.
            is_clear: Requests in the clear are meant: for these a proxy wants no tunnel.
            watch: Gets each socket that is tried; the one before is of no use then.

        Raises:
            ForbiddenError: the host has no address that is allowed.
            UnreachableError: no connection can be made.
        """
        proxy = self._choose(host, port, is_clear=is_clear)
        found = self._find(host, verdict=verdict, is_proxied=proxy is not None)
        if proxy is None:
            return Line(streams.Stream(self._connect(found, port, watch=watch)))
        sock = self._connect(self._lookup(proxy.host), proxy.port, watch=watch, whose="the proxy of this machine: ")
        line = Line(streams.Stream(sock), proxy if is_clear else None)
        if not is_clear:
            _open_tunnel(line.stream, hostnames.show(host, port), proxy)
        return line

    def _choose(self, host: str, port: int, *, is_clear: bool) -> proxies.Proxy | None:
        scheme = "http" if is_clear else "https"
        try:
            proxy = proxies.choose(scheme=scheme, host=host, port=port, environ=self._environ)
        except errors.SettingError as error:
            raise UnreachableError(error.message) from error
        if proxy is not None and proxy.scheme != "http":
            raise UnreachableError("the proxy of this machine is spoken to with TLS, which is not supported")
        return proxy

    def _find(self, host: str, *, verdict: str, is_proxied: bool) -> list[str]:
        """The host's addresses that may be connected to."""
        if is_proxied and verdict == egress.ANYWHERE:
            return []  # whatever it has
        try:
            found = self._lookup(host)
        except UnreachableError:
            if is_proxied:  # a network whose names lead nowhere but for its proxy
                return []
            raise
        if verdict == egress.ANYWHERE:
            return found
        public = [address for address in found if addresses.is_public(address) and not self._is_own(address)]
        if not public:
            raise ForbiddenError("its address is not public")
        return public

    def _lookup(self, host: str) -> list[str]:
        if hostnames.is_address(host):
            return [host]
        try:
            return list(self._resolve(host))[:_MAX_ADDRESSES]
        except (OSError, UnicodeError) as error:
            raise UnreachableError(f"{hostnames.show(host)} is not known: {error}") from error

    def _connect(self, found: Sequence[str], port: int, *, watch: Watch, whose: str = "") -> socket.socket:
        """A connection to the first address that takes one."""
        limit = deadline.Deadline(CONNECT_SECONDS)
        failure: OSError | None = None
        for address in found:
            if limit.expired:
                break
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            watch(sock)
            try:
                sock.settimeout(limit.clamp(_ATTEMPT_SECONDS if len(found) > 1 else CONNECT_SECONDS))
                self._connect_socket(sock, (address, port))
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                failure = error
            else:
                return sock
        status = 504 if failure is None or isinstance(failure, TimeoutError) else 502
        raise UnreachableError(f"{whose}{failure or 'it has no address'}", status=status) from failure


def _open_tunnel(stream: streams.Stream, target: str, proxy: proxies.Proxy) -> None:
    """Have the proxy of this machine connect to the target."""
    fields = [("Host", target)]
    if proxy.authorization is not None:
        fields.append(("Proxy-Authorization", proxy.authorization))
    try:
        stream.socket.settimeout(_TUNNEL_SECONDS)
        stream.send(http1.serialize_request(http1.Request("CONNECT", target, fields)))
        head = stream.read_head(limit=_MAX_PROXY_HEAD_BYTES)
        if head is None:
            raise http1.TruncatedError("it ended the connection")
        response = http1.parse_response(head)
        stream.socket.settimeout(None)
    except (OSError, http1.MessageError) as error:
        raise UnreachableError(f"the proxy of this machine: {error}") from error
    if not 200 <= response.status < 300:
        raise UnreachableError(f"the proxy of this machine answered {response.status}")
