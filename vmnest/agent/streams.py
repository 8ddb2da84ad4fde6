"""Bytes of the agent's JSON answers to bytes of output, while they arrive and with flat memory.

The huge members (``stdout``, ``stderr``, ``content``) are base64, or text where the member ``encoding`` says so.
``encoding`` may come after the strings that it describes: they are spooled until it is known. Finding the members is
``scanner``'s work.
"""

from __future__ import annotations

import binascii
import codecs
import io
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import IO

from .._guest.agentd import wire
from .results import Missing
from .scanner import ObjectScanner, refuse, unescape

__all__ = ["AnswerDecoder", "Collector", "Sink", "read_answer"]

SPOOL_MEMORY_BYTES = 1024 * 1024
REPLAY_BYTES = 256 * 1024
TAIL_BLOCK_BYTES = 64 * 1024

Sink = Callable[[bytes], object]


def read_answer(pieces: Iterable[bytes], *, sinks: Mapping[str, Sink]) -> dict[str, object]:
    """Decode a whole answer: members named in ``sinks`` go there as bytes, the others are returned.

    Raises:
        errors.AgentAnswerError: it is not one complete JSON object, or a member cannot be decoded.
    """
    decoder = AnswerDecoder(sinks)
    try:
        for piece in pieces:
            decoder.feed(piece)
        return decoder.finish()
    finally:
        decoder.close()


class AnswerDecoder:
    """Bytes of a JSON answer in, bytes of its huge members out to their sinks; ``finish`` gives the small members."""

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._scanner = ObjectScanner(frozenset(sinks), on_piece=self._on_piece, on_end=self._on_end)
        self._open: _Base64 | _Text | _Spool | None = None
        self._spools: list[_Spool] = []

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the answer."""
        self._scanner.feed(self._to_text(data))

    def finish(self) -> dict[str, object]:
        """The small members; what waited for the encoding is handed on first."""
        self._scanner.feed(self._to_text(b"", final=True))
        members = self._scanner.finish()
        for name in self._sinks:
            if members.get(name) is not None:
                refuse(f"its member {name!r} is no text")
        is_base64 = _is_base64(members.get("encoding"))
        for spool in self._spools:
            spool.replay(_decoder(spool.sink, is_base64=is_base64))
        return members

    def close(self) -> None:
        """Give back what was spooled. Idempotent."""
        for spool in self._spools:
            spool.close()

    def _to_text(self, data: bytes, *, final: bool = False) -> str:
        try:
            return self._utf8.decode(data, final)
        except UnicodeDecodeError:
            refuse("it is not UTF-8")

    def _on_piece(self, name: str, piece: str) -> None:
        if self._open is None:
            self._open = self._start(name)
        self._open.feed(piece)

    def _on_end(self, name: str) -> None:
        decoder, self._open = self._open, None
        if decoder is not None:
            decoder.finish()

    def _start(self, name: str) -> _Base64 | _Text | _Spool:
        sink = self._sinks[name]
        if "encoding" in self._scanner.members:
            return _decoder(sink, is_base64=_is_base64(self._scanner.members["encoding"]))
        spool = _Spool(sink)
        self._spools.append(spool)
        return spool


class Collector:
    """A sink that keeps up to ``limit`` bytes: the beginning and the end of what came, half and half."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._head = io.BytesIO()
        self._tail: _Tail | None = None  # from the first missing byte on
        self._missing = 0  # what is known to be missing before the tail
        self._is_cut = False

    @property
    def truncated(self) -> bool:
        """Something is missing."""
        return self.missing is not None

    @property
    def missing(self) -> Missing | None:
        """What is missing, and where; nothing of this stream is known to be if the count is 0."""
        if self._tail is None:
            return None
        count = self._missing + self._tail.dropped
        is_doubtful = self._is_cut and bool(self._head.tell() or self._tail.seen)
        return Missing(self._head.tell(), count) if count or is_doubtful else None

    def __call__(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._tail is None:
            kept = self._head.tell()
            if self._limit is None or kept + len(data) <= self._limit:
                self._head.write(data)
                return
            share = max(0, self._limit - self._limit // 2 - kept)
            self._head.write(data[:share])
            data = data[share:]
            self._tail = self._begin_tail()
        self._tail.extend(data)

    def cut(self) -> None:
        """Something may be missing here already, so that nothing before it is the end of what came."""
        self._is_cut = True
        if self._tail is None:
            self._tail = self._begin_tail()
        self._missing += self._tail.seen
        self._tail = _Tail(self._tail.room)

    def value(self) -> bytes:
        """What was kept (BytesIO hands out its buffer without a second copy)."""
        return self._head.getvalue() if self._tail is None else self._head.getvalue() + self._tail.value()

    def _begin_tail(self) -> _Tail:
        """Keep only the end from now on, in half of the limit, with what the beginning has beyond the other half."""
        kept = self._head.tell()
        room = sys.maxsize if self._limit is None else self._limit // 2
        head = kept if self._limit is None else min(kept, self._limit - room)
        tail = _Tail(room)
        tail.extend(self._head.getbuffer()[head:])
        self._head.truncate(head)
        self._head.seek(head)
        return tail


class _Tail:
    """The last ``room`` bytes of what comes, in blocks, so that tiny pieces cost no more than they are."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.seen = 0
        self._blocks: deque[bytearray] = deque()
        self._held = 0

    @property
    def dropped(self) -> int:
        return max(0, self.seen - self.room)

    def extend(self, data: bytes | memoryview) -> None:
        self.seen += len(data)
        if not self._blocks or len(self._blocks[-1]) >= TAIL_BLOCK_BYTES:
            self._blocks.append(bytearray())
        self._blocks[-1] += data[-self.room :] if self.room else b""
        self._held += min(len(data), self.room)
        while self._held - len(self._blocks[0]) >= self.room and len(self._blocks) > 1:
            self._held -= len(self._blocks.popleft())

    def value(self) -> bytes:
        whole = b"".join(self._blocks)
        return whole[max(0, len(whole) - self.room) :]


def _is_base64(encoding: object) -> bool:
    """Base64 is the default; any other name means text, as other clients of this protocol take it."""
    if encoding is not None and not isinstance(encoding, str):
        refuse("its member 'encoding' is no text")
    return encoding is None or encoding == wire.ENCODING_BASE64


def _decoder(sink: Sink, *, is_base64: bool) -> _Base64 | _Text:
    return _Base64(sink) if is_base64 else _Text(sink)


class _Base64:
    """A string that holds base64 to bytes. ``feed`` takes it escaped, ``take`` plain."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._rest = ""

    def feed(self, piece: str) -> None:
        self.take(unescape(piece) if "\\" in piece else piece)

    def take(self, text: str) -> None:
        if self._rest:
            text = self._rest + text
        # The last four characters wait: only they may be padded.
        whole = max(0, (len(text) - 1) // 4 * 4)
        self._rest = text[whole:]
        if whole:
            self._decode(text[:whole], whole // 4 * 3)

    def finish(self) -> None:
        rest, self._rest = self._rest, ""
        if rest:
            padding = len(rest) - len(rest.rstrip("="))
            self._decode(rest, 3 - padding if len(rest) == 4 and padding <= 2 else -1)

    def _decode(self, text: str, expected: int) -> None:
        # a2b_base64 drops what is no base64 character, so that the length tells whether there was any. (Its strict
        # mode makes the same check, but came with Python 3.11 only.)
        try:
            data = binascii.a2b_base64(text)
        except ValueError:
            data = b""
        if len(data) != expected:
            refuse("one of its members is no base64")
        self._sink(data)


class _Text:
    """A string that holds text to its UTF-8 bytes. ``feed`` takes it escaped, ``take`` plain."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._unescaper = _Unescaper()

    def feed(self, piece: str) -> None:
        self.take(self._unescaper.feed(piece))

    def take(self, text: str) -> None:
        if not text:
            return
        try:
            # Agents written in Python carry bytes that are not UTF-8 as lone surrogates.
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            refuse("one of its members is no text")
        self._sink(data)

    def finish(self) -> None:
        self.take(self._unescaper.finish())


class _Unescaper:
    """Escaped pieces to plain ones; a surrogate pair that two pieces share is joined."""

    def __init__(self) -> None:
        self._high = ""

    def feed(self, piece: str) -> str:
        text = unescape(piece)
        if self._high:
            text = (self._high + text[:1]).encode("utf-16-le", "surrogatepass").decode(
                "utf-16-le", "surrogatepass"
            ) + text[1:]
            self._high = ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return text

    def finish(self) -> str:
        text, self._high = self._high, ""
        return text


class _Spool:
    """Keeps a string whose encoding is not known yet: in memory, beyond a size in an unlinked file."""

    def __init__(self, sink: Sink) -> None:
        import tempfile

        self.sink = sink
        self._unescaper = _Unescaper()
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=SPOOL_MEMORY_BYTES)  # noqa: SIM115 - close()

    def feed(self, piece: str) -> None:
        self._file.write(self._unescaper.feed(piece).encode("utf-8", "surrogatepass"))

    def finish(self) -> None:
        self._file.write(self._unescaper.finish().encode("utf-8", "surrogatepass"))

    def replay(self, decoder: _Base64 | _Text) -> None:
        """Hand all of it to the decoder that the encoding asks for."""
        self._file.seek(0)
        utf8 = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        while data := self._file.read(REPLAY_BYTES):
            decoder.take(utf8.decode(data))
        decoder.take(utf8.decode(b"", True))
        decoder.finish()

    def close(self) -> None:
        self._file.close()
