"""A file into one object of S3, whatever its size, with the memory of a few pieces.

A small file is one request. A larger one goes in parts, several at a time: threads of this upload's own take the next
part, hash it (what is signed must be known before it is sent), and send it, each reading the file at its own place, so
that a part can be sent again. The caller's thread collects what came of them and tells of the progress; the first
failure, or Ctrl+C, ends all. The threads are joined in any case, and only then are the parts thrown away that the
service holds (and has paid for): a part that arrives after that would stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

from .. import errors
from ..deadline import Deadline
from . import codec, s3_requests
from .s3_requests import Part

if TYPE_CHECKING:
    from .service import Service

PARALLEL = 4
PIECE_BYTES = 2**18
ABORT_SECONDS = 30.0
_TICK_SECONDS = 0.2  # how often progress is told

_log = logging.getLogger(__name__)


OnProgress = Callable[[int, int], object]


class _StoppedError(Exception):
    """Another part failed: nobody wants the rest of this one."""


class Source:
    """A file that threads read at places of their own."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()  # guards the file's position, where it has no other way to be read
        self._descriptor: int | None = None
        with contextlib.suppress(AttributeError, OSError):  # a file in memory, or within an archive
            self._descriptor = file.fileno() if hasattr(os, "pread") else None
        if self._descriptor is not None and file.writable():
            file.flush()  # what Python still holds is not seen below it

    def pieces(self, part: Part) -> Iterator[bytes]:
        """The bytes of a part.

        Raises:
            errors.LocalFileError: the file cannot be read, or is shorter than it was.
        """
        at, end = part.offset, part.offset + part.size
        while at < end:
            piece = self._read(at, min(PIECE_BYTES, end - at))
            if not piece:
                # S3 would wait for the rest until one of us loses patience.
                raise errors.LocalFileError(f"the file became shorter while it was uploaded: it ends at {at} bytes")
            yield piece
            at += len(piece)

    def _read(self, at: int, size: int) -> bytes:
        try:
            if self._descriptor is not None:
                return os.pread(self._descriptor, size, at)
            with self._lock:
                self._file.seek(at, io.SEEK_SET)
                return self._file.read(size)
        except OSError as error:
            raise errors.LocalFileError(f"the file to upload cannot be read: {error.strerror or error}") from error


class Upload:
    """One object on its way. ``target`` names its bucket and key, ``about`` its content type and metadata."""

    def __init__(
        self,
        service: Service,
        source: Source,
        *,
        target: Mapping[str, object],
        about: Mapping[str, object],
        size: int,
        deadline: Deadline,
        on_progress: OnProgress | None,
    ) -> None:
        self._service = service
        self._source = source
        self._target = dict(target)
        self._about = dict(about)
        self._size = size
        self._deadline = deadline
        self._on_progress = on_progress
        self._stop = threading.Event()
        self._lock = threading.Lock()  # guards the two below
        self._sent: dict[int, int] = {}
        self._parts: Iterator[Part] = iter(())
        self._told = -1
        self._outcomes: queue.SimpleQueue[tuple[int, str] | Exception] = queue.SimpleQueue()

    def run(self) -> None:
        """Send it; returns when the object is there."""
        if self._size <= s3_requests.SINGLE_BYTES:
            self._send_whole()
        else:
            self._send_in_parts()
        self._tell()

    # -- one request

    def _send_whole(self) -> None:
        whole = Part(1, 0, self._size)
        params = {**self._target, **self._about, "Body": self._body(whole, on_piece=self._tell)}
        self._service.call("PutObject", params, deadline=self._deadline)

    # -- parts

    def _send_in_parts(self) -> None:
        parts = s3_requests.plan_parts(self._size)
        begun = self._service.call("CreateMultipartUpload", {**self._target, **self._about}, deadline=self._deadline)
        named = {**self._target, "UploadId": _member(begun, "UploadId", "CreateMultipartUpload")}
        try:
            self._complete(named, self._send_all(named, parts))
        except BaseException as error:
            self._abort(named, error)
            raise

    def _send_all(self, named: Mapping[str, object], parts: list[Part]) -> list[str]:
        """The entity tags of the parts, in order."""
        # One of its own, so that it can be ended for all threads.
        deadline = Deadline(self._deadline.remaining())
        self._parts = iter(parts)
        threads: list[threading.Thread] = []
        try:
            for number in range(min(PARALLEL, len(parts))):
                thread = threading.Thread(
                    target=self._work, args=(named, deadline), name=f"s3-upload-{number}", daemon=True
                )
                thread.start()
                threads.append(thread)
            return self._collect(len(parts))
        finally:
            self._stop.set()
            deadline.expire()
            for thread in threads:
                thread.join()

    def _collect(self, count: int) -> list[str]:
        tags: dict[int, str] = {}
        while len(tags) < count:
            with contextlib.suppress(queue.Empty):
                outcome = self._outcomes.get(timeout=_TICK_SECONDS)
                if isinstance(outcome, Exception):
                    raise outcome
                tags[outcome[0]] = outcome[1]
            self._tell()
        return [tags[number] for number in sorted(tags)]

    def _work(self, named: Mapping[str, object], deadline: Deadline) -> None:
        """One thread: parts until there are no more, or one fails."""
        try:
            while (part := self._next()) is not None:
                params = {**named, "PartNumber": part.number, "Body": self._body(part)}
                answer = self._service.call("UploadPart", params, deadline=deadline)
                self._outcomes.put((part.number, _member(answer, "ETag", "UploadPart")))
        except _StoppedError:
            return
        except Exception as error:  # whatever it is, the caller's thread raises it
            self._outcomes.put(error)

    def _next(self) -> Part | None:
        with self._lock:
            return None if self._stop.is_set() else next(self._parts, None)

    def _complete(self, named: Mapping[str, object], tags: list[str]) -> None:
        listed = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        params = {**named, "MultipartUpload": {"Parts": listed}}
        try:
            self._service.call("CompleteMultipartUpload", params, deadline=self._deadline)
        except errors.ResourceNotFoundError as error:
            # The upload is gone, perhaps because an attempt whose answer was lost has completed it.
            if error.details.get("outcome") != "unknown" or not self._is_there(len(tags)):
                raise

    def _is_there(self, count: int) -> bool:
        found = self._service.call("HeadObject", self._target, deadline=self._deadline)
        return found.get("ContentLength") == self._size and str(found.get("ETag")).strip('"').endswith(f"-{count}")

    def _abort(self, named: Mapping[str, object], reason: BaseException) -> None:
        """Have the service throw the parts away. What fails here is said with the reason, and does not hide it."""
        _log.debug("the upload to %s is given up: %r", self._target, reason)
        try:
            self._service.call("AbortMultipartUpload", named, deadline=Deadline(ABORT_SECONDS))
        except errors.ResourceNotFoundError:
            return
        except errors.VmnestError as error:
            _log.warning("parts of an upload stay in bucket %s: %s", self._target.get("Bucket"), error)
            if isinstance(reason, errors.VmnestError):
                reason.add_hint("Parts of the upload stay in the bucket, and cost: end it (AbortMultipartUpload).")

    # -- bodies

    def _body(self, part: Part, *, on_piece: Callable[[], object] = lambda: None) -> codec.Body:
        digest = hashlib.sha256()
        for piece in self._pieces(part):
            digest.update(piece)

        def read() -> Iterator[bytes]:
            sent = 0
            for piece in self._pieces(part):
                yield piece
                sent += len(piece)
                with self._lock:
                    self._sent[part.number] = sent  # of a part that is sent again, less than before
                on_piece()

        return codec.Body(read, size=part.size, sha256=digest.hexdigest())

    def _pieces(self, part: Part) -> Iterator[bytes]:
        for piece in self._source.pieces(part):
            if self._stop.is_set():
                raise _StoppedError
            yield piece

    def _tell(self) -> None:
        with self._lock:
            sent = sum(self._sent.values())
        if self._on_progress is not None and sent != self._told:
            self._told = sent
            self._on_progress(sent, self._size)


def _member(answer: Mapping[str, object], name: str, operation: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise errors.AnswerInvalidError(f"{operation}: the answer has no {name}", operation=operation, status=200)
    return value
