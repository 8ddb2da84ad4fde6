"""What is S3's own about a request and its answer: names, keys in XML, hidden errors, wrong regions, parts."""

from urllib.parse import quote_plus
from xml.etree import ElementTree

import pytest
from botocore.httpchecksum import Crc32Checksum
from hypothesis import example, given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.aws import s3_requests

KEYS = ["a", "a/b//c", "/a", "//", ".", "..", "../a", "a b+c%20?d#e&f=g", "ü/日本語/🙂", "-", "\x01", "a\nb", "\\", "~"]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_a_key_may_be_nearly_anything(key):
    s3_requests.check({"Bucket": "a-bucket.with.dots", "Key": key})


@pytest.mark.parametrize("bucket", ["", "a/b", "a?b", "a b", "a%2fb", "ü", "a\n", "x" * 256, "a:b", "@host", 1])
def test_what_would_change_the_path_or_the_host_is_no_bucket(bucket):
    with pytest.raises(errors.RequestInvalidError, match="bucket"):
        s3_requests.check({"Bucket": bucket})


def test_an_empty_key_would_be_the_bucket():
    with pytest.raises(errors.RequestInvalidError, match="no key"):
        s3_requests.check({"Bucket": "b", "Key": ""})


def test_half_a_character_cannot_be_sent():
    with pytest.raises(errors.RequestInvalidError, match="UTF-8"):
        s3_requests.check({"Bucket": "b", "Key": "a\udc80"})


def test_a_key_is_measured_in_bytes():
    s3_requests.check({"Key": "ü" * 512})
    with pytest.raises(errors.RequestInvalidError, match="1026"):
        s3_requests.check({"Key": "ü" * 513})


# -- keys in XML -------------------------------------------------------------------------------------------------------


@given(st.text(min_size=1))
@example("\x01")
@example("a\rb")
@example("\ufffe")
@example("\x85")
@example("]]>")
def test_a_key_that_fits_xml_comes_through_xml(key):
    if s3_requests.fits_xml(key):
        element = ElementTree.Element("Key")
        element.text = key
        assert ElementTree.fromstring(ElementTree.tostring(element, "utf-8")).text == key


@pytest.mark.parametrize("key", ["\x00", "\x01", "\x1f", "a\rb", "a\nb", "a\tb", "\x7f", "\ufffe", "\uffff"])
def test_a_key_that_xml_would_refuse_or_change_does_not_fit(key):
    assert not s3_requests.fits_xml(key)


@pytest.mark.parametrize("operation", ["ListObjectsV2", "ListObjectVersions", "ListMultipartUploads"])
def test_lists_are_asked_for_in_url_encoding(operation):
    assert s3_requests.complete(operation, {"Bucket": "b"}) == {"Bucket": "b", "EncodingType": "url"}


def test_other_operations_know_no_encoding():
    assert s3_requests.complete("PutObject", {"Bucket": "b"}) == {"Bucket": "b"}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@example("a b+c%2B")
def test_encoded_keys_are_decoded(key):
    encoded = quote_plus(key)
    answer = {
        "EncodingType": "url",
        "NextKeyMarker": encoded,
        "Versions": [{"Key": encoded, "VersionId": "a%20b"}],
        "DeleteMarkers": [{"Key": encoded}],
    }
    assert s3_requests.decode("ListObjectVersions", answer) == {
        "NextKeyMarker": key,
        "Versions": [{"Key": key, "VersionId": "a%20b"}],
        "DeleteMarkers": [{"Key": key}],
    }


def test_a_server_that_does_not_encode_is_believed():
    answer = {"Contents": [{"Key": "a%20b+c"}]}
    assert s3_requests.decode("ListObjectsV2", answer) == {"Contents": [{"Key": "a%20b+c"}]}


# -- checksums ---------------------------------------------------------------------------------------------------------


@given(st.binary())
def test_the_checksum_is_that_of_botocore(body):
    ours = dict(s3_requests.checksum(body))
    judge = Crc32Checksum()
    judge.update(body)
    assert ours == {"x-amz-sdk-checksum-algorithm": "CRC32", "x-amz-checksum-crc32": judge.b64digest()}


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"<Error><Code>InternalError</Code></Error>", 500),
        (200, b'<?xml version="1.0" encoding="UTF-8"?>\n\n<Error><Code>SlowDown</Code></Error>', 500),
        (200, b'   \n<?xml version="1.0"?><Error xmlns="x"><Code>a</Code></Error>', 500),
        (200, b'<?xml version="1.0"?><CompleteMultipartUploadResult/>', 200),
        (200, b"<DeleteResult><Error><Key>a</Key></Error></DeleteResult>", 200),
        (200, b"<Errors/>", 200),
        (200, b"an <Error>", 200),
        (200, b"", 200),
        (400, b"<Error><Code>RequestTimeout</Code></Error>", 500),
        (400, b"<Error><Code>InvalidPart</Code></Error>", 400),
        (403, b"<Error><Code>RequestTimeout</Code></Error>", 403),
    ],
)
def test_the_status_of_an_answer_is_not_always_the_true_one(status, body, expected):
    assert s3_requests.true_status(status, body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<!DOCTYPE html><html></html>", True),
        (b"\n<html lang=en>", True),
        (b"<HTML>", True),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- a portal\n -->\n<!DOCTYPE html PUBLIC "x">', True),
        (b"<ListBucketResult/>", False),
        (b"<htmlish/>", False),
        (b'{"Version": "2012-10-17"}', False),
        (b"", False),
    ],
)
def test_a_page_is_known_by_its_root(body, expected):
    assert s3_requests.is_page(body) is expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'<LocationConstraint xmlns="x">eu-west-1</LocationConstraint>', "eu-west-1"),
        (b'<?xml version="1.0"?>\n<LocationConstraint>EU</LocationConstraint>', "EU"),
        (b"<LocationConstraint/>", None),
    ],
)
def test_a_location_is_the_root_of_its_document(body, expected):
    assert s3_requests.parse_location(body) == expected


REGION = {"x-amz-bucket-region": "eu-west-1"}
MALFORMED = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
MOVED = b"<Error><Code>PermanentRedirect</Code><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>"
OLD_STYLE = b"<Error><Code>TemporaryRedirect</Code><Endpoint>b.s3-us-west-2.amazonaws.com</Endpoint></Error>"


@pytest.mark.parametrize(
    ("status", "error_type", "headers", "body", "expected"),
    [
        (301, "PermanentRedirect", REGION, b"<Error/>", "eu-west-1"),
        (301, "PermanentRedirect", {}, MOVED, "eu-west-1"),
        (307, "TemporaryRedirect", {}, OLD_STYLE, "us-west-2"),
        (307, "TemporaryRedirect", REGION, OLD_STYLE, "eu-west-1"),
        (400, "AuthorizationHeaderMalformed", {}, MALFORMED, "eu-west-1"),
        (400, "IllegalLocationConstraintException", REGION, b"<Error/>", "eu-west-1"),
        (400, None, REGION, b"", "eu-west-1"),
        (301, None, REGION, b"", "eu-west-1"),
        (301, None, {}, b"", None),
        (403, "AccessDenied", REGION, b"<Error/>", None),
        (404, None, REGION, b"", None),
        (400, "InvalidRequest", REGION, b"<Error/>", None),
        (200, None, REGION, b"", None),
    ],
)
def test_a_bucket_in_another_region_is_known_by_what_the_refusal_says(status, error_type, headers, body, expected):
    assert s3_requests.region_told(status=status, error_type=error_type, headers=headers, body=body) == expected


@pytest.mark.parametrize("region", ["evil.example/x", "eu-west-1.evil.example", "eu west", "", "eu-west-1\r\n", "a@b"])
def test_what_is_no_region_gets_into_no_host(region):
    told = s3_requests.region_told(
        status=301, error_type="PermanentRedirect", headers={"x-amz-bucket-region": region}, body=b""
    )
    assert told is None


@pytest.mark.parametrize("region", ["us-east-1", "us-gov-west-1", "ap-southeast-5", "us-iso-east-1", "eusc-de-east-1"])
def test_regions_of_all_partitions_are_regions(region):
    assert s3_requests.is_region(region)


# -- parts -------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 5 * 2**40))
@example(0)
@example(s3_requests.MIN_PART_BYTES)
@example(s3_requests.MIN_PART_BYTES + 1)
@example(s3_requests.MIN_PART_BYTES * s3_requests.MAX_PARTS)
@example(s3_requests.MIN_PART_BYTES * s3_requests.MAX_PARTS + 1)
def test_parts_cover_the_file_within_the_limits_of_s3(size):
    parts = s3_requests.plan_parts(size)
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    assert len(parts) <= s3_requests.MAX_PARTS
    at = 0
    for part in parts:
        assert part.offset == at
        at += part.size
    assert at == size
    assert all(s3_requests.MIN_PART_BYTES <= part.size <= s3_requests.MAX_PART_BYTES for part in parts[:-1])


def test_what_no_object_can_hold_is_refused():
    with pytest.raises(errors.UsageError, match="larger than"):
        s3_requests.plan_parts(s3_requests.MAX_PART_BYTES * s3_requests.MAX_PARTS + 1)
