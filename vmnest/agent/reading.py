"""A file of a sandbox while it is read: after a cut it goes on where it was, if the file is still the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import errors
from .._guest.agentd import wire
from ..deadline import Deadline
from . import cuts, exchange, paths, refusals
from .recovery import DOUBTFUL, Recovery

if TYPE_CHECKING:
    from ..transport import Response
    from .client import AgentClient

__all__ = ["Reading"]

DEFAULT_MODE = 0o644


class Reading:
    """A file of a sandbox while it is read. A context manager.

    Attributes:
        size: The size of the whole file, None if that is not known.
        expected: How many bytes ``pieces`` gives, None if that is not known.
        mode: The file's permission bits.
        was_cut: What ``pieces`` gave came in several answers.
    """

    def __init__(
        self,
        client: AgentClient,
        path: str,
        *,
        offset: int,
        length: int | None,
        deadline: Deadline,
    ) -> None:
        self._client = client
        self._path = path
        self._deadline = deadline
        self._at = offset
        self._end = None if length is None else offset + length
        self._tag: str | None = None
        self._request, self._response = cuts.repeated(
            client, lambda wakes: self._ask(wakes=wakes), may_repeat=lambda: True, deadline=deadline
        )
        self._skip = self._at if self._response.status == 200 else 0
        self._tag = self._response.headers.get("etag")
        self.size = _total(self._response)
        self.expected = self._count()
        self.mode = _mode(self._response)
        self.was_cut = False

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading. Idempotent."""
        self._response.close()

    def pieces(self) -> Iterator[bytes]:
        """The bytes as they arrive; after a cut it goes on where it was.

        Raises:
            errors.FileChangedError: after a cut it was not the same file any more.
            errors.TransportError: it was cut too often, or what was cut cannot be gone on with.
        """
        recovery = cuts.build_recovery(self._client, deadline=self._deadline)
        while True:
            try:
                for piece in self._present():
                    recovery.note_success()
                    yield piece
                return
            except errors.TransportError as cut:
                if self._tag is None:
                    raise
                self.was_cut = True
                self._resume(recovery, cut)

    def _present(self) -> Iterator[bytes]:
        """The bytes of the answer that is under way."""
        if self._response.status == 416:  # there is nothing so far into the file
            self._response.close()
            return
        for piece in self._request.pieces(self._response):
            if self._skip:
                piece, self._skip = piece[self._skip :], max(0, self._skip - len(piece))
            if self._end is not None:
                piece = piece[: self._end - self._at]
            if piece:
                self._at += len(piece)
                yield piece
            if self._at == self._end:
                return

    def _resume(self, recovery: Recovery, failure: errors.VmnestError) -> None:
        while True:
            recovery.after_failure(failure)
            try:
                self._request, self._response = self._ask(wakes=False)
            except DOUBTFUL as error:
                failure = error
            else:
                self._skip = self._at if self._response.status == 200 else 0
                return

    def _ask(self, *, wakes: bool) -> tuple[exchange.Request, Response]:
        headers = []
        if self._at or self._end is not None:
            last = "" if self._end is None else str(max(self._at, self._end - 1))
            headers.append(("Range", f"bytes={self._at}-{last}"))
        if self._tag is not None:
            headers.append(("If-Match", self._tag))
        request = exchange.Request(
            "GET",
            paths.route(wire.FILES_PATH, ("path", self._path)),
            asked=refusals.FILE,
            headers=headers,
            accepted=(200, 206, 416),
            silence=exchange.SILENCE_SECONDS,
            wakes=wakes,
            deadline=self._deadline,
        )
        return request, self._client.send(request)

    def _count(self) -> int | None:
        if self.size is None:
            return None
        end = self.size if self._end is None else min(self._end, self.size)
        return max(0, end - self._at)


def _total(response: Response) -> int | None:
    """The size of the whole file, by the answer's head."""
    if response.status == 200:
        told = response.headers.get("content-length") or ""
    else:
        told = (response.headers.get("content-range") or "").rpartition("/")[2]
    return int(told) if re.fullmatch("[0-9]{1,18}", told) else None  # no file is longer


def _mode(response: Response) -> int:
    text = response.headers.get(wire.MODE_HEADER) or ""
    return int(text, 8) & 0o7777 if re.fullmatch("[0-7]{1,5}", text) else DEFAULT_MODE
