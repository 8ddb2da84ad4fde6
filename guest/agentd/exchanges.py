"""One relayed request on its way to a server, and the answer on its way back.

Both ways are driven by one thread: a server may answer before it has read the whole request, or never, and a client
that leaves ends the server's connection at once. A client that ends its side has left: nobody half-closes within HTTP.
"""

from __future__ import annotations

import select
import socket

from . import heads, passages, relay_heads, wire
from .bodyends import PIECE_BYTES, BodyEnd
from .errors import PeerGoneError

_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
_SWITCHING_PROTOCOLS = 101
_FINAL = 200
_HEAD_END = b"\r\n\r\n"
_LEFT = select.POLLRDHUP | select.POLLERR | select.POLLHUP


class ServerGoneError(Exception):
    """The server ended the connection, or what it sends is no answer. The client has got nothing of one."""


def is_repeatable(head: heads.Head) -> bool:
    """The request may be sent again, if the server has gone without a word."""
    return head.method in _REPEATABLE and not (head.length or head.chunked)


class Exchange:
    """Carries one request and its answer. Neither socket blocks.

    Args:
        client: The agent's connection.
        server: The other one.
        head: The request's head.
        ahead: What was read of the client behind that.
        port: The server's.

    Attributes:
        is_heard: The server has said something.
        keeps_client: The client's connection can be used further.
        keeps_server: The server's can.
    """

    def __init__(
        self, client: socket.socket, server: socket.socket, *, head: heads.Head, ahead: bytes, port: int
    ) -> None:
        self._client = client
        self._server = server
        self._head = head
        self._ahead_bytes = len(ahead)
        self._upload = passages.Passage(
            client,
            server,
            end=BodyEnd(length=head.length, is_chunked=head.chunked),
            lead=relay_heads.build_request(head, port=port),
            ahead=ahead,
            is_exact=True,
        )
        self._back = passages.Passage(server, client, end=BodyEnd())
        self._is_taken = True  # the server takes the request's body
        self._is_answering = False
        self.is_heard = False
        self.keeps_client = False
        self.keeps_server = False

    @property
    def taken(self) -> int:
        """How much of what was read ahead was a part of the request."""
        return self._ahead_bytes - len(self._upload.ahead)

    def run(self) -> None:
        """Carry it.

        Raises:
            ServerGoneError: there is no answer.
            HeadError: the request's body is malformed, and the client has got nothing.
            PeerGoneError: the client is gone, or has to be cut off: an answer that is not whole must not look so.
        """
        response = self._read_answer()
        self._is_answering = True
        if response.status == _SWITCHING_PROTOCOLS:
            self._switch(response)
        else:
            self._pass_on(response)

    # -- the head of the answer

    def _read_answer(self) -> heads.ResponseHead:
        """The head of the final answer; interim ones are passed on."""
        while True:
            response = self._read_head()
            if response.status == _SWITCHING_PROTOCOLS and not self._head.asks_upgrade:
                raise ServerGoneError("it changed the protocol unasked")
            if response.status >= _FINAL or response.status == _SWITCHING_PROTOCOLS:
                return response
            if self._head.version >= (1, 1):
                self._back.put(relay_heads.build_interim(response))

    def _read_head(self) -> heads.ResponseHead:
        data = bytearray(self._back.ahead)
        searched = 0
        while (at := data.find(_HEAD_END, searched)) < 0:
            if len(data) > wire.MAX_HEAD_BYTES:
                raise ServerGoneError(f"the head of its answer is larger than {wire.MAX_HEAD_BYTES} bytes")
            searched = max(0, len(data) - len(_HEAD_END) + 1)
            data += self._receive()
        self._back.ahead = bytes(data[at + len(_HEAD_END) :])
        try:
            return heads.parse_response(bytes(data[:at]).split(b"\r\n"))
        except heads.HeadError as error:
            raise ServerGoneError(str(error)) from error

    def _receive(self) -> bytes:
        """More of the server's answer; the request is carried on meanwhile."""
        while True:
            self._advance_upload()
            self._advance_back()
            if not self._back.wants_to_write:  # an interim answer that the client does not take holds up the next one
                data = self._receive_now()
                if data:
                    return data
            self._wait(reads=not self._back.wants_to_write)

    def _receive_now(self) -> bytes:
        try:
            data = self._server.recv(PIECE_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise ServerGoneError(error.strerror or str(error)) from error
        if not data:
            raise ServerGoneError("it ended the connection")
        self.is_heard = True
        return data

    # -- the rest of it

    def _pass_on(self, response: heads.ResponseHead) -> None:
        """Carry the final answer."""
        knows_chunks = self._head.version >= (1, 1)
        try:
            end = relay_heads.find_end(response, method=self._head.method)
        except heads.HeadError as error:
            raise ServerGoneError(str(error)) from error
        if end.is_chunked and not knows_chunks:
            raise ServerGoneError("it answered a request of HTTP/1.0 in chunks")
        back = self._back
        back.in_chunks = end.is_until_close and knows_chunks
        keeps = self._head.keeps_alive and knows_chunks and self._upload.is_done
        keeps_server = keeps and response.keeps_alive and not end.is_until_close
        back.put(relay_heads.build_response(response, keep=keeps, in_chunks=back.in_chunks))
        back.end = end
        while True:
            moved = self._advance_back()
            self._advance_upload()
            if back.is_done:
                break
            if not moved:
                self._wait(reads=back.wants_to_read)
        self.keeps_client = keeps
        self.keeps_server = keeps_server and not back.ahead

    def _switch(self, response: heads.ResponseHead) -> None:
        """Pass the 101 on, and then whatever either side says."""
        self._back.put(relay_heads.build_switch(response))
        self._back.end = BodyEnd(is_until_close=True)
        self._upload.end = BodyEnd(is_until_close=True)
        passages.carry(self._upload, self._back)

    def _advance_back(self) -> bool:
        try:
            return self._back.advance()
        except (passages.BrokenError, heads.HeadError) as error:
            raise PeerGoneError from error

    def _advance_upload(self) -> None:
        if not self._is_taken:
            return
        try:
            self._upload.advance()
        except passages.BrokenError as error:
            if error.sock is self._client:
                raise PeerGoneError from error
            self._is_taken = False  # its answer may be on the way all the same
        except heads.HeadError as error:
            if self._is_answering or self._back.wants_to_write:
                raise PeerGoneError from error
            raise

    def _wait(self, *, reads: bool) -> None:
        """Wait until something can move. ``reads``: the server's answer can."""
        upload, back = self._upload, self._back
        from_server = select.POLLIN if reads else 0
        to_server = select.POLLOUT if self._is_taken and upload.wants_to_write else 0
        from_client = select.POLLIN if self._is_taken and upload.wants_to_read else 0
        to_client = select.POLLOUT if back.wants_to_write else 0
        wanted = [(self._client, from_client | to_client | select.POLLRDHUP)]
        # An error of the server's that nothing is done about would be told without end.
        if from_server or to_server:
            wanted.append((self._server, from_server | to_server))
        if passages.poll(wanted).get(self._client, 0) & _LEFT:
            raise PeerGoneError
