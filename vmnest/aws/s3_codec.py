"""S3's protocol: the classic XML, with the manners that its model does not tell (see ``s3_requests``).

A bucket is part of the address, not of the path: the rules for endpoints put it in front of the host, or, where an
endpoint is configured, behind it. Where a bucket turned out to be is remembered, so that only the first request for it
goes to the wrong region.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import errors
from . import classic, codec, s3_requests, xml_errors

SERVICE = "s3"

# POST requests that may be made twice. A second upload that is begun, and forgotten with the first answer, is ended by
# whoever empties the bucket.
_HARMLESS_TWICE = frozenset({"CompleteMultipartUpload", "CreateMultipartUpload", "DeleteObjects"})


class Codec(classic.Codec):
    """S3. Safe for threads: two that learn a bucket's region learn the same."""

    def __init__(self, service: str, *, variant: codec.Variant) -> None:
        super().__init__(service, variant=variant)
        self._regions: dict[str, str] = {}

    @staticmethod
    def adapt(raw: dict[str, Any]) -> None:
        for name, operation in raw["operations"].items():
            http = operation["http"]
            http["requestUri"] = http["requestUri"].replace("/{Bucket}", "", 1)
            operation["idempotent"] = http["method"] != "POST" or name in _HARMLESS_TWICE

    def prepare(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        s3_requests.check(params)
        if name == "DeleteObjects":
            for each in params["Delete"]["Objects"]:
                if not s3_requests.fits_xml(each["Key"]):
                    # The parser at the other end would take it for another key, if it took it at all.
                    raise errors.RequestInvalidError(f"the key {each['Key']!r} is for DeleteObject alone")
        return s3_requests.complete(name, params)

    def finish(self, name: str, params: Mapping[str, Any], request: codec.Request) -> codec.Request:
        wanted: Mapping[str, object] = self._data.theirs.operation_model(name).http_checksum or {}
        if not wanted.get("requestChecksumRequired") or not isinstance(request.body, bytes):
            return request
        added = s3_requests.checksum(request.body)
        replaced = {key for key, _ in added}
        kept = [(key, value) for key, value in request.headers if key.lower() not in replaced]
        return request._replace(headers=[*kept, *added])

    def locate(self, request: codec.Request, *, endpoint: str | None, region: str) -> codec.Place:
        known = self._regions.get(str(request.rule_params.get("Bucket")), region)
        return super().locate(request, endpoint=endpoint, region=known)

    def status(self, name: str, answer: codec.Answer) -> int:
        is_content = self._data.theirs.operation_model(name).has_streaming_output
        return s3_requests.true_status(answer.status, b"" if is_content and answer.status < 300 else answer.body)

    def other_region(self, request: codec.Request, answer: codec.Answer) -> str | None:
        bucket = request.rule_params.get("Bucket")
        if bucket is None or (request.method, request.target) == ("PUT", ""):
            return None  # a bucket that is made is made where the caller says
        told = s3_requests.region_told(
            status=answer.status,
            error_type=xml_errors.parse(answer.body).error_type,
            headers={key.lower(): value for key, value in answer.headers.items()},
            body=answer.body,
        )
        if told is not None:
            self._regions[str(bucket)] = told
        return told

    def is_own_body(self, body: bytes) -> bool:
        # Not all is XML: a bucket's policy is JSON, and doubles put a word where S3 sends nothing.
        return not s3_requests.is_page(body)

    def complete(self, name: str, answer: codec.Answer, result: dict[str, Any]) -> dict[str, Any]:
        if name == "GetBucketLocation":
            location = s3_requests.parse_location(answer.body)
            return {"LocationConstraint": location} if location else {}
        return s3_requests.decode(name, super().complete(name, answer, result))
