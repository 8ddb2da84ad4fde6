"""Bytes on their way from one socket to another, without waiting for either, and little memory while nothing moves.

Nothing is read before what was read is sent on: a slow reader holds up the writer, and nobody else.
"""

from __future__ import annotations

import contextlib
import select
import socket

from .bodyends import BodyEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_TURNS = 16  # pieces before the other way gets its turn
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
_LAST_CHUNK = b"0\r\n\r\n"
_PROBE_SECONDS = 15
_PROBES = 3


class BrokenError(Exception):
    """A connection failed, or ended in the middle of a body; ``sock`` is which."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__("the connection failed")
        self.sock = sock


class Passage:
    """One direction: source → what waits to be sent → sink. Neither socket blocks.

    Args:
        source: Where the bytes come from.
        sink: Where they go.
        end: How the body ends that is carried.
        lead: To be sent before it.
        ahead: What was read of the source before.
        is_exact: Nothing is taken of the source that lies behind the body: it is somebody else's.

    Attributes:
        end: May be set anew.
        in_chunks: The body is put into chunks.
    """

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        *,
        end: BodyEnd,
        lead: bytes = b"",
        ahead: bytes = b"",
        is_exact: bool = False,
    ) -> None:
        self.source = source
        self.sink = sink
        self.end = end
        self.in_chunks = False
        self.ahead = ahead
        self._is_exact = is_exact
        self._waiting = memoryview(lead)

    @property
    def wants_to_write(self) -> bool:
        """Something waits to be sent."""
        return bool(self._waiting)

    @property
    def wants_to_read(self) -> bool:
        """More can be taken."""
        return not self._waiting and not self.end.is_passed

    @property
    def is_done(self) -> bool:
        """All of the body was sent."""
        return self.end.is_passed and not self._waiting

    def put(self, data: bytes) -> None:
        """Send this too, behind what waits."""
        self._waiting = memoryview(bytes(self._waiting) + data)

    def advance(self) -> bool:
        """Carry on until either side would block, or the other way is due; whether anything moved.

        Raises:
            BrokenError: a connection failed.
            HeadError: the body is malformed.
        """
        moved = self.push()
        for _ in range(_TURNS):
            if not self.wants_to_read or not self._pull():
                break
            moved = True
            self.push()
        return moved

    def push(self) -> bool:
        """Send what waits, as far as it goes; whether any of it went.

        Raises:
            BrokenError: the sink failed.
        """
        moved = False
        try:
            while self._waiting:
                self._waiting = self._waiting[self.sink.send(self._waiting) :]
                moved = True
        except BlockingIOError:
            return moved
        except OSError as error:
            raise BrokenError(self.sink) from error
        if moved:
            self._waiting = memoryview(b"")  # an empty view would hold all that it was a view of
        return moved

    def _pull(self) -> bool:
        """Take the next piece; False if there is none yet."""
        try:
            data = self._take()
        except BlockingIOError:
            return False
        except OSError as error:
            raise BrokenError(self.source) from error
        if data:
            self._waiting = memoryview(b"%x\r\n%b\r\n" % (len(data), data) if self.in_chunks else data)
            return True
        if not self.end.is_until_close:
            raise BrokenError(self.source)
        self.end.is_passed = True
        if self.in_chunks:
            self._waiting = memoryview(_LAST_CHUNK)
        return True

    def _take(self) -> bytes:
        wanted = self.end.wanted
        is_look = self._is_exact and self.end.is_chunked and not self.ahead
        data = self.ahead[:wanted] or self.source.recv(wanted, socket.MSG_PEEK if is_look else 0)
        count = self.end.see(data)
        if is_look:
            return self.source.recv(count) if count else b""
        self.ahead = self.ahead[count:] if self.ahead else data[count:]
        return data[:count]


def carry(out: Passage, back: Passage) -> None:
    """Carry bytes both ways until both ended, or nobody is left to carry them to. Half an end is passed on."""
    ways = [out, back]
    while True:
        moved = False
        for way in tuple(ways):
            try:
                moved = way.advance() or moved
            except BrokenError as error:
                if error.sock is way.source:
                    return
                ways.remove(way)  # who takes nothing any more may have said something that is still on its way
                continue
            if way.is_done:
                ways.remove(way)
                _pass_end(way)
        if not ways:
            return
        if not moved:
            ways = _wait(ways)


def _pass_end(way: Passage) -> None:
    """End the sink's direction. The source may have left altogether, which looks the same: have the system ask it."""
    with contextlib.suppress(OSError):
        way.sink.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):  # not TCP: its end shows by itself
        way.source.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        way.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
        way.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        way.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def _wait(ways: list[Passage]) -> list[Passage]:
    """Wait until one of them can go on; those that still lead somewhere."""
    wanted = {way.sink: select.POLLOUT if way.wants_to_write else 0 for way in ways}
    for way in ways:
        if way.wants_to_read:
            wanted[way.source] = wanted.get(way.source, 0) | select.POLLIN
    found = poll(wanted.items())
    # One that is both read and written shows an error to whoever reads or writes it.
    return [way for way in ways if wanted[way.sink] or not found.get(way.sink, 0) & _GONE]


def poll(wanted: Iterable[tuple[socket.socket, int]]) -> dict[socket.socket, int]:
    """Wait for events of these sockets; errors are told unasked."""
    poller = select.poll()
    sockets = {}
    for sock, events in wanted:
        poller.register(sock, events)
        sockets[sock.fileno()] = sock
    return {sockets[number]: events for number, events in poller.poll()}
