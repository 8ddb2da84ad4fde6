"""What is S3's own about a request and its answer. Pure: values in, values out.

Rules that no model states, and what breaks without them:

- An empty key would make an operation on the bucket of one on an object (``PUT /bucket/`` creates a bucket), and a
  bucket with a slash in it an object's: both are refused before anything is sent.
- XML cannot carry every character that a key may have. Lists are asked for in URL encoding and decoded here; a key that
  would break the XML of DeleteObjects is deleted alone, where it stands in the path.
- An error may come with status 200: after minutes of work the status is long sent.
- A bucket lives in one region. A request that went to another is told so in four ways (301, 307, a 400 about the
  signature, and a HEAD without a body); each names the region, which goes into a host name, so it is checked first.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from .. import errors

MIB = 2**20
SINGLE_BYTES = 16 * MIB  # up to here an object goes in one request
MIN_PART_BYTES = 8 * MIB
MAX_PART_BYTES = 5 * 2**30
MAX_PARTS = 10_000
MAX_KEY_BYTES = 1024
HOME_OF_S3 = "us-east-1"  # the one region that a bucket is not asked to be made in by name

REGION_HEADER = "x-amz-bucket-region"
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
_REGION = re.compile(r"[a-z]{2,8}(?:-[a-z]{2,12}){1,3}-[0-9]{1,2}")
_REGION_TEXT = re.compile(rb"<Region>([a-z0-9-]{1,50})</Region>")
_ENDPOINT_TEXT = re.compile(rb"<Endpoint>[^<]*\bs3[.-](?:dualstack\.)?([a-z0-9-]{1,50})\.amazonaws\.")
_ERROR_ROOT = re.compile(rb"\s*(?:<\?xml[^>]*\?>)?\s*<Error[\s>]")
_PAGE_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*(?:<!doctype\s+html|<html[\s>])",
    re.IGNORECASE | re.DOTALL,
)
_IMPATIENT = b"<Code>RequestTimeout</Code>"
_LOCATION = re.compile(rb"<LocationConstraint[^>]*>([^<]*)</LocationConstraint>")

# What a list operation answers in URL encoding: members of its own, and lists with the member of each entry.
_ENCODED: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "ListObjectsV2": (("Delimiter", "Prefix", "StartAfter"), (("Contents", "Key"), ("CommonPrefixes", "Prefix"))),
    "ListObjectVersions": (
        ("Delimiter", "KeyMarker", "NextKeyMarker", "Prefix"),
        (("Versions", "Key"), ("DeleteMarkers", "Key"), ("CommonPrefixes", "Prefix")),
    ),
    "ListMultipartUploads": (
        ("Delimiter", "KeyMarker", "NextKeyMarker", "Prefix"),
        (("Uploads", "Key"), ("CommonPrefixes", "Prefix")),
    ),
}
_WRONG_REGION_TYPES = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "Redirect", "AuthorizationHeaderMalformed"}
    | {"IllegalLocationConstraintException"}
)


def check(params: Mapping[str, object]) -> None:
    """See that bucket and key are such.

    Raises:
        errors.RequestInvalidError: the bucket, or the key, would change what is asked for.
    """
    bucket, key = params.get("Bucket"), params.get("Key")
    if bucket is not None and not (isinstance(bucket, str) and _BUCKET.fullmatch(bucket)):
        raise errors.RequestInvalidError(f"no name of a bucket: {bucket!r}")
    if key is None:
        return
    if not isinstance(key, str) or not key:
        raise errors.RequestInvalidError(f"no key of an object: {key!r}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise errors.RequestInvalidError(f"the key {key!r} cannot be written in UTF-8") from None
    if size > MAX_KEY_BYTES:
        raise errors.RequestInvalidError(f"a key has at most {MAX_KEY_BYTES} bytes, not {size}: {key[:40]!r}…")


def complete(operation: str, params: Mapping[str, object]) -> dict[str, object]:
    """The parameters, with URL encoding asked for where an answer would list keys."""
    return {**params, "EncodingType": "url"} if operation in _ENCODED else dict(params)


def decode(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with its keys as they are; changed in place."""
    if operation not in _ENCODED or answer.pop("EncodingType", None) != "url":
        return answer
    own, nested = _ENCODED[operation]
    for name in own:
        if name in answer:
            answer[name] = unquote_plus(answer[name])
    for name, member in nested:
        for entry in answer.get(name, ()):
            entry[member] = unquote_plus(entry[member])
    return answer


def checksum(body: bytes) -> list[tuple[str, str]]:
    """The headers of a request whose operation demands a checksum of its body."""
    encoded = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode("ascii")
    return [("x-amz-sdk-checksum-algorithm", "CRC32"), ("x-amz-checksum-crc32", encoded)]


def fits_xml(key: str) -> bool:
    """XML 1.0 can carry the key as it is; it has no control characters, and makes one line end of another."""
    return not any(character < " " or character in "\x7f\x85\u2028\ufffe\uffff" for character in key)


# -- answers that are not what their status says -----------------------------------------------------------------------


def true_status(status: int, body: bytes) -> int:
    """The status that an answer should have had.

    An error under 200 is a failure of S3's. So is, under 400, a body that did not come in time: the next attempt's may.
    """
    if _ERROR_ROOT.match(body) and (status == 200 or (status == 400 and _IMPATIENT in body)):
        return 500
    return status


def is_page(body: bytes) -> bool:
    """It is a web page, which S3 never sends: botocore's parser would take it for an answer without members."""
    return _PAGE_ROOT.match(body) is not None


def parse_location(body: bytes) -> str | None:
    """The answer of GetBucketLocation, whose root is the value, which the model cannot say."""
    match = _LOCATION.search(body)
    return match[1].decode("utf-8", "replace") if match else None


def region_told(*, status: int, error_type: str | None, headers: Mapping[str, str], body: bytes) -> str | None:
    """The region that a refusal says the bucket is in; None if it says none, or is about something else.

    Args:
        status: Of the answer.
        error_type: The service's name of the error, if the answer had a body.
        headers: By names in lower case.
        body: As it came.
    """
    is_bare = not body and status == 400  # a HEAD signed for another region
    if status not in {301, 302, 307} and error_type not in _WRONG_REGION_TYPES and not is_bare:
        return None
    found = headers.get(REGION_HEADER)
    for pattern in (_REGION_TEXT, _ENDPOINT_TEXT):
        if not found and (match := pattern.search(body)):
            found = match[1].decode("ascii")
    return found if found and is_region(found) else None


def is_region(name: str) -> bool:
    """The name may stand in a host name: whoever answered chose it."""
    return _REGION.fullmatch(name) is not None


# -- parts -------------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A piece of a file that is uploaded by itself; ``number`` counts from 1."""

    number: int
    offset: int
    size: int


def plan_parts(size: int) -> list[Part]:
    """The parts of a file, in order, none of them smaller than S3 takes.

    Raises:
        errors.UsageError: no object can be that large.
    """
    least = max(MIN_PART_BYTES, -(-size // MAX_PARTS))
    part_bytes = -(-least // MIB) * MIB
    if part_bytes > MAX_PART_BYTES:
        raise errors.UsageError(f"a file of {size} bytes is larger than an object of S3 can be")
    starts = range(0, max(size, 1), part_bytes)
    return [Part(number, at, min(part_bytes, size - at)) for number, at in enumerate(starts, 1)]
