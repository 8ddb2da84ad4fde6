"""Whatever others do meanwhile to bucket and image, one upload of a content makes one version of it."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from tests.support.clock import FakeClock
from tests.support.control import IMAGE_ARN, Controls
from tests.support.peers import Answer, json_answer
from tests.unit.control.test_images import SPEC, draft, image
from tests.unit.guest_image.test_checking import package
from vmnest import errors
from vmnest.aws.s3 import S3
from vmnest.deadline import Deadline
from vmnest.guest_image import publishing


class Bucket:
    """S3 as far as publishing needs it: keys and their content."""

    def __init__(self, *keys: str) -> None:
        self.content = dict.fromkeys(keys, b"")

    def exists(self, bucket: str, key: str, *, deadline: Deadline) -> object:
        return self.content.get(f"{bucket}/{key}")

    def upload(self, bucket: str, key: str, file: Any, *, size: int, **_options: object) -> None:
        self.content[f"{bucket}/{key}"] = file.read(size)


@pytest.fixture
def upload() -> Iterator[Callable[[Bucket], str]]:
    with package(size=3) as made:
        made.file = io.BytesIO(b"zip and more")

        def run(bucket: Bucket) -> str:
            return publishing.upload(made, cast("S3", bucket), bucket="b", image_name="demo", deadline=Deadline(10))

        yield run


KEY = f"vmnest/demo/{'0' * 64}.zip"


def test_a_package_is_uploaded_under_its_digest(upload):
    bucket = Bucket()
    assert upload(bucket) == f"s3://b/{KEY}"
    assert bucket.content == {f"b/{KEY}": b"zip"}


def test_what_is_there_is_not_uploaded_again(upload):
    bucket = Bucket(f"b/{KEY}")
    assert upload(bucket) == f"s3://b/{KEY}"
    assert bucket.content == {f"b/{KEY}": b""}


def test_who_may_not_list_the_bucket_uploads(upload, monkeypatch: pytest.MonkeyPatch):
    bucket = Bucket()

    def exists(*_names: str, **_options: object) -> object:
        raise errors.AccessDeniedError("HeadObject: Forbidden", operation="HeadObject", status=403)

    monkeypatch.setattr(bucket, "exists", exists)
    upload(bucket)
    assert bucket.content == {f"b/{KEY}": b"zip"}


def conflict() -> Answer:
    text = "MicroVM Image is already in state: UPDATING"
    return json_answer(409, {"message": text}, headers={"x-amzn-errortype": "ConflictException"})


def images(*found: dict[str, object]) -> Answer:
    return json_answer(200, {"items": list(found), "nextToken": None})


def test_a_new_name_is_a_new_image(controls: Controls):
    made = controls(images(image("demo-2")), draft(201, "1.0", "CREATING"))
    found = publishing.publish(SPEC, made.control.images, deadline=made.deadline(), clock=made.clock)
    assert found.image_version == "1.0"
    assert json.loads(made.peer.requests[-1].body)["name"] == "demo"


def test_a_name_that_is_being_deleted_is_no_image_to_update(controls: Controls):
    made = controls(images(image(state="DELETING")), draft(201, "1.0", "CREATING"))
    publishing.publish(SPEC, made.control.images, deadline=made.deadline(), clock=made.clock)
    assert made.peer.requests[-1].method == "POST"


def test_an_image_of_that_name_gets_a_version_once_it_takes_one(controls: Controls):
    made = controls(
        images(image()),
        json_answer(200, image(state="UPDATING")),
        json_answer(200, image()),
        draft(200, "3.0", "UPDATING"),
    )
    found = publishing.publish(SPEC, made.control.images, deadline=made.deadline(), clock=made.clock)
    assert found == (IMAGE_ARN, "3.0", "UPDATING")


def test_somebody_who_was_faster_is_waited_for(controls: Controls):
    made = controls(
        images(image()), json_answer(200, image()), conflict(), json_answer(200, image()), draft(200, "4.0", "UPDATING")
    )
    found = publishing.publish(SPEC, made.control.images, deadline=made.deadline(), clock=made.clock)
    assert found.image_version == "4.0"


def test_somebody_who_is_always_faster_is_an_error(controls: Controls, fake_clock: FakeClock):
    made = controls(images(image()), *[json_answer(200, image()), conflict()] * 3)
    with pytest.raises(errors.ConflictError, match="UPDATING"):
        publishing.publish(SPEC, made.control.images, deadline=made.deadline(), clock=fake_clock)


@pytest.mark.parametrize("found", [[images()], [images(image()), json_answer(200, image())]], ids=["new", "next"])
def test_a_build_that_finds_no_room_waits_for_it(controls: Controls, found: list[Answer]):
    text = "Account 1 has reached the maximum number of concurrent builds allowed."
    refused = json_answer(402, {"message": text}, headers={"x-amzn-errortype": "ServiceQuotaExceededException"})
    made = controls(*found, refused, draft(201 if len(found) == 1 else 200, "3.0", "UPDATING"))
    told: list[str] = []
    publishing.publish(SPEC, made.control.images, deadline=made.deadline(), on_full=told.append, clock=made.clock)
    assert len(told) == 1
