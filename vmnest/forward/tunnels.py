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
    waiter = _Waiter(out, back)
    said_at = clock.monotonic()
    while True:
        try:
            moved = out.is_ready and out.advance()
            if back.is_ready:
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
                    out.is_ready = True
                    continue
        if not waiter.wait(left) and (out.is_cut or back.is_cut):
            return


class _Way:
    """One direction, the half-close at its end included.

    Attributes:
        reads: It waits for its source.
        writes: It waits for its sink, the last word to it included.
        is_ready: What it waits for has come, perhaps.
        has_ended: Nothing more is taken from the source.
        is_over: Nothing more goes to the sink.
        is_cut: Because nobody is there.
    """

    def __init__(self, source: Pipe, sink: Pipe, scanner: framing.FrameScanner | None, *, probe_seconds: int) -> None:
        self.source = source
        self.sink = sink
        self.flow = Flow(source, sink, _UNTIL_CLOSE, out=_UNTIL_CLOSE, edit=None if scanner is None else scanner.feed)
        self.reads = True
        self.writes = False
        self.is_ready = True
        self.has_ended = False
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
        flow = self.flow
        try:
            moved = flow.advance()
        except BrokenError as error:
            if error.pipe is self.source:
                raise
            self.cut()
            return False
        self.writes = flow.wants_to_write
        self.reads = not (flow.is_read or self.writes)
        if flow.is_read:
            self._follow_end()
        return moved

    def cut(self) -> None:
        """There is nobody at its end. What came from there before may still be on its way."""
        self._end()
        self.is_cut = self.has_ended = True

    def _follow_end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            probing.probe(self.source.socket, seconds=self._probe_seconds)
        if self.flow.is_done:
            self.writes = True
            if self.sink.end_sending():
                self._end()

    def _end(self) -> None:
        self.reads = self.writes = self.is_ready = False
        self.is_over = True


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


class _Waiter:
    """Sleeps until one of two ways can go on."""

    def __init__(self, out: _Way, back: _Way) -> None:
        # Of each end: the way that begins there, and the one that leads there.
        self._ends = {out.source.fileno(): (out, back), back.source.fileno(): (back, out)}
        self._wanted: list[int | None] = []
        self._poller = select.poll()

    def wait(self, seconds: float | None) -> bool:
        """Until then, or somebody has gone without whom they will not; False if time is over."""
        wanted: list[int | None] = []
        for reader, writer in self._ends.values():
            pipe = reader.source
            reader.is_ready = writer.is_ready = reader.reads and pipe.has_pending
            if reader.is_ready:
                return True
            events = pipe.interest(reading=reader.reads, writing=writer.writes)
            # An error is told without being asked for.
            wanted.append(events if events or not writer.is_over else None)
        if wanted != self._wanted:  # else it is as it was the last time, as it is most of the time
            self._register(wanted)
        ready = self._poller.poll(None if seconds is None else seconds * 1000)
        for number, found in ready:
            reader, writer = self._ends[number]
            if reader.reads or writer.writes:
                reader.is_ready = reader.is_ready or reader.reads
                writer.is_ready = writer.is_ready or writer.writes
            elif found & _GONE:
                writer.cut()
        return bool(ready)

    def _register(self, wanted: list[int | None]) -> None:
        self._wanted = wanted
        self._poller = select.poll()
        for number, events in zip(self._ends, wanted, strict=True):
            if events is not None:
                self._poller.register(number, events)
