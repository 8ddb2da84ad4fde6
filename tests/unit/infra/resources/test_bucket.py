"""The bucket is made private and stays so; one that is not ours is not touched."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.infra import Bench
from vmnest import errors
from vmnest.infra import naming, ownership
from vmnest.infra.state import Resource, StackState
from vmnest.infra.steps import Step


def step(bench: Bench) -> Step:
    return next(step for step in bench.preview().steps if step.resource == "bucket")


def name(bench: Bench) -> str:
    return naming.bucket(bench.stack, account_id=bench.account.id, region=bench.account.region)


def reuse(bench: Bench, bucket: str) -> None:
    bench.change(bucket=replace(bench.stack.bucket, name=bucket))


def test_it_is_private_encrypted_versioned_and_takes_tls_only(bench: Bench) -> None:
    bench.up()
    settings = bench.account.s3.buckets[name(bench)]["settings"]
    assert all(settings["Block"].values())
    assert settings["Ownership"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert settings["Versioning"] == {"Status": "Enabled"}
    assert settings["Encryption"]["Rules"][0]["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    (statement,) = json.loads(settings["Policy"])["Statement"]
    assert statement["Resource"] == [f"arn:aws:s3:::{name(bench)}", f"arn:aws:s3:::{name(bench)}/*"]


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("Block", "public access"),
        ("Ownership", "ownership"),
        ("Encryption", "encryption"),
        ("Versioning", "versioning"),
        ("Policy", "policy"),
        ("Tagging", "tags"),
    ],
)
def test_a_setting_that_was_taken_away_is_made_again(bench: Bench, setting: str, field: str) -> None:
    bench.up()
    del bench.account.s3.buckets[name(bench)]["settings"][setting]
    found = step(bench)
    assert (found.action, [change.field for change in found.changes]) == ("update", [field])
    bench.up()
    assert step(bench).action == "nothing"


def test_a_key_of_the_users_own_is_as_good(bench: Bench) -> None:
    bench.up()
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]}
    bench.account.s3.buckets[name(bench)]["settings"]["Encryption"] = rules
    assert step(bench).action == "nothing"


def test_tags_of_the_users_own_stay(bench: Bench) -> None:
    bench.up()
    tags = bench.account.s3.buckets[name(bench)]["settings"]["Tagging"]["TagSet"]
    tags.append({"Key": "mine", "Value": "x"})
    bench.change(tags={"team": "b"})
    bench.up()
    tags = bench.account.s3.buckets[name(bench)]["settings"]["Tagging"]["TagSet"]
    assert {"Key": "mine", "Value": "x"} in tags
    assert {"Key": "team", "Value": "b"} in tags


def test_one_to_reuse_must_exist(bench: Bench) -> None:
    reuse(bench, "theirs")
    with pytest.raises(errors.InfrastructureError, match=r"bucket\.name names a bucket that does not exist: theirs"):
        bench.preview()


def test_one_to_reuse_must_be_accessible(bench: Bench) -> None:
    bench.account.s3.foreign.add("theirs")
    reuse(bench, "theirs")
    with pytest.raises(errors.InfrastructureError, match="may not use: theirs"):
        bench.preview()


def test_one_to_reuse_must_be_in_the_images_region(bench: Bench) -> None:
    bench.account.s3.make("theirs", region="eu-west-1")
    reuse(bench, "theirs")
    with pytest.raises(
        errors.InfrastructureError, match="a bucket in eu-west-1, and the image is to be made in us-east"
    ):
        bench.preview()


def test_a_name_that_another_account_has_is_an_error_that_says_what_to_do(bench: Bench) -> None:
    bench.account.s3.foreign.add(name(bench))
    with pytest.raises(errors.InfrastructureError, match="belongs to another account") as caught:
        bench.preview()
    assert caught.value.hint == (
        "Allow s3:ListBucket on it to this identity if it is yours; else set bucket.name in sandbox.yaml to another."
    )


def test_one_with_somebodys_tags_is_left_alone(bench: Bench) -> None:
    bench.account.s3.make(name(bench), tags={"whose": "theirs"})
    with pytest.raises(errors.InfrastructureError, match="was not made by vmnest") as caught:
        bench.preview()
    assert caught.value.hint == f"To use it as it is, set bucket.name: {name(bench)} in sandbox.yaml."


def test_one_of_our_name_without_any_tag_is_ours_only_if_we_have_begun_it(bench: Bench) -> None:
    bench.account.s3.make(name(bench))
    with pytest.raises(errors.InfrastructureError, match="was not made by vmnest"):
        bench.preview()
    begun = Resource(naming.BUCKET_KIND, name(bench), managed=True, attrs={ownership.UNFINISHED: True})
    bench.store.save(StackState("demo", "dev", resources={naming.BUCKET: begun}))
    assert step(bench).action == "update"
    bench.up()
    assert step(bench).action == "nothing"
    bench.destroy()
    assert bench.account.inventory() == {}
