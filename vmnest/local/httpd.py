"""One connection of the control plane: requests in, replies out, one after the other."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..wire import bodies, http1, streams

_LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 6 * 1024 * 1024  # what Lambda's control plane takes
IDLE_SECONDS = 120.0
_LINGER_BYTES = 4 * 1024 * 1024
_LINGER_SECONDS = 1.0  # without a byte; and in all, ten times that


@dataclass(frozen=True)
class Reply:
    """An answer with its whole body; ``then`` is called once it is sent."""

    status: int
    fields: http1.Fields
    body: bytes = b""
    then: Callable[[], None] | None = None

    def serialize(self, *, close: bool, without_body: bool = False) -> bytes:
        """The bytes on the wire."""
        fields = list(self.fields)
        if self.status != 204:
            fields.append(("Content-Length", str(len(self.body))))
        if close:
            fields.append(("Connection", "close"))
        reason = http1.REASONS.get(self.status, "")
        head = http1.serialize_response(http1.Response(self.status, reason, fields))
        return head if without_body or self.status == 204 else head + self.body


Answer = Callable[[http1.Request, bytes], Reply]


def serve(sock: socket.socket, answer: Answer, *, max_body: int = MAX_BODY_BYTES) -> None:
    """Answer the requests of a connection until it ends. The caller closes it."""
    sock.settimeout(IDLE_SECONDS)
    stream = streams.Stream(sock)
    try:
        while _serve_one(stream, answer, max_body=max_body):
            pass
    except http1.MessageError as error:
        if not isinstance(error, http1.TruncatedError):
            refuse(stream, error)
    except (ConnectionError, TimeoutError) as error:
        _LOG.debug("a control connection ended: %s", error)


def _serve_one(stream: streams.Stream, answer: Answer, *, max_body: int) -> bool:
    """Answer one request; False if the connection is over."""
    head = stream.read_head(skip_empty_lines=True)
    if head is None:
        return False
    request = http1.parse_request(head)
    decoder = bodies.BodyDecoder(http1.request_framing(request), limit=max_body)
    if http1.expects_continue(request) and not decoder.complete:
        stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = b"".join(stream.body(decoder))
    reply = answer(request, body)
    keep = http1.keeps_alive(request)
    stream.send(reply.serialize(close=not keep, without_body=request.method == "HEAD"))
    if reply.then is not None:
        reply.then()
    return keep


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
