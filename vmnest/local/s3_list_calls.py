"""Calls of the local S3 that list what is in a bucket."""

from __future__ import annotations

from collections.abc import Sequence

from . import httpd, paging, s3_answers, s3_listing, s3_records, s3_uploads
from .s3_calls import Call
from .xml_documents import Child

# An object, as lists have it: its key and a version.
Listed = tuple[str, s3_records.Version]


def list_objects(call: Call) -> httpd.Reply:
    """ListObjects and ListObjectsV2."""
    is_v2 = call.query.get("list-type") == "2"
    _check_encoding(call)
    token = call.query.get("continuation-token") if is_v2 else None
    marker = call.query.get("start-after" if is_v2 else "marker", "")
    query = _query(call, after=marker if token is None else _parse_token(token))
    entries = call.parts.store.entries(call.bucket)
    current = [(entry.key, entry.current) for entry in entries]
    objects: list[Listed] = [(key, version) for key, version in current if version is not None]
    page = s3_listing.page(objects, query, key=lambda item: item[0])
    with_owner = not is_v2 or call.query.get("fetch-owner") == "true"
    heads = _heads(call, query, page.is_truncated)
    if is_v2:
        heads += [
            ("KeyCount", len(page.items) + len(page.prefixes)),
            None if token is None else ("ContinuationToken", token),
            ("StartAfter", s3_answers.encoded(marker, call.query)) if marker else None,
            ("NextContinuationToken", paging.build_marker(page.last)) if page.is_truncated else None,
        ]
    else:
        heads.append(("Marker", s3_answers.encoded(marker, call.query)))
        # As S3: without a delimiter the last key is the marker.
        if page.is_truncated and query.delimiter:
            heads.append(("NextMarker", s3_answers.encoded(page.last, call.query)))
    contents: list[Child] = [("Contents", _contents(call, item, with_owner=with_owner)) for item in page.items]
    return s3_answers.document("ListBucketResult", [*heads, *contents, *_prefixes(call, page.prefixes)])


def list_versions(call: Call) -> httpd.Reply:
    """ListObjectVersions: objects and delete markers, the newest of a key first."""
    _check_encoding(call)
    key_marker, id_marker = call.query.get("key-marker", ""), call.query.get("version-id-marker", "")
    query = _query(call, after="")
    every = [(entry.key, version) for entry in call.parts.store.entries(call.bucket) for version in entry.versions]
    latest = {entry.key: entry.versions[0].version_id for entry in call.parts.store.entries(call.bucket)}
    page = s3_listing.page(
        _behind(every, query, key_marker=key_marker, id_marker=id_marker), query, key=lambda item: item[0]
    )
    heads = [
        *_heads(call, query, page.is_truncated),
        ("KeyMarker", s3_answers.encoded(key_marker, call.query)),
        ("VersionIdMarker", id_marker),
    ]
    if page.is_truncated:
        heads.append(("NextKeyMarker", s3_answers.encoded(page.last, call.query)))
        # Of the last item, if that is no common prefix.
        if page.items and page.items[-1][0] == page.last:
            heads.append(("NextVersionIdMarker", page.items[-1][1].version_id))
    items: list[Child] = []
    for key, version in page.items:
        told: list[Child] = [
            ("VersionId", version.version_id),
            ("IsLatest", latest.get(key) == version.version_id),
        ]
        kind = "DeleteMarker" if version.is_marker else "Version"
        items.append((kind, [*_contents(call, (key, version), with_owner=True), *told]))
    return s3_answers.document("ListVersionsResult", [*heads, *items, *_prefixes(call, page.prefixes)])


def list_uploads(call: Call) -> httpd.Reply:
    """ListMultipartUploads."""
    _check_encoding(call)
    key_marker, id_marker = call.query.get("key-marker", ""), call.query.get("upload-id-marker", "")
    query = _query(call, after="", limit="max-uploads")
    uploads = call.parts.uploads.all(call.bucket)
    page = s3_listing.page(
        _uploads_behind(uploads, key_marker=key_marker, id_marker=id_marker), query, key=lambda upload: upload.key
    )
    heads: list[Child] = [
        ("Bucket", call.bucket),
        ("KeyMarker", s3_answers.encoded(key_marker, call.query)),
        ("UploadIdMarker", id_marker),
        ("Prefix", s3_answers.encoded(query.prefix, call.query)),
        ("Delimiter", s3_answers.encoded(query.delimiter, call.query)) if query.delimiter else None,
        ("MaxUploads", query.limit),
        ("IsTruncated", page.is_truncated),
        _encoding(call),
    ]
    if page.is_truncated:
        heads.append(("NextKeyMarker", s3_answers.encoded(page.last, call.query)))
        heads.append(("NextUploadIdMarker", page.items[-1].upload_id if page.items else ""))
    items: list[Child] = [
        (
            "Upload",
            [
                ("Key", s3_answers.encoded(upload.key, call.query)),
                ("UploadId", upload.upload_id),
                s3_answers.owner("Initiator"),
                s3_answers.owner(),
                ("StorageClass", "STANDARD"),
                ("Initiated", s3_answers.moment(upload.begun_at)),
                ("ChecksumAlgorithm", upload.algorithm.upper()) if upload.algorithm else None,
                ("ChecksumType", upload.checksum_type) if upload.algorithm else None,
            ],
        )
        for upload in page.items
    ]
    return s3_answers.document("ListMultipartUploadsResult", [*heads, *items, *_prefixes(call, page.prefixes)])


# -- their parts -------------------------------------------------------------------------------------------------------


def _query(call: Call, *, after: str, limit: str = "max-keys") -> s3_listing.Query:
    return s3_listing.Query(
        prefix=call.query.get("prefix", ""),
        delimiter=call.query.get("delimiter", ""),
        after=after,
        limit=call.number(limit, default=s3_listing.MAX_ITEMS, most=s3_listing.MAX_ITEMS),
    )


def _check_encoding(call: Call) -> None:
    kind = call.query.get("encoding-type")
    if kind not in {None, "url"}:
        raise s3_answers.invalid_argument(
            "Invalid Encoding Method specified in Request", name="encoding-type", value=str(kind)
        )


def _encoding(call: Call) -> Child:
    kind = call.query.get("encoding-type")
    return None if kind is None else ("EncodingType", kind)


def _heads(call: Call, query: s3_listing.Query, is_truncated: bool) -> list[Child]:
    return [
        ("Name", call.bucket),
        ("Prefix", s3_answers.encoded(query.prefix, call.query)),
        ("Delimiter", s3_answers.encoded(query.delimiter, call.query)) if query.delimiter else None,
        ("MaxKeys", query.limit),
        _encoding(call),
        ("IsTruncated", is_truncated),
    ]


def _contents(call: Call, item: Listed, *, with_owner: bool) -> list[Child]:
    key, version = item
    told: list[Child] = [
        ("Key", s3_answers.encoded(key, call.query)),
        ("LastModified", s3_answers.moment(version.modified_at)),
    ]
    if not version.is_marker:
        told += [
            ("ETag", f'"{version.etag}"'),
            *(("ChecksumAlgorithm", algorithm.upper()) for algorithm in version.content.checksums),
            ("ChecksumType", version.content.checksum_type) if version.content.checksums else None,
            ("Size", version.size),
            ("StorageClass", "STANDARD"),
        ]
    return [*told, s3_answers.owner()] if with_owner else told


def _prefixes(call: Call, prefixes: Sequence[str]) -> list[Child]:
    return [("CommonPrefixes", [("Prefix", s3_answers.encoded(prefix, call.query))]) for prefix in prefixes]


def _behind(every: Sequence[Listed], query: s3_listing.Query, *, key_marker: str, id_marker: str) -> list[Listed]:
    """What is behind that version of that key, or without a version behind all of that key."""
    if not key_marker:
        return list(every)
    found: list[Listed] = []
    is_behind = not id_marker
    for key, version in every:
        if s3_listing.roll_up(key, query) == key_marker:
            continue
        if key == key_marker:
            if id_marker and is_behind:
                found.append((key, version))
            is_behind = is_behind or version.version_id == id_marker
        elif key.encode() > key_marker.encode():
            found.append((key, version))
    return found


def _uploads_behind(
    uploads: Sequence[s3_uploads.Upload], *, key_marker: str, id_marker: str
) -> list[s3_uploads.Upload]:
    found: list[s3_uploads.Upload] = []
    is_behind = False
    for upload in uploads:
        if upload.key.encode() > key_marker.encode():
            found.append(upload)
        elif upload.key == key_marker and id_marker:
            if is_behind:
                found.append(upload)
            is_behind = is_behind or upload.upload_id == id_marker
    return found


def _parse_token(token: str) -> str:
    last = paging.parse_marker(token)
    if last is None:
        raise s3_answers.invalid_argument(
            "The continuation token provided is incorrect", name="continuation-token", value=token
        )
    return last
