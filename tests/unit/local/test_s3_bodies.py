"""Bodies of S3 requests, held to what is said of them."""

import base64
import hashlib
import os
import zlib

import pytest

from tests.support.account import ScriptedStream, chunked
from vmnest.aws import signing
from vmnest.local import faults, httpd, s3_bodies
from vmnest.wire import http1

DATA = b"hello world" * 100
CRC32 = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
MD5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
STREAMING = signing.STREAMING_UNSIGNED_PAYLOAD


def body(data=DATA, *, fields=(), payload=None, sent=None, length=None):
    """A body whose header fields are these, and of which ``sent`` comes."""
    all_fields = [*fields, ("Content-Length", str(len(data) if length is None else length))]
    request = http1.Request("PUT", "/b/k", all_fields)
    sent = data if sent is None else sent
    incoming = httpd.Incoming(ScriptedStream(*(sent[at : at + 100] for at in range(0, len(sent), 100))), request)
    return s3_bodies.Body(all_fields, incoming, payload=payload or hashlib.sha256(data).hexdigest())


def streamed(*chunks, trailers=(), fields=(), decoded=None, data=None):
    data = chunked(*chunks, trailers=trailers) if data is None else data
    size = sum(map(len, chunks)) if decoded is None else decoded
    return body(data, fields=[("x-amz-decoded-content-length", str(size)), *fields], payload=STREAMING)


def refused(act, *args, **options):
    with pytest.raises(faults.Fault) as caught:
        act(*args, **options)
    return caught.value.error_type


def test_what_was_signed_is_read():
    assert body().read() == DATA
    assert body(payload=signing.UNSIGNED_PAYLOAD).read() == DATA


def test_it_is_written_to_a_file_that_goes_unless_it_is_moved(tmp_path):
    with body(fields=[("x-amz-checksum-crc32", CRC32)]).spool(str(tmp_path)) as spooled:
        assert (tmp_path / spooled.path).read_bytes() == DATA
        assert os.stat(spooled.path).st_mode & 0o777 == 0o600
        assert spooled.facts == s3_bodies.Facts(len(DATA), hashlib.md5(DATA).hexdigest(), {"crc32": CRC32})
    assert os.listdir(tmp_path) == []


def test_of_a_body_that_is_refused_nothing_is_left(tmp_path):
    with pytest.raises(faults.Fault), body(payload="0" * 64).spool(str(tmp_path)):
        pass
    with pytest.raises(http1.TruncatedError), body(sent=b"hel").spool(str(tmp_path)):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "error_type"),
    [
        ({"payload": "0" * 64}, "XAmzContentSHA256Mismatch"),
        ({"fields": [("Content-MD5", MD5[:-4] + "AA==")]}, "BadDigest"),
        ({"fields": [("Content-MD5", "x")]}, "InvalidDigest"),
        ({"fields": [("x-amz-checksum-crc32", "AAAAAA==")]}, "BadDigest"),
        ({"fields": [("x-amz-checksum-crc32", "x")]}, "InvalidRequest"),
        ({"fields": [("x-amz-checksum-crc32", CRC32), ("x-amz-checksum-sha1", "x")]}, "InvalidRequest"),
        ({"fields": [("x-amz-checksum-xxhash3", "x")]}, "NotImplemented"),
        ({"fields": [("x-amz-trailer", "x-amz-checksum-crc32")]}, "InvalidRequest"),
    ],
)
def test_each_lie_is_named(changes, error_type):
    assert refused(body(**changes).read) == error_type


def test_what_is_true_passes():
    fields = [("Content-MD5", MD5), ("X-Amz-Checksum-CRC32", CRC32), ("x-amz-sdk-checksum-algorithm", "CRC32")]
    assert body(fields=fields).read() == DATA


def test_a_checksum_of_something_else_can_be_ignored():
    assert body(fields=[("x-amz-checksum-crc32", "AAAAAA==")]).read(ignoring_checksum=True) == DATA


def test_a_body_in_chunks_has_its_checksum_behind_it(tmp_path):
    fields = [("x-amz-trailer", "x-amz-checksum-crc32")]
    with streamed(DATA[:500], DATA[500:], trailers=[("x-amz-checksum-crc32", CRC32)], fields=fields).spool(
        str(tmp_path)
    ) as spooled:
        assert (spooled.facts.size, spooled.facts.checksums) == (len(DATA), {"crc32": CRC32})
    wrong = streamed(DATA, trailers=[("x-amz-checksum-crc32", "AAAAAA==")], fields=fields)
    assert refused(wrong.read) == "BadDigest"
    assert refused(streamed(DATA, fields=fields).read) == "InvalidRequest"


@pytest.mark.parametrize(
    ("changes", "error_type"),
    [
        ({"decoded": len(DATA) - 1}, "IncompleteBody"),
        ({"decoded": len(DATA) + 1}, "IncompleteBody"),
        ({"data": b"zz\r\nnonsense"}, "InvalidChunkSizeError"),
        ({"data": chunked(DATA)[:-2]}, "IncompleteBody"),
        ({"data": chunked(DATA) + b"more"}, "IncompleteBody"),
    ],
)
def test_chunks_must_be_what_was_said(changes, error_type):
    assert refused(streamed(DATA, **changes).read) == error_type


def test_chunks_need_their_length():
    assert refused(body(chunked(DATA), payload=STREAMING).read) == "MissingContentLength"


def test_a_document_is_bounded_before_it_is_read():
    assert refused(body(length=3 << 20).read) == "MaxMessageLengthExceeded"
    assert refused(streamed(DATA, decoded=3 << 20).read) == "MaxMessageLengthExceeded"
    assert refused(body(b"x" * 11, length=11).read, limit=10) == "MaxMessageLengthExceeded"


def test_an_object_is_bounded(tmp_path):
    with pytest.raises(faults.Fault) as caught, body(length=7 << 30).spool(str(tmp_path)):
        pass
    assert caught.value.error_type == "EntityTooLarge"


def test_the_spool_is_emptied_when_it_is_opened(tmp_path):
    path = s3_bodies.open_spool(str(tmp_path))
    with open(os.path.join(path, "left"), "w") as file:
        file.write("x")
    assert s3_bodies.open_spool(str(tmp_path)) == path
    assert os.listdir(path) == []
