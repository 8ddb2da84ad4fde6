import pytest

from tests.support.control import IMAGE_ARN, Controls
from tests.support.peers import Answer, json_answer
from vmnest import errors


def image(name: str = "demo", **members: object) -> dict[str, object]:
    return {
        "imageArn": f"arn:aws:lambda:us-east-1:111122223333:microvm-image:{name}",
        "name": name,
        "state": "CREATED",
        "createdAt": 1789463942.026,
        "id": "unmodelled",
        "latestActiveImageVersion": "2.0",
        "latestFailedImageVersion": None,
        **members,
    }


def version(number: str, **members: object) -> dict[str, object]:
    return {
        "imageArn": IMAGE_ARN,
        "imageVersion": number,
        "state": "SUCCESSFUL",
        "status": "ACTIVE",
        "baseImageArn": "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
        "buildRoleArn": "arn:aws:iam::111122223333:role/build",
        "codeArtifact": {"uri": "s3://bucket/key"},
        "createdAt": 1789463942.026,
        "updatedAt": 1789463943.026,
        "resources": [{"minimumMemoryInMiB": 2048}],
        **members,
    }


def missing() -> Answer:
    return json_answer(
        404, {"message": "MicroVMImage not found"}, headers={"x-amzn-errortype": "ResourceNotFoundException"}
    )


def test_get_reads_an_image(controls: Controls):
    made = controls(json_answer(200, image(tags={"a": "b"}, updatedAt=1789463943)))
    found = made.control.images.get(IMAGE_ARN, deadline=made.deadline())
    assert (found.name, found.state, found.latest_active_version) == ("demo", "CREATED", "2.0")
    assert found.latest_failed_version is None
    assert found.tags == {"a": "b"}
    assert found.raw["id"] == "unmodelled"


def test_an_unknown_image_is_an_error_of_its_own(controls: Controls):
    made = controls(missing(), missing(), missing())
    for ask in (
        lambda: made.control.images.get(IMAGE_ARN, deadline=made.deadline()),
        lambda: made.control.images.version(IMAGE_ARN, "1.0", deadline=made.deadline()),
        lambda: list(made.control.images.versions(IMAGE_ARN, deadline=made.deadline())),
    ):
        with pytest.raises(errors.ImageNotFoundError, match="MicroVMImage not found"):
            ask()


def test_listing_goes_on_through_empty_pages(controls: Controls):
    made = controls(
        json_answer(200, {"items": [image("a")], "nextToken": "1"}),
        json_answer(200, {"items": [], "nextToken": "2"}),
        json_answer(200, {"items": [image("a"), image("b")], "nextToken": None}),
    )
    assert [one.name for one in made.control.images.list(name_filter="x", deadline=made.deadline())] == ["a", "b"]
    assert made.peer.requests[2].target == "/2025-09-09/microvm-images?nameFilter=x&nextToken=2"


def test_versions_tell_which_can_run(controls: Controls):
    items = [
        version("1.0", state="FAILED", status="INACTIVE", stateReason="broken", resources=None),
        version("2.0", status="INACTIVE"),
        version("3.0"),
    ]
    made = controls(json_answer(200, {"items": items, "nextToken": None}))
    found = list(made.control.images.versions(IMAGE_ARN, deadline=made.deadline()))
    assert [(one.image_version, one.runnable) for one in found] == [("1.0", False), ("2.0", False), ("3.0", True)]
    assert found[0].state_reason == "broken"
    assert found[0].memory_mib is None
    assert found[2].memory_mib == 2048


def test_one_version_is_read(controls: Controls):
    made = controls(json_answer(200, version("3.0", versionStateTimeBucket="x")))
    found = made.control.images.version(IMAGE_ARN, "3.0", deadline=made.deadline())
    assert found.image_version == "3.0"
    assert found.raw["versionStateTimeBucket"] == "x"


def test_an_arn_needs_no_look_up(controls: Controls):
    made = controls()
    assert made.control.images.resolve(IMAGE_ARN, deadline=made.deadline()) == IMAGE_ARN
    assert made.peer.requests == []


def test_a_name_is_looked_up_and_must_match_whole(controls: Controls):
    made = controls(json_answer(200, {"items": [image("demo-2"), image("demo")]}))
    assert made.control.images.resolve("demo", deadline=made.deadline()) == IMAGE_ARN


def test_a_name_that_nobody_has_says_the_region(controls: Controls):
    made = controls(json_answer(200, {"items": [image("demo-2")]}))
    with pytest.raises(errors.ImageNotFoundError, match="'demo' in region us-east-1"):
        made.control.images.resolve("demo", deadline=made.deadline())
