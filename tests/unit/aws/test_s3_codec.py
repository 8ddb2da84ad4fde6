"""S3's requests as they travel, where they go, and what its answers mean; botocore's client is the judge."""

import json
from datetime import datetime, timezone
from urllib.parse import unquote

import boto3
import botocore.awsrequest
import pytest
from botocore.config import Config
from hypothesis import given, settings
from hypothesis import strategies as st

from vmnest import errors
from vmnest.aws import codec, s3_codec, shapes
from vmnest.transport import Headers

KEYS = ["a", "a/b//c", "/a", "//", ".", "..", "a/../b", "a b+c%20?d#e&f=g", "ü/🙂", "(a)*!'", "~-._", "\\^|`", "\x01"]


@pytest.fixture(scope="module")
def ours() -> codec.Codec:
    return codec.load("s3")


class Sent(Exception):  # noqa: N818 - carries a request out of botocore
    """The request that botocore's client would send."""

    def __init__(self, request: botocore.awsrequest.AWSPreparedRequest) -> None:
        self.request = request


def theirs(operation: str, *, endpoint: str | None = None, region: str = "eu-west-1", **params: object):
    config = Config(
        s3={"addressing_style": "path"} if endpoint else {},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=config,
    )

    def stop(request, **_):
        raise Sent(request)

    client.meta.events.register("before-send.s3", stop)
    try:
        with pytest.raises(Sent) as caught:
            client._make_api_call(operation, params)
        return caught.value.request
    finally:
        client.close()


def url(ours: codec.Codec, operation: str, *, endpoint: str | None = None, region: str = "eu-west-1", **params: object):
    request = ours.build(operation, params)
    base = ours.locate(request, endpoint=endpoint, region=region).base
    # The transport puts a slash where a URL has no path.
    return f"{base}/{request.target}" if base.count("/") == 2 and request.target[:1] != "/" else base + request.target


def answer(status: int, body: bytes = b"", **headers: str) -> codec.Answer:
    return codec.Answer(status, Headers([(name.replace("_", "-"), value) for name, value in headers.items()]), body)


# -- requests ----------------------------------------------------------------------------------------------------------

CALLS = {
    "CreateBucket": {},
    "DeleteBucket": {},
    "ListObjectsV2": {"Prefix": "a b+", "MaxKeys": 3},
    "ListObjectVersions": {"KeyMarker": "ü&="},
    "PutBucketPolicy": {"Policy": '{"a": "ü"}'},
    "PutBucketVersioning": {"VersioningConfiguration": {"Status": "Enabled"}},
    "DeleteObjects": {"Delete": {"Objects": [{"Key": "<a> &\"b'"}], "Quiet": True}},
    "HeadObject": {"Key": "a b"},
    "CreateMultipartUpload": {"Key": "k", "Metadata": {"a": "b"}, "ContentType": "application/zip"},
    "UploadPart": {"Key": "k", "PartNumber": 1, "UploadId": "a+/=b"},
    "CompleteMultipartUpload": {
        "Key": "k",
        "UploadId": "u",
        "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": '"a"'}]},
    },
    "GetObject": {"Key": "k", "Range": "bytes=1-", "IfMatch": '"a"'},
}


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:5000", "https://s3.example/prefix"])
@pytest.mark.parametrize("bucket", ["bucket", "bucket.with.dots"])
@pytest.mark.parametrize("operation", CALLS)
def test_a_request_is_that_of_botocore(ours, operation, bucket, endpoint):
    params = {"Bucket": bucket, **CALLS[operation]}
    judge = theirs(operation, endpoint=endpoint, **params)
    request = ours.build(operation, params)
    # Pairs of a query may stand in any order.
    mine = url(ours, operation, endpoint=endpoint, **params)
    assert mine.partition("?")[0] == judge.url.partition("?")[0]
    assert sorted(filter(None, mine.partition("?")[2].split("&"))) == sorted(
        filter(None, judge.url.partition("?")[2].split("&"))
    )
    assert request.method == judge.method
    assert request.body == (judge.body or b"")
    checked = {name: value for name, value in request.headers if name.lower().startswith("x-amz-checksum")}
    assert checked == {
        name: value.decode() for name, value in judge.headers.items() if name.lower().startswith("x-amz-checksum")
    }


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:5000"])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_travels_as_botocore_sends_it(ours, key, endpoint):
    mine = url(ours, "GetObject", endpoint=endpoint, Bucket="bucket", Key=key)
    assert mine == theirs("GetObject", endpoint=endpoint, Bucket="bucket", Key=key).url


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100))
def test_no_key_gets_out_of_its_bucket_or_into_the_query(key):
    made = url(codec.load("s3"), "PutObject", endpoint="http://h", Bucket="bucket", Key=key)
    assert "?" not in made
    assert "#" not in made
    assert unquote(made) == f"http://h/bucket/{key}"


@pytest.mark.parametrize(
    "params", [{"Bucket": "b", "Key": ""}, {"Bucket": "a/b", "Key": "k"}, {"Bucket": "", "Key": "k"}]
)
def test_what_would_be_another_request_is_not_made(ours, params):
    with pytest.raises(errors.RequestInvalidError):
        ours.build("PutObject", params)


def test_a_key_that_xml_cannot_carry_is_not_deleted_with_others(ours):
    with pytest.raises(errors.RequestInvalidError, match="DeleteObject alone"):
        ours.build("DeleteObjects", {"Bucket": "b", "Delete": {"Objects": [{"Key": "a\rb"}]}})


def test_a_body_that_is_read_while_it_is_sent_stands_as_it_is(ours):
    body = codec.Body(lambda: [b"abc"], size=3, sha256="0" * 64)
    assert ours.build("PutObject", {"Bucket": "b", "Key": "k", "Body": body}).body is body


def test_what_can_be_made_twice_is_known(ours):
    names = ("PutObject", "UploadPart", "CompleteMultipartUpload", "DeleteObjects", "HeadObject", "CreateBucket")
    assert all(ours.operation(name).is_idempotent for name in names)
    assert not ours.operation("RestoreObject").is_idempotent


# -- regions -----------------------------------------------------------------------------------------------------------


def test_where_a_bucket_is_gets_remembered():
    one = codec.load("s3")
    request = one.build("HeadObject", {"Bucket": "bucket", "Key": "k"})
    assert one.other_region(request, answer(301, x_amz_bucket_region="eu-west-1")) == "eu-west-1"
    again = one.build("GetObject", {"Bucket": "bucket", "Key": "k"})
    assert one.locate(again, endpoint=None, region="us-east-1") == (
        "https://bucket.s3.eu-west-1.amazonaws.com",
        "eu-west-1",
        "s3",
    )
    assert one.locate(again, endpoint="http://h", region="us-east-1") == ("http://h/bucket", "eu-west-1", "s3")
    other = one.build("GetObject", {"Bucket": "another", "Key": "k"})
    assert one.locate(other, endpoint=None, region="us-east-1").region == "us-east-1"


def test_a_host_that_an_answer_names_is_not_gone_to():
    one = codec.load("s3")
    request = one.build("HeadObject", {"Bucket": "bucket", "Key": "k"})
    evil = answer(307, x_amz_bucket_region="x.evil.example", location="https://evil.example/")
    assert one.other_region(request, evil) is None
    assert "evil" not in one.locate(request, endpoint=None, region="us-east-1").base


def test_a_bucket_that_is_made_is_made_where_the_caller_says(ours):
    request = ours.build("CreateBucket", {"Bucket": "bucket"})
    body = b"<Error><Code>IllegalLocationConstraintException</Code></Error>"
    assert ours.other_region(request, answer(400, body, x_amz_bucket_region="eu-west-1")) is None


# -- answers -----------------------------------------------------------------------------------------------------------


def test_a_list_is_read_with_its_keys_as_they_are(ours):
    body = (
        b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>'
        b"<IsTruncated>false</IsTruncated><Prefix>a%2B</Prefix><Contents><Key>a%2Bb+c%0D</Key><Size>3</Size>"
        b"<LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;x&quot;</ETag></Contents></ListBucketResult>"
    )
    assert ours.read("ListObjectsV2", answer(200, body)) == {
        "IsTruncated": False,
        "Prefix": "a+",
        "Contents": [
            {
                "Key": "a+b c\r",
                "Size": 3,
                "ETag": '"x"',
                "LastModified": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
            }
        ],
    }


def test_a_policy_is_json_in_the_body(ours):
    policy = json.dumps({"Version": "2012-10-17"})
    assert ours.read("GetBucketPolicy", answer(200, policy.encode())) == {"Policy": policy}


def test_content_is_not_looked_at(ours):
    assert ours.status("GetObject", answer(200, b"<Error><Code>InternalError</Code></Error>")) == 200
    assert ours.status("CopyObject", answer(200, b"<Error><Code>InternalError</Code></Error>")) == 500


def test_what_is_no_xml_is_no_list(ours):
    with pytest.raises(shapes.AnswerMalformed):
        ours.read("ListObjectsV2", answer(200, b"True"))


def test_a_page_is_not_s3s(ours):
    assert not ours.is_own_body(b"<html><title>Log in</title></html>")


def test_the_name_is_one_word():
    assert s3_codec.SERVICE in codec.CLASSIC
