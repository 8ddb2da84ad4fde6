"""A connected socket that HTTP/1.1 messages are read from: the thin shell around ``http1`` and ``bodies``."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from . import bodies, http1

__all__ = ["Stream"]

RECEIVE_BYTES = 262144


class Stream:
    """A socket and the bytes that were read from it ahead of their use. Not thread-safe: one reader, one writer.

    The socket's own timeout bounds each read and write; ``TimeoutError`` and ``ConnectionError`` come through.
    """

    def __init__(self, sock: socket.socket, *, ahead: bytes = b"") -> None:
        self.socket = sock
        self.ahead = ahead

    def receive(self) -> bytes:
        """Some bytes; none at the end of the connection."""
        if self.ahead:
            data, self.ahead = self.ahead, b""
            return data
        return self.socket.recv(RECEIVE_BYTES)

    def send(self, data: bytes) -> None:
        """Write all of ``data``."""
        self.socket.sendall(data)

    def read_head(self, *, limit: int = http1.MAX_HEAD_BYTES, skip_empty_lines: bool = False) -> bytes | None:
        """The next head, or None if the connection ended before its first byte.

        Raises:
            http1.MessageError: see HeadBuffer; TruncatedError if the connection ended in the middle.
        """
        buffer = http1.HeadBuffer(limit=limit, skip_empty_lines=skip_empty_lines)
        head = None
        while head is None:
            data = self.receive()
            if not data:
                if buffer.is_empty:
                    return None
                raise http1.TruncatedError("the connection ended in the middle of a head")
            head = buffer.feed(data)
        self.ahead = buffer.rest
        return head

    def body(self, decoder: bodies.BodyDecoder) -> Iterator[bytes]:
        """The payload of the body that ``decoder`` decodes, in pieces as they come.

        Raises:
            http1.MessageError: the body is malformed, too large or cut short.
        """
        while not decoder.complete:
            data = self.receive()
            if not data:
                decoder.finish()
                return
            payload = decoder.feed(data)
            if payload:
                yield payload
        self.ahead = decoder.rest + self.ahead

    def is_stale(self) -> bool:
        """Whether an idle connection was closed by its peer, or has bytes that nobody asked for."""
        timeout = self.socket.gettimeout()
        try:
            self.socket.setblocking(False)
            return bool(self.ahead) or self.socket.recv(1, socket.MSG_PEEK) is not None
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.socket.settimeout(timeout)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def interrupt(self) -> None:
        """End the connection from another thread: whoever reads or writes it wakes."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
