"""Images, with a service that answers from a script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.control import IMAGE_ARN, summary
from tests.support.peers import Answer, Peer, Serve, Step, json_answer
from tests.unit.control.test_building import build
from tests.unit.control.test_images import image, missing, version
from vmnest import errors, registry
from vmnest.ops import images
from vmnest.registry import Record

Start = Callable[..., Peer]


@pytest.fixture
def start(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the service, with its script."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AGENT_SANDBOX_STATE": str(tmp_path / "state.json"),
        "AGENT_SANDBOX_INFRA_STATE": str(tmp_path / "infra.json"),
        "AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local"),
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)

    def begin(*script: Step) -> Peer:
        peer = serve(*script)
        monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
        return peer

    return begin


def page(*items: dict[str, object]) -> Answer:
    return json_answer(200, {"items": list(items), "nextToken": None})


def arn(name: str) -> str:
    return f"arn:aws:lambda:us-east-1:111122223333:microvm-image:{name}"


def refused() -> Answer:
    text = "Cannot delete microvm image with running microvms."
    return json_answer(400, {"message": text}, headers={"x-amzn-errortype": "ValidationException"})


def deleting() -> Answer:
    return json_answer(200, {"imageIdentifier": IMAGE_ARN, "state": "DELETING"})


def test_images_are_listed_by_name(start: Start):
    start(page(image("b"), image("a", latestActiveImageVersion=None)))
    found = images.image_list()["images"]
    assert isinstance(found, list)
    assert [(each["name"], each["latest_active_version"]) for each in found] == [("a", None), ("b", "2.0")]
    assert found[1]["image_arn"] == arn("b")


def test_the_services_own_are_listed_with_their_versions(start: Start):
    stamp = {"createdAt": 1789463942.026, "updatedAt": 1789463942.026}
    base = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
    start(
        page({"imageArn": base, **stamp}),
        page({"imageArn": base, "imageVersion": "1", "status": "AVAILABLE", **stamp}),
    )
    assert images.image_list(managed=True) == {
        "images": [
            {
                "name": "al2023-1",
                "image_arn": base,
                "versions": [{"image_version": "1", "status": "AVAILABLE"}],
            }
        ]
    }


def test_inspect_shows_the_version_that_can_run_and_no_values_of_variables(start: Start):
    start(
        page(image()),
        json_answer(200, image(tags={"a": "b"})),
        json_answer(200, version("2.0", environmentVariables={"KEY": "secret"})),
        page(build("4", buildState="SUCCESSFUL")),
    )
    found = images.image_inspect(image="demo")
    assert found["tags"] == {"a": "b"}
    shown = found["version"]
    assert isinstance(shown, dict)
    assert (shown["image_version"], shown["variables"]) == ("2.0", ["KEY"])
    assert [one["state"] for one in shown["builds"]] == ["SUCCESSFUL"]
    assert "secret" not in str(found)


def test_inspect_of_an_image_without_one_that_can_run_shows_the_newest(start: Start):
    peer = start(
        json_answer(200, image(latestActiveImageVersion=None)),
        page(version("9.0", state="FAILED"), version("10.0", state="FAILED")),
        json_answer(200, version("10.0", state="FAILED")),
        page(),
    )
    images.image_inspect(image=IMAGE_ARN)
    assert peer.requests[2].target.endswith("/versions/10.0")


def test_versions_come_newest_first(start: Start):
    start(page(*[version(number) for number in ("1.0", "10.0", "2.0")]))
    found = images.image_versions(image=IMAGE_ARN)["versions"]
    assert isinstance(found, list)
    assert [each["image_version"] for each in found] == ["10.0", "2.0", "1.0"]


def test_an_image_is_removed_and_waited_for(start: Start):
    peer = start(deleting(), missing())
    assert images.image_remove(image=IMAGE_ARN)["removed"]
    assert [request.method for request in peer.requests] == ["DELETE", "GET"]


def test_one_version_is_removed(start: Start):
    peer = start(
        json_answer(200, {"imageIdentifier": IMAGE_ARN, "imageVersion": "1.0", "state": "DELETING"}),
        json_answer(200, image(state="UPDATED")),
    )
    images.image_remove(image=IMAGE_ARN, image_version="1.0")
    assert peer.requests[0].target.endswith("/versions/1.0")


def test_an_image_in_use_names_its_users(start: Start):
    listed = [summary("microvm-1"), summary("microvm-2", state="TERMINATED"), summary("microvm-3", imageArn=arn("x"))]
    registry.open_default().put(Record("box", microvm_id="microvm-1", region="us-east-1"))
    start(refused(), page(*listed))
    with pytest.raises(errors.ValidationError, match="running microvms") as caught:
        images.image_remove(image=IMAGE_ARN)
    assert "were started from it: box (microvm-1). vmnest ls --all shows them" in str(caught.value.hint)


def test_an_image_that_is_being_built_says_to_wait(start: Start):
    start(refused(), page(), json_answer(200, image(state="CREATING")))
    with pytest.raises(errors.ValidationError) as caught:
        images.image_remove(image=IMAGE_ARN)
    assert "wait until that is done" in str(caught.value.hint)


def test_an_image_that_is_not_there_is_not_found(start: Start):
    start(page(image("other")))
    with pytest.raises(errors.ImageNotFoundError, match="'demo'"):
        images.image_remove(image="demo")


def test_prune_spares_what_runs_and_what_is_named(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("AGENT_SANDBOX_IMAGE_ARN", arn("configured"))
    registry.open_default().put(Record("box", microvm_id="microvm-9", image_arn=arn("recorded"), region="us-east-1"))
    begun = {"kind": "microvm-image", "id": arn("begun"), "managed": True, "attrs": {"unfinished": True}}
    stack = {"resources": {"image": begun}, "outputs": {"image_arn": arn("stack")}}
    (tmp_path / "infra.json").write_text(json.dumps({"stacks": {"p/s": stack}}))
    listed = [
        summary("microvm-1", imageArn=arn("runs")),
        summary("microvm-2", imageArn=arn("idle"), state="TERMINATED"),
    ]
    names = ("configured", "recorded", "stack", "begun", "runs", "idle", "unused")
    found = [json_answer(200, image(name)) for name in ("idle", "unused")]
    start(page(*listed), page(*[image(name) for name in names]), *found)
    found = images.plan_prune()["images"]
    assert isinstance(found, list)
    assert [each["name"] for each in found] == ["idle", "unused"]


@pytest.mark.parametrize("state", ["CREATING", "UPDATING", "DELETING"])
def test_prune_leaves_what_is_being_built_or_deleted(start: Start, state: str):
    start(page(), page(image("demo", state=state)))
    assert images.plan_prune()["images"] == []


def test_prune_leaves_the_images_of_stacks_that_are_recorded_elsewhere(start: Start):
    tags = {"vmnest:managed-by": "vmnest", "vmnest:project": "theirs", "vmnest:stack": "prod"}
    peer = start(page(), page(image("theirs")), json_answer(200, image("theirs", tags=tags)))
    assert images.plan_prune(versions=True)["images"] == []
    assert len(peer.requests) == 3


def test_an_image_that_goes_meanwhile_is_none_to_prune(start: Start):
    start(page(), page(image("a")), missing())
    assert images.plan_prune()["images"] == []


def test_only_what_was_agreed_to_is_pruned(start: Start):
    agreed = [{"image_arn": arn("b"), "name": "b", "image_version": None}]
    found = [json_answer(200, image(name)) for name in "ab"]
    peer = start(page(), page(image("a"), image("b")), *found, deleting(), missing())
    assert images.image_prune(only=agreed)["images"] == agreed
    assert arn("b").replace(":", "%3A") in peer.requests[4].target


def test_prune_of_versions_keeps_the_newest_that_can_run_and_those_in_use(start: Start):
    versions = [
        version("1.0"),
        version("2.0"),
        version("3.0", state="FAILED", status="INACTIVE"),
        version("4.0"),
        version("5.0", state="FAILED", status="INACTIVE"),
        version("6.0", state="IN_PROGRESS", status="INACTIVE"),
    ]
    start(page(summary("microvm-1", imageVersion="2.0")), page(image()), page(*versions))
    found = images.plan_prune(versions=True)["images"]
    assert isinstance(found, list)
    assert [each["image_version"] for each in found] == ["5.0", "3.0", "1.0"]


def test_prune_goes_on_after_one_that_cannot_go(start: Start):
    listed = page(image("a"), image("b"))
    found = [json_answer(200, image(name)) for name in "ab"]
    peer = start(page(), listed, *found, refused(), page(), found[0], deleting(), missing())
    done = images.image_prune()
    assert done["images"] == [{"image_arn": arn("b"), "name": "b", "image_version": None}]
    (failed,) = done["failed"]  # type: ignore[misc]
    assert (failed["name"], failed["error"]["code"]) == ("a", "validation")
    assert len(peer.requests) == 9
