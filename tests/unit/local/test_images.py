"""The collection of images: who may do what when, races, and what outlives a daemon."""

import dataclasses
import random
import threading

import pytest

from tests.support.image_stage import ARN, INTERNET, ROLE, SETTINGS, ImageStage, make_built, together
from vmnest import errors
from vmnest.local import builder, faults, image_rules, images, options, records

LOCAL = ARN + "local"
DEMO = ARN + "demo"
READY = image_rules.parse_settings(SETTINGS, role_exists=lambda arn: True, connector_state=lambda arn: None)
HOOKS = {
    "port": 9000,
    "microvmImageHooks": {"ready": "ENABLED"},
    "microvmHooks": {"run": "ENABLED"},
}


@pytest.fixture
def stage(tmp_path):
    one = ImageStage(tmp_path)
    yield one
    one.close()


def create(stage, name="demo", *, tags=None, **changes):
    image, version = stage.images.create(name, {**READY, **changes}, tags=tags or {})
    stage.wait_settled(name)
    return image, version


def update(stage, name="demo", **changes):
    stage.images.update(ARN + name, {**READY, **changes})
    return stage.wait_settled(name)


def refusal(call, *args, **params):
    with pytest.raises(faults.Fault) as caught:
        call(*args, **params)
    return caught.value.status, caught.value.message


def run(stage, identifier, label=None):
    with stage.images.to_run(identifier, label) as found:
        return found


def spec_of(found):
    return records.Spec(
        image_arn=found.image_arn,
        image_version=found.image_version,
        execution_role_arn=None,
        idle_policy=None,
        max_seconds=60,
        ingress=(),
        egress=(),
        kms_key=None,
        payload=None,
        options=options.Options(),
        built=found.built,
    )


class TestToRun:
    @pytest.mark.parametrize("label", [None, "1.0", "1"])
    def test_the_built_in_image_runs(self, stage, label):
        assert run(stage, LOCAL, label) == images.Runnable(LOCAL, "1.0", memory_mib=2048, has_run_hook=True)

    def test_a_built_one_tells_how(self, stage):
        create(stage, hooks=HOOKS, resources=[{"minimumMemoryInMiB": 512}])
        assert run(stage, DEMO) == images.Runnable(
            DEMO,
            "1.0",
            memory_mib=512,
            has_run_hook=True,
            egress=(INTERNET,),
            built=make_built("demo-1.0", "base"),
        )
        assert not run(stage, create(stage, "plain")[0].arn).has_run_hook

    def test_the_latest_active_one_runs_unless_another_one_is_named(self, stage):
        create(stage)
        update(stage)
        stage.builder.failures["demo"] = builder.BuildFailed("CONTAINER_BUILD_FAILED", "no")
        update(stage)
        assert run(stage, DEMO).image_version == "2.0"
        assert [run(stage, DEMO, label).image_version for label in ("1", "1.0", "2.0")] == ["1.0", "1.0", "2.0"]
        assert refusal(run, stage, DEMO, "3.0")[0] == 404
        stage.images.set_status(DEMO, "2", "INACTIVE")
        assert run(stage, DEMO).image_version == "1.0"
        pinned = f"No active version found for MicroVM image {DEMO} and version 2.0"
        assert refusal(run, stage, DEMO, "2.0") == (404, pinned)

    @pytest.mark.parametrize("label", [None, "1", "1.0"])
    def test_an_inactive_one_does_not_run(self, stage, label):
        create(stage)
        stage.images.set_status(DEMO, "1.0", "INACTIVE")
        pinned = "" if label is None else f" and version {label}"
        assert refusal(run, stage, DEMO, label) == (404, f"No active version found for MicroVM image {DEMO}{pinned}")

    @pytest.mark.parametrize(
        ("identifier", "label", "status", "message"),
        [
            ("local", None, 400, "Malformed ARN - doesn't start with 'arn:'"),
            (DEMO, None, 404, f"No active version found for MicroVM image {DEMO}"),
            (DEMO, "1.0", 404, f"No active version found for MicroVM image {DEMO} and version 1.0"),
            (LOCAL, "2.0", 404, f"No active version found for MicroVM image {LOCAL} and version 2.0"),
            (LOCAL, "x", 404, f"No active version found for MicroVM image {LOCAL} and version x"),
            ("arn:aws:s3:::x", None, 400, "Invalid ARN format: arn:aws:s3:::x"),
        ],
    )
    def test_anything_else_is_refused_in_the_services_words(self, stage, identifier, label, status, message):
        assert refusal(run, stage, identifier, label) == (status, message)

    def test_another_accounts_image_is_denied(self, stage):
        foreign = LOCAL.replace("000000000000", "111122223333")
        status, message = refusal(run, stage, foreign)
        assert status == 403
        assert f"lambda:RunMicrovm on resource: {foreign}" in message

    def test_one_that_is_being_built_does_not_run_but_the_one_before_does(self, stage):
        stage.builder.gate.clear()
        stage.images.create("demo", READY, tags={})
        assert refusal(run, stage, DEMO)[0] == 404
        stage.builder.gate.set()
        stage.wait_settled("demo")
        stage.builder.gate.clear()
        stage.images.update(DEMO, READY)
        assert run(stage, DEMO).image_version == "1.0"

    def test_while_a_start_is_under_way_its_image_stays(self, stage):
        create(stage)
        with stage.images.to_run(DEMO, None):
            assert refusal(stage.images.delete, DEMO) == (400, "Cannot delete microvm image with running microvms.")
        stage.images.delete(DEMO)
        assert stage.wait_settled("demo") is None

    def test_a_start_that_fails_holds_nothing(self, stage):
        create(stage)
        with pytest.raises(KeyError), stage.images.to_run(DEMO, None):
            raise KeyError
        stage.images.delete(DEMO)

    def test_what_a_microvm_runs_on_stays_when_its_version_goes(self, stage):
        create(stage)
        update(stage)
        with stage.images.to_run(DEMO, "1") as found:
            stage.images.delete_version(DEMO, "1")
            stage.wait_settled("demo")
            stage.live.append(spec_of(found))
        assert refusal(run, stage, DEMO, "1")[0] == 404
        assert "demo-1.0" in stage.builder.swept[-1]
        create(stage, "other")
        stage.images.delete(ARN + "other")
        stage.wait_settled("other")
        assert stage.builder.swept[-1] == ["base", "demo-1.0", "demo-2.0"]
        assert refusal(stage.images.delete, DEMO)[1] == "Cannot delete microvm image with running microvms."


class TestQuotas:
    def test_five_builds_at_once(self, stage):
        stage.builder.gate.clear()
        for number in range(5):
            stage.images.create(f"image-{number}", READY, tags={})
        refused = (402, "Account 000000000000 has reached the maximum number of concurrent builds allowed.")
        assert refusal(stage.images.create, "one-more", READY, tags={}) == refused
        assert stage.images.find(ARN + "one-more") is None
        stage.builder.gate.set()
        for number in range(5):
            stage.wait_settled(f"image-{number}")
        stage.builder.gate.clear()
        for number in range(5):
            stage.images.update(f"{ARN}image-{number}", READY)
        create_again = refusal(stage.images.create, "one-more", READY, tags={})
        assert create_again == refused

    def test_fifty_versions_failed_ones_included(self, stage, monkeypatch):
        monkeypatch.setattr(images, "MAX_VERSIONS", 3)
        stage.builder.failures["demo"] = builder.BuildFailed("CONTAINER_BUILD_FAILED", "no")
        create(stage)
        update(stage)
        update(stage)
        assert refusal(stage.images.update, DEMO, READY)[0] == 402
        stage.images.delete_version(DEMO, "2")
        stage.wait_settled("demo")
        assert update(stage).last_number == 4

    def test_a_hundred_images(self, stage, monkeypatch):
        assert (images.MAX_IMAGES, images.MAX_VERSIONS, images.MAX_BUILDS) == (100, 50, 5)
        monkeypatch.setattr(images, "MAX_IMAGES", 2)
        create(stage, "a")
        create(stage, "b")
        assert refusal(stage.images.create, "c", READY, tags={})[0] == 402
        stage.images.delete(ARN + "a")
        stage.wait_settled("a")
        create(stage, "c")


class TestDelete:
    def test_the_name_is_free_afterwards_and_numbers_begin_anew(self, stage):
        first, _ = create(stage, tags={"a": "b"})
        update(stage)
        stage.builder.sweep_gate.clear()
        stage.images.delete(DEMO)
        assert refusal(stage.images.create, "demo", READY, tags={}) == (
            400,
            "A MicroVM image with the name 'demo' already exists in this account",
        )
        stage.builder.sweep_gate.set()
        assert stage.wait_settled("demo") is None
        again, version = create(stage)
        assert (version.label, again.image_id != first.image_id, again.number > first.number) == ("1.0", True, True)
        assert stage.tags.of(DEMO) == {}

    def test_twice_is_once(self, stage):
        create(stage)
        stage.builder.sweep_gate.clear()
        assert [stage.images.delete(DEMO).state for _ in range(2)] == ["DELETING", "DELETING"]
        stage.builder.sweep_gate.set()
        stage.wait_settled("demo")
        assert stage.images.delete(DEMO) is None
        other_region = DEMO.replace("us-east-1", "eu-west-1")
        assert refusal(stage.images.delete, other_region)[0] == 404

    def test_layers_go_that_no_version_needs(self, stage):
        create(stage)
        create(stage, "other")
        stage.images.delete(DEMO)
        stage.wait_settled("demo")
        assert stage.builder.swept[-1] == ["base", "other-1.0"]

    def test_a_failed_image_can_be_deleted(self, stage):
        stage.builder.failures["demo"] = builder.BuildFailed("CONTAINER_BUILD_FAILED", "no")
        create(stage)
        stage.images.delete(DEMO)
        assert stage.wait_settled("demo") is None

    @pytest.mark.parametrize("label", [None, "1"])
    def test_what_cannot_be_noted_was_not_deleted(self, stage, monkeypatch, label):
        create(stage)
        update(stage)
        save, was_asked = stage.store.save, threading.Event()

        def refuse_the_end(image):
            version = image.version(1)
            if image.state == "DELETED" or version is None:
                was_asked.set()
                raise errors.LocalCloudError("full")
            save(image)

        monkeypatch.setattr(stage.store, "save", refuse_the_end)
        if label is None:
            stage.images.delete(DEMO)
        else:
            stage.images.delete_version(DEMO, label)
        image = stage.wait_settled("demo")
        assert was_asked.is_set()
        assert "DELETE_FAILED" in {image.state, image.version(1).state}
        monkeypatch.undo()
        stage.images.delete(DEMO)
        assert stage.wait_settled("demo") is None


class TestFailures:
    def test_what_cannot_be_noted_does_not_begin(self, stage, monkeypatch):
        create(stage)

        def refuse(image):
            raise errors.LocalCloudError("full")

        monkeypatch.setattr(stage.store, "save", refuse)
        before = stage.images.all()
        for call in (
            lambda: stage.images.create("other", READY, tags={}),
            lambda: stage.images.update(DEMO, READY),
            lambda: stage.images.delete(DEMO),
            lambda: stage.images.set_status(DEMO, "1", "INACTIVE"),
        ):
            with pytest.raises(errors.LocalCloudError):
                call()
        stage.close()
        assert stage.images.all() == before
        assert len(stage.builder.specs) == 1

    def test_without_a_thread_nothing_changes(self, stage, monkeypatch):
        create(stage)
        update(stage)
        before = stage.images.all()

        def refuse(name, work):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(stage.workshop, "spawn", refuse)
        for call in (
            lambda: stage.images.create("other", READY, tags={}),
            lambda: stage.images.update(DEMO, READY),
            lambda: stage.images.delete(DEMO),
            lambda: stage.images.delete_version(DEMO, "1"),
        ):
            with pytest.raises(RuntimeError):
                call()
        assert stage.images.all() == before


class TestDaemon:
    def test_images_outlive_it(self, stage, tmp_path):
        create(stage, hooks=HOOKS, environmentVariables={"A": "1"})
        update(stage)
        stage.images.set_status(DEMO, "1", "INACTIVE")
        stage.close()
        later = ImageStage(tmp_path)
        later.images.open()
        assert later.images.all() == stage.images.all()
        later.builder.wait_for(lambda: later.builder.swept)
        assert later.builder.swept == [["base", "demo-1.0", "demo-2.0"]]
        later.close()

    def test_a_build_of_one_that_was_killed_has_failed(self, stage, tmp_path):
        create(stage)
        stage.builder.gate.clear()
        stage.images.update(DEMO, READY)
        stage.images.create("first", READY, tags={})
        stage.builder.wait_for(lambda: len(stage.builder.specs) == 3)
        later = ImageStage(tmp_path)  # as if the one before were no more
        later.images.open()
        reason = "INTERNAL_PLATFORM_ERROR: the local cloud ended during the build."
        for name, state, label in [("demo", "UPDATE_FAILED", "2"), ("first", "CREATE_FAILED", "1")]:
            image, version = later.images.version(ARN + name, label, action="x")
            assert (image.state, version.state, version.status) == (state, "FAILED", "INACTIVE")
            assert [build.reason for build in version.builds] == [reason] * 2
        assert later.images.find(DEMO).latest_active.label == "1.0"
        update(later)
        assert later.images.find(DEMO).latest_active.label == "3.0"
        later.close()

    def test_what_one_that_was_killed_was_deleting_goes(self, stage, tmp_path):
        create(stage, "whole", tags={"a": "b"})
        create(stage)
        update(stage)
        stage.builder.sweep_gate.clear()
        stage.images.delete(ARN + "whole")
        stage.images.delete_version(DEMO, "1")
        later = ImageStage(tmp_path)
        later.images.open()
        assert later.wait_settled("whole") is None
        image = later.wait_settled("demo")
        assert (image.state, [version.label for version in image.versions]) == ("UPDATED", ["2.0"])
        assert later.tags.of(ARN + "whole") == {}
        later.close()

    def test_one_that_ends_fails_the_builds_that_are_under_way(self, stage, tmp_path):
        stage.builder.gate.clear()
        stage.images.create("demo", READY, tags={})
        stage.builder.wait_for(lambda: stage.builder.specs)
        stage.close()
        assert stage.images.find(DEMO).state == "CREATE_FAILED"
        assert refusal(stage.images.create, "other", READY, tags={})[0] == 500
        for call in (stage.images.delete, lambda arn: stage.images.update(arn, READY)):
            assert refusal(call, DEMO)[0] == 500

    def test_it_is_not_idle_while_something_is_built_or_deleted(self, tmp_path, fake_clock):
        stage = ImageStage(tmp_path, clock=fake_clock)
        fake_clock.advance(100)
        assert stage.images.idle_seconds() == 100
        stage.builder.gate.clear()
        stage.images.create("demo", READY, tags={})
        fake_clock.advance(100)
        assert stage.images.idle_seconds() == 0
        assert stage.images.builds() == ["demo 1.0"]
        assert not stage.images.retire()
        stage.builder.gate.set()
        stage.wait_settled("demo")
        fake_clock.advance(50)
        assert (stage.images.idle_seconds(), stage.images.builds()) == (50, [])
        stage.builder.sweep_gate.clear()
        stage.images.delete(DEMO)
        fake_clock.advance(100)
        assert stage.images.idle_seconds() == 0
        stage.close()

    def test_one_that_retires_begins_nothing_unless_it_stays(self, stage):
        create(stage)
        assert stage.images.retire()
        assert refusal(stage.images.update, DEMO, READY) == (500, "The local cloud is ending.")
        assert run(stage, DEMO).image_version == "1.0"
        stage.images.reopen()
        update(stage)


class TestRaces:
    def test_one_of_twenty_creates_wins(self, stage):
        made = []
        together(20, lambda number: made.append(stage.images.create("demo", READY, tags={})))
        stage.wait_settled("demo")
        assert len(made) == len(stage.builder.specs) == 1

    def test_twenty_updates_make_versions_one_after_the_other(self, stage):
        create(stage)
        made = []
        together(20, lambda number: made.append(stage.images.update(DEMO, READY)[1].number))
        image = stage.wait_settled("demo")
        assert sorted(made) == list(range(2, image.last_number + 1))
        assert len(stage.builder.specs) == image.last_number

    def test_no_more_than_five_builds_whoever_asks(self, stage):
        stage.builder.gate.clear()
        made = []
        together(20, lambda number: made.append(stage.images.create(f"image-{number}", READY, tags={})))
        assert len(made) == 5
        stage.builder.wait_for(lambda: len(stage.builder.specs) == 5)
        stage.builder.gate.set()
        for image, _ in made:
            stage.wait_settled(image.name)
        assert stage.builder.most == 5

    def test_a_start_and_a_deletion_do_not_both_succeed(self, stage):
        for _ in range(20):
            create(stage)
            stage.live.clear()
            deleted = []

            def act(number, deleted=deleted):
                if number % 2:
                    deleted.append(stage.images.delete(DEMO))
                else:
                    with stage.images.to_run(DEMO, None) as found:
                        stage.live.append(spec_of(found))

            together(6, act)
            assert bool(deleted) != bool(stage.live)
            stage.live.clear()
            if not deleted:
                stage.images.delete(DEMO)
            assert stage.wait_settled("demo") is None

    def test_whatever_twenty_ask_for_at_once_the_promises_hold(self, stage, tmp_path):
        """Creates, updates and deletes of few names: no image is lost, stuck, or other on the disk than in memory."""
        chance, refused = random.Random(7), set()
        plan = [[chance.randrange(6) for _ in range(15)] for _ in range(20)]
        stage.builder.failures["c"] = builder.BuildFailed("CONTAINER_BUILD_FAILED", "no")

        def act(number):
            for kind in plan[number]:
                name = "abc"[(number + kind) % 3]
                calls = [
                    lambda name: stage.images.create(name, READY, tags={"a": "b"}),
                    lambda name: stage.images.update(ARN + name, READY),
                    lambda name: stage.images.delete(ARN + name),
                    lambda name: stage.images.delete_version(ARN + name, "1"),
                    lambda name: stage.images.set_status(ARN + name, "1", "INACTIVE"),
                    lambda name: run(stage, ARN + name),
                ]
                try:
                    calls[kind](name)
                except faults.Fault as fault:
                    refused.add(fault.status)
                for image in stage.images.all():
                    assert image.is_consistent

        together(20, act)
        assert refused <= {400, 402, 404, 409}
        for name in "abc":
            image = stage.wait_settled(name)
            assert stage.tags.of(ARN + name) == ({} if image is None else {"a": "b"})
        stage.close()
        later = ImageStage(tmp_path)
        later.images.open()
        assert later.images.all() == stage.images.all()
        later.close()
        assert stage.builder.most <= 5
        for image in stage.images.all():
            numbers = [version.number for version in image.versions]
            assert numbers == sorted(set(numbers))


def test_the_settings_of_the_tests_are_what_the_rules_make():
    assert READY["buildRoleArn"] == ROLE
    assert dataclasses.asdict(images.Runnable(LOCAL, "1.0", memory_mib=1, has_run_hook=False))["built"] is None
