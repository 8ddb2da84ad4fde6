"""A guest is sent once for each content, and what others have put into a bucket stays there."""

from __future__ import annotations

from dataclasses import replace

from tests.support.infra import Bench
from vmnest.infra.resources import artifact
from vmnest.infra.steps import PROGRESS


def test_it_is_uploaded_once_for_the_same_content(bench: Bench) -> None:
    bench.up()
    bench.account.calls.clear()
    bench.up(rebuild=True)
    assert "s3.PutObject" not in bench.account.calls


def test_its_key_and_uri_tell_image_and_content(bench: Bench) -> None:
    plan = bench.preview()
    assert plan.inputs is not None
    key = artifact.key(plan.inputs)
    assert key == f"vmnest/demo-guest/{plan.inputs.artifact.digest}.zip"
    assert artifact.uri(plan.inputs).endswith(f"/{key}")


def test_the_plan_tells_how_much_there_is_to_upload_and_where_to(bench: Bench) -> None:
    step = next(step for step in bench.preview().steps if step.resource == "guest_object")
    assert step.reason.endswith(f"KiB to upload to {bench.up().resources['bucket'].id}")


def test_one_that_vanished_is_uploaded_again_without_a_build(bench: Bench) -> None:
    bench.up()
    (bucket,) = bench.account.s3.buckets.values()
    bucket["objects"].clear()
    assert bench.actions() == {"role": "nothing", "bucket": "nothing", "guest_object": "create", "image": "nothing"}
    bench.up()
    assert len(bucket["objects"]) == 1


def test_in_a_bucket_of_others_only_ours_is_deleted(bench: Bench) -> None:
    bench.account.s3.make("theirs")
    bench.account.s3.buckets["theirs"]["objects"]["their.zip"] = b"x"
    bench.change(bucket=replace(bench.stack.bucket, name="theirs"))
    bench.up()
    bench.write_guest("2\n")
    bench.up()
    assert len(bench.account.s3.buckets["theirs"]["objects"]) == 2
    bench.destroy()
    assert list(bench.account.s3.buckets["theirs"]["objects"]) == ["their.zip"]


def test_a_large_one_tells_how_far_it_is(bench: Bench) -> None:
    (bench.folder / "guest-demo" / "large").write_bytes(bytes(range(256)) * 4)
    told: list[str] = []

    def upload(*words: object, size: int, on_progress: object, **options: object) -> None:
        for sent in range(0, 50 * 2**20, 10 * 2**20):
            on_progress(sent, 50 * 2**20)  # type: ignore[operator]
        bench.account.s3.buckets[str(words[0])]["objects"][words[1]] = b"x"

    bench.account.s3.upload = upload  # type: ignore[method-assign]
    bench.up()
    told = [line for line in bench.told(PROGRESS) if line.startswith("guest_object")]
    assert told == ["guest_object: 20.0 MiB of 50.0 MiB", "guest_object: 40.0 MiB of 50.0 MiB"]
