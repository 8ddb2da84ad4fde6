"""What the local S3 keeps, as JSON."""

import json

import pytest

from vmnest.local import s3_records
from vmnest.local.s3_records import Bucket, Content, Entry, Version


def test_an_entry_comes_back_as_it_was():
    content = Content({"content-type": "a/b"}, {"x": "é"}, {"crc32": "AAAA"}, s3_records.COMPOSITE)
    entry = Entry(
        "a//é",
        (
            Version("v2", modified_at=2.5, is_marker=True),
            Version("null", modified_at=1.0, data="d", size=3, etag="e", content=content),
        ),
    )
    assert s3_records.parse_entry(json.loads(json.dumps(entry.to_wire()))) == entry


def test_a_bucket_comes_back_as_it_was():
    bucket = Bucket("b", created_at=1.0, region="eu-west-1", versioning="Enabled", settings={"policy": "{}"})
    assert s3_records.parse_bucket(json.loads(json.dumps(bucket.to_wire()))) == bucket


def test_the_current_object_is_the_newest_version_unless_that_is_a_marker():
    old, marker = Version("1", modified_at=1.0), Version("2", modified_at=2.0, is_marker=True)
    assert Entry("k", (old,)).current == old
    assert Entry("k", (marker, old)).current is None


@pytest.mark.parametrize("data", ["../x", "a/b", ".."])
def test_bytes_elsewhere_are_refused(data):
    wire = Entry("k", (Version("1", modified_at=1.0, data="d"),)).to_wire()
    wire["versions"][0]["data"] = data
    with pytest.raises(ValueError, match="elsewhere"):
        s3_records.parse_entry(wire)


@pytest.mark.parametrize(
    "wire", [[], {}, {"key": "k", "versions": []}, {"key": 1, "versions": [{}]}, {"versions": [1]}]
)
def test_what_makes_no_sense_is_refused(wire):
    with pytest.raises(ValueError):
        s3_records.parse_entry(wire)


def test_version_ids_are_as_long_as_s3s_and_never_the_same():
    ids = {s3_records.new_version_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(each) for each in ids} == {32}
