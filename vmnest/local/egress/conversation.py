"""One connection from inside a sandbox: what it asks for is judged, and carried to the outside.

A client asks in one of two ways. ``CONNECT host:port`` makes a tunnel. What goes through it is not looked at, but for
its beginning: TLS has to want the server that the tunnel was asked for, and at port 443 it has to be TLS. A request
with a whole URL, ``GET http://host/path``, is carried by ``exchange``, and so are the requests in a tunnel to port 80,
where clients that know only tunnels speak HTTP in the clear. Each request is judged anew: a redirect is one more.

What is no request that can be read in one way only is refused (``http1``), and every wait has an end.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from typing import NamedTuple

from ... import deadline
from ...wire import egress, hostnames, http1, relay, streams
from .. import httpd
from . import exchange, hello, journal, outlet

__all__ = ["CLEAR_PORT", "TLS_PORT", "Conversation", "Desk", "Patience"]

_LOG = logging.getLogger(__name__)

CLEAR_PORT = 80
TLS_PORT = 443
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_REFUSED = "Not allowed to this sandbox"  # several clients show the phrase, and nothing of the body


class Patience(NamedTuple):
    """How long a client may take, in seconds.

    Attributes:
        request: For the next request to begin.
        head: For a request's head from its first byte on, and for the first bytes in a tunnel.
        silence: While both sides are silent: in a tunnel, and before and within an answer.
    """

    request: float = 60.0
    head: float = 30.0
    silence: float = 900.0


class Desk(NamedTuple):
    """What all conversations of a gate share."""

    rules: egress.Rules
    outlet: outlet.Outlet
    journal: journal.Journal
    patience: Patience = Patience()
    clock: deadline.Clock = deadline.SYSTEM_CLOCK


class _CutError(Exception):
    """Somebody ended the conversation."""


class Conversation:
    """A client's connection, and in turn at most one to the outside. For one thread, but for ``cut``.

    Args:
        sock: The client's connection; the caller closes it.
        desk: What it shares with others.
    """

    def __init__(self, sock: socket.socket, desk: Desk) -> None:
        self._stream = streams.Stream(sock)
        self._desk = desk
        self._origin: exchange.Origin | None = None  # of the requests in a tunnel to port 80
        self._line: outlet.Line | None = None  # to _place
        self._place: tuple[str, int] | None = None
        self._lock = threading.Lock()  # guards the two below
        self._outside: socket.socket | None = None
        self._is_cut = False

    # -- from any thread -----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End it: whoever reads or writes wakes."""
        self._stream.interrupt()
        with self._lock:
            self._is_cut = True
            if self._outside is not None:
                with contextlib.suppress(OSError):
                    self._outside.shutdown(socket.SHUT_RDWR)

    # -- the conversation ----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer requests until either side ends."""
        try:
            while self._serve_one():
                pass
        except http1.TruncatedError as error:
            _LOG.debug("a request was cut short: %s", error)
        except http1.MessageError as error:
            self._desk.journal.refuse("a malformed request", error.message)
            httpd.refuse(self._stream, error)
        except (_CutError, exchange.BrokenError, OSError) as error:
            _LOG.debug("a connection ended: %r", error)
        finally:
            self._drop_line()

    def _serve_one(self) -> bool:
        head = self._read_head()
        if head is None:
            return False
        self._stream.socket.settimeout(self._desk.patience.silence)
        request = http1.parse_request(head)
        try:
            if request.method == "CONNECT":
                return self._connect(request)
            return self._carry(request)
        except outlet.ForbiddenError as error:
            return self._answer(request, 403, str(error))
        except outlet.UnreachableError as error:
            return self._answer(request, error.status, str(error))

    def _read_head(self) -> bytes | None:
        """The next head, or None at the end. However slowly it comes, its time is the same."""
        patience, sock = self._desk.patience, self._stream.socket
        buffer = http1.HeadBuffer(skip_empty_lines=True)
        sock.settimeout(patience.request)
        limit: deadline.Deadline | None = None
        while (data := self._stream.receive()) and (head := buffer.feed(data)) is None:
            limit = limit or deadline.Deadline(patience.head, clock=self._desk.clock)
            if limit.expired:
                raise TimeoutError("a head has no end")
            sock.settimeout(limit.clamp(patience.request))
        if not data:
            if buffer.is_empty:
                return None
            raise http1.TruncatedError("the connection ended in the middle of a head")
        self._stream.ahead = buffer.rest
        return head

    def _answer(self, request: http1.Request, status: int, why: str) -> bool:
        """Refuse; whether the connection can be used further."""
        is_whole = request.method != "CONNECT" and http1.request_framing(request).kind == http1.NONE
        keep = is_whole and http1.keeps_alive(request)
        body = f"vmnest: {why}\n".encode()
        fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        if not keep:
            fields.append(("Connection", "close"))
        reason = _REFUSED if status == 403 else http1.REASONS[status]
        head = http1.serialize_response(http1.Response(status, reason, fields))
        self._stream.send(head if request.method == "HEAD" else head + body)
        if not keep:
            httpd.linger(self._stream)
        return keep

    # -- the outside ---------------------------------------------------------------------------------------------------

    def _open(self, host: str, port: int, *, is_clear: bool) -> outlet.Line:
        """A new connection to a host, if the rules allow it.

        Raises:
            outlet.ForbiddenError: they do not.
            outlet.UnreachableError: none can be made.
        """
        self._drop_line()
        what, desk = hostnames.show(host, port), self._desk
        verdict = desk.rules.judge(host, port)
        try:
            if verdict == egress.NOWHERE:
                raise outlet.ForbiddenError("no rule allows it")
            line = desk.outlet.open(host, port, verdict=verdict, is_clear=is_clear, watch=self._watch)
        except outlet.ForbiddenError as error:
            desk.journal.refuse(what, str(error))
            raise outlet.ForbiddenError(f"egress to {what} is refused: {error}") from error
        except outlet.UnreachableError as error:
            desk.journal.fail(what, str(error))
            raise outlet.UnreachableError(f"egress to {what} failed: {error}", status=error.status) from error
        desk.journal.allow(what)
        line.stream.socket.settimeout(desk.patience.silence)
        self._line, self._place = line, (host, port)
        return line

    def _watch(self, sock: socket.socket) -> None:
        with self._lock:
            before, self._outside = self._outside, sock
            is_cut = self._is_cut
        if before is not None:
            before.close()
        if is_cut:
            raise _CutError

    def _drop_line(self) -> None:
        self._line = self._place = None
        with self._lock:
            sock, self._outside = self._outside, None
        if sock is not None:
            sock.close()

    # -- requests in the clear -----------------------------------------------------------------------------------------

    def _carry(self, request: http1.Request) -> bool:
        origin = exchange.parse_target(request.target) if self._origin is None else self._origin
        if self._origin is not None:
            exchange.check_path(request)
        exchange.check_host(request, origin)
        one = exchange.Exchange(self._stream, request, origin, silence=self._desk.patience.silence)
        try:
            line, is_fresh = self._line_to(origin)
            return one.carry(line, is_fresh=is_fresh, renew=lambda: self._line_to(origin, anew=True)[0])
        except outlet.ForbiddenError as error:
            return self._answer(request, 403, str(error))
        except outlet.UnreachableError as error:
            return self._answer(request, error.status, str(error))
        finally:
            one.end()
            if not one.is_line_usable:
                self._drop_line()

    def _line_to(self, origin: exchange.Origin, *, anew: bool = False) -> tuple[outlet.Line, bool]:
        """A connection for a request, and whether it is new; one that is there is used again."""
        line = self._line
        is_there = line is not None and self._place == (origin.host, origin.port)
        if line is None or anew or not is_there or line.stream.is_stale():
            return self._open(origin.host, origin.port, is_clear=True), True
        return line, False

    # -- tunnels -------------------------------------------------------------------------------------------------------

    def _connect(self, request: http1.Request) -> bool:
        if self._origin is not None:
            raise http1.MessageError("a tunnel within a tunnel")
        if http1.request_framing(request).kind != http1.NONE:
            raise http1.MessageError("a CONNECT with a body")
        origin = exchange.parse_place(request.target)
        exchange.check_host(request, origin)
        host, port = origin.host, origin.port
        line = self._open(host, port, is_clear=port == CLEAR_PORT)
        self._stream.send(_ESTABLISHED)
        if port == CLEAR_PORT:
            self._origin = origin
            return True
        try:
            first = self._look_at_beginning(host, line) if port == TLS_PORT or self._speaks_first(line) else b""
        except (hello.HelloError, hello.NotTlsError) as error:
            self._desk.journal.refuse(hostnames.show(host, port), f"not the TLS that it should be: {error}")
            self._stream.send(hello.ACCESS_DENIED)
            httpd.linger(self._stream)
            return False
        relay.pump(
            self._stream.socket,
            line.stream.socket,
            from_left=first,
            from_right=line.stream.ahead,
            idle_seconds=self._desk.patience.silence,
        )
        return False

    def _speaks_first(self, line: outlet.Line) -> bool:
        """Whether the client speaks before the server: one of TLS does."""
        if self._stream.ahead or line.stream.ahead:
            return not line.stream.ahead
        poller = select.poll()
        for sock in (self._stream.socket, line.stream.socket):
            poller.register(sock, select.POLLIN)
        ready = [number for number, _ in poller.poll(self._desk.patience.silence * 1000)]
        if not ready:
            raise TimeoutError("nobody says anything")
        return self._stream.socket.fileno() in ready

    def _look_at_beginning(self, host: str, line: outlet.Line) -> bytes:
        """What the client says first, once it is clear that it may.

        Raises:
            hello.HelloError: it is TLS that wants another server, or none that can be understood.
            hello.NotTlsError: it is not TLS, where it has to be.
        """
        first = b""
        greeting = hello.Hello()
        limit = deadline.Deadline(self._desk.patience.head, clock=self._desk.clock)
        try:
            while True:
                self._stream.socket.settimeout(limit.clamp(self._desk.patience.head))
                data = self._stream.receive()
                first += data
                if not data:
                    raise http1.TruncatedError("the connection ended before it began")
                if greeting.feed(data):
                    break
                if limit.expired:
                    raise TimeoutError("a hello has no end")
        except hello.NotTlsError:
            if self._place is not None and self._place[1] == TLS_PORT:
                raise
            return first
        _check_name(greeting.server_name, host)
        return first


def _check_name(name: str | None, host: str) -> None:
    """Whether that is how a client asks for the host: by its name, or not at all if it is an address."""
    if name is None and hostnames.is_address(host):
        return
    try:
        is_same = name is not None and hostnames.parse(name) == host
    except hostnames.HostError:
        is_same = False
    if not is_same:
        raise hello.HelloError("it wants no server by name" if name is None else "it wants a server of another name")
