"""A request on its way to the endpoint and its answer on the way back: one thread, one poll, no policy.

The request goes on as it comes, while the answer may be on its way already. Meanwhile the client is watched: it may
send its next request, which is kept, or end its side, or be gone.
"""

from __future__ import annotations

import select

from ..wire import http1
from ..wire.pipes import Pipe
from .flows import BrokenError, Flow
from .patience import GoneError

__all__ = ["Crossing"]

HELD_BYTES = 65536  # of a request's body that are kept, so that it can be sent again
SILENCE_SECONDS = 10.0  # of an answer whose client has ended its side, and may have left
_MAX_AHEAD_BYTES = 65536


class Crossing:
    """The bytes of one exchange.

    Attributes:
        is_heard: The upstream has said something: it knows of the request.
    """

    def __init__(self, client: Pipe, framing: http1.Framing) -> None:
        self._client = client
        self._framing = framing
        self._upstream: Pipe
        self._upload: Flow | None = None
        self._takes_no_more = False  # the upstream; its answer may be on the way all the same
        self._client_has_ended = False
        self.is_heard = False

    @property
    def can_repeat(self) -> bool:
        """All of the request that was taken from the client is still here."""
        return self._upload is None or self._upload.can_repeat

    @property
    def is_received(self) -> bool:
        """All of the request was taken from the client."""
        if self._upload is not None:
            return self._upload.is_read
        return self._framing.kind != http1.CHUNKED and self._framing.length == 0

    @property
    def is_sent(self) -> bool:
        """All of it has gone to the upstream."""
        return self._upload is not None and self._upload.is_done

    def begin(self, upstream: Pipe, *, head: bytes) -> None:
        """Let the request go to that upstream, from its first byte on."""
        self._upstream = upstream
        self._takes_no_more = False
        self.is_heard = False
        if self._upload is not None:
            self._upload.repeat(upstream, lead=head)
        else:
            self._upload = Flow(
                self._client, upstream, self._framing, out=self._framing, lead=head, kept_bytes=HELD_BYTES
            )

    def read_head(self) -> http1.Response:
        """The head of the next answer, interim ones included.

        Raises:
            BrokenError: either side fails.
            GoneError: the client is gone.
        """
        buffer = http1.HeadBuffer()
        while True:
            self._advance_upload()
            try:
                data = self._upstream.receive()
                if data == b"":
                    raise http1.TruncatedError("the connection ended without an answer")
                self.is_heard = self.is_heard or data is not None
                head = None if data is None else buffer.feed(data)
                if head is not None:
                    self._upstream.ahead = buffer.rest + self._upstream.ahead
                    return http1.parse_response(head)
            except (OSError, http1.MessageError) as error:
                raise BrokenError(self._upstream, error) from error
            if data is None:
                self._wait(None)

    def carry(self, download: Flow) -> None:
        """Carry the answer's body, and what is still to come of the request.

        Raises:
            BrokenError: either side fails.
            GoneError: the client is gone.
        """
        while not download.is_done:
            moved = download.advance()
            self._advance_upload()
            if not moved and not download.is_done:
                self._wait(download)

    def finish(self) -> None:
        """After an answer that came early: let the rest of the request follow, for as long as it is sent and taken.

        Raises:
            BrokenError: what the client sends is malformed, or it has left.
        """
        assert self._upload is not None
        while not (self._upload.is_done or self._takes_no_more):
            writes, reads = self._upload.wants_to_write, self._upload.wants_to_read
            poller = select.poll()
            if writes:
                poller.register(self._upstream, self._upstream.interest(reading=False, writing=True))
            if reads and not self._client.has_pending:
                poller.register(self._client, self._client.interest(reading=True, writing=False))
            if not (reads and self._client.has_pending) and not poller.poll(SILENCE_SECONDS * 1000):
                return
            self._advance_upload()

    def _advance_upload(self) -> None:
        assert self._upload is not None
        if self._upload.is_done or self._takes_no_more:
            return
        try:
            self._upload.advance()
        except BrokenError as error:
            if error.pipe is self._client:
                raise
            self._takes_no_more = True

    def _wait(self, download: Flow | None) -> None:
        """Sleep until one of the ways can go on. None: the head of the answer is awaited."""
        upload = self._upload
        assert upload is not None
        sends = not (upload.is_done or self._takes_no_more)
        gets_request = sends and upload.wants_to_read
        gets_answer = download is None or download.wants_to_read
        watches = upload.is_read and not self._client_has_ended and len(self._client.ahead) < _MAX_AHEAD_BYTES
        if (gets_answer and self._upstream.has_pending) or (gets_request and self._client.has_pending):
            return
        poller = select.poll()
        if events := self._upstream.interest(reading=gets_answer, writing=sends and upload.wants_to_write):
            poller.register(self._upstream, events)  # else others may have it already: see ``Flow.on_read``
        answers = download is not None and download.wants_to_write
        poller.register(self._client, self._client.interest(reading=gets_request or watches, writing=answers))
        is_left_alone = self._client_has_ended and gets_answer
        ready = dict(poller.poll(SILENCE_SECONDS * 1000 if is_left_alone else None))
        if not ready:
            raise GoneError  # nobody seems to wait for the rest
        happened = ready.get(self._client.fileno(), 0)
        if happened & select.POLLERR:
            raise GoneError
        if watches and happened & (select.POLLIN | select.POLLHUP):
            self._watch()

    def _watch(self) -> None:
        """Take what the client sends while it is answered: its next request, or the end of its side."""
        client = self._client
        ahead, client.ahead = client.ahead, b""
        try:
            data = client.receive()
        except OSError as error:
            raise GoneError from error
        client.ahead = ahead + (data or b"")
        self._client_has_ended = data == b""
