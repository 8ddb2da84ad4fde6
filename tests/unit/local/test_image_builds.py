"""The workshop: builds and sweeps, in threads."""

import errno
import threading

import pytest

from tests.support.image_stage import BUCKET, SETTINGS, Logs, Objects, ScriptedBuilder, make_built
from vmnest import errors
from vmnest.local import builder, faults, image_builds
from vmnest.local.image_records import Image

WAIT_SECONDS = 20


def draft(name="demo", **settings):
    ids = iter(range(100))
    image = Image(name, "id", 2, created_at=1785391200.0, updated_at=1785391200.0)
    image = image.add_version({**SETTINGS, **settings}, at=1785391200.0, new_id=lambda: f"id-{next(ids)}")
    return image.start_build(1)


class Stage:
    def __init__(self):
        self.builder = ScriptedBuilder()
        self.objects = Objects()
        self.logs = Logs()
        self.workshop = image_builds.Workshop(self.builder, self.objects, logs=self.logs)

    def build(self, image=None):
        image = image or draft()
        outcomes = []
        self.workshop.build(image, image.versions[0], record=outcomes.append)
        (outcome,) = outcomes
        return outcome

    def begin_build(self, name="demo"):
        """A build that is under way, and the event of its end."""
        image, is_recorded = draft(name), threading.Event()
        before = len(self.builder.specs)
        self.workshop.spawn(
            name, lambda: self.workshop.build(image, image.versions[0], record=lambda outcome: is_recorded.set())
        )
        self.builder.wait_for(lambda: len(self.builder.specs) > before)
        return is_recorded


@pytest.fixture
def stage():
    one = Stage()
    yield one
    one.workshop.close()


class TestBuild:
    def test_the_builder_gets_the_artifact_and_the_settings(self, stage):
        hooks = {"port": 9000, "microvmImageHooks": {"ready": "ENABLED"}}
        settings = {"environmentVariables": {"A": "1"}, "hooks": hooks, "resources": [{"minimumMemoryInMiB": 512}]}
        assert stage.build(draft(**settings)).built == make_built("demo-1.0", "base")
        assert stage.builder.artifacts == [b"zip"]
        assert stage.builder.specs == [
            builder.BuildSpec(
                image_name="demo",
                image_arn="arn:aws:lambda:us-east-1:000000000000:microvm-image:demo",
                version="1.0",
                environment={"A": "1"},
                hooks=hooks,
                memory_mib=512,
            )
        ]

    def test_without_hooks_and_environment_it_gets_none(self, stage):
        stage.build()
        (spec,) = stage.builder.specs
        assert (spec.environment, spec.hooks, spec.memory_mib) == ({}, None, 2048)

    @pytest.mark.parametrize(
        ("failure", "reason"),
        [
            (builder.BuildFailed("CONTAINER_BUILD_FAILED", "line 3: no"), "line 3: no"),
            (OSError(errno.EIO, "broken"), "INTERNAL_PLATFORM_ERROR: the daemon's log has the reason."),
            (KeyError("x"), "INTERNAL_PLATFORM_ERROR: the daemon's log has the reason."),
        ],
        ids=["failed", "disk", "ours"],
    )
    def test_a_failed_build_has_a_reason(self, stage, failure, reason):
        stage.builder.failures["demo"] = failure
        outcome = stage.build()
        assert (outcome.built, outcome.reason) == (None, reason)

    @pytest.mark.parametrize(
        ("uri", "reason"),
        [
            ("s3://other/code.zip", "S3_NO_SUCH_BUCKET: The specified bucket does not exist"),
            (f"s3://{BUCKET}/other.zip", "S3_NO_SUCH_KEY: The specified key does not exist."),
        ],
    )
    def test_an_artifact_that_is_not_there_fails_the_build(self, stage, uri, reason):
        assert stage.build(draft(codeArtifact={"uri": uri})).reason == reason
        assert stage.builder.specs == []

    def test_the_artifact_is_closed_afterwards(self, stage, monkeypatch):
        opened = []
        fetch = stage.objects.open_object
        monkeypatch.setattr(stage.objects, "open_object", lambda *words: opened.append(fetch(*words)) or opened[-1])
        stage.builder.failures["demo"] = faults.internal()
        stage.build()
        assert opened[0].closed


class TestLog:
    @pytest.mark.parametrize(
        ("logging", "place"),
        [
            (None, ("/aws/lambda-microvms/demo", "2026/07/30[1.0]microvm-id-0")),
            ({"cloudWatch": {"logGroup": "mine"}}, ("mine", "2026/07/30[1.0]microvm-id-0")),
            ({"cloudWatch": {"logGroup": "mine", "logStream": "one"}}, ("mine", "one")),
            ({"cloudWatch": {}}, ("/aws/lambda-microvms/demo", "2026/07/30[1.0]microvm-id-0")),
        ],
    )
    def test_what_it_says_goes_where_the_image_says(self, stage, logging, place):
        stage.build(draft(logging=logging))
        assert stage.logs.lines == {place: ["Step 1"]}

    def test_it_may_be_off(self, stage):
        stage.build(draft(logging={"disabled": {}}))
        assert stage.logs.lines == {}

    def test_there_may_be_none(self):
        workshop = image_builds.Workshop(ScriptedBuilder(), Objects())
        image, outcomes = draft(), []
        workshop.build(image, image.versions[0], record=outcomes.append)
        assert outcomes[0].reason is None


class TestSweep:
    def test_what_is_in_use_is_asked_then(self, stage):
        stage.workshop.sweep(lambda: {"b", "a"})
        assert stage.builder.swept == [["a", "b"]]

    def test_while_a_build_is_under_way_nothing_is_swept_but_afterwards(self, stage):
        stage.builder.gate.clear()
        is_recorded = stage.begin_build()
        # What the build made is in use by the time that this is asked.
        stage.workshop.sweep(lambda: ["new"] if is_recorded.is_set() else ["old"])
        stage.workshop.sweep(lambda: ["new"] if is_recorded.is_set() else ["old"])
        assert stage.builder.swept == []
        stage.builder.gate.set()
        assert is_recorded.wait(WAIT_SECONDS)
        stage.builder.wait_for(lambda: stage.builder.swept)
        assert stage.builder.swept == [["new"]]

    def test_a_sweep_waits_for_the_last_of_several_builds(self, stage):
        stage.builder.gate.clear()
        ends = [stage.begin_build(name) for name in ("a", "b", "c")]
        stage.workshop.sweep(lambda: [str(sum(end.is_set() for end in ends))])
        stage.builder.gate.set()
        stage.builder.wait_for(lambda: stage.builder.swept)
        assert stage.builder.swept == [["3"]]

    def test_a_build_that_begins_meanwhile_waits(self, stage):
        stage.builder.sweep_gate.clear()
        is_asked = threading.Event()
        stage.workshop.spawn("sweep", lambda: stage.workshop.sweep(lambda: is_asked.set() or []))
        assert is_asked.wait(WAIT_SECONDS)
        image, is_recorded = draft(), threading.Event()
        stage.workshop.spawn(
            "build", lambda: stage.workshop.build(image, image.versions[0], record=lambda outcome: is_recorded.set())
        )
        assert not is_recorded.wait(0.05)
        assert stage.builder.specs == []
        stage.builder.sweep_gate.set()
        assert is_recorded.wait(WAIT_SECONDS)

    @pytest.mark.parametrize("failure", [OSError(errno.EBUSY, "busy"), errors.LocalCloudError("no")])
    def test_a_failure_is_logged_and_the_next_one_goes_on(self, stage, caplog, failure):
        stage.builder.sweep_failure = failure
        stage.workshop.sweep(list)
        assert "layers could not be removed" in caplog.text
        stage.builder.sweep_failure = None
        stage.workshop.sweep(lambda: ["a"])
        assert stage.builder.swept[-1] == ["a"]


class TestEnd:
    def test_builds_that_are_under_way_end_and_say_so(self, stage):
        stage.builder.gate.clear()
        image, outcomes = draft(), []
        stage.workshop.spawn("build", lambda: stage.workshop.build(image, image.versions[0], record=outcomes.append))
        stage.builder.wait_for(lambda: stage.builder.specs)
        stage.workshop.close()
        assert outcomes[0].reason == "INTERNAL_PLATFORM_ERROR: the local cloud ended during the build."

    def test_nothing_is_swept_any_more(self, stage):
        stage.workshop.close()
        stage.workshop.sweep(list)
        assert stage.builder.swept == []
