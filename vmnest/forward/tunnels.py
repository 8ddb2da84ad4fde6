"""What follows a 101: bytes both ways until both have ended.

The platform cuts a WebSocket on which nothing was said for a minute. So a silent one is kept alive by a PING of our own
towards the server, between two frames of the client's; the PONG that answers it is taken out, so that neither end hears
of it. Of other protocols nothing is known, and they are left alone.
"""

from __future__ import annotations

import os
import select

from ..deadline import SYSTEM_CLOCK, Clock
from ..wire import framing, http1
from ..wire.pipes import Pipe
from .flows import BrokenError, Flow

__all__ = ["carry"]

KEEP_ALIVE_SECONDS = 25.0
_PAYLOAD_BYTES = 8
_UNTIL_CLOSE = http1.Framing(http1.UNTIL_CLOSE)


def carry(
    client: Pipe,
    upstream: Pipe,
    *,
    is_websocket: bool,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Carry bytes between the two until both ways have ended, or either is gone. The caller closes them."""
    keeper = _Keeper() if is_websocket else None
    out = _Way(client, upstream, keeper.sees_request if keeper else None)
    back = _Way(upstream, client, keeper.sees_answer if keeper else None)
    quiet_since = clock.monotonic()
    try:
        while not (out.is_over and back.is_over):
            moved = [out.advance(), back.advance()]
            now = clock.monotonic()
            quiet_since = now if any(moved) else quiet_since
            if keeper is not None and not out.is_over and now - quiet_since >= keep_alive_seconds:
                quiet_since = now
                keeper.ping(out.flow)
                continue
            left = None if keeper is None or out.is_over else max(0.0, quiet_since + keep_alive_seconds - now)
            _wait(out, back, left)
    except BrokenError:
        return  # a reset: there is nobody left to carry bytes to


class _Way:
    """One direction, the half-close at its end included."""

    def __init__(self, source: Pipe, sink: Pipe, edit: object) -> None:
        self.source = source
        self.sink = sink
        self.flow = Flow(source, sink, _UNTIL_CLOSE, out=_UNTIL_CLOSE, edit=edit)  # type: ignore[arg-type]
        self.is_over = False

    def advance(self) -> bool:
        """Whether anything moved."""
        if self.is_over:
            return False
        moved = self.flow.advance()
        if self.flow.is_done:
            self.is_over = self.sink.end_sending()
        return moved


class _Keeper:
    """Follows the frames of both directions."""

    def __init__(self) -> None:
        self._requests = framing.FrameScanner()
        self._answers = framing.FrameScanner()
        self.sees_request = self._requests.feed
        self.sees_answer = self._answers.feed

    def ping(self, flow: Flow) -> None:
        """Send one, if it would not stand in the middle of something."""
        is_free = self._requests.is_between_frames and not self._answers.is_lost and not flow.wants_to_write
        if is_free:
            payload = self._answers.unwanted or os.urandom(_PAYLOAD_BYTES)
            self._answers.unwanted = payload
            flow.inject(framing.encode_ping(payload))


def _wait(out: _Way, back: _Way, seconds: float | None) -> None:
    events: dict[Pipe, int] = {}
    for pipe, reads, writes in ((out.source, out, back), (back.source, back, out)):
        reading = not reads.is_over and reads.flow.wants_to_read
        if reading and pipe.has_pending:
            return
        events[pipe] = pipe.interest(reading=reading, writing=not writes.is_over and writes.flow.wants_to_write)
    poller = select.poll()
    for pipe, wanted in events.items():
        if wanted:
            poller.register(pipe, wanted)
    poller.poll(None if seconds is None else seconds * 1000)
