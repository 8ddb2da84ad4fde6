"""Connections that leave HTTP: an upgrade is asked for, and from a ``101`` on both sides send bytes as they like.

Strategy: one thread does all of a channel's input and output, in ``receive``, on a socket that never blocks it; others
hand their bytes to ``send``, which waits only if too many are on their way already. So TLS, which two threads must not
drive at a time, is driven by one, and a reader that sleeps is woken by whoever has something to send.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from .. import errors
from ..deadline import Deadline
from ..wire import bodies, http1
from .answers import MAX_INTERIM_ANSWERS, Headers
from .client import CONNECT_TIMEOUT_SECONDS, Transport

__all__ = ["Channel", "Upgraded", "upgrade"]

MAX_REFUSAL_BYTES = 65536
_READ_BYTES = 65536
_WRITE_BYTES = 65536
_MOST_WAITING_BYTES = 1024 * 1024


class Upgraded(NamedTuple):
    """The answer to the request. ``channel`` is None if the peer has refused; then ``body`` holds its reason."""

    response: http1.Response
    body: bytes
    channel: Channel | None

    @property
    def headers(self) -> Headers:
        """The answer's headers."""
        return Headers(list(self.response.fields))


def upgrade(
    transport: Transport,
    url: str,
    *,
    headers: Sequence[tuple[str, str]],
    deadline: Deadline,
    connect_timeout: float = CONNECT_TIMEOUT_SECONDS,
) -> Upgraded:
    """Ask for another protocol on a connection of its own. ``headers`` hold the fields that ask.

    Raises:
        errors.UsageError: the URL or a header cannot be sent.
        errors.TransportError: no answer (see its subclasses).
    """
    connection, request = transport.dial(
        "GET", url, headers=headers, deadline=deadline, connect_timeout=connect_timeout
    )
    origin = str(connection.origin)
    channel = Channel(connection.detach(), origin=origin)
    try:
        head = http1.Request(request.method, request.target, request.headers)
        channel.send(http1.serialize_request(head))
        response, rest = _read_head(channel, deadline=deadline)
        if response.status == http1.SWITCHING_PROTOCOLS:
            channel.give_back(rest)
            return Upgraded(response, b"", channel)
        body = _read_body(channel, response, rest=rest, deadline=deadline)
    except http1.MessageError as error:
        channel.close()
        raise errors.TransportError(f"the answer of {origin} is not HTTP: {error.message}") from error
    except BaseException:
        channel.close()
        raise
    channel.close()
    return Upgraded(response, body, None)


def _read_head(channel: Channel, *, deadline: Deadline) -> tuple[http1.Response, bytes]:
    """The head of the final answer, and what came behind it."""
    rest = b""
    for _ in range(MAX_INTERIM_ANSWERS):
        buffer = http1.HeadBuffer()
        head = buffer.feed(rest)
        while head is None:
            head = buffer.feed(_receive(channel, deadline=deadline))
        response, rest = http1.parse_response(head), buffer.rest
        if response.status == http1.SWITCHING_PROTOCOLS or response.status >= 200:
            return response, rest
    raise http1.MessageError("interim answers without end")


def _read_body(channel: Channel, response: http1.Response, *, rest: bytes, deadline: Deadline) -> bytes:
    """The beginning of a refusal's body: it is text for people, whose end may be missing."""
    decoder = bodies.BodyDecoder(http1.response_framing(response, method="GET"))
    body = decoder.feed(rest)
    with contextlib.suppress(errors.TransportError):
        while not decoder.complete and len(body) < MAX_REFUSAL_BYTES:
            body += decoder.feed(_receive(channel, deadline=deadline))
    return body


def _receive(channel: Channel, *, deadline: Deadline) -> bytes:
    data = channel.receive(timeout=deadline.remaining())
    if data is None:
        raise errors.ReadTimeoutError(f"{channel.origin}: it did not answer in time")
    if not data:
        raise errors.ConnectionLostError(f"{channel.origin} ended the connection without an answer")
    return data


class Channel:
    """A connection that belongs to its user alone. One thread calls ``receive`` and ``flush``; any may ``send``.

    Attributes:
        origin: The peer, for messages.
    """

    def __init__(self, sock: socket.socket, *, origin: str) -> None:
        self.origin = origin
        self._sock = sock
        self._sock.setblocking(False)
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._given_back = b""
        self._waits_to_write = False
        self._reads_by_writing = False  # TLS may want to write in order to read
        self._changed = threading.Condition()  # guards the three below
        self._outgoing = bytearray()
        self._is_over = False
        self._is_closed = False

    def send(self, data: bytes, *, may_wait: bool = True) -> None:
        """Have ``data`` sent by the thread that receives.

        Args:
            data: What to send.
            may_wait: While too much waits already, wait too. Not for the thread that receives.

        Raises:
            errors.ConnectionLostError: the connection has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: not may_wait or self._is_over or len(self._outgoing) < _MOST_WAITING_BYTES)
            if self._is_over:
                raise errors.ConnectionLostError(f"the connection to {self.origin} has ended")
            self._outgoing += data
            with contextlib.suppress(BlockingIOError):  # full of wake-up calls: one is enough
                os.write(self._wake_writer, b"!")

    def receive(self, *, timeout: float | None) -> bytes | None:
        """What has come, none at the end of the connection, or None if nothing comes within ``timeout`` seconds.

        Raises:
            errors.ConnectionLostError: the connection was lost.
        """
        if self._given_back:
            data, self._given_back = self._given_back, b""
            return data
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                self._write()
                found = self._read()
            except OSError as error:
                raise self._lost(error) from error
            if found is not None:
                if not found:
                    self._end()
                return found
            if not self._wait(end):
                return None

    def flush(self, *, timeout: float) -> bool:
        """Send all that waits; False if the peer does not take it in time, or is gone."""
        end = time.monotonic() + timeout
        while True:
            try:
                self._write()
            except OSError:
                self._end()
                return False
            with self._changed:
                if not self._outgoing:
                    return True
            if not self._wait(end):
                return False

    def give_back(self, data: bytes) -> None:
        """Let the next ``receive`` return these bytes, that were received already."""
        self._given_back = data + self._given_back

    def close(self) -> None:
        """End the connection. May be called again."""
        self._end()
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            os.close(self._wake_reader)
            os.close(self._wake_writer)
        self._sock.close()

    # -- by the thread that receives -----------------------------------------------------------------------------------

    def _write(self) -> None:
        while True:
            with self._changed:
                piece = bytes(memoryview(self._outgoing)[:_WRITE_BYTES])
            self._waits_to_write = False
            if not piece:
                return
            try:
                sent = self._sock.send(piece)
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._waits_to_write = True
                return
            except ssl.SSLWantReadError:
                return  # what is waited for anyway
            with self._changed:
                del self._outgoing[:sent]
                self._changed.notify_all()

    def _read(self) -> bytes | None:
        self._reads_by_writing = False
        try:
            return self._sock.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except ssl.SSLWantWriteError:
            self._reads_by_writing = True
            return None

    def _wait(self, end: float | None) -> bool:
        """Sleep until the socket is ready, or somebody has something to send; False when the time is over."""
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            return False
        poller = select.poll()
        writes = select.POLLOUT if self._waits_to_write or self._reads_by_writing else 0
        poller.register(self._sock, select.POLLIN | writes)
        poller.register(self._wake_reader, select.POLLIN)
        ready = dict(poller.poll(None if left is None else left * 1000))
        if self._wake_reader in ready:
            os.read(self._wake_reader, _READ_BYTES)
        return True

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _lost(self, error: OSError) -> errors.ConnectionLostError:
        self._end()
        return errors.ConnectionLostError(
            f"the connection to {self.origin} was lost: {error.strerror or type(error).__name__}"
        )
