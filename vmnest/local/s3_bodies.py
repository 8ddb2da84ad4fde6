"""Bodies of S3 requests: held to what was signed and said of them as they come, and written to a file or kept small.

A body comes plain (its SHA-256 was signed), or unsigned, or as ``aws-chunked``: chunks within the body, with a checksum
behind them. None of it is kept in memory but what the caller wants whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from ..aws import signing
from ..wire import bodies, http1
from . import faults, httpd, keeping, s3_checksums

SPOOL_FOLDER = "spool"
MAX_OBJECT_BYTES = 5 << 30  # of one PutObject, or of one part
MAX_DOCUMENT_BYTES = 2 << 20
_TRAILER = "x-amz-trailer"
_DECODED_LENGTH = "x-amz-decoded-content-length"
_CHUNKED = http1.Framing(http1.CHUNKED)


@dataclass(frozen=True)
class Facts:
    """What was found of a body: its size, its MD5 in hex, and its checksum by algorithm, if one was sent."""

    size: int
    md5: str
    checksums: dict[str, str]


class Body:
    """The body of a request, to be read once. Each way of reading checks all that the request says of it.

    Raises:
        faults.Fault: what came is not what was said, or signed.
        http1.MessageError: it is malformed as HTTP; the connection is of no use any more.
    """

    def __init__(self, fields: http1.Fields, incoming: httpd.Incoming, *, payload: str) -> None:
        self._fields = fields
        self._incoming = incoming
        self._payload = payload
        self._is_chunked = payload == signing.STREAMING_UNSIGNED_PAYLOAD
        self._trailers: http1.Fields = ()

    def read(self, *, limit: int = MAX_DOCUMENT_BYTES, ignoring_checksum: bool = False) -> bytes:
        """All of it.

        Args:
            limit: Its largest size.
            ignoring_checksum: The checksum that is said is that of something else.
        """
        said = [field for field in self._fields if not field[0].lower().startswith(s3_checksums.PREFIX)]
        checks = _Checks(said if ignoring_checksum else self._fields, payload=self._payload)
        data = b"".join(checks.watch(self._pieces(limit)))
        checks.finish(self._trailers)
        return data

    def spool(self, folder: str) -> Spooled:
        """Write it to a new file in that folder."""
        return Spooled(folder, self)

    def write_to(self, path: str) -> Facts:
        """Write it to a file, which must not be there."""
        checks = _Checks(self._fields, payload=self._payload)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            for piece in checks.watch(self._pieces(MAX_OBJECT_BYTES)):
                file.write(piece)
        return checks.finish(self._trailers)

    def _pieces(self, limit: int) -> Iterator[bytes]:
        wanted = self._decoded_length() if self._is_chunked else None
        if (wanted or 0) > limit or _declared_length(self._fields) > limit + (limit >> 3):
            raise _too_large(limit)
        # Chunks have lines about them: somewhat more comes than what is in them.
        raw = self._incoming.pieces(limit=limit + (limit >> 3))
        size = 0
        for piece in self._unchunked(raw) if self._is_chunked else raw:
            size += len(piece)
            if size > (limit if wanted is None else wanted):
                raise _too_large(limit) if wanted is None else _incomplete()
            yield piece
        if wanted is not None and size < wanted:
            raise _incomplete()

    def _unchunked(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        decoder = bodies.BodyDecoder(_CHUNKED)
        for piece in raw:
            try:
                payload = decoder.feed(piece)
            except http1.MessageError as error:
                raise faults.Fault(error.message, error_type="InvalidChunkSizeError", status=400) from error
            yield payload
        if not decoder.complete or decoder.rest:
            raise _incomplete()
        self._trailers = decoder.trailers

    def _decoded_length(self) -> int:
        text = http1.first(self._fields, _DECODED_LENGTH) or ""
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise faults.Fault(
                f"You must provide the {_DECODED_LENGTH} HTTP header.", error_type="MissingContentLength", status=411
            )
        return int(text)


class Spooled:
    """A body in a file of its own, and what was found of it; the file is gone at the end, unless it was moved.

    Attributes:
        path: The file.
        facts: Of the body.
    """

    def __init__(self, folder: str, body: Body) -> None:
        self.path = os.path.join(folder, os.urandom(12).hex())
        self._body = body
        self.facts = Facts(0, "", {})

    def __enter__(self) -> Spooled:
        try:
            self.facts = self._body.write_to(self.path)
        except BaseException:
            keeping.remove(self.path)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        keeping.remove(self.path)


def open_spool(folder: str) -> str:
    """The folder for bodies that come; what a daemon left in it that was killed is removed."""
    path = keeping.open_folder(os.path.join(folder, keeping.FOLDER, SPOOL_FOLDER))
    for entry in os.scandir(path):
        with contextlib.suppress(OSError):
            os.unlink(entry.path)
    return path


class _Checks:
    """What a body is held to."""

    def __init__(self, fields: http1.Fields, *, payload: str) -> None:
        self._fields = fields
        self._payload = payload
        self._size = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._algorithm = _algorithm(fields)
        self._checksum = None if self._algorithm is None else s3_checksums.ALGORITHMS[self._algorithm]()

    def watch(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pieces, of which note is taken."""
        is_signed = len(self._payload) == 64
        for piece in pieces:
            self._size += len(piece)
            self._md5.update(piece)
            if is_signed:
                self._sha256.update(piece)
            if self._checksum is not None:
                self._checksum.update(piece)
            yield piece

    def finish(self, trailers: http1.Fields) -> Facts:
        """All has come: compare."""
        if len(self._payload) == 64 and self._sha256.hexdigest() != self._payload:
            raise faults.Fault(
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
                error_type="XAmzContentSHA256Mismatch",
                status=400,
            )
        self._check_md5()
        return Facts(self._size, self._md5.hexdigest(), self._checksums(trailers))

    def _check_md5(self) -> None:
        said = http1.first(self._fields, "content-md5")
        if said is None:
            return
        wanted = s3_checksums.decode(said, size=16)
        if wanted is None:
            raise faults.Fault("The Content-MD5 you specified was invalid.", error_type="InvalidDigest", status=400)
        if wanted != self._md5.digest():
            raise _bad_digest("Content-MD5")

    def _checksums(self, trailers: http1.Fields) -> dict[str, str]:
        if self._algorithm is None or self._checksum is None:
            return {}
        name = s3_checksums.PREFIX + self._algorithm
        said = http1.first(self._fields, name) or http1.first(trailers, name)
        found = self._checksum.digest()
        wanted = None if said is None else s3_checksums.decode(said, size=None if found is None else len(found))
        if said is None or wanted is None:
            raise faults.Fault(f"Value for {name} header is invalid.", error_type="InvalidRequest", status=400)
        if found is not None and found != wanted:
            raise _bad_digest(self._algorithm.upper())
        return {self._algorithm: said}


def _algorithm(fields: http1.Fields) -> str | None:
    """The algorithm of the one checksum that is said, in front of the body or behind it."""
    names = [name.lower() for name, _ in fields] + [name.lower() for name in http1.elements(fields, _TRAILER)]
    known = {name.removeprefix(s3_checksums.PREFIX) for name in names if name.startswith(s3_checksums.PREFIX)}
    algorithms = sorted(known - s3_checksums.OTHER_FIELDS)
    if len(algorithms) > 1:
        raise faults.Fault(
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
            error_type="InvalidRequest",
            status=400,
        )
    if algorithms and algorithms[0] not in s3_checksums.ALGORITHMS:
        raise faults.Fault(
            f"The local cloud has no checksum {algorithms[0][:20]}; it has: {', '.join(s3_checksums.ALGORITHMS)}.",
            error_type="NotImplemented",
            status=501,
        )
    return algorithms[0] if algorithms else None


def _declared_length(fields: http1.Fields) -> int:
    return int(http1.first(fields, "content-length") or 0)


def _bad_digest(what: str) -> faults.Fault:
    return faults.Fault(f"The {what} you specified did not match what we received.", error_type="BadDigest", status=400)


def _incomplete() -> faults.Fault:
    return faults.Fault(
        "You did not provide the number of bytes specified by the Content-Length HTTP header.",
        error_type="IncompleteBody",
        status=400,
    )


def _too_large(limit: int) -> faults.Fault:
    if limit < MAX_OBJECT_BYTES:
        return faults.Fault(
            "The request is larger than what is taken.", error_type="MaxMessageLengthExceeded", status=400
        )
    return faults.Fault(
        "Your proposed upload exceeds the maximum allowed object size.", error_type="EntityTooLarge", status=400
    )
