"""One body on its way from one pipe to another, as far as either goes without waiting.

What came is sent before more is taken: so memory is bounded, and a slow reader slows its writer down. A body whose end
is told by its length, or by the end of the connection, is carried through one borrowed buffer without being copied or
looked at; the chunks of a chunked one are taken apart and made anew, so that both ends see the same.
"""

from __future__ import annotations

from collections.abc import Callable

from ..wire import bodies, buffers, http1
from ..wire.pipes import LITTLE_BYTES, Pipe
from . import heads

__all__ = ["BrokenError", "Flow"]

_TURNS = 16  # transfers before the other way gets its turn
_PIECE_BYTES = 65536


class BrokenError(Exception):
    """One of the pipes fails, or what comes from it is malformed or ends too early."""

    def __init__(self, pipe: Pipe, reason: Exception) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}")
        self.pipe = pipe
        self.reason = reason


class Flow:
    """Carries one body. ``lead`` goes before it, and ``edit`` may change what comes of a body that is not chunked.

    ``on_read`` is called once all of a body was taken from its source, before its last bytes go on. As long as what has
    gone on is no more than ``kept_bytes``, it can be ``repeat``-ed.

    Attributes:
        is_read: All of the body was taken from its source.
    """

    def __init__(
        self,
        source: Pipe,
        sink: Pipe,
        framing: http1.Framing,
        *,
        out: http1.Framing,
        lead: bytes = b"",
        edit: Callable[[memoryview], bytes | memoryview] | None = None,
        on_read: Callable[[], None] | None = None,
        kept_bytes: int = 0,
    ) -> None:
        self._source = source
        self._sink = sink
        self._kind = framing.kind
        self._left = framing.length
        self._makes_chunks = out.kind == http1.CHUNKED
        self._decoder = bodies.BodyDecoder(framing) if framing.kind == http1.CHUNKED else None
        self._edit = edit
        self._on_read = on_read
        self._kept_bytes = kept_bytes
        self._kept = bytearray() if kept_bytes else None
        self._buffer: memoryview | None = None
        self._pending: memoryview = memoryview(lead)
        self._has_more = True  # at the source, perhaps: what was taken last was not little
        self.is_read = framing.kind == http1.NONE or (framing.kind == http1.LENGTH and framing.length == 0)

    @property
    def is_done(self) -> bool:
        """All of it has reached its sink."""
        return self.is_read and not self._pending

    @property
    def wants_to_read(self) -> bool:
        """It waits for its source."""
        return not self.is_read and not self._pending

    @property
    def wants_to_write(self) -> bool:
        """It waits for its sink."""
        return bool(self._pending)

    @property
    def can_repeat(self) -> bool:
        """All that was taken from the source is still here."""
        return self._kept is not None

    def repeat(self, sink: Pipe, *, lead: bytes) -> None:
        """Begin anew, towards another sink; only if that is possible."""
        assert self._kept is not None
        self._let_go()
        self._sink = sink
        self._pending = memoryview(lead + self._kept)

    def inject(self, data: bytes) -> None:
        """Send this next; only while nothing waits to be sent."""
        assert not self._pending
        self._pending = memoryview(data)

    def advance(self) -> bool:
        """Transfer until one end would have to be waited for, a few turns at most; whether anything moved.

        Raises:
            BrokenError: a pipe fails.
        """
        moved = False
        self._has_more = True
        for _ in range(_TURNS):
            if self._pending:
                before = len(self._pending)
                self._push()
                moved = moved or len(self._pending) < before
                if self._pending:
                    break
            if self.is_read or not (self._has_more and self._take()):
                break
            moved = True
        return moved

    def _take(self) -> bool:
        """Take something, and have a copy of it if it is little; False if nothing is there now."""
        if not self._pull():
            return False
        if self._kept is not None:
            self._kept += self._pending
            if len(self._kept) > self._kept_bytes:
                self._kept = None
        if self.is_read and self._on_read is not None:
            self._on_read()
        return True

    def _push(self) -> None:
        try:
            while self._pending and (count := self._sink.send(self._pending)):
                self._pending = self._pending[count:]
        except OSError as error:
            raise BrokenError(self._sink, error) from error
        if not self._pending:
            self._let_go()

    def _pull(self) -> bool:
        try:
            return self._pull_piece() if self._decoder is None else self._pull_chunks(self._decoder)
        except (OSError, http1.MessageError) as error:
            raise BrokenError(self._source, error) from error

    def _pull_piece(self) -> bool:
        if self._buffer is None:
            self._buffer = buffers.borrow()
        is_bounded = self._kind == http1.LENGTH
        view = self._buffer[: self._left] if is_bounded else self._buffer
        count = self._source.receive_into(view)
        if not count:
            self._let_go()
            if count is None:
                return False
            if is_bounded:
                raise http1.TruncatedError("the connection ended in the middle of a body")
            self.is_read = True
            self._pending = memoryview(bodies.encode_last_chunk() if self._makes_chunks else b"")
            return True
        self._has_more = count >= LITTLE_BYTES
        self._left -= count
        self.is_read = is_bounded and self._left == 0
        piece: bytes | memoryview = view[:count]
        if self._edit is not None:
            piece = self._edit(view[:count])
        self._pending = memoryview(bodies.encode_chunk(bytes(piece)) if self._makes_chunks else piece)
        if not self._pending:
            self._let_go()
        return True

    def _pull_chunks(self, decoder: bodies.BodyDecoder) -> bool:
        data = self._source.receive(_PIECE_BYTES)
        if data is None:
            return False
        if not data:
            decoder.finish()
        payload = decoder.feed(data)
        made = bodies.encode_chunk(payload) if self._makes_chunks else payload
        if decoder.complete:
            self.is_read = True
            self._source.ahead = decoder.rest + self._source.ahead
            made += bodies.encode_last_chunk(heads.passed_trailers(decoder.trailers)) if self._makes_chunks else b""
        self._pending = memoryview(made)
        return True

    def _let_go(self) -> None:
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            self._pending = memoryview(b"")
            buffers.give_back(buffer)
