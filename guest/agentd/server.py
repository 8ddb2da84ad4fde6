"""HTTP/1.1 over ``http.server``: connections, limits, keep-alive. What is asked and answered stands elsewhere.

A connection has a thread while it is open; free threads are used again. The standard handler brings the sockets and
the form of an answer; requests are read here, because its own parser folds slashes, forgives malformed framing and has
no bound on a head as a whole. Whatever a client sends, its thread and the listener live on.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import queue
import socket
import struct
import threading
import time

from . import __version__, answers, heads, journal, lean, relay, wire
from .bodies import Body
from .errors import PeerGoneError, RequestError, is_exhaustion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

# A thousand processes, each watched by a client of its own, and room for others; those that relay come on top.
MAX_CONNECTIONS = 1280 + relay.MAX_RELAYED
_MAX_HEADER_LINES = 640
_BACKLOG = 1024
# Of each connection, to join a head and a small body; larger blocks pass it by. What a thousand of these have touched
# once, the heap does not give back.
_WRITE_BUFFER_BYTES = 8192
_PIECE_BYTES = 65536
_LINGER_SECONDS = 2.0
_ACCEPT_PAUSE_SECONDS = 0.05
_FREE_THREAD_SECONDS = 10.0
_MAX_TURNED_AWAY = 64
_FULL_BODY = b'{"detail":"the sandbox serves as many connections as it can","code":"%b"}' % wire.OVERLOADED.encode()
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\nRetry-After: 1\r\n\r\n%b"
) % (len(_FULL_BODY), _FULL_BODY)
_BLANK = (b"\r\n", b"\n")


class Request:
    """One request as a route sees it. ``parameter`` is what stands in its path where the route has ``{id}``."""

    __slots__ = ("body", "connection", "head", "parameter")

    def __init__(self, head: heads.Head, *, body: Body, connection: socket.socket) -> None:
        self.head = head
        self.body = body
        self.connection = connection
        self.parameter = ""


class Listener(lean.server.HTTPServer):
    """Listens on one address and lets ``respond`` answer, or ``relay``, if there is one, pass on what asks for that.

    ``server_port`` is the true port when 0 was asked for.

    Raises:
        OSError: the address cannot be bound.
    """

    request_queue_size = _BACKLOG

    def __init__(self, address: tuple[str, int], respond: Callable[[Request], answers.Answer]) -> None:
        self.respond = respond
        self.relay: relay.Relay | None = None
        self._lock = threading.Lock()
        self._open = 0  # connections; guarded by the lock, as is _free
        self._free = 0  # threads that no connection is promised to
        self._waiting: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        # Connections that were refused, and when to close them; only the thread that accepts uses it.
        self._turned_away: collections.deque[tuple[float, socket.socket]] = collections.deque()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Connection)

    def server_bind(self) -> None:
        # Not HTTPServer's: it looks up the host's own name, which may wait for a resolver that is not there.
        lean.server.socketserver.TCPServer.server_bind(self)  # type: ignore[attr-defined]
        self.server_name = str(self.server_address[0])
        self.server_port = int(self.server_address[1])

    def server_close(self) -> None:
        """Close the listening socket. Connections are their threads'."""
        super().server_close()
        self._close_turned_away(0)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if is_exhaustion(error):
                # The connection stays in the backlog and the listener stays readable: do not spin on it.
                time.sleep(_ACCEPT_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection to a free thread, to a new one, or refuse it."""
        self._close_turned_away(_MAX_TURNED_AWAY)
        with self._lock:
            is_full = self._open >= MAX_CONNECTIONS
            is_taken = not is_full and self._free > 0
            self._open += not is_full
            self._free -= is_taken
        if is_taken:
            self._waiting.put((request, client_address))
        elif is_full:
            self._turn_away(request)
        else:
            self._start_thread(request, client_address)

    def _start_thread(self, request: Any, client_address: Any) -> None:
        try:
            threading.Thread(
                target=self._work, args=(request, client_address), name="agentd-connection", daemon=True
            ).start()
        except RuntimeError as error:  # no more threads to be had
            with self._lock:
                self._open -= 1
            self._turn_away(request)
            journal.report(f"a connection was refused: {error}")

    def _turn_away(self, request: socket.socket) -> None:
        """Refuse a connection. Closed at once it would be reset by what its client sends, and the answer lost."""
        with contextlib.suppress(OSError):
            request.settimeout(0)
            request.sendall(_FULL)
            request.shutdown(socket.SHUT_WR)
        self._turned_away.append((time.monotonic() + _LINGER_SECONDS, request))
        self._close_turned_away(_MAX_TURNED_AWAY)

    def _close_turned_away(self, most: int) -> None:
        """Let go of the refused connections whose time is up, and of what is more than ``most``."""
        now = time.monotonic()
        while self._turned_away and (self._turned_away[0][0] <= now or len(self._turned_away) > most):
            self._turned_away.popleft()[1].close()

    def _work(self, request: Any, client_address: Any) -> None:
        """The life of a thread: one connection after the other, until none comes for a while."""
        while True:
            try:
                self.finish_request(request, client_address)
            except Exception:  # the last line of a connection: the thread and the agent live on
                self.handle_error(request, client_address)
            self.shutdown_request(request)
            with self._lock:
                self._open -= 1
                self._free += 1
            try:
                request, client_address = self._waiting.get(timeout=_FREE_THREAD_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._free > 0:
                        self._free -= 1
                        return
                # This thread is promised to a connection that is about to be put.
                request, client_address = self._waiting.get()

    def handle_error(self, request: Any, client_address: Any) -> None:
        journal.report_exception("a connection failed")


class Connection(lean.server.BaseHTTPRequestHandler):
    """One client connection: requests one after the other until either side ends it."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = wire.CONNECTION_IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = _WRITE_BUFFER_BYTES
    _line: relay.Line | None = None  # what relays this connection's requests

    def handle(self) -> None:
        """Serve requests until the connection is to be closed. A client that goes away is no error."""
        self.close_connection = False
        try:
            while not self.close_connection:
                self.handle_one_request()
        except (OSError, PeerGoneError):
            self.close_connection = True

    def finish(self) -> None:
        """Let go of the streams. What a client did not take is still in the buffer, and fails once more."""
        with contextlib.suppress(OSError):
            self.wfile.close()
        self.rfile.close()
        if self._line is not None:
            self._line.close()

    def handle_one_request(self) -> None:
        """Read one request and answer it."""
        try:
            head = self._read_head()
        except heads.HeadError as error:
            self._refuse(RequestError(error.status, wire.BAD_REQUEST, str(error)))
            return
        if head is None:
            self.close_connection = True
            return
        self.close_connection = not head.keeps_alive
        if wire.RELAY_PORT_HEADER in head.headers and self.server.relay is not None:
            self._relay(head, self.server.relay)
            return
        body = Body(self.rfile, head, invite=self._invite)
        try:
            answer = self._respond(Request(head, body=body, connection=self.connection))
        except RequestError as error:
            answer = answers.build_error(error)
        if body.is_consumed:
            self._send(answer, head=head)
        else:
            self.close_connection = True
            self._send(answer, head=head)
            self._linger()

    def _relay(self, head: heads.Head, passing: relay.Relay) -> None:
        """Let a server answer the request."""
        if self._line is None:
            self._line = relay.Line(passing, self.connection)
        self.connection.settimeout(0)
        try:
            keep, taken = self._line.carry(head, ahead=self.rfile.peek(1))  # type: ignore[attr-defined]
        except relay.RelayError as error:
            self.connection.settimeout(self.timeout)
            self.close_connection |= bool(head.length or head.chunked)
            self._send(relay.build_error(error), head=head)
        except PeerGoneError:
            if head.version < (1, 1):
                self._reset()
            raise
        else:
            self.connection.settimeout(self.timeout)
            self.rfile.read(taken)
            self.close_connection = not keep
        if self.close_connection:
            self._linger()

    def _reset(self) -> None:
        """End the connection as one that failed: where its end may be that of an answer, another would look whole."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def version_string(self) -> str:
        """The Server header."""
        return f"agentd/{__version__}"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Requests are not logged: a client may poll /healthz for hours."""

    def _respond(self, request: Request) -> answers.Answer:
        try:
            return self.server.respond(request)
        except (RequestError, PeerGoneError, socket.timeout, ConnectionError):
            raise
        except heads.HeadError as error:  # what of the head is only looked at by some routes
            raise RequestError(error.status, wire.BAD_REQUEST, str(error)) from None
        except Exception:  # the last line of the request: the connection and the agent live on
            journal.report_exception(f"{request.head.method} {request.head.path}")
            raise RequestError(500, wire.INTERNAL, "internal error; the agent's log has the reason") from None

    def _read_head(self) -> heads.Head | None:
        """The next head, or None when the client is done."""
        first = self.rfile.peek(1)[:1]  # type: ignore[attr-defined] # rfile is a BufferedReader
        if not first:
            return None
        # A TLS hello has no line end to wait for, and its sender waits for an answer.
        if first[0] not in heads.TOKEN_BYTES and first not in {b"\r", b"\n"}:
            raise heads.HeadError("malformed request line")
        left = wire.MAX_HEAD_BYTES
        lines: list[bytes] = []
        while len(lines) <= _MAX_HEADER_LINES:
            line = self.rfile.readline(left + 1)
            left -= len(line)
            if left < 0:
                break
            if not line.endswith(b"\n"):
                return None
            if line not in _BLANK:
                lines.append(line[:-2] if line.endswith(b"\r\n") else line[:-1])
            elif lines:  # an empty line before the request line is skipped (RFC 9112 section 2.2)
                return heads.parse(lines)
        limits = f"{wire.MAX_HEAD_BYTES} bytes or {_MAX_HEADER_LINES} lines"
        raise heads.HeadError(f"the request head is larger than {limits}", status=431)

    def _refuse(self, error: RequestError) -> None:
        """Answer what cannot be read as a request; where the next one would begin is unknown."""
        self.close_connection = True
        self._send(answers.build_error(error), head=None)
        self._linger()

    def _send(self, answer: answers.Answer, *, head: heads.Head | None) -> None:
        self.request_version = self.protocol_version  # send_response wants to know that headers may be sent
        knows_chunks = head is not None and head.version >= (1, 1)
        is_chunked = answer.length is None and knows_chunks
        if answer.length is None and not knows_chunks:
            self.close_connection = True  # the end of the connection is the end of the answer
        try:
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            if is_chunked:
                self.send_header("Transfer-Encoding", "chunked")
            elif answer.length is not None:
                self.send_header("Content-Length", str(answer.length))
            if self.close_connection:
                self.send_header("Connection", "close")
            elif head is not None and head.version < (1, 1):
                self.send_header("Connection", "keep-alive")
            self.end_headers()
            if head is None or head.method != "HEAD":
                self._send_blocks(answer, is_chunked=is_chunked)
            self.wfile.flush()
        finally:
            answer.close()

    def _send_blocks(self, answer: answers.Answer, *, is_chunked: bool) -> None:
        for block in _report_breaks(answer.blocks):
            if answer.length is not None:
                self.wfile.write(block)
            elif block:  # a chunk of no bytes would be the last one
                if is_chunked:
                    self.wfile.write(b"%x\r\n" % len(block))
                self.wfile.write(block)
                if is_chunked:
                    self.wfile.write(b"\r\n")
                self.wfile.flush()
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _invite(self) -> None:
        self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.wfile.flush()

    def _linger(self) -> None:
        """Read on for a moment, so that the answer is not lost to a reset of what the client still sends."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            end = time.monotonic() + _LINGER_SECONDS
            while (left := end - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(_PIECE_BYTES):
                    return


def _report_breaks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """An answer that breaks while it is made: unlike a client that goes away, that is worth a line in the log."""
    try:
        yield from blocks
    except OSError as error:
        journal.report(f"an answer was cut short: {error}")
        raise PeerGoneError from error


def explain_bind(error: OSError) -> str:
    """Why an address could not be bound, in words."""
    if error.errno == errno.EADDRINUSE:
        return "another program listens there"
    return error.strerror or str(error)
