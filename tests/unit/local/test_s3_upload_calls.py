"""Calls about multipart uploads."""

import pytest

from vmnest.local import s3_uploads

BIG = b"x" * s3_uploads.MIN_PART_BYTES


def begin(s3, **options):
    answer = s3.ask("POST", "/bucket/a%20k?uploads", **options)
    assert answer.status == 200, answer.body
    (upload_id,) = answer.texts("UploadId")
    return upload_id


def target(upload_id, **more):
    return f"/bucket/a%20k?uploadId={upload_id}" + "".join(f"&{name}={value}" for name, value in more.items())


def listing(*parts, checksums=()):
    inner = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{''.join(checksums)}</Part>"
        for number, etag in parts
    )
    return f"<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>".encode()


def test_from_begin_to_complete(s3):
    upload_id = begin(s3, headers=[("x-amz-checksum-algorithm", "CRC32"), ("x-amz-meta-a", "1")])
    etags = [
        s3.ask("PUT", target(upload_id, partNumber=number), data).fields["etag"]
        for number, data in ((1, BIG), (2, b"y"))
    ]
    listed = s3.ask("GET", target(upload_id))
    assert listed.texts("Part", "Size") == [str(len(BIG)), "1"]
    assert listed.texts("ChecksumAlgorithm") == ["CRC32"]
    answer = s3.ask("POST", target(upload_id), listing((1, etags[0]), (2, etags[1])))
    assert answer.texts("Key") == ["a k"]
    head = s3.ask("HEAD", "/bucket/a%20k")
    assert head.fields["x-amz-meta-a"] == "1"
    assert [head.fields["etag"]] == answer.texts("ETag")
    assert s3.ask("GET", "/bucket/a%20k").body == BIG + b"y"
    assert s3.ask("GET", target(upload_id)).code == "NoSuchUpload"


def test_parts_are_listed_in_pages(s3):
    upload_id = begin(s3)
    for number in (3, 1, 2):
        s3.ask("PUT", target(upload_id, partNumber=number), b"x")
    first = s3.ask("GET", target(upload_id, **{"max-parts": 2}))
    assert first.texts("Part", "PartNumber") == ["1", "2"]
    assert (first.texts("IsTruncated"), first.texts("NextPartNumberMarker")) == (["true"], ["2"])
    rest = s3.ask("GET", target(upload_id, **{"part-number-marker": 2}))
    assert (rest.texts("Part", "PartNumber"), rest.texts("IsTruncated")) == (["3"], ["false"])


def test_a_part_has_its_checksum(s3):
    upload_id = begin(s3, headers=[("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "FULL_OBJECT")])
    put = s3.ask("PUT", target(upload_id, partNumber=1), b"abc", headers=[("x-amz-checksum-crc32", "NSRBwg==")])
    assert put.fields["x-amz-checksum-crc32"] == "NSRBwg=="
    assert s3.ask("GET", target(upload_id)).texts("Part", "ChecksumCRC32") == ["NSRBwg=="]
    # What the header says at the end is said of the object, not of the list of parts.
    body = listing((1, put.fields["etag"]), checksums=["<ChecksumCRC32>NSRBwg==</ChecksumCRC32>"])
    done = s3.ask("POST", target(upload_id), body, headers=[("x-amz-checksum-crc32", "NSRBwg==")])
    assert (done.texts("ChecksumCRC32"), done.texts("ChecksumType")) == (["NSRBwg=="], ["FULL_OBJECT"])


@pytest.mark.parametrize("number", ["0", "10001", "x", ""])
def test_part_numbers_are_from_1_to_10000(s3, number):
    assert s3.ask("PUT", target(begin(s3), partNumber=number), b"x").code == "InvalidArgument"


def test_a_part_of_no_upload_is_refused_before_it_comes(s3):
    assert s3.ask("PUT", target("x" * 40, partNumber=1), b"x").code == "NoSuchUpload"
    assert not s3.incoming.is_complete


@pytest.mark.parametrize(
    "headers",
    [
        [("x-amz-checksum-algorithm", "SHA256"), ("x-amz-checksum-type", "FULL_OBJECT")],
        [("x-amz-checksum-algorithm", "CRC64NVME"), ("x-amz-checksum-type", "COMPOSITE")],
        [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "SOME")],
    ],
)
def test_not_every_checksum_is_of_every_type(s3, headers):
    assert s3.ask("POST", "/bucket/k?uploads", headers=headers).code == "InvalidRequest"


def test_a_checksum_that_is_not_here_is_refused_at_the_beginning(s3):
    answer = s3.ask("POST", "/bucket/k?uploads", headers=[("x-amz-checksum-algorithm", "XXHASH3")])
    assert answer.code == "NotImplemented"
    crc64 = s3.ask("POST", "/bucket/k?uploads", headers=[("x-amz-checksum-algorithm", "CRC64NVME")])
    assert crc64.fields["x-amz-checksum-type"] == "FULL_OBJECT"


@pytest.mark.parametrize(
    "body",
    [
        b"<CompleteMultipartUpload/>",
        b"<Other/>",
        listing(("x", "e")),
        b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
    ],
)
def test_the_list_of_parts_must_be_one(s3, body):
    assert s3.ask("POST", target(begin(s3)), body).code == "MalformedXML"


def test_it_can_be_given_up(s3):
    upload_id = begin(s3)
    s3.ask("PUT", target(upload_id, partNumber=1), b"x")
    assert s3.ask("DELETE", target(upload_id)).status == 204
    assert s3.ask("DELETE", target(upload_id)).code == "NoSuchUpload"


def test_a_bucket_with_unfinished_uploads_can_be_removed(s3):
    begin(s3)
    assert s3.ask("DELETE", "/bucket").status == 204
    s3.ask("PUT", "/bucket")
    assert s3.ask("GET", "/bucket?uploads").texts("Upload") == []
