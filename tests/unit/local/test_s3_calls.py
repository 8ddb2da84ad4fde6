"""What a request of S3 says in its line and header fields."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import faults, s3_calls


def refused(act, *args):
    with pytest.raises(faults.Fault) as caught:
        act(*args)
    return caught.value


@pytest.mark.parametrize(
    ("target", "parsed"),
    [
        ("/", ("", "", {})),
        ("/b", ("b", "", {})),
        ("/b/", ("b", "", {})),
        ("/b//k", ("b", "/k", {})),
        ("/b/a//../k%2F%20+", ("b", "a//../k/ +", {})),
        ("/b?list-type=2&prefix=a%26&acl", ("b", "", {"list-type": "2", "prefix": "a&", "acl": ""})),
        ("/b/k?versionId=a=b", ("b", "k", {"versionId": "a=b"})),
    ],
)
def test_bucket_key_and_parameters(target, parsed):
    assert s3_calls.parse_target(target) == parsed


@pytest.mark.parametrize("target", ["*", "http://h/", "/b/%ff", "/b?x=%ff"])
def test_what_cannot_be_read_is_refused(target):
    assert refused(s3_calls.parse_target, target).error_type == "InvalidURI"


def test_a_key_has_a_longest():
    assert s3_calls.parse_target("/b/" + "é" * 512)[1] == "é" * 512
    assert refused(s3_calls.parse_target, "/b/" + "%C3%A9" * 512 + "x").error_type == "KeyTooLongError"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_any_key_comes_through(key):
    assert s3_calls.parse_target("/b/" + quote(key, safe="/~")) == ("b", key, {})


def test_another_owner_is_expected_in_vain():
    s3_calls.check_owner([("x-amz-expected-bucket-owner", "000000000000")])
    fault = refused(s3_calls.check_owner, [("x-amz-expected-bucket-owner", "111122223333")])
    assert fault.status == 403


class TestCall:
    """Through requests: see ``tests.support.account``."""

    def test_content_fields_and_metadata_are_kept(self, s3):
        headers = [
            ("Content-Type", "a/b"),
            ("Content-Encoding", "aws-chunked, gzip"),
            ("x-amz-meta-A", "1"),
            ("X-Amz-Meta-a", "2"),
        ]
        s3.put("k", headers=headers)
        found = s3.ask("HEAD", "/bucket/k").fields
        assert (found["content-type"], found["content-encoding"], found["x-amz-meta-a"]) == ("a/b", "gzip", "1,2")

    def test_too_much_metadata_is_refused(self, s3):
        answer = s3.ask("PUT", "/bucket/k", b"x", headers=[("x-amz-meta-a", "x" * 2048)])
        assert answer.code == "MetadataTooLarge"

    @pytest.mark.parametrize(
        "header",
        [
            ("x-amz-copy-source", "b/k"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-server-side-encryption-customer-key", "x"),
            ("x-amz-tagging", "a=b"),
            ("x-amz-acl", "public-read"),
            ("x-amz-storage-class", "GLACIER"),
            ("If-Match", "x"),
            ("If-None-Match", "x"),
        ],
    )
    def test_what_would_be_forgotten_is_refused(self, s3, header):
        answer = s3.ask("PUT", "/bucket/k", b"x", headers=[header])
        assert (answer.status, answer.code) == (501, "NotImplemented")

    def test_what_holds_anyway_is_taken(self, s3):
        s3.put(
            "k",
            headers=[
                ("x-amz-acl", "bucket-owner-full-control"),
                ("x-amz-server-side-encryption", "AES256"),
                ("x-amz-storage-class", "STANDARD"),
            ],
        )

    @pytest.mark.parametrize("text", ["x", "-1", "1.5", "9" * 20])
    def test_a_number_must_be_one(self, s3, text):
        assert s3.ask("GET", f"/bucket?max-keys={text}").code == "InvalidArgument"

    @pytest.mark.parametrize("data", [b"<Other/>", b"<Delete", b""])
    def test_a_document_must_be_of_its_kind(self, s3, data):
        assert s3.ask("POST", "/bucket?delete", data).code == "MalformedXML"
