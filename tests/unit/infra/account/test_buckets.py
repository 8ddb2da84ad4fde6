"""A bucket is told from somebody else's, and goes with its objects, versions and unfinished uploads."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.memory_account import MemoryAccount
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra.account.buckets import Bucket, Buckets


@pytest.fixture
def memory() -> MemoryAccount:
    return MemoryAccount()


@pytest.fixture
def buckets(memory: MemoryAccount, fake_clock: FakeClock) -> Buckets:
    s3: Any = memory.s3
    return Buckets(s3, deadline=Deadline(600, clock=fake_clock), clock=fake_clock)


def test_a_new_bucket_has_no_settings_until_they_are_made(buckets: Buckets) -> None:
    assert buckets.create("b") == Bucket("b", region="us-east-1")
    buckets.tag("b", {"a": "1"})
    buckets.block_public("b")
    buckets.own_objects("b")
    buckets.encrypt("b")
    buckets.keep_versions("b")
    buckets.set_policy("b", {"Statement": []})
    assert buckets.find("b", owner="111122223333") == Bucket(
        "b",
        region="us-east-1",
        tags={"a": "1"},
        is_private=True,
        ownership="BucketOwnerEnforced",
        encryption="AES256",
        versioning="Enabled",
        policy={"Statement": []},
    )


def test_there_is_none_of_that_name(buckets: Buckets) -> None:
    assert buckets.find("b") is None
    assert buckets.locate("b") is None


def test_a_bucket_of_somebody_else_is_said_to_be_foreign(memory: MemoryAccount, buckets: Buckets) -> None:
    memory.s3.foreign.add("b")
    assert buckets.find("b") == buckets.locate("b") == Bucket("b", is_foreign=True)
    assert buckets.create("b") == Bucket("b", is_foreign=True)


def test_of_a_bucket_to_reuse_only_the_place_is_looked_at(memory: MemoryAccount, buckets: Buckets) -> None:
    memory.s3.make("b", region="eu-west-1", tags={"a": "1"})
    assert buckets.locate("b") == Bucket("b", region="eu-west-1")
    assert memory.calls == ["s3.HeadBucket"]


def test_objects_come_and_go(memory: MemoryAccount, buckets: Buckets) -> None:
    memory.s3.make("b")
    assert not buckets.has_object("b", "k")
    told: list[tuple[int, int]] = []
    buckets.upload("b", "k", io.BytesIO(b"data"), size=4, on_progress=lambda sent, size: told.append((sent, size)))
    assert buckets.has_object("b", "k")
    assert told == [(4, 4)]
    memory.s3.buckets["b"]["objects"]["k2"] = b"another that begins so"
    buckets.delete_object("b", "k")
    assert list(memory.s3.buckets["b"]["objects"]) == ["k2"]
    buckets.delete_object("b", "k")


def test_an_object_goes_with_its_unfinished_uploads(memory: MemoryAccount, buckets: Buckets) -> None:
    buckets.create("b")
    uploads = memory.s3.buckets["b"]["uploads"]
    uploads.update({"1": "k", "2": "k", "3": "k", "theirs": "k2"})
    buckets.delete_object("b", "k")
    assert uploads == {"theirs": "k2"}


def test_who_may_not_list_uploads_deletes_the_object_all_the_same(memory: MemoryAccount, buckets: Buckets) -> None:
    def refuse(**_params: object) -> None:
        raise errors.AccessDeniedError("no", operation="ListMultipartUploads", status=403)

    buckets.create("b")
    memory.s3.buckets["b"]["objects"]["k"] = b""
    memory.s3.ListMultipartUploads = refuse  # type: ignore[method-assign,assignment]
    buckets.delete_object("b", "k")
    assert not buckets.has_object("b", "k")


def test_a_bucket_is_deleted_with_its_objects(memory: MemoryAccount, buckets: Buckets) -> None:
    memory.s3.make("b")
    memory.s3.buckets["b"]["objects"]["k"] = b"x"
    buckets.delete("b")
    assert memory.inventory() == {}
    buckets.delete("b")
    buckets.delete_object("b", "k")


def test_a_fault_while_one_is_emptied_is_outlasted(memory: MemoryAccount, buckets: Buckets) -> None:
    memory.s3.make("b")
    failures = [errors.ServiceFaultError("not now", operation="DeleteObjects", status=500)] * 2

    def fail(service: str, operation: str, is_done: bool) -> None:
        if operation == "DeleteObjects" and failures:
            raise failures.pop()

    memory.on_call = fail
    buckets.delete("b")
    assert memory.inventory() == {}


def test_a_bucket_that_was_just_made_may_not_take_its_settings_at_once(memory: MemoryAccount, buckets: Buckets) -> None:
    memory.s3.make("b")
    failures = [
        errors.ConflictError("wait", operation="PutBucketVersioning", status=409, error_type="OperationAborted")
    ]

    def fail(service: str, operation: str, is_done: bool) -> None:
        if failures:
            raise failures.pop()

    memory.on_call = fail
    buckets.keep_versions("b")
    assert memory.s3.buckets["b"]["settings"] == {"Versioning": {"Status": "Enabled"}}


def test_of_a_bucket_that_may_not_be_listed_it_is_not_known_what_is_there(
    memory: MemoryAccount, buckets: Buckets
) -> None:
    def deny(service: str, operation: str, is_done: bool) -> None:
        raise errors.AccessDeniedError("no", operation=operation, status=403)

    memory.on_call = deny
    assert not buckets.has_object("b", "k")
