"""Images, versions and builds: states by tables, numbers that are never given twice."""

import dataclasses
import itertools

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.image_stage import make_built
from vmnest.aws import shapes
from vmnest.local import image_records
from vmnest.local.image_records import Image, Outcome

MODEL = shapes.load("lambda-microvms")
BUILT = Outcome(make_built("a"))
FAILED = Outcome(reason="why")


def new_image():
    ids = map(str, itertools.count())
    image = Image("demo", "id", 2, created_at=1.0, updated_at=1.0)
    return image.add_version({"description": "first"}, at=1.0, new_id=lambda: next(ids))


def updated(image, *, at=5.0):
    return image.add_version({}, at=at, new_id=lambda: "x")


def built(image, outcome=BUILT, *, at=3.0):
    return image.start_build(image.last_number).end_build(image.last_number, outcome, at=at)


def states_of(operation, member):
    return set(MODEL.operation(operation).output.members[member].shape.choices)


class TestTables:
    def test_all_states_are_the_models(self):
        assert states_of("GetMicrovmImage", "state") == image_records.IMAGE_STATES
        assert states_of("GetMicrovmImageVersion", "state") >= image_records.VERSION_STATES
        assert states_of("GetMicrovmImageBuild", "buildState") == image_records.BUILD_STATES

    @pytest.mark.parametrize("state", ["CREATING", "UPDATING", "DELETING", "DELETED"])
    @pytest.mark.parametrize("event", [image_records.UPDATE, image_records.DRAIN, image_records.DELETE])
    def test_no_change_begins_while_one_is_under_way(self, state, event):
        assert not dataclasses.replace(new_image(), state=state).can(event)

    @pytest.mark.parametrize("state", ["CREATED", "CREATE_FAILED", "UPDATED", "UPDATE_FAILED", "DELETE_FAILED"])
    def test_whatever_is_settled_can_be_deleted_or_built_again(self, state):
        image = dataclasses.replace(new_image(), state=state)
        assert image.can(image_records.DELETE)
        assert updated(image).state == "UPDATING"

    def test_what_is_in_no_table_does_not_happen(self):
        with pytest.raises(image_records.TransitionError, match="update does not happen to what is CREATING"):
            updated(new_image())
        with pytest.raises(image_records.TransitionError, match="demo has no version 9"):
            new_image().start_build(9)


class TestBuilding:
    def test_a_new_image_has_one_version_with_two_builds(self):
        image = new_image()
        (version,) = image.versions
        assert (image.state, image.last_number) == ("CREATING", 1)
        assert (version.label, version.state, version.status) == ("1.0", "PENDING", "INACTIVE")
        assert [(build.generation, build.state) for build in version.builds] == [("4", "PENDING"), ("3", "PENDING")]
        assert len({build.build_id for build in version.builds}) == 2
        assert image.start_build(1).versions[0].builds[1].state == "IN_PROGRESS"

    def test_once_built_it_is_active(self):
        image = built(new_image())
        (version,) = image.versions
        assert (image.state, image.latest_active, image.latest_failed) == ("CREATED", version, None)
        assert (version.state, version.status, version.reason) == ("SUCCESSFUL", "ACTIVE", None)
        assert version.built == BUILT.built
        assert {(build.state, build.reason) for build in version.builds} == {("SUCCESSFUL", None)}
        assert (image.updated_at, version.updated_at, version.created_at) == (3.0, 3.0, 1.0)

    def test_a_failed_one_tells_why_in_its_builds(self):
        image = built(new_image(), FAILED)
        (version,) = image.versions
        assert (image.state, image.latest_active, image.latest_failed) == ("CREATE_FAILED", None, version)
        assert (version.state, version.status, version.reason) == ("FAILED", "INACTIVE", "One or more builds failed.")
        assert {(build.state, build.reason) for build in version.builds} == {("FAILED", "why")}

    def test_numbers_go_on_over_failed_versions(self):
        image = built(updated(built(new_image(), FAILED)))
        assert [version.label for version in image.versions] == ["1.0", "2.0"]
        assert (image.state, image.latest_active.label, image.latest_failed.label) == ("UPDATED", "2.0", "1.0")

    def test_a_failed_update_leaves_the_version_before_active(self):
        image = built(updated(built(new_image())), FAILED)
        assert (image.state, image.latest_active.label, image.latest_failed.label) == ("UPDATE_FAILED", "1.0", "2.0")

    @pytest.mark.parametrize("is_started", [False, True])
    def test_what_was_being_built_when_the_daemon_ended_has_failed(self, is_started):
        begun = updated(built(new_image()))
        image = (begun.start_build(2) if is_started else begun).interrupt("ended", at=9.0)
        assert (image.state, image.versions[1].state, image.updated_at) == ("UPDATE_FAILED", "FAILED", 9.0)
        assert {build.reason for build in image.versions[1].builds} == {"ended"}
        assert image.versions[0].is_runnable
        assert image.interrupt("ended", at=10.0) is image


class TestChanging:
    def test_an_inactive_version_is_not_run(self):
        image = built(updated(built(new_image()))).set_status(2, "INACTIVE", at=8.0)
        assert image.latest_active.label == "1.0"
        assert (image.version(2).updated_at, image.updated_at) == (8.0, 8.0)
        assert image.set_status(1, "INACTIVE", at=8.0).latest_active is None

    def test_an_image_is_updating_while_a_version_goes(self):
        image = built(updated(built(new_image())))
        going = image.begin_delete_version(2, at=6.0)
        assert (going.state, going.version(2).state, going.latest_active.label) == ("UPDATING", "DELETING", "1.0")
        gone = going.end_delete_version(2, at=7.0)
        assert (gone.state, gone.version(2), gone.last_number) == ("UPDATED", None, 2)
        assert updated(gone).versions[-1].label == "3.0"

    def test_a_version_that_cannot_be_removed_is_not_run(self):
        going = built(updated(built(new_image()))).begin_delete_version(2, at=6.0)
        kept = going.end_delete_version(2, at=7.0, is_gone=False)
        assert (kept.state, kept.version(2).state, kept.latest_active.label) == ("UPDATED", "DELETE_FAILED", "1.0")
        assert kept.begin_delete_version(2, at=8.0).version(2).state == "DELETING"

    def test_an_image_goes_with_all_its_versions(self):
        going = built(new_image()).begin_delete(at=6.0)
        assert (going.state, going.is_changing) == ("DELETING", True)
        gone = going.end_delete(at=7.0)
        assert (gone.state, gone.versions, gone.is_changing) == ("DELETED", (), False)
        kept = going.end_delete(at=7.0, is_gone=False)
        assert (kept.state, len(kept.versions)) == ("DELETE_FAILED", 1)


def test_secrets_do_not_print():
    image = Image("demo", "id", 2, created_at=1.0, updated_at=1.0)
    image = built(image.add_version({"environmentVariables": {"A": "s3cret"}}, at=1.0, new_id=lambda: "x"))
    assert "s3cret" not in repr(image)


def test_the_bucket_of_a_state_is_its_hour():
    assert built(new_image(), at=1785391200.0).versions[0].state_time_bucket == "SUCCESSFUL#26073006"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("1", 1), ("1.0", 1), ("12.0", 12), ("0", 0)),
        *((text, None) for text in ["01", "1.1", "1.", "", "-1", "1.0\n", "\u0661", "9" * 40, "latest"]),
    ],
)
def test_a_version_is_named_with_or_without_its_zero(text, number):
    assert image_records.parse_number(text) == number


class Life(RuleBasedStateMachine):
    """Whatever is asked for, in whatever order: an image takes what its tables allow, and its promises hold."""

    def __init__(self):
        super().__init__()
        self.time = 1.0
        self.image = new_image()
        self.given = {1}

    def at(self):
        self.time += 1
        return self.time

    @precondition(lambda self: self.image.can(image_records.UPDATE))
    @rule()
    def update(self):
        self.image = updated(self.image, at=self.at())
        assert self.image.last_number not in self.given
        self.given.add(self.image.last_number)

    @precondition(lambda self: any(version.is_being_built for version in self.image.versions))
    @rule(outcome=st.sampled_from([BUILT, FAILED]), is_interrupted=st.booleans())
    def end_build(self, outcome, is_interrupted):
        if is_interrupted:
            self.image = self.image.interrupt("ended", at=self.at())
        else:
            self.image = built(self.image, outcome, at=self.at())

    @precondition(lambda self: self.image.can(image_records.DRAIN) and self.image.versions)
    @rule(data=st.data(), is_gone=st.booleans())
    def delete_version(self, data, is_gone):
        number = data.draw(st.sampled_from(self.image.versions)).number
        going = self.image.begin_delete_version(number, at=self.at())
        assert going.is_consistent
        assert not going.version(number).is_runnable
        self.image = going.end_delete_version(number, at=self.at(), is_gone=is_gone)

    @precondition(lambda self: self.image.versions)
    @rule(data=st.data(), status=st.sampled_from(["ACTIVE", "INACTIVE"]))
    def set_status(self, data, status):
        version = data.draw(st.sampled_from(self.image.versions))
        if version.state == "SUCCESSFUL":
            self.image = self.image.set_status(version.number, status, at=self.at())

    @precondition(lambda self: self.image.can(image_records.DELETE))
    @rule(is_gone=st.booleans())
    def delete(self, is_gone):
        self.image = self.image.begin_delete(at=self.at()).end_delete(at=self.at(), is_gone=is_gone)

    @rule()
    def ask_for_what_it_does_not_allow(self):
        for event, act in {
            image_records.UPDATE: updated,
            image_records.DELETE: lambda image: image.begin_delete(at=self.time),
        }.items():
            if not self.image.can(event):
                with pytest.raises(image_records.TransitionError):
                    act(self.image)

    @invariant()
    def its_promises_hold(self):
        image = self.image
        assert image.is_consistent
        numbers = [version.number for version in image.versions]
        assert numbers == sorted(set(numbers)) == [number for number in numbers if number in self.given]
        assert image.last_number == max(self.given)
        for version in image.versions:
            assert len(version.builds) == 2
            assert {build.state for build in version.builds} <= image_records.BUILD_STATES
            assert version.is_runnable <= (version.built is not None)
            assert (version.status == "ACTIVE") <= (version.state == "SUCCESSFUL")
        assert (image.state == "DELETED") <= (not image.versions)


Life.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=20, deadline=None)
TestLife = Life.TestCase
