"""Multipart uploads, as they lie on disk."""

import base64
import hashlib
import os
import zlib

import pytest

from vmnest.local import buckets, faults, s3_bodies, s3_records, s3_uploads

BIG = b"x" * s3_uploads.MIN_PART_BYTES
X_CRC32 = base64.b64encode(zlib.crc32(b"x").to_bytes(4, "big")).decode()
OF_X_CRC32 = base64.b64encode(zlib.crc32(zlib.crc32(b"x").to_bytes(4, "big")).to_bytes(4, "big")).decode() + "-1"


@pytest.fixture
def store(tmp_path, fake_clock):
    store = buckets.Store(str(tmp_path), clock=fake_clock)
    store.create("one", region="us-east-1", settings={})
    return store


@pytest.fixture
def uploads(store, fake_clock):
    return s3_uploads.Uploads(store, clock=fake_clock)


@pytest.fixture
def spool(tmp_path):
    return s3_bodies.open_spool(str(tmp_path))


def begin(uploads, key="k", **options):
    content = s3_records.Content({"content-type": "a/b"}, {"m": "1"})
    return uploads.begin("one", key, content=content, **{"algorithm": "", "checksum_type": "COMPOSITE", **options})


class Came:
    """A body that came."""

    def __init__(self, spool, data, checksums=None):
        self.path = os.path.join(spool, "came")
        with open(self.path, "wb") as file:
            file.write(data)
        self.facts = s3_bodies.Facts(len(data), hashlib.md5(data).hexdigest(), checksums or {})


def put(uploads, upload, number, data, spool, **options):
    return uploads.put_part("one", "k", upload.upload_id, number=number, spooled=Came(spool, data, **options))


def wanted(*parts):
    return [s3_uploads.Wanted(part.number, part.etag, {}) for part in parts]


def complete(uploads, upload, parts, spool, **options):
    return uploads.complete("one", "k", upload.upload_id, wanted=parts, spool=spool, **options)


def refused(act, *args, **options):
    with pytest.raises(faults.Fault) as caught:
        act(*args, **options)
    return caught.value.error_type


def test_parts_become_one_object_and_nothing_is_left(uploads, store, spool, tmp_path):
    upload = begin(uploads)
    parts = [put(uploads, upload, number, data, spool) for number, data in ((1, BIG), (7, b"end"))]
    version = complete(uploads, upload, wanted(*parts), spool)
    with store.open_object("one", "k") as file:
        assert file.read() == BIG + b"end"
    assert version.etag.endswith("-2")
    assert version.content.metadata == {"m": "1"}
    assert uploads.all("one") == []
    assert os.listdir(spool) == []
    assert os.listdir(tmp_path / "account" / "s3" / "one" / "uploads") == []


def test_an_upload_that_cannot_be_noted_leaves_nothing(uploads, tmp_path):
    content = s3_records.Content(metadata={"m": b"no text"})
    with pytest.raises(TypeError):
        uploads.begin("one", "k", content=content, algorithm="", checksum_type="COMPOSITE")
    assert not list(tmp_path.glob("account/s3/one/uploads/*"))


def test_a_part_that_comes_again_replaces_the_first(uploads, spool, tmp_path):
    upload = begin(uploads)
    put(uploads, upload, 1, b"old", spool)
    put(uploads, upload, 1, b"newer", spool)
    assert [part.size for part in uploads.parts("one", "k", upload.upload_id)] == [5]
    folder = tmp_path / "account" / "s3" / "one" / "uploads" / upload.upload_id
    assert len([name for name in os.listdir(folder) if name.endswith(".bytes")]) == 1


def test_the_next_daemon_goes_on(uploads, tmp_path, spool, fake_clock):
    upload = begin(uploads)
    part = put(uploads, upload, 1, b"x", spool)
    again = s3_uploads.Uploads(buckets.Store(str(tmp_path), clock=fake_clock), clock=fake_clock)
    assert again.all("one") == [upload]
    assert again.parts("one", "k", upload.upload_id) == [part]


def test_what_was_given_up_is_gone(uploads, spool):
    upload = begin(uploads)
    put(uploads, upload, 1, b"x", spool)
    uploads.abort("one", "k", upload.upload_id)
    assert refused(uploads.abort, "one", "k", upload.upload_id) == "NoSuchUpload"


@pytest.mark.parametrize("upload_id", ["", "x", "../../keys", "a" * 40])
def test_an_id_of_nobody_is_no_upload(uploads, upload_id):
    assert refused(uploads.get, "one", "k", upload_id) == "NoSuchUpload"


def test_an_upload_is_to_one_key(uploads):
    assert refused(uploads.get, "one", "other", begin(uploads).upload_id) == "NoSuchUpload"
    assert refused(uploads.get, "two", "k", begin(uploads).upload_id) == "NoSuchBucket"


def test_parts_are_held_to_what_is_said_of_them(uploads, spool):
    upload = begin(uploads)
    one, two = (put(uploads, upload, number, BIG, spool) for number in (1, 2))
    last = put(uploads, upload, 3, b"x", spool, checksums={"crc32": "AAAA"})
    assert refused(complete, uploads, upload, wanted(two, one), spool) == "InvalidPartOrder"
    assert refused(complete, uploads, upload, wanted(one, one), spool) == "InvalidPartOrder"
    for bad in (
        s3_uploads.Wanted(9, "x", {}),
        s3_uploads.Wanted(3, "x", {}),
        s3_uploads.Wanted(3, last.etag, {"crc32": "B"}),
    ):
        assert refused(complete, uploads, upload, [bad], spool) == "InvalidPart"
    assert refused(
        complete, uploads, upload, wanted(last)[:0] + wanted(one, last), spool, expected=s3_uploads.Expected("5")
    ) == ("InvalidRequest")
    complete(uploads, upload, wanted(one, last), spool, expected=s3_uploads.Expected(str(len(BIG) + 1)))


def test_only_the_last_part_may_be_small(uploads, spool):
    upload = begin(uploads)
    parts = [put(uploads, upload, number, b"x", spool) for number in (1, 2)]
    assert refused(complete, uploads, upload, wanted(*parts), spool) == "EntityTooSmall"
    assert uploads.all("one") == [upload]


def test_an_object_that_is_there_can_forbid_it(uploads, spool):
    for upload in (first := begin(uploads), second := begin(uploads)):
        put(uploads, upload, 1, b"x", spool)
    part = uploads.parts("one", "k", first.upload_id)[0]
    complete(uploads, first, wanted(part), spool, only_new=True)
    assert refused(complete, uploads, second, wanted(part), spool, only_new=True) == "PreconditionFailed"
    assert uploads.all("one") == [second]
    assert os.listdir(spool) == []


@pytest.mark.parametrize(
    ("algorithm", "kind", "said", "expected"),
    [
        ("crc32", "FULL_OBJECT", {}, X_CRC32),
        ("crc32", "FULL_OBJECT", {"crc32": X_CRC32}, X_CRC32),
        ("crc64nvme", "FULL_OBJECT", {"crc64nvme": "what was said"}, "what was said"),
        ("crc64nvme", "FULL_OBJECT", {}, None),
        ("crc32", "COMPOSITE", {}, OF_X_CRC32),
    ],
)
def test_the_checksum_of_the_object(uploads, spool, algorithm, kind, said, expected):
    upload = begin(uploads, algorithm=algorithm, checksum_type=kind)
    part = put(uploads, upload, 1, b"x", spool, checksums={algorithm: X_CRC32})
    version = complete(uploads, upload, wanted(part), spool, expected=s3_uploads.Expected(None, said))
    assert version.content.checksums == ({} if expected is None else {algorithm: expected})


def test_a_checksum_that_is_not_the_objects_is_refused(uploads, spool):
    upload = begin(uploads, algorithm="crc32", checksum_type="FULL_OBJECT")
    part = put(uploads, upload, 1, b"x", spool)
    wrong = s3_uploads.Expected(None, {"crc32": "AAAAAA=="})
    assert refused(complete, uploads, upload, wanted(part), spool, expected=wrong) == "BadDigest"
    assert uploads.all("one") == [upload]


def test_a_bucket_has_so_many_at_once(uploads, monkeypatch):
    monkeypatch.setattr(s3_uploads, "MAX_UPLOADS", 1)
    begin(uploads)
    assert refused(begin, uploads) == "TooManyUploads"


def test_a_damaged_upload_is_none(uploads, tmp_path):
    upload = begin(uploads)
    note = tmp_path / "account" / "s3" / "one" / "uploads" / upload.upload_id / "upload.json"
    note.write_text("{")
    assert uploads.all("one") == []
    assert note.with_name("upload.json.bad").exists()
