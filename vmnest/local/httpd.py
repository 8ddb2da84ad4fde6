"""One connection of the control plane: requests in, replies out, one after the other.

A request's body is read when whoever answers asks for it: all at once, within a limit, or in pieces. Who answers
without that ends the connection, since what is still to come of the body would be read as the next request.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from ..wire import bodies, http1, streams

_LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 6 * 1024 * 1024  # what Lambda's control plane takes
IDLE_SECONDS = 120.0
_LINGER_BYTES = 4 * 1024 * 1024
_LINGER_SECONDS = 1.0  # without a byte; and in all, ten times that
_WITHOUT_BODY = frozenset({204, 304})


class Piece(NamedTuple):
    """A part of a file, which is closed when it was sent."""

    file: BinaryIO
    offset: int
    size: int


@dataclass(frozen=True)
class Reply:
    """An answer with its whole body, or with a ``piece`` of a file in its place.

    ``then`` is called once it is sent.
    """

    status: int
    fields: http1.Fields
    body: bytes = b""
    then: Callable[[], None] | None = None
    piece: Piece | None = None

    def serialize(self, *, close: bool, without_body: bool = False) -> bytes:
        """The bytes on the wire, but for the piece of a file."""
        fields = list(self.fields)
        has_body = self.status not in _WITHOUT_BODY
        if has_body:
            fields.append(("Content-Length", str(len(self.body) if self.piece is None else self.piece.size)))
        if close:
            fields.append(("Connection", "close"))
        reason = http1.REASONS.get(self.status, "")
        head = http1.serialize_response(http1.Response(self.status, reason, fields))
        return head + self.body if has_body and not without_body else head


class Incoming:
    """The body of a request. Its sender is told to go on when the first of it is wanted, if it waits for that."""

    def __init__(self, stream: streams.Stream, request: http1.Request) -> None:
        self._stream = stream
        self._expects = http1.expects_continue(request)
        self._framing = http1.request_framing(request)
        self._decoder = bodies.BodyDecoder(self._framing)

    @property
    def is_complete(self) -> bool:
        """All of it was read."""
        return self._decoder.complete

    def read(self, *, limit: int) -> bytes:
        """All of it. Raises as ``pieces``."""
        return b"".join(self.pieces(limit=limit))

    def pieces(self, *, limit: int) -> Iterator[bytes]:
        """The pieces in which it comes; to be called once.

        Raises:
            http1.MessageError: it is malformed, larger than ``limit``, or cut short; no answer but ``refuse`` is left.
        """
        self._decoder = bodies.BodyDecoder(self._framing, limit=limit)
        if self._expects and not self._decoder.complete:
            self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return self._stream.body(self._decoder)


Respond = Callable[[http1.Request, Incoming], Reply]
Answer = Callable[[http1.Request, bytes], Reply]


def with_body(answer: Answer, *, limit: int = MAX_BODY_BYTES) -> Respond:
    """Let ``answer`` have the whole body, which is small."""
    return lambda request, incoming: answer(request, incoming.read(limit=limit))


def serve(sock: socket.socket, respond: Respond) -> None:
    """Answer the requests of a connection until it ends. The caller closes it."""
    sock.settimeout(IDLE_SECONDS)
    stream = streams.Stream(sock)
    try:
        while _serve_one(stream, respond):
            pass
    except http1.MessageError as error:
        if not isinstance(error, http1.TruncatedError):
            refuse(stream, error)
    except (ConnectionError, TimeoutError) as error:
        _LOG.debug("a control connection ended: %s", error)


def _serve_one(stream: streams.Stream, respond: Respond) -> bool:
    """Answer one request; False if the connection is over."""
    head = stream.read_head(skip_empty_lines=True)
    if head is None:
        return False
    request = http1.parse_request(head)
    incoming = Incoming(stream, request)
    reply = respond(request, incoming)
    keep = http1.keeps_alive(request) and incoming.is_complete
    _send(stream, reply, close=not keep, without_body=request.method == "HEAD")
    if reply.then is not None:
        reply.then()
    if not incoming.is_complete:
        linger(stream)
    return keep


def _send(stream: streams.Stream, reply: Reply, *, close: bool, without_body: bool) -> None:
    head = reply.serialize(close=close, without_body=without_body)
    if reply.piece is None:
        stream.send(head)
        return
    with reply.piece.file as file:
        stream.send(head)
        if without_body or not reply.piece.size:
            return
        sent = stream.socket.sendfile(file, reply.piece.offset, reply.piece.size)
    if sent < reply.piece.size:
        raise ConnectionAbortedError("the file is shorter than its answer said")


def refuse(stream: streams.Stream, error: http1.MessageError) -> None:
    """Answer a message that was not understood; the connection cannot be used any further."""
    body = f"{error.message}\n".encode()
    reply = Reply(error.status, (("Content-Type", "text/plain; charset=utf-8"),), body)
    try:
        stream.send(reply.serialize(close=True))
        linger(stream)
    except OSError as failure:
        _LOG.debug("nobody was left to refuse: %s", failure)


def linger(stream: streams.Stream) -> None:
    """Give the peer time to read our last words: closing with unread bytes resets, and takes them with it."""
    stream.socket.shutdown(socket.SHUT_WR)
    stream.socket.settimeout(_LINGER_SECONDS)
    left = _LINGER_BYTES
    end = time.monotonic() + 10 * _LINGER_SECONDS
    while left > 0 and time.monotonic() < end and (data := stream.receive()):
        left -= len(data)
