"""Calls of the local S3 about multipart uploads."""

from __future__ import annotations

from . import faults, httpd, s3_answers, s3_checksums, s3_object_calls, s3_records, s3_uploads
from .s3_calls import Call
from .xml_documents import Child, Element

_ALGORITHM = "x-amz-checksum-algorithm"
_TYPE = "x-amz-checksum-type"
_OBJECT_SIZE = "x-amz-mp-object-size"


def begin(call: Call) -> httpd.Reply:
    """CreateMultipartUpload."""
    content = call.content()
    algorithm = (call.field(_ALGORITHM) or "").lower()
    if algorithm and algorithm not in s3_checksums.ALGORITHMS:
        raise s3_answers.not_implemented(f"has no checksum {algorithm[:20]}")
    whole_only = algorithm == "crc64nvme"
    default = s3_records.FULL_OBJECT if whole_only else s3_records.COMPOSITE
    kind = (call.field(_TYPE) or default).upper()
    is_possible = algorithm in s3_checksums.OF_WHOLE_OBJECTS if kind == s3_records.FULL_OBJECT else not whole_only
    if kind not in {s3_records.FULL_OBJECT, s3_records.COMPOSITE} or (algorithm and not is_possible):
        raise faults.Fault(
            f"The {kind[:20]} checksum type cannot be used with the {algorithm} checksum algorithm.",
            error_type="InvalidRequest",
            status=400,
        )
    upload = call.parts.uploads.begin(call.bucket, call.key, content=content, algorithm=algorithm, checksum_type=kind)
    fields = [s3_answers.ENCRYPTION]
    if algorithm:
        fields += [(_ALGORITHM, algorithm.upper()), (_TYPE, kind)]
    return s3_answers.document(
        "InitiateMultipartUploadResult",
        [("Bucket", call.bucket), ("Key", call.key), ("UploadId", upload.upload_id)],
        fields=fields,
    )


def put_part(call: Call) -> httpd.Reply:
    """UploadPart."""
    call.content()  # for what it refuses
    number = call.number("partNumber", default=0, most=s3_uploads.MAX_PARTS + 1)
    if not 1 <= number <= s3_uploads.MAX_PARTS:
        raise s3_answers.invalid_argument(
            f"Part number must be an integer between 1 and {s3_uploads.MAX_PARTS}, inclusive",
            name="partNumber",
            value=call.query.get("partNumber", ""),
        )
    upload_id = call.query["uploadId"]
    call.parts.uploads.get(call.bucket, call.key, upload_id)  # before the body comes, which may be large
    with call.body.spool(call.parts.spool) as spooled:
        part = call.parts.uploads.put_part(call.bucket, call.key, upload_id, number=number, spooled=spooled)
    checksums = [(s3_checksums.PREFIX + algorithm, text) for algorithm, text in part.checksums.items()]
    return s3_answers.empty(fields=[s3_answers.etag(part.etag), s3_answers.ENCRYPTION, *checksums])


def list_parts(call: Call) -> httpd.Reply:
    """ListParts."""
    upload_id = call.query["uploadId"]
    upload = call.parts.uploads.get(call.bucket, call.key, upload_id)
    limit = call.number("max-parts", default=1000, most=1000)
    after = call.number("part-number-marker", default=0, most=1 << 31)
    found = [part for part in call.parts.uploads.parts(call.bucket, call.key, upload_id) if part.number > after]
    chosen = found[:limit]
    items: list[Child] = [
        (
            "Part",
            [
                ("PartNumber", part.number),
                ("LastModified", s3_answers.moment(part.modified_at)),
                ("ETag", f'"{part.etag}"'),
                ("Size", part.size),
                *((f"Checksum{algorithm.upper()}", text) for algorithm, text in part.checksums.items()),
            ],
        )
        for part in chosen
    ]
    return s3_answers.document(
        "ListPartsResult",
        [
            ("Bucket", call.bucket),
            ("Key", s3_answers.encoded(call.key, call.query)),
            ("UploadId", upload_id),
            s3_answers.owner("Initiator"),
            s3_answers.owner(),
            ("StorageClass", "STANDARD"),
            ("PartNumberMarker", after),
            ("NextPartNumberMarker", chosen[-1].number if chosen else 0),
            ("MaxParts", limit),
            ("IsTruncated", len(found) > len(chosen)),
            ("ChecksumAlgorithm", upload.algorithm.upper()) if upload.algorithm else None,
            ("ChecksumType", upload.checksum_type) if upload.algorithm else None,
            *items,
        ],
    )


def complete(call: Call) -> httpd.Reply:
    """CompleteMultipartUpload."""
    only_new = call.only_new
    upload_id = call.query["uploadId"]
    bucket = call.parts.store.get(call.bucket)
    call.parts.uploads.get(call.bucket, call.key, upload_id)
    # A checksum in the header fields is that of the object.
    root = call.document("CompleteMultipartUpload", ignoring_checksum=True)
    wanted = [_parse_part(part) for part in root.all("Part")]
    if not wanted:
        raise s3_answers.malformed_xml()
    said = {
        algorithm: text
        for algorithm in s3_checksums.ALGORITHMS
        if (text := call.field(s3_checksums.PREFIX + algorithm)) is not None
    }
    version = call.parts.uploads.complete(
        call.bucket,
        call.key,
        upload_id,
        wanted=wanted,
        spool=call.parts.spool,
        only_new=only_new,
        expected=s3_uploads.Expected(call.field(_OBJECT_SIZE), said),
    )
    told: list[Child] = [
        (f"Checksum{algorithm.upper()}", text) for algorithm, text in version.content.checksums.items()
    ]
    if told:
        told.append(("ChecksumType", version.content.checksum_type))
    return s3_answers.document(
        "CompleteMultipartUploadResult",
        [
            ("Location", f"/{call.bucket}/{call.key}"),
            ("Bucket", call.bucket),
            ("Key", call.key),
            ("ETag", f'"{version.etag}"'),
            *told,
        ],
        fields=[s3_answers.ENCRYPTION, *s3_object_calls.version_fields(bucket, version)],
    )


def abort(call: Call) -> httpd.Reply:
    """AbortMultipartUpload."""
    call.parts.uploads.abort(call.bucket, call.key, call.query["uploadId"])
    return s3_answers.empty(204)


def _parse_part(part: Element) -> s3_uploads.Wanted:
    number, etag = (part.value("PartNumber") or "").strip(), part.value("ETag")
    if etag is None or not (number.isascii() and number.isdigit() and len(number) < 9):
        raise s3_answers.malformed_xml()
    checksums = {
        algorithm: text
        for algorithm in s3_checksums.ALGORITHMS
        if (text := part.value(f"Checksum{algorithm.upper()}")) is not None
    }
    return s3_uploads.Wanted(int(number), etag.strip().strip('"'), checksums)
