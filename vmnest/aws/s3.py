"""S3 as vmnest uses it: files up, objects down, a bucket made, listed and emptied.

All of it is ``Service.call`` with S3's habits around it; ``s3_requests`` holds those that are pure, ``s3_upload`` the
sending of files. No signed URLs, no chunked bodies: a request says its length and is signed as a whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from .. import deadline as deadlines
from .. import errors
from ..deadline import NEVER, SYSTEM_CLOCK, Clock, Deadline
from . import refusals, s3_requests, s3_upload

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ..transport import Response
    from .service import Service

__all__ = ["S3", "Download", "ObjectInfo"]

MAX_ATTEMPTS = 5  # in a row without a step ahead
_BATCH = 1000  # keys in one DeleteObjects
_PASSING = frozenset({"InternalError", "ServiceUnavailable", "SlowDown"})


class ObjectInfo(NamedTuple):
    """What S3 says of an object. Lists know neither its type nor its metadata."""

    key: str
    size: int
    etag: str
    content_type: str | None = None
    metadata: Mapping[str, str] = {}


class S3:
    """S3 at one endpoint or region. Safe for threads."""

    def __init__(self, service: Service, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._service = service
        self._clock = clock

    @property
    def region(self) -> str:
        """The region that it makes buckets in."""
        return self._service.region

    def call(self, operation: str, params: Mapping[str, object], *, deadline: Deadline) -> dict[str, Any]:
        """Any operation: see ``Service.call``."""
        return self._service.call(operation, params, deadline=deadline)

    # -- objects

    def upload(
        self,
        bucket: str,
        key: str,
        file: BinaryIO,
        *,
        size: int,
        content_type: str = "application/zip",
        metadata: Mapping[str, str] | None = None,
        deadline: Deadline,
        on_progress: s3_upload.OnProgress | None = None,
    ) -> None:
        """Make an object of the first ``size`` bytes of a file, which is read while it is sent, perhaps by threads.

        It is there whole or not at all: what was sent of a large one is thrown away when something fails.

        Args:
            bucket: Its name.
            key: The object's key.
            file: Open for reading; its position has no meaning, and may change.
            size: In bytes; the file must not become shorter.
            content_type: Kept with the object.
            metadata: Kept with the object; ASCII.
            deadline: The end of it all.
            on_progress: Called with the bytes sent so far and ``size``, in the caller's thread. An exception of its own
                ends the upload. The first number becomes smaller when something is sent again.

        Raises:
            errors.LocalFileError: the file cannot be read, or became shorter.
            errors.ServiceError: the service refuses.
            errors.TransportError: no answer.
            errors.WaitTimeoutError: the deadline passed.
        """
        about = {"ContentType": content_type, "Metadata": _checked(metadata or {})}
        target = {"Bucket": bucket, "Key": key}
        s3_upload.Upload(
            self._service,
            s3_upload.Source(file),
            target=target,
            about=about,
            size=size,
            deadline=deadline,
            on_progress=on_progress,
        ).run()

    def open(self, bucket: str, key: str, *, deadline: Deadline) -> Download:
        """The content of an object, to be read piece by piece within ``deadline``.

        Raises:
            errors.ResourceNotFoundError: there is no such object, or no such bucket.
        """
        return Download(self._service, {"Bucket": bucket, "Key": key}, deadline=deadline, clock=self._clock)

    def exists(self, bucket: str, key: str, *, deadline: Deadline = NEVER) -> ObjectInfo | None:
        """What is known of an object; None if there is none, or no such bucket.

        Raises:
            errors.AccessDeniedError: also for an object that is not there, if the caller may not list the bucket.
        """
        try:
            head = self._service.call("HeadObject", {"Bucket": bucket, "Key": key}, deadline=deadline)
        except errors.ResourceNotFoundError:
            return None
        return ObjectInfo(
            key,
            size=_whole_number(head, "ContentLength", "HeadObject"),
            etag=_text(head, "ETag", "HeadObject").strip('"'),
            content_type=cast("str | None", head.get("ContentType")),
            metadata=cast("dict[str, str]", head.get("Metadata", {})),
        )

    def objects(self, bucket: str, prefix: str = "", *, deadline: Deadline = NEVER) -> Iterator[ObjectInfo]:
        """The objects whose keys begin so, in the order of their keys' bytes."""
        params = {"Bucket": bucket, "Prefix": prefix or None}
        for entry in self._service.pages("ListObjectsV2", params, deadline=deadline, items="Contents"):
            yield ObjectInfo(
                _text(entry, "Key", "ListObjectsV2"),
                size=_whole_number(entry, "Size", "ListObjectsV2"),
                etag=str(entry.get("ETag", "")).strip('"'),
            )

    # -- buckets

    def create_bucket(self, bucket: str, *, deadline: Deadline) -> bool:
        """Make a bucket in this region. False if it is the caller's already, perhaps in another region.

        In us-east-1 S3 does not tell a new bucket from one that the caller has: True for both.

        Raises:
            errors.ConflictError: the name is somebody else's.
        """
        params: dict[str, object] = {"Bucket": bucket}
        if self.region != s3_requests.HOME_OF_S3:
            params["CreateBucketConfiguration"] = {"LocationConstraint": self.region}
        try:
            self._service.call("CreateBucket", params, deadline=deadline, is_passing=_is_being_removed)
        except errors.ConflictError as error:
            if error.error_type != "BucketAlreadyOwnedByYou":
                raise
            # Ours after an attempt whose answer was lost: then it was that one which made it.
            return error.details.get("outcome") == "unknown"
        return True

    def region_of(self, bucket: str, *, deadline: Deadline) -> str | None:
        """Where a bucket is; None if there is none.

        Raises:
            errors.AccessDeniedError: it is not the caller's.
        """
        try:
            head = self._service.call("HeadBucket", {"Bucket": bucket}, deadline=deadline)
        except errors.ResourceNotFoundError:
            return None
        told = head.get("BucketRegion")
        return told if isinstance(told, str) and told else self.region

    def empty(self, bucket: str, *, deadline: Deadline) -> int:
        """Remove every object with all its versions and delete markers, and every unfinished upload.

        Returns:
            How many versions and markers were removed.

        Raises:
            errors.ServiceError: something cannot be removed (a lock, a policy); the message names a key.
            errors.ResourceNotFoundError: there is no such bucket.
        """
        removed = self._remove_versions(bucket, deadline)
        self._abort_uploads(bucket, deadline)
        return removed

    def _remove_versions(self, bucket: str, deadline: Deadline) -> int:
        removed, failures, delays = 0, 0, deadlines.backoff()
        while batch := self._first_versions(bucket, deadline):
            left = self._remove_batch(bucket, batch, deadline)
            removed += len(batch) - len(left)
            failures = failures + 1 if len(left) == len(batch) else 0
            if left:
                if failures >= MAX_ATTEMPTS or not all(_is_passing(each) for each in left):
                    raise _undeletable(bucket, left)
                deadline.check(f"emptying bucket {bucket}")
                self._clock.sleep(deadline.clamp(next(delays)))
        return removed

    def _first_versions(self, bucket: str, deadline: Deadline) -> list[dict[str, object]]:
        """The first keys that there are, with their versions: those that were listed before are gone by now."""
        markers: dict[str, object] = {}
        while True:
            page = self.call("ListObjectVersions", {"Bucket": bucket, **markers}, deadline=deadline)
            entries = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            found = [{"Key": each["Key"], "VersionId": each.get("VersionId", "null")} for each in entries]
            if found or not page.get("IsTruncated"):
                return found[:_BATCH]
            following = {"KeyMarker": page.get("NextKeyMarker"), "VersionIdMarker": page.get("NextVersionIdMarker")}
            if following == markers or following["KeyMarker"] is None:
                raise _endless("ListObjectVersions")
            markers = following

    def _remove_batch(
        self, bucket: str, batch: list[dict[str, object]], deadline: Deadline
    ) -> list[Mapping[str, object]]:
        """Remove these; what S3 says of those that it did not remove."""
        listed = [each for each in batch if s3_requests.fits_xml(str(each["Key"]))]
        for each in batch:
            if not s3_requests.fits_xml(str(each["Key"])):
                self.call("DeleteObject", {"Bucket": bucket, **each}, deadline=deadline)
        if not listed:
            return []
        params = {"Bucket": bucket, "Delete": {"Objects": listed, "Quiet": True}}
        return list(self.call("DeleteObjects", params, deadline=deadline).get("Errors", ()))

    def _abort_uploads(self, bucket: str, deadline: Deadline) -> None:
        before: list[dict[str, object]] = []
        while True:
            page = self.call("ListMultipartUploads", {"Bucket": bucket}, deadline=deadline)
            found = [{"Key": each["Key"], "UploadId": each["UploadId"]} for each in page.get("Uploads", ())]
            if not found:
                return
            if found == before:
                raise _endless("ListMultipartUploads")
            for each in found:
                self._abort(bucket, each, deadline)
            before = found

    def _abort(self, bucket: str, upload: Mapping[str, object], deadline: Deadline) -> None:
        try:
            self.call("AbortMultipartUpload", {"Bucket": bucket, **upload}, deadline=deadline)
        except errors.ResourceNotFoundError as error:
            if error.error_type != "NoSuchUpload":
                raise


class Download(io.RawIOBase):
    """The content of an object as it comes: a file to read from, once, or ``chunks``. May be closed before its end.

    A connection that is lost on the way is made anew from where it was lost, as long as the object is the same.

    Attributes:
        size: Of the object, in bytes.
        etag: Its version, as S3 calls it.
    """

    def __init__(self, service: Service, target: Mapping[str, object], *, deadline: Deadline, clock: Clock) -> None:
        super().__init__()
        self._service = service
        self._target = target
        self._deadline = deadline
        self._clock = clock
        self._at = 0
        self._piece = memoryview(b"")
        head, self._response = service.open("GetObject", target, deadline=deadline)
        try:
            self.size = _whole_number(head, "ContentLength", "GetObject")
            self.etag = _text(head, "ETag", "GetObject")
        except errors.AnswerInvalidError:
            self._response.close()
            raise
        self._chunks = self._read_all()

    def __enter__(self) -> Download:
        return self

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self.closed:
            raise ValueError("the download is closed")
        target = memoryview(buffer).cast("B")
        if not self._piece:
            self._piece = memoryview(next(self._chunks, b""))
        count = min(len(target), len(self._piece))
        target[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def chunks(self) -> Iterator[bytes]:
        """The bytes that were not read yet, piece by piece, to the last.

        Raises:
            errors.TransportError: the rest did not come.
            errors.ServiceError: the object is gone, or another, since the connection was lost.
        """
        return self._chunks

    def close(self) -> None:
        """End it. May be called again."""
        super().close()
        if hasattr(self, "_response"):  # what could not be opened is closed, too
            self._response.close()

    def _read_all(self) -> Iterator[bytes]:
        failures, delays = 0, deadlines.backoff()
        while True:
            try:
                for piece in self._response.chunks():
                    self._at += len(piece)
                    failures = 0
                    yield piece
                if self._at == self.size:
                    return
                raise errors.ConnectionLostError(f"{self._target['Key']}: {self.size - self._at} bytes are missing")
            except errors.TransportError as error:
                failures += 1
                if self.closed or failures >= MAX_ATTEMPTS or not error.retryable or self._deadline.expired:
                    raise
                self._clock.sleep(self._deadline.clamp(next(delays)))
            self._response.close()
            self._response = self._reopen()

    def _reopen(self) -> Response:
        params = {**self._target, "Range": f"bytes={self._at}-", "IfMatch": self.etag}
        head, response = self._service.open("GetObject", params, deadline=self._deadline)
        told = str(head.get("ContentRange", ""))
        if not told.startswith(f"bytes {self._at}-"):
            response.close()
            raise errors.AnswerInvalidError(
                f"GetObject: asked for the bytes from {self._at} on, S3 sends {told or 'something else'}",
                operation="GetObject",
                status=response.status,
            )
        return response


def _checked(metadata: Mapping[str, str]) -> dict[str, str]:
    for name, value in metadata.items():
        if not (name + value).isascii() or not (name + value).isprintable():
            raise errors.UsageError(f"metadata of an object is printable ASCII: {name!r}")
    return dict(metadata)


def _is_being_removed(error: errors.ServiceError) -> bool:
    """A bucket of that name was deleted a moment ago, or is being made."""
    return error.error_type == "OperationAborted"


def _is_passing(failure: Mapping[str, object]) -> bool:
    return failure.get("Code") in _PASSING


def _undeletable(bucket: str, left: list[Mapping[str, object]]) -> errors.ServiceError:
    lasting = next((each for each in left if not _is_passing(each)), left[0])
    more = "" if len(left) == 1 else f" and {len(left) - 1} more"
    code = str(lasting.get("Code", ""))
    return refusals.to_error(
        refusals.Refusal(
            operation="DeleteObjects",
            region="",
            status=403 if code == "AccessDenied" else 500,
            error_type=code or None,
            message=f"{lasting.get('Message')} ({lasting.get('Key')!r}{more} of bucket {bucket})",
            service="s3",
        )
    )


def _endless(operation: str) -> errors.AnswerInvalidError:
    message = f"{operation}: what was removed, or read, is listed again"
    return errors.AnswerInvalidError(message, operation=operation, status=200)


def _text(answer: Mapping[str, object], name: str, operation: str) -> str:
    return cast(str, _member(answer, name, operation, str))


def _whole_number(answer: Mapping[str, object], name: str, operation: str) -> int:
    return cast(int, _member(answer, name, operation, int))


def _member(answer: Mapping[str, object], name: str, operation: str, kind: type) -> object:
    value = answer.get(name)
    if not isinstance(value, kind):
        raise errors.AnswerInvalidError(f"{operation}: the answer has no {name}", operation=operation, status=200)
    return value
