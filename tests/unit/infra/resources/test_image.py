"""There is a new version for each change of what it is made of, for nothing else, and after builds of others."""

from __future__ import annotations

import pytest

from tests.support.infra import Bench
from tests.support.memory_account import Killed
from tests.support.memory_images import BASE
from vmnest import errors
from vmnest.infra import ownership
from vmnest.infra.steps import NOTE, PROGRESS, Step

OURS = {"team": "a", "vmnest:managed-by": "vmnest", "vmnest:project": "demo", "vmnest:stack": "dev"}


def step(bench: Bench, *, rebuild: bool = False) -> Step:
    return next(step for step in bench.preview(rebuild=rebuild).steps if step.resource == "image")


def image(bench: Bench) -> dict[str, object]:
    (found,) = bench.account.images.known.values()
    return dict(found)


def newest(bench: Bench) -> dict[str, object]:
    (found,) = bench.account.images.known.values()
    return dict(found["versions"][-1])


def test_every_setting_is_sent_when_it_is_made_and_again_when_it_is_changed(bench: Bench) -> None:
    bench.change_image(
        memory_mib=4096,
        environment={"A": "1"},
        capabilities=("ALL",),
        log_group="/mine",
        base_image_arn=BASE,
        base_image_version="1",
    )
    bench.write_guest("x", name="serve.py")
    bench.up()
    first = newest(bench)
    assert image(bench)["tags"] == OURS
    bench.write_guest("2\n")
    bench.up()
    second = newest(bench)
    for member in ("resources", "environmentVariables", "additionalOsCapabilities", "logging", "baseImageVersion"):
        assert first[member] == second[member], member
    assert second["resources"] == [{"minimumMemoryInMiB": 4096}]
    assert second["environmentVariables"] == {"A": "1"}
    assert second["additionalOsCapabilities"] == ["ALL"]
    assert second["logging"] == {"cloudWatch": {"logGroup": "/mine"}}
    assert first["codeArtifact"] != second["codeArtifact"]


def test_a_guest_with_the_agent_gets_its_hooks(bench: Bench) -> None:
    folder = bench.folder / "guest-demo" / "agentd"
    folder.mkdir()
    (folder / "serve.py").write_text("", encoding="utf-8")
    bench.up()
    hooks = newest(bench)["hooks"]
    assert isinstance(hooks, dict)
    assert hooks["port"] == 9000
    assert hooks["microvmHooks"]["suspendTimeoutInSeconds"] == 10


def test_without_a_base_image_the_newest_of_the_service_is_taken(bench: Bench) -> None:
    bench.up()
    assert newest(bench)["baseImageArn"] == BASE


def test_a_changed_setting_is_named_with_what_was_before(bench: Bench) -> None:
    bench.up()
    bench.change_image(memory_mib=512)
    found = step(bench)
    assert (found.action, found.reason) == ("update", "version 1.0 differs in memory")
    assert [(change.field, change.old, change.new) for change in found.changes] == [("memory", "2048 MiB", "512 MiB")]


def test_what_somebody_else_built_meanwhile_is_seen(bench: Bench) -> None:
    bench.up()
    arn = bench.account.images.arn("demo-guest")
    bench.account.images.UpdateMicrovmImage(arn, codeArtifact={"uri": "s3://theirs/y.zip"}, buildRoleArn="arn:theirs")
    for _ in range(4):
        bench.account.images.GetMicrovmImage(arn)
    assert step(bench).reason == "version 2.0 differs in guest, build role"
    assert bench.up().outputs["image_version"] == "3.0"


def test_a_rebuild_makes_a_version_of_what_has_not_changed(bench: Bench) -> None:
    bench.up()
    assert step(bench, rebuild=True).action == "update"
    assert bench.up(rebuild=True).outputs["image_version"] == "2.0"
    assert step(bench).action == "nothing"


def test_a_version_of_just_this_that_is_being_built_is_waited_for(bench: Bench) -> None:
    bench.up()
    bench.write_guest("2\n")
    plan = bench.preview()
    with bench.killed_at(2, is_done=True), pytest.raises(Killed):
        bench.up()
    assert step(bench).reason == "version 2.0 is being built of just this"
    assert plan.has_changes
    assert bench.up().outputs["image_version"] == "2.0"
    assert newest(bench)["imageVersion"] == "2.0"


def test_another_version_that_is_being_built_is_waited_for_before_ours_is_asked_for(bench: Bench) -> None:
    bench.up()
    bench.write_guest("2\n")
    with bench.killed_at(2, is_done=True), pytest.raises(Killed):
        bench.up()
    bench.write_guest("3\n")
    assert bench.up().outputs["image_version"] == "3.0"


def test_a_version_that_failed_is_built_again(bench: Bench) -> None:
    bench.account.images.failures = ["CONTAINER_BUILD_FAILED"]
    with pytest.raises(errors.ImageBuildError):
        bench.up()
    found = step(bench)
    assert (found.action, found.reason) == ("update", "it has no version that can run")
    assert bench.up().outputs["image_version"] == "2.0"


def test_a_failed_build_tells_its_reason_the_end_of_its_log_and_where_it_is(bench: Bench) -> None:
    bench.account.images.failures = ["CONTAINER_BUILD_FAILED"]
    bench.account.log = ["step 1", "step 2: pip: not found"]
    with pytest.raises(errors.ImageBuildError, match="CONTAINER_BUILD_FAILED") as caught:
        bench.up()
    assert caught.value.details["log"] == ["step 1", "step 2: pip: not found"]
    assert caught.value.details["log_group"] == "/aws/lambda-microvms/demo-guest"
    assert caught.value.hint is not None
    assert bench.told(NOTE) == ["image: step 1", "image: step 2: pip: not found"]


def test_a_role_that_was_just_made_may_be_too_new_for_the_first_build(bench: Bench) -> None:
    bench.account.images.failures = ["S3_ACCESS_DENIED"]
    assert bench.up().outputs["image_version"] == "2.0"
    assert any("building again" in note for note in bench.told(NOTE))
    assert sum(bench.clock.sleeps) > 10


def test_a_role_that_is_not_new_is_not_waited_for(bench: Bench) -> None:
    bench.up()
    bench.write_guest("2\n")
    bench.account.images.failures = ["S3_ACCESS_DENIED"]
    with pytest.raises(errors.ImageBuildError, match="S3_ACCESS_DENIED"):
        bench.up()


def test_a_build_waits_for_room_among_those_of_others(bench: Bench) -> None:
    bench.account.images.refused_builds = 3
    assert bench.up().outputs["image_version"] == "1.0"
    assert any("another build" in text for text in bench.told(PROGRESS))
    bench.write_guest("2\n")
    bench.account.images.refused_builds = 3
    assert bench.up().outputs["image_version"] == "2.0"


def test_an_image_of_another_stack_is_left_alone(bench: Bench) -> None:
    bench.account.images.make("demo-guest", tags={**OURS, "vmnest:stack": "prod"})
    for rebuild in (False, True):
        with pytest.raises(errors.InfrastructureError, match="belongs to the stack demo/prod") as caught:
            bench.preview(rebuild=rebuild)
        assert caught.value.hint == "Choose another image.name in sandbox.yaml."


def test_an_image_that_others_made_of_other_things_is_not_changed_unless_that_is_said(bench: Bench) -> None:
    arn = bench.account.images.make("demo-guest")
    with pytest.raises(errors.InfrastructureError, match="was not made by vmnest") as caught:
        bench.preview()
    assert caught.value.hint is not None
    assert "--rebuild" in caught.value.hint
    state = bench.up(rebuild=True)
    assert state.outputs["image_version"] == "2.0"
    assert not state.resources["image"].managed
    assert ownership.owner_of(bench.account.images.known[arn]["tags"]) is None
    assert step(bench).action == "reuse"
    bench.up()
    bench.destroy()
    assert list(bench.account.images.known) == [arn]


def test_only_tags_that_are_missing_are_set_without_a_build(bench: Bench) -> None:
    bench.up()
    bench.change(tags={"team": "b"})
    found = step(bench)
    assert (found.action, found.reason) == ("update", "has not all tags; no new version is needed")
    assert bench.up().outputs["image_version"] == "1.0"
    assert image(bench)["tags"] == {**OURS, "team": "b"}
    assert step(bench).action == "nothing"


def test_an_image_that_is_being_deleted_is_waited_for_and_made_anew(bench: Bench) -> None:
    bench.up()
    bench.account.images.DeleteMicrovmImage(bench.account.images.arn("demo-guest"))
    assert (step(bench).action, step(bench).reason) == ("create", "the one of that name is being deleted")
    assert bench.up().outputs["image_version"] == "1.0"


def test_it_is_deleted_once_microvms_that_were_just_ended_are_gone(bench: Bench) -> None:
    bench.up()
    bench.account.images.refused_deletions = 3
    bench.destroy()
    assert bench.account.inventory() == {}


def test_without_an_image_to_build_on_the_user_is_told_to_name_one(bench: Bench) -> None:
    bench.account.images.ListManagedMicrovmImages = lambda: {"items": []}  # type: ignore[method-assign]
    with pytest.raises(errors.InfrastructureError, match="no image to build on in us-east-1"):
        bench.preview()
