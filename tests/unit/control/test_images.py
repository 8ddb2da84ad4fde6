"""Images are found by ARN or by their whole name, on whichever page of a list they are."""

import json

import pytest

from tests.support.control import IMAGE_ARN, Controls
from tests.support.peers import Answer, json_answer
from vmnest import errors
from vmnest.control.image_specs import ImageSpec
from vmnest.control.images import Snapshot


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


@pytest.mark.parametrize("name", ["a b", "", "x" * 65, "local:1.0"])
def test_what_can_be_no_name_is_not_asked_for(controls: Controls, name: str):
    made = controls()
    with pytest.raises(errors.ImageNotFoundError):
        made.control.images.resolve(name, deadline=made.deadline())
    assert made.peer.requests == []


def test_a_name_that_nobody_has_says_the_region(controls: Controls):
    made = controls(json_answer(200, {"items": [image("demo-2")]}))
    with pytest.raises(errors.ImageNotFoundError, match="'demo' in region us-east-1"):
        made.control.images.resolve("demo", deadline=made.deadline())


SPEC = ImageSpec(
    "demo",
    "s3://bucket/key",
    "arn:aws:iam::111122223333:role/build",
    "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
    tags={"a": "b"},
    environment={"KEY": "secret"},
)


def draft(status: int, number: str, state: str) -> Answer:
    return json_answer(status, {**version(number), **image(), "imageVersion": number, "state": state})


def test_an_image_is_made_and_its_first_version_known(controls: Controls):
    made = controls(draft(201, "1.0", "CREATING"))
    found = made.control.images.create(SPEC, deadline=made.deadline())
    assert found == (IMAGE_ARN, "1.0", "CREATING")
    sent = json.loads(made.peer.requests[0].body)
    assert (sent["name"], sent["tags"], sent["environmentVariables"]) == ("demo", {"a": "b"}, {"KEY": "secret"})
    assert sent["clientToken"]


def test_an_update_sends_everything_but_name_and_tags(controls: Controls):
    made = controls(draft(200, "2.0", "UPDATING"))
    assert made.control.images.update(IMAGE_ARN, SPEC, deadline=made.deadline()).image_version == "2.0"
    request = made.peer.requests[0]
    sent = json.loads(request.body)
    assert request.method == "PUT"
    assert set(sent) == {"baseImageArn", "buildRoleArn", "codeArtifact", "environmentVariables", "clientToken"}


def test_two_attempts_are_two_client_tokens(controls: Controls):
    made = controls(draft(200, "2.0", "UPDATING"), draft(200, "3.0", "UPDATING"))
    for _ in range(2):
        made.control.images.update(IMAGE_ARN, SPEC, deadline=made.deadline())
    first, second = (json.loads(request.body)["clientToken"] for request in made.peer.requests)
    assert first != second


def test_a_version_tells_what_it_is_made_of(controls: Controls):
    members = {
        "environmentVariables": {"KEY": "secret"},
        "hooks": {"port": 9000},
        "logging": {"cloudWatch": {"logGroup": "/g"}},
        "additionalOsCapabilities": ["ALL"],
        "egressNetworkConnectors": ["arn:c"],
        "baseImageVersion": "1.0",
    }
    made = controls(json_answer(200, version("3.0", **members)))
    found = made.control.images.version(IMAGE_ARN, "3.0", deadline=made.deadline())
    assert (found.code_uri, found.base_image_version, found.log_group) == ("s3://bucket/key", "1.0", "/g")
    assert (found.has_all_capabilities, found.egress_connectors) == (True, ("arn:c",))
    assert (found.environment, found.hooks) == ({"KEY": "secret"}, {"port": 9000})
    assert "secret" not in repr(found)


def test_builds_are_listed(controls: Controls):
    item = {"imageArn": IMAGE_ARN, "imageVersion": "1.0", "buildId": "b", "buildState": "FAILED",
            "architecture": "ARM_64", "chipset": "GRAVITON", "chipsetGeneration": "4", "stateReason": "why",
            "createdAt": 1789463942.026}  # fmt: skip
    made = controls(json_answer(200, {"items": [item], "nextToken": None}), missing())
    (found,) = made.control.images.builds(IMAGE_ARN, "1.0", deadline=made.deadline())
    assert (found.state, found.generation, found.state_reason) == ("FAILED", "4", "why")
    with pytest.raises(errors.ImageNotFoundError):
        list(made.control.images.builds(IMAGE_ARN, "9.0", deadline=made.deadline()))


def test_the_sizes_of_what_a_build_left_are_read(controls: Controls):
    sizes = {"memorySnapshotSizeInBytes": 3, "diskSnapshotSizeInBytes": 2, "codeInstallSizeInBytes": 1}
    asked = {"imageArn": IMAGE_ARN, "imageVersion": "2.0", "buildId": "b", "buildState": "SUCCESSFUL",
             "architecture": "ARM_64", "chipset": "GRAVITON", "chipsetGeneration": "4",
             "createdAt": 1789463942.026}  # fmt: skip
    made = controls(
        json_answer(200, {**asked, "snapshotBuild": sizes}),
        json_answer(200, {**asked, "snapshotBuild": None}),
        missing(),
    )
    for expected in (Snapshot(3, 2, 1), Snapshot(None, None, None)):
        assert made.control.images.snapshot(IMAGE_ARN, "2.0", "b", deadline=made.deadline()) == expected
    with pytest.raises(errors.ImageNotFoundError):
        made.control.images.snapshot(IMAGE_ARN, "2.0", "b", deadline=made.deadline())
    assert made.peer.requests[0].target.endswith("/versions/2.0/builds/b")


def test_the_services_own_images_and_their_versions_are_listed(controls: Controls):
    base = SPEC.base_image_arn
    stamp = {"createdAt": 1789463942.026, "updatedAt": 1789463942.026}
    versions = [{"imageArn": base, "imageVersion": number, "status": "AVAILABLE", **stamp} for number in ("1", "0")]
    made = controls(
        json_answer(200, {"items": [{"imageArn": base, **stamp}], "nextToken": None}),
        json_answer(200, {"items": versions, "nextToken": None}),
    )
    assert list(made.control.images.managed(deadline=made.deadline())) == [base]
    found = list(made.control.images.managed_versions(base, deadline=made.deadline()))
    assert [(one.image_version, one.status) for one in found] == [("1", "AVAILABLE"), ("0", "AVAILABLE")]


def test_images_and_versions_are_deleted(controls: Controls):
    answer = {"imageIdentifier": IMAGE_ARN, "state": "DELETING"}
    made = controls(json_answer(200, answer), json_answer(200, {**answer, "imageVersion": "1.0"}), missing())
    made.control.images.delete(IMAGE_ARN, deadline=made.deadline())
    made.control.images.delete_version(IMAGE_ARN, "1.0", deadline=made.deadline())
    assert [request.method for request in made.peer.requests] == ["DELETE", "DELETE"]
    with pytest.raises(errors.ImageNotFoundError):
        made.control.images.delete(IMAGE_ARN, deadline=made.deadline())
