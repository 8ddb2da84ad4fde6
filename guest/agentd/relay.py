"""The relay: requests that carry ``vmnest-relay-port`` go to a server on the sandbox's own loopback.

The platform routes requests by ``Host``, which must therefore be that of the MicroVM's endpoint; many servers for
development refuse any but ``localhost``. So the request is passed on from here, as one for ``localhost``.

One request at a time, framed by the rules of HTTP/1.1, since the platform's proxy may use a connection for several
clients; bytes are only bytes after a 101. Both ways are driven by one thread with ``poll``: a server may answer before
it has read everything, or never, and a client that leaves ends the server's connection at once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading

from . import answers, heads, wire
from .bodyends import BodyEnd
from .errors import PeerGoneError, RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from io import BufferedReader
    from typing import TypeVar

    T = TypeVar("T")

MAX_RELAYED = 1024  # of the connections that the agent serves: the rest is for commands, and for its own health
CONNECT_SECONDS = 5.0
_ADDRESSES = ("127.0.0.1", "::1")
_PIECE_BYTES = 65536
_TURNS = 16  # transfers before the other way gets its turn
_MAX_INTERIM = 32
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CONNECTION_FIELDS = frozenset({"connection", "keep-alive", "proxy-connection", "te", "upgrade"})
_FRAMING_FIELDS = frozenset({"content-length", "transfer-encoding"})  # no sender may have them taken out
_LEFT = select.POLLERR | select.POLLHUP | select.POLLRDHUP
_PROBE_SECONDS = 20
_PLATFORM_PREFIX = "x-aws-proxy-"
_FORWARDED = ("x-forwarded-host", "x-forwarded-proto", "x-forwarded-for")


class ServerGoneError(Exception):
    """The server ended the connection, or what it sends is no answer."""


class Relay:
    """Passes requests on. ``refused`` are the ports that nobody may reach this way."""

    def __init__(self, *, refused: Iterable[int]) -> None:
        self._refused = frozenset(refused)
        self._free = threading.BoundedSemaphore(MAX_RELAYED)

    def enter(self, port: int) -> None:
        """Begin to serve a connection that relays.

        Raises:
            RequestError: not to this port, or not one more.
        """
        if port in self._refused:
            raise _error(403, wire.RELAY_REFUSED, f"port {port} is not passed on to")
        if not self._free.acquire(blocking=False):
            raise _error(503, wire.RELAY_FULL, f"{MAX_RELAYED} connections are passed on already")

    def leave(self) -> None:
        """The end of that."""
        self._free.release()


class RelayError(RequestError):
    """The relay's own answer; ``reason`` is what its header says."""

    def __init__(self, status: int, code: str, detail: str, *, reason: str) -> None:
        super().__init__(status, code, detail)
        self.reason = reason


def _error(status: int, reason: str, detail: str) -> RelayError:
    code = wire.OVERLOADED if reason == wire.RELAY_FULL else wire.BAD_ARGUMENT if status == 400 else reason
    return RelayError(status, code, detail, reason=reason)


def parse_port(values: list[str]) -> int:
    """The port that the header names.

    Raises:
        RequestError: none, or more than one.
    """
    text = values[0]
    if len(values) != 1 or not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise _error(400, wire.RELAY_REFUSED, f"{wire.RELAY_PORT_HEADER} must be one port, 1 to 65535")
    return int(text)


def build_error(error: RequestError) -> answers.Answer:
    """The relay's own answer."""
    answer = answers.build_error(error)
    answer.headers += ((wire.RELAY_HEADER, getattr(error, "reason", wire.RELAY_BROKEN)),)
    return answer


def connect(port: int) -> socket.socket:
    """A connection to whatever listens on that port of loopback.

    Raises:
        RequestError: nothing does.
    """
    for address in _ADDRESSES:
        with contextlib.suppress(OSError):
            server = socket.create_connection((address, port), timeout=CONNECT_SECONDS)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.setblocking(False)
            return server
    raise _error(502, wire.RELAY_NOT_LISTENING, f"nothing listens on port {port}")


class Passage:
    """One direction: source → what waits to be sent → sink. Both sockets do not block."""

    def __init__(self, source: socket.socket, sink: socket.socket, end: BodyEnd, *, lead: bytes = b"") -> None:
        self.makes_chunks = False  # of a body that would end with the connection
        self.source = source
        self.sink = sink
        self.end = end
        self.ahead = b""  # bytes of the source that were read already
        self._pending = memoryview(lead)

    @property
    def wants_to_read(self) -> bool:
        return not self._pending and not self.end.is_passed

    @property
    def wants_to_write(self) -> bool:
        return bool(self._pending)

    @property
    def is_done(self) -> bool:
        return self.end.is_passed and not self._pending

    def send(self, data: bytes) -> None:
        """Send this too, behind what waits."""
        self._pending = memoryview(bytes(self._pending) + data)

    def push(self) -> None:
        """Send what waits, as far as it goes."""
        with contextlib.suppress(BlockingIOError):
            while self._pending:
                self._pending = self._pending[self.sink.send(self._pending) :]

    def advance(self) -> bool:
        """Transfer until either end would block, a few turns at most; whether anything moved."""
        moved = False
        for _ in range(_TURNS):
            before = len(self._pending)
            self.push()
            moved = moved or len(self._pending) < before
            if self._pending or self.end.is_passed or not self._pull():
                break
            moved = True
        return moved

    def _pull(self) -> bool:
        wanted = self.end.wanted
        # What follows a chunked body is left where it is: it is the next request.
        is_peeked = self.end.is_chunked and not self.ahead
        if self.ahead:
            data, self.ahead = self.ahead[:wanted], self.ahead[wanted:]
        else:
            try:
                data = self.source.recv(wanted, socket.MSG_PEEK if is_peeked else 0)
            except BlockingIOError:
                return False
        if not data:
            if not self.end.is_until_close:
                raise ConnectionError("the connection ended in the middle of a body")
            self.end.is_passed = True
            if self.makes_chunks:
                self._pending = memoryview(b"0\r\n\r\n")
            return True
        count = self.end.see(data)
        if is_peeked:
            self.source.recv(count)
        else:
            self.ahead = data[count:] + self.ahead
        self._pending = memoryview(b"%x\r\n%b\r\n" % (count, data) if self.makes_chunks else data[:count])
        return True


class Exchange:
    """One request on its way to a server, and the answer on its way back.

    Args:
        client: The agent's connection.
        head: The request's head.
        reader: Has what was read of the client ahead.
        port: The server's port.
    """

    def __init__(self, client: socket.socket, head: heads.Head, *, reader: BufferedReader, port: int) -> None:
        self._client = client
        self._head = head
        self._reader = reader
        self._port = port

    def run(self, server: socket.socket) -> tuple[bool, bool]:
        """Carry it; whether the client's connection can be used further, and whether the server's can.

        Raises:
            ServerGoneError: the server gives no answer, and the client has got none of it.
            PeerGoneError: the client is gone, or has to be cut off.
            HeadError: the request's body is malformed, and the client has got nothing.
        """
        end = BodyEnd(length=self._head.length, is_chunked=self._head.chunked)
        self.upload = Passage(self._client, server, end, lead=build_request(self._head, self._port))
        self.upload.ahead = _take_ahead(self._reader, self._head)
        self._takes_upload = True
        self._back = Passage(server, self._client, BodyEnd())
        response = self._read_answer(server)
        if response.status == 101:
            self._switch(response)
            return False, False
        return self._answer(server, response)

    def _read_answer(self, server: socket.socket) -> heads.ResponseHead:
        """The head of the final answer; interim ones are passed on."""
        data = b""
        for _ in range(_MAX_INTERIM):
            while (at := data.find(b"\r\n\r\n")) < 0:
                if len(data) > wire.MAX_HEAD_BYTES:
                    raise ServerGoneError("the head of the server's answer is too large")
                data += self._receive_some(server)
            try:
                response = heads.parse_response(data[:at].split(b"\r\n"))
            except heads.HeadError as error:
                raise ServerGoneError(str(error)) from error
            data = self._back.ahead = data[at + 4 :]
            if response.status == 101 and not self._head.asks_upgrade:
                raise ServerGoneError("the server changed the protocol unasked")
            if response.status == 101 or response.status >= 200:
                return response
            if self._head.version >= (1, 1):
                self._back.send(b"\r\n".join(response.lines) + b"\r\n\r\n")
        raise ServerGoneError("interim answers without end")

    def _receive_some(self, server: socket.socket) -> bytes:
        while True:
            self._send_on()
            _guard(self._back.push)
            try:
                data = server.recv(_PIECE_BYTES)
            except BlockingIOError:
                self._wait(server, reads=True)
                continue
            except OSError as error:
                raise ServerGoneError(str(error)) from error
            if not data:
                raise ServerGoneError("it ended the connection")
            return data

    def _answer(self, server: socket.socket, response: heads.ResponseHead) -> tuple[bool, bool]:
        try:
            end = _end_of(response, method=self._head.method)
        except heads.HeadError as error:
            raise ServerGoneError(str(error)) from error
        is_old = self._head.version < (1, 1)
        back = self._back
        back.makes_chunks = end.is_until_close and not is_old
        keep = self._head.keeps_alive and self.upload.is_done and not is_old
        back.send(build_response(response, keep=keep, is_chunked=back.makes_chunks))
        back.end = end
        while not back.is_done:
            try:
                moved = back.advance()
                self._send_on()
            except (OSError, heads.HeadError) as error:
                raise PeerGoneError from error  # an early end is all that can still tell that it is not whole
            if not moved and not back.is_done:
                self._wait(server, reads=False)
        return keep, self.upload.is_done and response.keeps_alive and not end.is_until_close and not back.ahead

    def _switch(self, response: heads.ResponseHead) -> None:
        """Pass the 101 on, and then bytes until both have ended."""
        back = self._back
        back.send(build_response(response, keep=True))
        back.end = BodyEnd(is_until_close=True)
        out = Passage(self._client, self.upload.sink, BodyEnd(is_until_close=True))
        out.ahead = self._reader.read1(_PIECE_BYTES) or b""
        for sock in (self._client, self.upload.sink):
            _probe(sock)
        open_ways = [back, out]
        while open_ways:
            moved = False
            for way in list(open_ways):
                moved = _guard(way.advance) or moved
                if way.is_done:
                    open_ways.remove(way)
                    with contextlib.suppress(OSError):
                        way.sink.shutdown(socket.SHUT_WR)
            if not moved and open_ways and not _poll(open_ways):
                raise PeerGoneError

    def _send_on(self) -> None:
        """Carry the request's body further."""
        if not self._takes_upload:
            return
        try:
            self.upload.advance()
        except heads.HeadError:
            raise
        except OSError as error:
            if _is_over(self.upload.source):
                raise PeerGoneError from error
            self._takes_upload = False  # the server takes no more; its answer may be on the way
        else:
            self._takes_upload = not self.upload.is_done

    def _wait(self, server: socket.socket, *, reads: bool) -> None:
        back = self._back
        poller = select.poll()
        from_server = reads or back.wants_to_read
        to_server = self._takes_upload and self.upload.wants_to_write
        from_client = self._takes_upload and self.upload.wants_to_read
        if from_server or to_server:
            poller.register(server, select.POLLIN * from_server | select.POLLOUT * to_server)
        # A client that ends its side has left; behind what it sent, nothing else would tell.
        events = select.POLLIN * from_client | select.POLLOUT * back.wants_to_write
        poller.register(self._client, events | select.POLLRDHUP)
        if dict(poller.poll()).get(self._client.fileno(), 0) & _LEFT:
            raise PeerGoneError


def _is_over(sock: socket.socket) -> bool:
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _guard(action: Callable[[], T]) -> T:
    """Do it; a connection that fails leaves nobody to carry bytes to."""
    try:
        return action()
    except OSError as error:
        raise PeerGoneError from error


def _probe(sock: socket.socket) -> None:
    """Have the system look whether the peer still is there: one that has left is silent, too."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        sock.setsockopt(socket.IPPROTO_TCP, option, _PROBE_SECONDS)


def _poll(ways: list[Passage]) -> bool:
    """Wait until a way can go on; False: one of the connections has failed."""
    wanted: dict[int, int] = {}
    for way in ways:
        number = way.sink.fileno()
        wanted[number] = wanted.get(number, 0) | select.POLLOUT * way.wants_to_write
        if way.wants_to_read:
            number = way.source.fileno()
            wanted[number] = wanted.get(number, 0) | select.POLLIN
    poller = select.poll()
    for number, events in wanted.items():
        poller.register(number, events)
    return not any(events & select.POLLERR for _, events in poller.poll())


class Line:
    """What relays the requests of one client connection: it keeps the server's connection for the next request.

    Args:
        relay: Whose line it is.
        client: The connection.
        reader: Has what was read of it ahead.
    """

    def __init__(self, relay: Relay, client: socket.socket, *, reader: BufferedReader) -> None:
        self._relay = relay
        self._client = client
        self._reader = reader
        self._server: socket.socket | None = None
        self._port = 0

    def carry(self, head: heads.Head) -> bool:
        """Carry one request; whether the client's connection can be used further. The client does not block.

        Raises:
            RequestError: there is no answer of the server's; the client has got nothing.
            PeerGoneError: the client is gone, or has to be cut off.
        """
        port = parse_port(head.headers[wire.RELAY_PORT_HEADER])
        self._relay.enter(port)
        try:
            return self._carry(head, port)
        except ServerGoneError as error:
            raise _error(502, wire.RELAY_BROKEN, f"no answer from port {port}: {error}") from error
        except heads.HeadError as error:
            raise _error(error.status, wire.RELAY_BROKEN, str(error)) from error
        finally:
            self._relay.leave()

    def close(self) -> None:
        """End the server's connection."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _carry(self, head: heads.Head, port: int) -> bool:
        # The server may be about to end a connection that was used: nothing goes there that cannot be sent again.
        is_kept = _is_safe(head) and self._server is not None and self._port == port and not _has_news(self._server)
        if not is_kept:
            self._renew(port)
        try:
            return self._try(head, port)
        except ServerGoneError:
            if not is_kept:
                raise
        self._renew(port)  # it had ended the connection just when that was used again
        return self._try(head, port)

    def _renew(self, port: int) -> None:
        self.close()
        self._server, self._port = connect(port), port

    def _try(self, head: heads.Head, port: int) -> bool:
        assert self._server is not None
        keep, keep_server = False, False
        try:
            keep, keep_server = Exchange(self._client, head, reader=self._reader, port=port).run(self._server)
            return keep
        finally:
            if not keep_server:
                self.close()


def _take_ahead(reader: BufferedReader, head: heads.Head) -> bytes:
    """What was read of the request's body already; what follows the body is left where it is."""
    end = BodyEnd(length=head.length, is_chunked=head.chunked)
    if end.is_passed:
        return b""
    return reader.read(end.see(reader.peek(1)[: end.wanted]))


def _has_news(server: socket.socket) -> bool:
    """A connection that is idle has ended, or the server has said something unasked."""
    try:
        server.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


# -- heads -------------------------------------------------------------------------------------------------------------


def build_request(head: heads.Head, port: int) -> bytes:
    """The request's head as the server gets it."""
    local = f"localhost:{port}"
    host = head.value("host")
    told = head.value("x-forwarded-host") or host
    dropped = {*_CONNECTION_FIELDS, "host", wire.RELAY_PORT_HEADER, *_options(head.headers)}
    lines = [f"{head.method} {head.target} HTTP/1.{head.version[1]}", f"Host: {local}"]
    for name, value in head.fields:
        key = name.lower()
        if key in dropped or key.startswith(_PLATFORM_PREFIX):
            continue
        if key == "origin" and told and value.partition("://")[2].lower() == told.lower():
            value = f"http://{local}"
        lines.append(f"{name}: {value}")
    if not any(head.value(name) for name in _FORWARDED) and host:
        lines += [f"X-Forwarded-Host: {host}", "X-Forwarded-Proto: https"]
    if head.asks_upgrade:
        lines += ["Connection: Upgrade", f"Upgrade: {head.value('upgrade')}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def build_response(response: heads.ResponseHead, *, keep: bool, is_chunked: bool = False) -> bytes:
    """The answer's head as the client gets it. ``is_chunked``: the body gets this framing, having none."""
    dropped = {wire.RELAY_HEADER}
    if response.status != 101:
        dropped |= {*_CONNECTION_FIELDS, *_options(response.headers)}
    lines = [b"HTTP/1.1" + response.lines[0][len("HTTP/1.1") :]]
    lines += [line for line in response.lines[1:] if line.partition(b":")[0].decode("ascii").lower() not in dropped]
    lines.append(f"{wire.RELAY_HEADER}: {wire.RELAY_RELAYED}".encode("ascii"))
    if is_chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if not keep:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _options(headers: dict[str, list[str]]) -> set[str]:
    """The fields that are meant for one connection only, by the word of their sender."""
    return heads.connection_options(headers) - _FRAMING_FIELDS


def _end_of(response: heads.ResponseHead, *, method: str) -> BodyEnd:
    """How the answer's body ends (RFC 9112 section 6.3)."""
    if method == "HEAD" or response.status in (204, 304):
        return BodyEnd()
    length, is_chunked = heads.parse_framing(response.headers)
    if is_chunked or "content-length" in response.headers:
        return BodyEnd(length=length, is_chunked=is_chunked)
    return BodyEnd(is_until_close=True)


def _is_safe(head: heads.Head) -> bool:
    """It may be sent again."""
    return head.method in _SAFE and not head.length and not head.chunked
