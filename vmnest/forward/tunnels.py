"""What follows a 101: bytes both ways until both have ended.

The platform cuts a WebSocket to which its client has sent nothing for a minute. So one is kept alive by PINGs of our
own towards the server, each between two frames of the client's; the PONGs that answer them are taken out, and neither
end hears of it. Of other protocols nothing is known, and they are left alone.

One that ends its side may have left altogether, which looks the same. Whoever is silent from then on is probed: so a
tunnel from which its client has gone does not last for ever, and one that is only half closed does.
"""

from __future__ import annotations

import os
import select

from ..deadline import SYSTEM_CLOCK, Clock
from ..wire import framing, http1, probing
from ..wire.pipes import Pipe
from .flows import BrokenError, Flow

__all__ = ["carry"]

KEEP_ALIVE_SECONDS = 25.0
LAST_WORDS_SECONDS = 10.0  # how long one that has gone is still listened to, while nobody takes what it said
_PAYLOAD_BYTES = 8
_UNTIL_CLOSE = http1.Framing(http1.UNTIL_CLOSE)
_GONE: int = getattr(select, "POLLERR", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLNVAL", 0)


def carry(
    client: Pipe,
    upstream: Pipe,
    *,
    is_websocket: bool,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    probe_seconds: int = probing.PROBE_SECONDS,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Carry bytes between the two until both ways have ended, or either is gone. The caller closes them."""
    keeper = _Keeper() if is_websocket else None
    out = _Way(client, upstream, keeper.requests if keeper else None, probe_seconds=probe_seconds)
    back = _Way(upstream, client, keeper.answers if keeper else None, probe_seconds=probe_seconds)
    said_at = clock.monotonic()
    while True:
        try:
            moved = out.advance()
            back.advance()
        except BrokenError:
            return  # nobody is left to carry bytes to
        if out.is_over and back.is_over:
            return
        now = clock.monotonic()
        said_at = now if moved else said_at
        left = LAST_WORDS_SECONDS if out.is_cut or back.is_cut else None
        if keeper is not None and not out.has_ended:
            left = said_at + keep_alive_seconds - now
            if left <= 0:
                said_at, left = now, keep_alive_seconds
                if keeper.ping(out.flow):
                    continue
        if not _wait(out, back, left) and (out.is_cut or back.is_cut):
            return


class _Way:
    """One direction, the half-close at its end included.

    Attributes:
        has_ended: Nothing more is taken from the source.
        is_over: Nothing more goes to the sink.
        is_cut: Because nobody is there.
    """

    def __init__(self, source: Pipe, sink: Pipe, scanner: framing.FrameScanner | None, *, probe_seconds: int) -> None:
        self.source = source
        self.sink = sink
        self.has_ended = False
        self.flow = Flow(source, sink, _UNTIL_CLOSE, out=_UNTIL_CLOSE, edit=None if scanner is None else scanner.feed)
        self.is_over = False
        self.is_cut = False
        self._probe_seconds = probe_seconds

    def advance(self) -> bool:
        """Whether anything moved.

        Raises:
            BrokenError: the source is gone, or what comes from it cannot be read.
        """
        if self.is_over:
            return False
        try:
            moved = self.flow.advance()
        except BrokenError as error:
            if error.pipe is self.source:
                raise
            self.cut()
            return False
        if self.flow.is_read and not self.has_ended:
            self.has_ended = True
            probing.probe(self.source.socket, seconds=self._probe_seconds)
        if self.flow.is_done:
            self.is_over = self.sink.end_sending()
        return moved

    def cut(self) -> None:
        """There is nobody at its end. What came from there before may still be on its way."""
        self.is_over = self.is_cut = self.has_ended = True

    @property
    def reads(self) -> bool:
        """It waits for its source."""
        return not self.is_over and self.flow.wants_to_read

    @property
    def writes(self) -> bool:
        """It waits for its sink, the last word to it included."""
        return not self.is_over and (self.flow.wants_to_write or self.flow.is_done)


class _Keeper:
    """Follows the frames of both directions, and knows the PONGs that are for us."""

    def __init__(self) -> None:
        self.requests = framing.FrameScanner(from_client=True)
        self.answers = framing.FrameScanner(from_client=False)
        self._payload = os.urandom(_PAYLOAD_BYTES)

    def ping(self, flow: Flow) -> bool:
        """Send one, unless it would stand in the middle of something; whether it was."""
        answers_are_frames = not (self.answers.is_lost or self.answers.is_closed)
        if flow.wants_to_write or not (self.requests.is_between_frames and answers_are_frames):
            return False
        self.answers.unwanted = self._payload
        flow.inject(framing.encode_ping(self._payload))
        return True


def _wait(out: _Way, back: _Way, seconds: float | None) -> bool:
    """Sleep until one of them can go on, or somebody has gone without whom they will not; False if time is over."""
    poller = select.poll()
    unasked: dict[int, _Way] = {}
    for reader, writer in ((out, back), (back, out)):
        pipe = reader.source
        if reader.reads and pipe.has_pending:
            return True
        events = pipe.interest(reading=reader.reads, writing=writer.writes)
        if events:
            poller.register(pipe, events)
        elif not writer.is_over:  # an error is told without being asked for
            poller.register(pipe, 0)
            unasked[pipe.fileno()] = writer
    ready = poller.poll(None if seconds is None else seconds * 1000)
    for number, found in ready:
        if found & _GONE and number in unasked:
            unasked[number].cut()
    return bool(ready)
