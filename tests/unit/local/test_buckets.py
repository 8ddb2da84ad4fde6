"""The store of buckets and objects."""

import dataclasses
import os

import pytest

from vmnest import errors
from vmnest.local import buckets, faults, s3_records
from vmnest.local.s3_records import Content


@pytest.fixture
def store(tmp_path, fake_clock):
    store = buckets.Store(str(tmp_path), clock=fake_clock)
    store.create("one", region="us-east-1", settings={})
    return store


def put(store, tmp_path, key="k", data=b"x", **options):
    path = tmp_path / "incoming"
    path.write_bytes(data)
    return store.put("one", key, path=str(path), etag="e", content=Content(), **options)


def read(store, key="k", version_id=None):
    with store.open_object("one", key, version_id) as file:
        return file.read()


def versioned(store, status="Enabled"):
    store.change("one", lambda bucket: dataclasses.replace(bucket, versioning=status))


def error_type(act, *args, **options):
    with pytest.raises(faults.Fault) as caught:
        act(*args, **options)
    return caught.value.error_type


def files(tmp_path):
    return os.listdir(tmp_path / "account" / "s3" / "one" / "data")


class TestBuckets:
    def test_they_are_made_listed_and_removed(self, store):
        store.create("a-one", region="eu-west-1", settings={"x": "y"})
        assert [bucket.name for bucket in store.all()] == ["a-one", "one"]
        assert store.get("a-one").settings == {"x": "y"}
        store.delete("a-one")
        assert error_type(store.get, "a-one") == faults.S3_NO_SUCH_BUCKET

    def test_one_that_is_there_is_not_made_again(self, store):
        assert error_type(store.create, "one", region="us-east-1", settings={}) == "BucketAlreadyOwnedByYou"

    def test_one_with_objects_or_markers_is_not_removed(self, store, tmp_path):
        put(store, tmp_path)
        assert error_type(store.delete, "one") == "BucketNotEmpty"
        versioned(store)
        store.remove("one", "k", s3_records.NULL_VERSION)
        store.remove("one", "k")
        assert error_type(store.delete, "one") == "BucketNotEmpty"

    def test_what_was_left_of_an_old_one_is_not_in_a_new_one(self, store, tmp_path, fake_clock):
        put(store, tmp_path)
        os.unlink(tmp_path / "account" / "s3" / "one" / "bucket.json")  # a deletion that was cut short
        again = buckets.Store(str(tmp_path), clock=fake_clock)
        again.create("one", region="us-east-1", settings={})
        assert buckets.Store(str(tmp_path), clock=fake_clock).entries("one") == []


class TestObjects:
    @pytest.mark.parametrize("key", ["a//b", "../../x", "/", "é\x01", "x" * 1024, "%2F"])
    def test_any_key_is_a_key(self, store, tmp_path, fake_clock, key):
        put(store, tmp_path, key, b"data")
        again = buckets.Store(str(tmp_path), clock=fake_clock)
        assert [entry.key for entry in again.entries("one")] == [key]
        assert read(again, key) == b"data"

    def test_what_is_not_there_is_a_fault_of_its_kind(self, store):
        assert error_type(store.open_object, "one", "k") == faults.S3_NO_SUCH_KEY
        assert error_type(store.open_object, "two", "k") == faults.S3_NO_SUCH_BUCKET
        assert error_type(store.find, "one", "k", "v") == "NoSuchVersion"

    def test_without_versions_the_last_one_wins_and_the_bytes_of_the_first_go(self, store, tmp_path):
        put(store, tmp_path, data=b"1")
        put(store, tmp_path, data=b"2")
        assert read(store) == b"2"
        assert len(files(tmp_path)) == 1
        assert store.remove("one", "k").version_id == "null"
        assert files(tmp_path) == []
        assert store.remove("one", "k") is None

    def test_what_is_open_stays_readable(self, store, tmp_path):
        put(store, tmp_path, data=b"1")
        with store.open_object("one", "k") as file:
            store.remove("one", "k")
            assert file.read() == b"1"

    def test_with_versions_each_is_kept_until_it_is_named(self, store, tmp_path):
        put(store, tmp_path, data=b"0")
        versioned(store)
        first = put(store, tmp_path, data=b"1")
        marker = store.remove("one", "k")
        assert marker.is_marker
        assert error_type(store.open_object, "one", "k") == faults.S3_NO_SUCH_KEY
        assert error_type(store.open_object, "one", "k", marker.version_id) == faults.S3_NO_SUCH_KEY
        assert read(store, version_id=first.version_id) == b"1"
        assert read(store, version_id="null") == b"0"
        store.remove("one", "k", marker.version_id)
        assert read(store) == b"1"

    def test_where_versions_are_suspended_the_one_without_an_id_is_replaced(self, store, tmp_path):
        versioned(store)
        put(store, tmp_path, data=b"1")
        versioned(store, "Suspended")
        put(store, tmp_path, data=b"2")
        put(store, tmp_path, data=b"3")
        assert store.remove("one", "k").version_id == "null"
        ids = [version.version_id for version in store.entries("one")[0].versions]
        assert (len(ids), ids[0]) == (2, "null")

    def test_only_a_new_one_is_put_if_that_is_wanted(self, store, tmp_path):
        put(store, tmp_path, only_new=True)
        assert error_type(put, store, tmp_path, only_new=True) == "PreconditionFailed"
        versioned(store)
        store.remove("one", "k")
        put(store, tmp_path, only_new=True)

    def test_keys_are_in_the_order_of_their_bytes(self, store, tmp_path):
        for key in ("b", "é", "a", "B", "\U0001f600", "￿"):
            put(store, tmp_path, key)
        assert [entry.key for entry in store.entries("one")] == ["B", "a", "b", "é", "￿", "\U0001f600"]

    def test_what_cannot_be_noted_is_not_there(self, store, tmp_path):
        keys = tmp_path / "account" / "s3" / "one" / "keys"
        keys.rmdir()
        with pytest.raises(errors.LocalCloudError):
            put(store, tmp_path)
        assert files(tmp_path) == []
        keys.mkdir()
        assert error_type(store.find, "one", "k") == faults.S3_NO_SUCH_KEY


class TestFolder:
    def test_bytes_without_a_note_are_removed_and_a_note_without_bytes_is_dropped(self, store, tmp_path, fake_clock):
        put(store, tmp_path)
        lost = put(store, tmp_path, "lost")
        data = tmp_path / "account" / "s3" / "one" / "data"
        (data / lost.data).unlink()
        (data / "orphan").touch()
        again = buckets.Store(str(tmp_path), clock=fake_clock)
        assert [entry.key for entry in again.entries("one")] == ["k"]
        assert len(files(tmp_path)) == 1

    def test_a_damaged_note_is_kept_aside_and_the_rest_goes_on(self, store, tmp_path, fake_clock):
        put(store, tmp_path)
        put(store, tmp_path, "other")
        keys = tmp_path / "account" / "s3" / "one" / "keys"
        (keys / sorted(os.listdir(keys))[0]).write_text("{")
        again = buckets.Store(str(tmp_path), clock=fake_clock)
        assert len(again.entries("one")) == 1
        assert any(name.endswith(".bad") for name in os.listdir(keys))

    def test_what_is_no_bucket_is_passed_over(self, store, tmp_path, fake_clock):
        (tmp_path / "account" / "s3" / "file").touch()
        (tmp_path / "account" / "s3" / "empty").mkdir()
        assert [bucket.name for bucket in buckets.Store(str(tmp_path), clock=fake_clock).all()] == ["one"]
