"""A socket that never blocks, plain or TLS, for one thread that drives several of them with ``poll``.

TLS turns things round: to read it may have to write first, and what it has decrypted already no poll shows. A ``Pipe``
keeps both to itself: ``interest`` says what to poll for, ``has_pending`` what is there without a poll.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading

from . import buffers

__all__ = ["LITTLE_BYTES", "Pipe"]

LITTLE_BYTES = 4096  # less than this at once is a message by itself, most of the time: it waits for no more

_RECEIVE_BYTES = 65536


class Pipe:
    """A connected socket and what was read from it ahead of its use. For one thread, but for ``interrupt``.

    All that fails is an OSError (those of ``ssl`` are, too).

    Attributes:
        socket: The socket, not blocking from here on.
        ahead: Bytes that the next ``receive`` returns first.
    """

    def __init__(self, sock: socket.socket, *, ahead: bytes = b"") -> None:
        sock.setblocking(False)
        self.socket = sock
        self.ahead = ahead
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._reads_by_writing = False
        self._writes_by_reading = False
        self._has_said_goodbye = False
        # What a read that came after one that went well has met: it comes again, and no poll shows it.
        self._failure: OSError | None = None
        self._has_ended = False
        self._exchanging = threading.Lock()  # held while another socket has the number of ours

    def fileno(self) -> int:
        """The socket's descriptor, for ``poll``."""
        return self.socket.fileno()

    @property
    def has_pending(self) -> bool:
        """There is something to receive that no poll shows: bytes, the end, or a failure."""
        if self.ahead:
            return True
        return self._is_tls and (self._has_ended or self._failure is not None or self.socket.pending() > 0)  # type: ignore[attr-defined]

    def interest(self, *, reading: bool, writing: bool) -> int:
        """The events to poll for, by one who wants to receive, or to send, or both."""
        events = 0
        if reading:
            events |= select.POLLOUT if self._reads_by_writing else select.POLLIN
        if writing:
            events |= select.POLLIN if self._writes_by_reading else select.POLLOUT
        return events

    def receive(self, limit: int = _RECEIVE_BYTES) -> bytes | None:
        """Some bytes, none at the end of the connection, None if nothing is there now."""
        buffer = buffers.borrow()
        try:
            count = self.receive_into(buffer[:limit])
            return None if count is None else bytes(buffer[:count])
        finally:
            buffers.give_back(buffer)

    def receive_into(self, buffer: memoryview) -> int | None:
        """The same into a buffer that is not empty: how many bytes; 0 at the end, None if nothing is there now.

        What else is there then shows in a poll, or in ``has_pending``. TLS gives 16 KiB at a time: it is asked until
        the buffer is full or nothing is there, unless it gives little.
        """
        if self.ahead:
            taken, self.ahead = self.ahead[: len(buffer)], self.ahead[len(buffer) :]
            buffer[: len(taken)] = taken
            return len(taken)
        count = self._receive_into(buffer)
        return self._receive_more(buffer, count) if self._is_tls and count else count

    def _receive_more(self, buffer: memoryview, count: int) -> int:
        more: int | None = count
        while more and more >= LITTLE_BYTES and count < len(buffer):
            try:
                more = self._receive_into(buffer[count:])
            except OSError as error:
                self._failure = error
                break
            self._has_ended = more == 0
            count += more or 0
        return count

    def _receive_into(self, buffer: memoryview) -> int | None:
        if self._failure is not None:
            raise self._failure
        self._reads_by_writing = False
        try:
            return self.socket.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except ssl.SSLWantWriteError:
            self._reads_by_writing = True
            return None
        except ssl.SSLZeroReturnError:  # the end, once we have ended ourselves
            return 0

    def send(self, data: bytes | memoryview) -> int:
        """How many bytes of it were taken; 0 if none can be now. What is not taken has to be sent next."""
        self._writes_by_reading = False
        count = self._send(data)
        while self._is_tls and count < len(data) and (more := self._send(memoryview(data)[count:])):
            count += more  # a record of 16 KiB at a time
        return count

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self.socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            return 0
        except ssl.SSLWantReadError:
            self._writes_by_reading = True
            return 0

    def end_sending(self) -> bool:
        """Tell the peer that nothing more comes, and go on receiving. False: poll for writing first, and try again.

        All that was to be sent must have been taken. With TLS it is a close_notify and the end of the TCP stream.
        """
        if self._is_tls and not self._has_said_goodbye:
            if not _is_writable(self.socket):
                return False
            self._has_said_goodbye = True
            # Where nothing can be said any more, there is nobody to hear it.
            with contextlib.suppress(OSError):
                self._say_goodbye()
        # Not the method of SSLSocket, which forgets about TLS.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_WR)
        return True

    def _say_goodbye(self) -> None:
        """Send a close_notify, and nothing but that.

        ``unwrap`` also looks for the peer's own, at once, and takes data that it finds there for an error, after which
        nothing can be received any more. So what is decrypted is taken out before, and it is let look at a socket on
        which nothing comes: OpenSSL knows its socket by the number only. What it sends there is passed on.
        """
        while pending := self.socket.pending():  # type: ignore[attr-defined]
            self.ahead += self.socket.recv(pending)
        inner, outer = socket.socketpair()
        with inner, outer, self._exchanging:
            inner.setblocking(False)
            outer.setblocking(False)
            number = self.socket.fileno()
            kept = os.dup(number)
            try:
                os.dup2(inner.fileno(), number, inheritable=False)
                with contextlib.suppress(ssl.SSLError):
                    self.socket.unwrap()  # type: ignore[attr-defined]
            finally:
                os.dup2(kept, number, inheritable=False)
                os.close(kept)
            os.write(number, outer.recv(_RECEIVE_BYTES))

    def interrupt(self) -> None:
        """End the connection from another thread: whoever polls it wakes."""
        with self._exchanging, contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. May be called again."""
        self.socket.close()


def _is_writable(sock: socket.socket) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    return bool(poller.poll(0))
