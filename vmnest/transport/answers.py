"""Answers as they come in: headers, and a body that is read within a deadline and a size.

The standard library's ``HTTPResponse`` parses; two things are added below it. A raw reader asks the deadline before
each wait, so that a peer that sends a byte now and then cannot stretch a call beyond its end (a socket's own timeout
starts anew with each byte). And interim answers (103 and its kind) are skipped, where ``http.client`` knows 100 only.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import errors
from ..deadline import Deadline

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 65536
MAX_INTERIM_ANSWERS = 20
_LENGTH = re.compile("[0-9]{1,18}")
_FOLD = re.compile(r"\r?\n[ \t]+")


class Headers:
    """Header fields in the order of the wire; names compare without regard to case, and may repeat."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = [(name, _FOLD.sub(" ", value)) for name, value in pairs]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value under that name."""
        return next(iter(self.get_all(name)), default)

    def get_all(self, name: str) -> list[str]:
        """All values under that name."""
        wanted = name.lower()
        return [value for key, value in self._pairs if key.lower() == wanted]

    def items(self) -> list[tuple[str, str]]:
        """All fields as (name, value)."""
        return list(self._pairs)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.get_all(name))

    def __repr__(self) -> str:
        # Values may be cookies and tokens.
        return f"Headers({[name for name, _ in self._pairs]!r})"


class Patience:
    """How long the next wait of one exchange may be; remembers what was sent, whether anything came, and the end.

    ``on_silence`` is called whenever nothing has come for ``read_timeout`` seconds, and the wait goes on, unless it
    raises; without it the exchange ends then.
    """

    __slots__ = ("answered", "deadline", "ended", "on_silence", "read_timeout", "sent_bytes")

    def __init__(
        self, deadline: Deadline, read_timeout: float | None, on_silence: Callable[[], object] | None = None
    ) -> None:
        self.deadline = deadline
        self.read_timeout = read_timeout
        self.on_silence = on_silence
        self.begin()

    def begin(self) -> None:
        """An exchange begins."""
        self.answered = False
        self.ended = False
        self.sent_bytes = 0

    def seconds(self) -> float | None:
        """The timeout of the next send, None for no end; raises TimeoutError if nothing is left."""
        # A silence that ends nothing is no bound for a slow upload either.
        return self._clamp(None if self.on_silence is not None else self.read_timeout)

    def read(self, sock: socket.socket, buffer: WriteableBuffer) -> int:
        """The number of bytes that came into ``buffer``; 0 at the end of the stream."""
        while True:
            sock.settimeout(self._clamp(self.read_timeout))
            try:
                return sock.recv_into(buffer)
            except TimeoutError:
                if self.on_silence is None or self.deadline.expired:
                    raise
            self.on_silence()

    def _clamp(self, longest: float | None) -> float | None:
        left = self.deadline.remaining()
        if left == 0:
            raise TimeoutError("the deadline has passed")
        return longest if left is None else self.deadline.clamp(longest or left)


class _PatientReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, patience: Patience) -> None:
        self._sock = sock
        # Holds the socket open when http.client closes it after the head. It is not read through: a file refuses to be
        # read further after a timeout, where a socket does not mind.
        self._holder: Any = sock.makefile("rb", buffering=0)
        self._patience = patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = self._patience.read(self._sock, buffer)
        if count:
            self._patience.answered = True
        else:
            self._patience.ended = True
        return count

    def close(self) -> None:
        if not self.closed:
            self._holder.close()
            super().close()


class _PatientSocket:
    """What ``HTTPResponse`` wants of a socket: ``makefile``."""

    def __init__(self, sock: socket.socket, patience: Patience) -> None:
        self._sock = sock
        self._patience = patience

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_PatientReader(self._sock, self._patience), CHUNK_BYTES)


class WireAnswer(http.client.HTTPResponse):
    """``HTTPResponse`` that reads patiently and passes over interim answers."""

    def __init__(self, sock: socket.socket, patience: Patience, method: str | None = None) -> None:
        super().__init__(_PatientSocket(sock, patience), method=method)  # type: ignore[arg-type]
        self._patience = patience

    def begin(self) -> None:
        for _ in range(MAX_INTERIM_ANSWERS):
            super().begin()
            if self._patience.ended:
                # http.client takes the end of the stream for the end of the head: a cut answer would be a whole one.
                raise ConnectionResetError(errno.ECONNRESET, "cut in the head of the answer")
            if not 100 < self.status < 200 or self.status == http.client.SWITCHING_PROTOCOLS:
                self._check_lengths()
                return
            self.headers = self.msg = None  # type: ignore[assignment]  # begin() does nothing while they are set
        raise http.client.HTTPException("interim answers without end")

    def _check_lengths(self) -> None:
        """Two different lengths, or none that can be one: where the answer ends would be anybody's guess."""
        lengths = set(self.headers.get_all("content-length", []))
        if len(lengths) > 1 or not all(_LENGTH.fullmatch(text.strip()) for text in lengths):
            raise http.client.HTTPException("malformed content-length")

    @property
    def is_whole(self) -> bool:
        """The body has been read to its end."""
        # The library also closes an answer that ended before its announced length.
        return (self.isclosed() and not self.length) or (self.length == 0 and not self.chunked)


class Response:
    """An answer whose body is still on the wire. A context manager; one thread reads, any may ``close``.

    Reading it to the end gives the connection back for the next request; closing it earlier ends the connection, and a
    read that waits for more fails.
    """

    def __init__(
        self,
        answer: WireAnswer,
        *,
        origin: str,
        patience: Patience,
        release: Callable[[bool], None],
        interrupt: Callable[[], None],
    ) -> None:
        self.status = answer.status
        self.headers = Headers(list(answer.headers.items()))
        self._answer = answer
        self._origin = origin
        self._patience = patience
        self._release = release
        self._interrupt = interrupt
        self._is_whole = False
        self._lock = threading.Lock()  # guards the two below
        self._is_open = True
        self._is_reading = False
        if answer.is_whole:
            self._finish(whole=True)

    def read(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            errors.AnswerTooLargeError: it is longer than ``limit`` bytes; the rest stays unread.
            errors.TransportError: it did not arrive whole.
        """
        with self:
            parts: list[bytes] = []
            announced, received = self._answer.length or 0, 0
            for part in self.chunks():
                parts.append(part)
                received += len(part)
                if max(announced, received) > limit:
                    raise errors.AnswerTooLargeError(f"the answer of {self._origin} is larger than {limit} bytes")
            return b"".join(parts)

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The body piece by piece, each at most ``size`` bytes, as soon as it is there.

        Raises:
            errors.TransportError: the body did not arrive whole, or was closed before its end.
        """
        while not self._is_whole:
            piece = self._read_piece(size)
            if piece:
                yield piece

    def close(self) -> None:
        """Give the connection back, or end it if the body was not read to its end. May be called again."""
        self._finish(whole=False)

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_piece(self, size: int) -> bytes:
        with self._lock:
            if not self._is_open:
                raise self._closed()
            self._is_reading = True
        piece, is_at_end, failure = b"", False, None
        try:
            piece = self._answer.read1(size)
            # Without a length and chunks the end of the connection is the end of the body.
            is_at_end = self._answer.is_whole or not piece
            if is_at_end and self._answer.length:
                failure = self._missing(self._answer.length)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failure = failure_of_reading(error, origin=self._origin, patience=self._patience)
            failure.__cause__ = error
        finally:
            with self._lock:
                self._is_reading = False
                was_closed = not self._is_open
            if was_closed:
                self._let_go(reusable=False)
        if was_closed or failure is not None:
            self.close()
            raise self._closed() if was_closed or failure is None else failure
        if is_at_end:
            self._finish(whole=True)
        return piece

    def _closed(self) -> errors.TransportError:
        return errors.ConnectionLostError(f"the answer of {self._origin} was closed before its end")

    def _missing(self, count: int) -> errors.TransportError:
        return errors.ConnectionLostError(f"{self._origin} ended the connection, {count} bytes are missing")

    def _finish(self, *, whole: bool) -> None:
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            is_reading = self._is_reading
        self._is_whole = whole
        if is_reading:
            # http.client's objects must not be closed under the thread that reads them: it wakes up, and does it.
            self._interrupt()
        else:
            self._let_go(reusable=whole and not self._answer.will_close)

    def _let_go(self, *, reusable: bool) -> None:
        self._release(reusable)
        with contextlib.suppress(OSError, ValueError):
            self._answer.close()


def failure_of_reading(error: BaseException, *, origin: str, patience: Patience) -> errors.TransportError:
    """This tree's error for what a library raised while an answer was awaited or read."""
    if isinstance(error, TimeoutError):
        bound = patience.deadline.seconds if patience.deadline.expired else patience.read_timeout
        within = "" if bound is None else f" within {bound:g} s"
        part = "the rest of its answer did not come" if patience.answered else "it did not answer"
        return errors.ReadTimeoutError(f"{origin}: {part}{within}")
    if isinstance(error, http.client.RemoteDisconnected):
        return errors.ConnectionLostError(f"{origin} ended the connection without an answer")
    if isinstance(error, (OSError, http.client.IncompleteRead)) or (patience.ended and not _is_foreign(error)):
        reason = getattr(error, "strerror", None) or "cut in the middle of the answer"
        return errors.ConnectionLostError(f"the connection to {origin} was lost: {reason}")
    # The classes below this one quote what the peer sent.
    reason = str(error) if type(error) is http.client.HTTPException else type(error).__name__
    return errors.TransportError(
        f"the answer of {origin} is not HTTP: {reason}", hint="Check the endpoint's scheme and port."
    )


def _is_foreign(error: BaseException) -> bool:
    """The status line is no beginning of one of HTTP."""
    return isinstance(error, http.client.BadStatusLine) and not str(error).startswith("HTTP/"[: len(str(error))])
