"""The local S3 on the wire: who asks, for what; and the answer's form. What is answered is in ``s3_…_calls``.

The signature is verified before the body is read; the body is held to it as it comes. Requests name the bucket in the
path. What S3 has and this one does not is a 501 that says so.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from email.utils import formatdate

from .. import deadline, errors, rendezvous
from ..aws import signing
from ..wire import http1
from . import (
    buckets,
    faults,
    httpd,
    s3_answers,
    s3_bodies,
    s3_bucket_calls,
    s3_calls,
    s3_list_calls,
    s3_object_calls,
    s3_settings,
    s3_upload_calls,
    s3_uploads,
)

_LOG = logging.getLogger(__name__)

SERVICE = "s3"
REQUEST_ID = "x-amz-request-id"

# What S3 answers to a signature that does not hold: kind of fault → error type and status.
_SIGNATURE_ERRORS: Mapping[str, tuple[str, int]] = {
    "missing": ("AccessDenied", 403),
    "malformed": ("AuthorizationHeaderMalformed", 400),
    "unknown_key": ("InvalidAccessKeyId", 403),
    "mismatch": ("SignatureDoesNotMatch", 403),
    "expired": ("RequestTimeTooSkewed", 403),
    "wrong_service": ("AuthorizationHeaderMalformed", 400),
}

Handler = Callable[[s3_calls.Call], httpd.Reply]

# Subresources are parameters that say what is meant; these only say how.
_HOW = frozenset({
    "x-id", "prefix", "delimiter", "max-keys", "marker", "list-type", "encoding-type", "continuation-token",
    "start-after", "fetch-owner", "key-marker", "version-id-marker", "max-uploads", "upload-id-marker", "versionId",
    "partNumber", "max-parts", "part-number-marker", "max-buckets", "bucket-region", "response-content-type",
    "response-content-encoding", "response-content-disposition", "response-content-language", "response-cache-control",
    "response-expires",
})  # fmt: skip

# (method, subresource) → what answers it.
_OF_BUCKETS: Mapping[tuple[str, str], Handler] = {
    ("PUT", ""): s3_bucket_calls.create,
    ("HEAD", ""): s3_bucket_calls.head,
    ("DELETE", ""): s3_bucket_calls.delete,
    ("GET", ""): s3_list_calls.list_objects,
    ("GET", "location"): s3_bucket_calls.location,
    ("GET", "versioning"): s3_bucket_calls.get_versioning,
    ("PUT", "versioning"): s3_bucket_calls.put_versioning,
    ("GET", "versions"): s3_list_calls.list_versions,
    ("GET", "uploads"): s3_list_calls.list_uploads,
    ("POST", "delete"): s3_object_calls.delete_many,
    **{("GET", name): functools.partial(s3_bucket_calls.get_setting, name=name) for name in s3_settings.SETTINGS},
    **{("PUT", name): functools.partial(s3_bucket_calls.put_setting, name=name) for name in s3_settings.SETTINGS},
    **{("DELETE", name): functools.partial(s3_bucket_calls.delete_setting, name=name) for name in s3_settings.SETTINGS},
}
_OF_OBJECTS: Mapping[tuple[str, str], Handler] = {
    ("PUT", ""): s3_object_calls.put,
    ("GET", ""): s3_object_calls.get,
    ("HEAD", ""): s3_object_calls.get,
    ("DELETE", ""): s3_object_calls.delete,
    ("POST", "uploads"): s3_upload_calls.begin,
    ("PUT", "uploadId"): s3_upload_calls.put_part,
    ("GET", "uploadId"): s3_upload_calls.list_parts,
    ("POST", "uploadId"): s3_upload_calls.complete,
    ("DELETE", "uploadId"): s3_upload_calls.abort,
}


class S3:
    """Answers requests that are signed for S3. Thread-safe."""

    def __init__(
        self,
        store: buckets.Store,
        *,
        folder: str,
        keys: rendezvous.Keys,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
    ) -> None:
        self._parts = s3_calls.Parts(store, s3_uploads.Uploads(store, clock=clock), spool=s3_bodies.open_spool(folder))
        self._secrets = {keys.access_key: signing.Secret(keys.secret_key)}
        self._clock = clock
        self._lock = threading.Lock()  # guards the count, and when it last changed
        self._answering = 0
        self._touched_at = clock.monotonic()

    def idle_seconds(self) -> float:
        """For how long no request has been answered; 0 while one is."""
        with self._lock:
            return 0.0 if self._answering else self._clock.monotonic() - self._touched_at

    def respond(self, request: http1.Request, incoming: httpd.Incoming) -> httpd.Reply:
        """The reply to a request.

        Raises:
            http1.MessageError: the body is malformed as HTTP.
        """
        request_id = uuid.uuid4().hex[:16].upper()
        with self._counted():
            reply = self._respond(request, incoming, request_id=request_id)
        fields = [("Date", formatdate(self._clock.time(), usegmt=True)), (REQUEST_ID, request_id), *reply.fields]
        return httpd.Reply(reply.status, fields, reply.body, piece=reply.piece)

    def _respond(self, request: http1.Request, incoming: httpd.Incoming, *, request_id: str) -> httpd.Reply:
        try:
            return self._answer(request, incoming)
        except http1.MessageError:
            raise
        except faults.Fault as fault:
            found = fault
        except (errors.VmnestError, OSError) as error:
            _LOG.warning("S3: %s %s failed: %s", request.method, request.target, error)
            found = faults.Fault(f"The local cloud failed: {error}", error_type="InternalError", status=500)
        except Exception:  # the last line of a call: the daemon goes on
            _LOG.exception("S3: %s %s failed", request.method, request.target)
            found = faults.Fault("We encountered an internal error.", error_type="InternalError", status=500)
        return s3_answers.error(found, resource=request.target.partition("?")[0], request_id=request_id)

    def _answer(self, request: http1.Request, incoming: httpd.Incoming) -> httpd.Reply:
        verified = self._verify(request)
        _refuse_virtual_host(request)
        s3_calls.check_owner(request.fields)
        bucket, key, query = s3_calls.parse_target(request.target)
        handler = _find_handler(request.method, bucket=bucket, key=key, query=query)
        body = s3_bodies.Body(request.fields, incoming, payload=verified.payload)
        call = s3_calls.Call(
            self._parts, bucket=bucket, key=key, query=query, request=request, region=verified.region, body=body
        )
        reply = handler(call)
        if not incoming.is_complete:
            _pass_over(body, reply)
        return reply

    def _verify(self, request: http1.Request) -> signing.Verified:
        try:
            return signing.verify(
                method=request.method,
                raw_target=request.target,
                headers=request.fields,
                body_sha256=None,
                secret_for=self._secrets.get,
                service=SERVICE,
                now=datetime.fromtimestamp(self._clock.time(), timezone.utc),
            )
        except signing.SignatureError as error:
            if "X-Amz-Credential=" in request.target:
                raise s3_answers.not_implemented("takes no signed URLs: sign the header fields") from error
            if (http1.first(request.fields, "x-amz-content-sha256") or "").startswith("STREAMING-AWS4-"):
                raise s3_answers.not_implemented(
                    "takes no bodies whose chunks are signed: sign the whole body, or send it as UNSIGNED-PAYLOAD"
                ) from error
            error_type, status = _SIGNATURE_ERRORS[error.kind]
            raise faults.Fault(error.message, error_type=error_type, status=status) from error

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._answering += 1
        try:
            yield
        finally:
            with self._lock:
                self._answering -= 1
                self._touched_at = self._clock.monotonic()


def _pass_over(body: s3_bodies.Body, reply: httpd.Reply) -> None:
    """Read the body of a request that should have none; what was signed is held to all the same."""
    try:
        body.read()
    except BaseException:
        if reply.piece is not None:
            reply.piece.file.close()
        raise


def _find_handler(method: str, *, bucket: str, key: str, query: Mapping[str, str]) -> Handler:
    if not bucket:
        table: Mapping[tuple[str, str], Handler] = {("GET", ""): s3_bucket_calls.list_buckets}
    else:
        table = _OF_OBJECTS if key else _OF_BUCKETS
    what = [name for name in query if name not in _HOW]
    handler = table.get((method, what[0] if what else "")) if len(what) <= 1 else None
    if handler is None:
        named = f"{method} of {'an object' if key else 'a bucket' if bucket else 'everything'}"
        asked = f" with ?{'&'.join(what)[:80]}" if what else ""
        known = ", ".join(sorted(f"{verb} ?{name}" if name else verb for verb, name in table))
        raise s3_answers.not_implemented(f"does not have {named}{asked}; it has: {known}.")
    return handler


def _refuse_virtual_host(request: http1.Request) -> None:
    """With the bucket in the host name, the path would be misread: a key as a bucket."""
    host = (http1.first(request.fields, "host") or "").rpartition(":")[0] or http1.first(request.fields, "host") or ""
    if host.lower().endswith((".localhost", ".amazonaws.com", f".{rendezvous.LOOPBACK}")):
        raise faults.Fault(
            "The local cloud takes the bucket in the path alone: use its address, 127.0.0.1, as the endpoint, or "
            "path-style addressing.",
            error_type="InvalidRequest",
            status=400,
        )
