"""Calls of the local S3 about objects: put, get, head, delete."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import BinaryIO

from ..wire import http1
from . import buckets, faults, httpd, s3_answers, s3_checksums, s3_records
from .s3_calls import Call
from .xml_documents import Child, Element

MAX_DELETED = 1000
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
# What a caller may have the header fields say in place of what was put.
_OVERRIDES = {f"response-{name}": name for name in ("content-type", "content-encoding", "content-disposition")} | {
    f"response-{name}": name for name in ("content-language", "cache-control", "expires")
}
_PRINTABLE = re.compile(r"[\x20-\x7e\xa0-\xff]*")


def put(call: Call) -> httpd.Reply:
    """PutObject."""
    content = call.content()
    only_new = call.only_new
    bucket = call.parts.store.get(call.bucket)
    _refuse_existing(call, only_new=only_new)
    with call.body.spool(call.parts.spool) as spooled:
        facts = spooled.facts
        version = call.parts.store.put(
            call.bucket,
            call.key,
            path=spooled.path,
            etag=facts.md5,
            content=s3_records.Content(content.headers, content.metadata, facts.checksums),
            only_new=only_new,
        )
    return s3_answers.empty(
        fields=[
            s3_answers.etag(version.etag),
            s3_answers.ENCRYPTION,
            *version_fields(bucket, version),
            *checksum_fields(version.content),
        ]
    )


def _refuse_existing(call: Call, *, only_new: bool) -> None:
    """Before the body comes, which may be large; ``buckets.Store.put`` makes sure."""
    newest = call.parts.store.newest(call.bucket, call.key) if only_new else None
    if newest is not None and not newest.is_marker:
        raise buckets.precondition_failed("If-None-Match")


def get(call: Call) -> httpd.Reply:
    """GetObject and HeadObject: the answer to HEAD is that to GET without the bytes."""
    _refuse_part_number(call)
    bucket = call.parts.store.get(call.bucket)
    version, file = _open(call, bucket)
    try:
        refusal = _check_conditions(call, version)
        if refusal is not None:
            file.close()
            return refusal
        start, size = _parse_range(call, version.size)
        is_part = size != version.size or call.field("range") is not None
        fields = [
            s3_answers.last_modified(version.modified_at),
            s3_answers.etag(version.etag),
            ("Accept-Ranges", "bytes"),
            s3_answers.ENCRYPTION,
            *version_fields(bucket, version),
            *_content_fields(call, version.content),
        ]
        if is_part and start is not None:
            fields.append(("Content-Range", f"bytes {start}-{start + size - 1}/{version.size}"))
        elif (call.field("x-amz-checksum-mode") or "").upper() == "ENABLED":
            fields += checksum_fields(version.content)
        status = 200 if start is None else 206
        return httpd.Reply(status, fields, piece=httpd.Piece(file, start or 0, size))
    except BaseException:
        file.close()
        raise


def delete(call: Call) -> httpd.Reply:
    """DeleteObject: what is not there is fine."""
    bucket = call.parts.store.get(call.bucket)
    version_id = _version_id(call)
    gone = call.parts.store.remove(call.bucket, call.key, version_id)
    fields = []
    if bucket.versioning and gone is not None:
        fields.append(("x-amz-version-id", gone.version_id))
    if gone is not None and gone.is_marker:
        fields.append(("x-amz-delete-marker", "true"))
    return s3_answers.empty(204, fields=fields)


def delete_many(call: Call) -> httpd.Reply:
    """DeleteObjects."""
    bucket = call.parts.store.get(call.bucket)
    root = call.document("Delete")
    wanted = list(root.all("Object"))
    if not 1 <= len(wanted) <= MAX_DELETED:
        raise s3_answers.malformed_xml()
    is_quiet = (root.value("Quiet") or "").strip().lower() == "true"
    answers: list[Child] = []
    for each in wanted:
        answer = _delete_one(call, each, is_versioned=bool(bucket.versioning))
        if not is_quiet or answer[0] == "Error":
            answers.append(answer)
    return s3_answers.document("DeleteResult", answers)


def _delete_one(call: Call, wanted: Element, *, is_versioned: bool) -> tuple[str, list[Child]]:
    key, version_id = wanted.value("Key"), wanted.value("VersionId")
    if not key:
        raise s3_answers.malformed_xml()
    named: list[Child] = [("Key", key), ("VersionId", version_id) if version_id else None]
    if wanted.find("ETag") is not None or wanted.find("Size") is not None:
        fault = s3_answers.not_implemented("takes no conditions here")
        return "Error", [*named, ("Code", fault.error_type), ("Message", fault.message)]
    gone = call.parts.store.remove(call.bucket, key, version_id or None)
    if gone is not None and gone.is_marker and is_versioned:
        named += [("DeleteMarker", True), ("DeleteMarkerVersionId", gone.version_id)]
    return "Deleted", named


# -- their parts -------------------------------------------------------------------------------------------------------


def version_fields(bucket: s3_records.Bucket, version: s3_records.Version) -> list[http1.Field]:
    """The header field with the version's id, where versions are kept."""
    return [("x-amz-version-id", version.version_id)] if bucket.versioning else []


def checksum_fields(content: s3_records.Content) -> list[http1.Field]:
    """The header fields with the checksum, if there is one."""
    fields = [(s3_checksums.PREFIX + algorithm, text) for algorithm, text in content.checksums.items()]
    return [*fields, (f"{s3_checksums.PREFIX}type", content.checksum_type)] if fields else []


def _open(call: Call, bucket: s3_records.Bucket) -> tuple[s3_records.Version, BinaryIO]:
    version_id = _version_id(call)
    found = call.parts.store
    version = found.newest(call.bucket, call.key) if version_id is None else None
    if version_id is not None:
        version = found.find(call.bucket, call.key, version_id)
    if version is None or not version.is_marker:
        return found.open_version(call.bucket, call.key, version_id)
    told = {
        "x-amz-delete-marker": "true",
        **dict(version_fields(bucket, version)),
        **dict([s3_answers.last_modified(version.modified_at)] if version_id else []),
    }
    told = {name.lower(): value for name, value in told.items()}
    if version_id is None:
        missing = faults.no_such_key(call.key)
        raise faults.Fault(
            missing.message, error_type=missing.error_type, status=404, members={"Key": call.key, **told}
        )
    raise faults.Fault(
        "The specified method is not allowed against this resource.",
        error_type="MethodNotAllowed",
        status=405,
        members={"Method": call.request.method, "ResourceType": "DeleteMarker", **told},
    )


def _version_id(call: Call) -> str | None:
    version_id = call.query.get("versionId")
    if version_id == "":
        raise s3_answers.invalid_argument("Version id cannot be the empty string", name="versionId", value="")
    return version_id


def _refuse_part_number(call: Call) -> None:
    if "partNumber" in call.query:
        raise s3_answers.not_implemented("answers no single parts of an object: partNumber")


def _content_fields(call: Call, content: s3_records.Content) -> list[http1.Field]:
    said = {"content-type": "binary/octet-stream", **content.headers}
    for parameter, name in _OVERRIDES.items():
        if parameter in call.query:
            said[name] = call.query[parameter]
            if not _PRINTABLE.fullmatch(said[name]):
                raise s3_answers.invalid_argument(
                    "Header value cannot be represented", name=parameter, value=said[name]
                )
    return [*said.items(), *((f"x-amz-meta-{name}", value) for name, value in content.metadata.items())]


def _check_conditions(call: Call, version: s3_records.Version) -> httpd.Reply | None:
    """The answer in place of the object, or None (RFC 9110 section 13.2.2)."""
    match, none_match = call.field("if-match"), call.field("if-none-match")
    if match is not None and not _names(match, version.etag):
        raise buckets.precondition_failed("If-Match")
    if match is None and _is_later(version, call.field("if-unmodified-since")) is True:
        raise buckets.precondition_failed("If-Unmodified-Since")
    is_unchanged = none_match is not None and _names(none_match, version.etag)
    if none_match is None and _is_later(version, call.field("if-modified-since")) is False:
        is_unchanged = True
    if not is_unchanged:
        return None
    return s3_answers.empty(304, fields=[s3_answers.etag(version.etag), s3_answers.last_modified(version.modified_at)])


def _names(condition: str, etag: str) -> bool:
    told = [each.strip().removeprefix("W/").strip('"') for each in condition.split(",")]
    return "*" in told or etag in told


def _is_later(version: s3_records.Version, date: str | None) -> bool | None:
    if date is None:
        return None
    try:
        return int(version.modified_at) > parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None  # as RFC 9110 wants it: what is no date is no condition


def _parse_range(call: Call, size: int) -> tuple[int | None, int]:
    """Where the wanted bytes begin, and how many they are; None where all are wanted."""
    text = call.field("range")
    found = None if text is None else _RANGE.fullmatch(text.strip())
    if found is None or not (found[1] or found[2]):
        return None, size  # several ranges, or no range of bytes: as S3, all of it
    if found[1]:
        start = int(found[1])
        end = min(int(found[2]), size - 1) if found[2] else size - 1
        if found[2] and int(found[2]) < start:
            return None, size
    else:
        start, end = max(0, size - int(found[2])), size - 1
    if start >= size or (not found[1] and int(found[2]) == 0):
        raise faults.Fault(
            "The requested range is not satisfiable",
            error_type="InvalidRange",
            status=416,
            members={"ActualObjectSize": size, "RangeRequested": text},
        )
    return start, end - start + 1
