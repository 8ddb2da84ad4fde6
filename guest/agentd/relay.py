"""The relay: requests that carry ``vmnest-relay-port`` go to a server on the sandbox's own loopback.

The platform routes requests by ``Host``, which must therefore be that of the MicroVM's endpoint; many servers for
development refuse any but ``localhost``. So the request is passed on from here, as one for ``localhost``.

One request at a time, framed by the rules of HTTP/1.1, since the platform's proxy may use a connection for several
clients; bytes are only bytes after a 101.
"""

from __future__ import annotations

import errno
import socket
import threading

from . import answers, heads, wire
from .errors import RequestError, is_exhaustion
from .exchanges import Exchange, ServerGoneError, is_repeatable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_RELAYED = 1024  # connections
CONNECT_SECONDS = 5.0
_ADDRESSES = ("127.0.0.1", "::1")
# One of the reasons for which there is nobody at an address: nobody listens, or there is no IPv6.
_NOBODY = frozenset({errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class RelayError(RequestError):
    """The relay's own answer; ``reason`` is what its header says."""

    def __init__(self, status: int, reason: str, detail: str, *, code: str = "") -> None:
        super().__init__(status, code or reason, detail)
        self.reason = reason


class Relay:
    """Says who may be reached, and by how many at a time. Thread-safe.

    Args:
        refused: The ports that nobody may reach this way.
        limit: The connections that may relay.
    """

    def __init__(self, *, refused: Iterable[int], limit: int = MAX_RELAYED) -> None:
        self._refused = frozenset(refused)
        self._limit = limit
        self._free = threading.BoundedSemaphore(limit)

    def check(self, port: int) -> None:
        """Refuse the agent's own ports: whoever reaches them asks there."""
        if port in self._refused:
            raise RelayError(403, wire.RELAY_REFUSED, f"port {port} is the agent's own: nothing is passed on to it")

    def enter(self) -> None:
        """Count one more connection that relays, until ``leave``."""
        if not self._free.acquire(blocking=False):
            raise RelayError(
                *(503, wire.RELAY_FULL, f"{self._limit} connections are passed on already"), code=wire.OVERLOADED
            )

    def leave(self) -> None:
        """The end of that."""
        self._free.release()


class Line:
    """Relays the requests of one client connection, and keeps the server's connection for the next one.

    Args:
        relay: Says what may be done.
        client: The connection; it does not block while a request is carried.
    """

    def __init__(self, relay: Relay, client: socket.socket) -> None:
        self._relay = relay
        self._client = client
        self._is_counted = False
        self._server: socket.socket | None = None
        self._port = 0  # the server's

    def carry(self, head: heads.Head, *, ahead: bytes) -> tuple[bool, int]:
        """Carry one request.

        Args:
            head: The request's head.
            ahead: What was read behind that.

        Returns:
            Whether the client's connection can be used further, and how much of ``ahead`` was a part of the request.

        Raises:
            RelayError: there is no answer of a server's, and the client has got nothing.
            PeerGoneError: the client is gone, or has to be cut off.
        """
        try:
            return self._carry(head, ahead=ahead, port=parse_port(head.headers[wire.RELAY_PORT_HEADER]))
        except heads.HeadError as error:
            raise RelayError(error.status, wire.BAD_REQUEST, str(error)) from error

    def close(self) -> None:
        """End the server's connection. Idempotent."""
        self._hang_up()
        if self._is_counted:
            self._is_counted = False
            self._relay.leave()

    def _carry(self, head: heads.Head, *, ahead: bytes, port: int) -> tuple[bool, int]:
        self._relay.check(port)
        if not self._is_counted:
            self._relay.enter()
            self._is_counted = True
        # A connection that was used may end just now: nothing goes there that must not be sent again.
        is_used = is_repeatable(head) and self._is_usable(port)
        while True:
            if not is_used or self._server is None:
                self._hang_up()
                self._server, self._port = connect(port), port
            exchange = Exchange(self._client, self._server, head=head, ahead=ahead, port=port)
            try:
                exchange.run()
            except ServerGoneError as error:
                if not is_used or exchange.is_heard:
                    raise RelayError(502, wire.RELAY_BROKEN, f"no answer from port {port}: {error}") from error
                is_used = False  # it has ended the connection just when that was used again
            else:
                return exchange.keeps_client, exchange.taken
            finally:
                if not exchange.keeps_server:
                    self._hang_up()

    def _is_usable(self, port: int) -> bool:
        """The connection that there is will do."""
        if self._server is None or self._port != port:
            return False
        try:
            self._server.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # it has ended, or the server has said something unasked

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


def parse_port(values: list[str]) -> int:
    """The port that the header names.

    Raises:
        RelayError: none, or more than one.
    """
    text = values[0]
    if len(values) == 1 and text.isascii() and text.isdigit() and len(text) <= 5:
        port = int(text)
        if 1 <= port <= 65535 and str(port) == text:
            return port
    raise RelayError(400, wire.BAD_REQUEST, f"{wire.RELAY_PORT_HEADER} must be one port, 1 to 65535")


def build_error(error: RelayError) -> answers.Answer:
    """The relay's own answer."""
    answer = answers.build_error(error)
    answer.headers += ((wire.RELAY_HEADER, error.reason),)
    return answer


def connect(port: int) -> socket.socket:
    """A connection, which does not block, to whatever listens on that port of loopback.

    Raises:
        RelayError: nothing does, or it takes no connection.
    """
    for address in _ADDRESSES:
        try:
            server = socket.create_connection((address, port), timeout=CONNECT_SECONDS)
        except OSError as error:
            if error.errno in _NOBODY:
                continue
            raise _explain(error, port=port) from error
        # Without a listener, a connection that gets the very port for its own meets itself.
        if server.getsockname() == server.getpeername():
            server.close()
            continue
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.setblocking(False)
        return server
    raise RelayError(502, wire.RELAY_NOT_LISTENING, f"nothing listens on port {port}")


def _explain(error: OSError, *, port: int) -> RelayError:
    if is_exhaustion(error):
        return RelayError(503, wire.RELAY_FULL, f"the sandbox is out of resources: {error}", code=wire.OVERLOADED)
    return RelayError(502, wire.RELAY_BROKEN, f"port {port} takes no connection: {error}")
