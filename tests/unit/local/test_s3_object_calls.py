"""Calls about objects."""

import hashlib

import pytest

from tests.support.account import chunked
from vmnest.aws import signing

VERSIONING = b"<VersioningConfiguration><Status>%b</Status></VersioningConfiguration>"
DATA = b"0123456789"
ETAG = f'"{hashlib.md5(DATA).hexdigest()}"'


@pytest.fixture
def full(s3):
    s3.put("k", DATA)
    return s3


class TestPut:
    def test_the_answer_has_etag_checksum_and_encryption(self, s3):
        answer = s3.put("k", b"abc", headers=[("x-amz-checksum-crc32", "NSRBwg==")])
        assert answer.fields["etag"] == '"900150983cd24fb0d6963f7d28e17f72"'
        assert answer.fields["x-amz-checksum-crc32"] == "NSRBwg=="
        assert answer.fields["x-amz-checksum-type"] == "FULL_OBJECT"
        assert answer.fields["x-amz-server-side-encryption"] == "AES256"
        assert "x-amz-version-id" not in answer.fields

    def test_nothing_is_put_that_is_not_what_was_signed(self, s3):
        answer = s3.ask("PUT", "/bucket/k", b"abc", payload="0" * 64)
        assert (answer.status, answer.code) == (400, "XAmzContentSHA256Mismatch")
        assert s3.ask("GET", "/bucket/k").code == "NoSuchKey"

    @pytest.mark.parametrize("payload", [signing.UNSIGNED_PAYLOAD, signing.STREAMING_UNSIGNED_PAYLOAD])
    def test_bodies_may_be_unsigned(self, s3, payload):
        body, headers = DATA, []
        if payload == signing.STREAMING_UNSIGNED_PAYLOAD:
            body, headers = chunked(DATA[:3], DATA[3:]), [("x-amz-decoded-content-length", "10")]
        s3.put("k", body, payload=payload, headers=headers)
        assert s3.ask("GET", "/bucket/k").body == DATA

    def test_it_must_be_new_where_that_is_wanted(self, full):
        answer = full.ask("PUT", "/bucket/k", b"x", headers=[("If-None-Match", "*")])
        assert (answer.status, answer.code) == (412, "PreconditionFailed")
        assert not full.incoming.is_complete  # refused before the body came
        full.put("new", headers=[("If-None-Match", "*")])

    def test_a_bucket_that_is_not_there_is_said_before_the_body_comes(self, s3):
        assert s3.ask("PUT", "/nothing/k", b"x").code == "NoSuchBucket"
        assert not s3.incoming.is_complete

    def test_an_object_can_be_empty(self, s3):
        s3.put("k", b"")
        assert s3.ask("GET", "/bucket/k").body == b""


class TestGet:
    def test_all_of_it(self, full):
        answer = full.ask("GET", "/bucket/k")
        assert (answer.status, answer.body, answer.fields["etag"]) == (200, DATA, ETAG)
        assert answer.fields["content-type"] == "binary/octet-stream"
        assert answer.fields["accept-ranges"] == "bytes"
        assert answer.fields["last-modified"] == "Fri, 15 Jan 2027 08:00:00 GMT"

    @pytest.mark.parametrize(
        ("text", "body", "told"),
        [
            ("bytes=2-4", b"234", "bytes 2-4/10"),
            ("bytes=8-", b"89", "bytes 8-9/10"),
            ("bytes=8-100", b"89", "bytes 8-9/10"),
            ("bytes=-3", b"789", "bytes 7-9/10"),
            ("bytes=-30", DATA, "bytes 0-9/10"),
        ],
    )
    def test_a_range_of_it(self, full, text, body, told):
        answer = full.ask("GET", "/bucket/k", headers=[("Range", text)])
        assert (answer.status, answer.body, answer.fields["content-range"]) == (206, body, told)

    @pytest.mark.parametrize("text", ["bytes=a-b", "bytes=4-2", "bytes=0-1,3-4", "bytes=-", "lines=1-2"])
    def test_what_is_no_range_is_all_of_it(self, full, text):
        assert full.ask("GET", "/bucket/k", headers=[("Range", text)]).status == 200

    @pytest.mark.parametrize("text", ["bytes=10-", "bytes=-0"])
    def test_a_range_beyond_it(self, full, text):
        answer = full.ask("GET", "/bucket/k", headers=[("Range", text)])
        assert (answer.status, answer.code, answer.xml.value("ActualObjectSize")) == (416, "InvalidRange", "10")

    def test_its_checksum_where_that_is_asked_for_all_of_it(self, s3):
        s3.put("k", b"abc", headers=[("x-amz-checksum-crc32", "NSRBwg==")])
        asking = ("x-amz-checksum-mode", "ENABLED")
        name = "x-amz-checksum-crc32"
        assert s3.ask("GET", "/bucket/k", headers=[asking]).fields[name] == "NSRBwg=="
        assert name not in s3.ask("GET", "/bucket/k").fields
        assert name not in s3.ask("GET", "/bucket/k", headers=[asking, ("Range", "bytes=0-1")]).fields

    def test_header_fields_can_be_replaced_in_the_answer(self, full):
        target = "/bucket/k?response-content-type=a/b&response-content-disposition=attachment%3B%20x"
        answer = full.ask("GET", target)
        assert answer.fields["content-type"] == "a/b"
        assert answer.fields["content-disposition"] == "attachment; x"
        bad = full.ask("GET", "/bucket/k?response-content-type=a%0d%0ab")
        assert bad.code == "InvalidArgument"

    @pytest.mark.parametrize(
        ("header", "status"),
        [
            (("If-Match", ETAG), 200),
            (("If-Match", '"x"'), 412),
            (("If-Match", "*"), 200),
            (("If-None-Match", ETAG), 304),
            (("If-None-Match", f'"x", W/{ETAG}'), 304),
            (("If-None-Match", '"x"'), 200),
            (("If-Modified-Since", "Fri, 15 Jan 2027 08:00:00 GMT"), 304),
            (("If-Modified-Since", "Fri, 15 Jan 2027 07:00:00 GMT"), 200),
            (("If-Unmodified-Since", "Fri, 15 Jan 2027 08:00:00 GMT"), 200),
            (("If-Unmodified-Since", "Fri, 15 Jan 2027 07:00:00 GMT"), 412),
            (("If-Modified-Since", "soon"), 200),
        ],
    )
    def test_conditions(self, full, header, status):
        assert full.ask("GET", "/bucket/k", headers=[header]).status == status

    def test_head_answers_the_same(self, full):
        got, head = full.ask("GET", "/bucket/k"), full.ask("HEAD", "/bucket/k")
        got.fields.pop("x-amz-request-id")
        head.fields.pop("x-amz-request-id")
        assert (head.status, head.fields) == (got.status, got.fields)

    def test_what_is_not_there(self, full):
        assert full.ask("GET", "/bucket/none").code == "NoSuchKey"
        assert full.ask("GET", "/bucket/k?versionId=x").code == "NoSuchVersion"
        assert full.ask("GET", "/bucket/k?versionId=").code == "InvalidArgument"
        assert full.ask("GET", "/bucket/k?partNumber=1").code == "NotImplemented"

    def test_a_file_is_closed_where_the_answer_fails(self, full):
        # ResourceWarning is an error here.
        for _ in range(3):
            full.ask("GET", "/bucket/k", headers=[("Range", "bytes=10-")])
            full.ask("GET", "/bucket/k", headers=[("If-Match", "x")])


class TestVersions:
    @pytest.fixture
    def full(self, s3):
        s3.ask("PUT", "/bucket?versioning", VERSIONING % b"Enabled")
        self.first = s3.put("k", b"1").fields["x-amz-version-id"]
        self.second = s3.put("k", b"2").fields["x-amz-version-id"]
        return s3

    def test_each_can_be_had_by_its_id(self, full):
        assert full.ask("GET", "/bucket/k").fields["x-amz-version-id"] == self.second
        assert full.ask("GET", f"/bucket/k?versionId={self.first}").body == b"1"

    def test_a_delete_leaves_a_marker_and_says_so(self, full):
        gone = full.ask("DELETE", "/bucket/k")
        marker = gone.fields["x-amz-version-id"]
        assert (gone.status, gone.fields["x-amz-delete-marker"]) == (204, "true")
        missing = full.ask("GET", "/bucket/k")
        assert (missing.status, missing.fields["x-amz-delete-marker"]) == (404, "true")
        assert missing.fields["x-amz-version-id"] == marker
        named = full.ask("GET", f"/bucket/k?versionId={marker}")
        assert (named.status, named.code) == (405, "MethodNotAllowed")

    def test_a_version_is_removed_by_its_id(self, full):
        gone = full.ask("DELETE", f"/bucket/k?versionId={self.second}")
        assert (gone.status, gone.fields["x-amz-version-id"]) == (204, self.second)
        assert "x-amz-delete-marker" not in gone.fields
        assert full.ask("GET", "/bucket/k").body == b"1"


class TestDelete:
    def test_what_is_not_there_is_fine(self, s3):
        assert s3.ask("DELETE", "/bucket/none").status == 204
        assert s3.ask("DELETE", "/nothing/none").code == "NoSuchBucket"

    def test_many_at_once(self, full):
        body = b"<Delete><Object><Key>k</Key></Object><Object><Key>none</Key></Object></Delete>"
        answer = full.ask("POST", "/bucket?delete", body)
        assert answer.texts("Deleted", "Key") == ["k", "none"]
        assert full.ask("GET", "/bucket/k").status == 404

    def test_many_quietly(self, full):
        body = b"<Delete><Quiet>true</Quiet><Object><Key>k</Key></Object></Delete>"
        assert full.ask("POST", "/bucket?delete", body).xml.children == []

    def test_markers_are_told(self, full):
        full.ask("PUT", "/bucket?versioning", VERSIONING % b"Enabled")
        answer = full.ask("POST", "/bucket?delete", b"<Delete><Object><Key>k</Key></Object></Delete>")
        assert answer.texts("Deleted", "DeleteMarker") == ["true"]
        (marker,) = answer.texts("Deleted", "DeleteMarkerVersionId")
        body = f"<Delete><Object><Key>k</Key><VersionId>{marker}</VersionId></Object></Delete>".encode()
        assert full.ask("POST", "/bucket?delete", body).texts("Deleted", "VersionId") == [marker]
        assert full.ask("GET", "/bucket/k").body == DATA

    def test_conditions_are_refused_for_that_object(self, full):
        body = b"<Delete><Object><Key>k</Key><ETag>x</ETag></Object></Delete>"
        assert full.ask("POST", "/bucket?delete", body).texts("Error", "Code") == ["NotImplemented"]
        assert full.ask("GET", "/bucket/k").status == 200

    @pytest.mark.parametrize("inner", [b"", b"<Object/>" * 1001, b"<Object></Object>"], ids=["none", "many", "no key"])
    def test_they_are_named_and_not_too_many(self, s3, inner):
        assert s3.ask("POST", "/bucket?delete", b"<Delete>%b</Delete>" % inner).code == "MalformedXML"
