"""Images in memory and on disk."""

import pytest

from tests.support.image_stage import make_built
from vmnest import errors
from vmnest.local import image_builtin, image_shelf, image_store
from vmnest.local.image_records import Image, Outcome

BUILT_IN = image_builtin.built_in(5.0)


def make_image(name="demo", *, number=2, layers=("a", "b")):
    image = Image(name, f"{name}-{number}", number, created_at=1.0, updated_at=1.0)
    image = image.add_version({}, at=1.0, new_id=lambda: "x")
    return image.start_build(1).end_build(1, Outcome(make_built(*layers)), at=2.0)


def gone(image, *, at=4.0):
    return image.begin_delete(at=3.0).end_delete(at=at)


@pytest.fixture
def store(tmp_path):
    return image_store.Store(str(tmp_path))


@pytest.fixture
def shelf(store):
    return image_shelf.Shelf(store, BUILT_IN)


class TestImages:
    def test_the_built_in_one_is_always_there_and_on_no_disk(self, shelf, store):
        assert shelf.all() == [BUILT_IN]
        assert shelf.find("local") is BUILT_IN
        assert store.load() == []

    def test_what_is_put_is_found_and_noted(self, shelf, store):
        image = make_image()
        assert shelf.put(image) is image
        assert shelf.find("demo") is image
        assert (shelf.all(), store.load()) == ([BUILT_IN, image], [image])

    def test_what_was_noted_is_loaded_and_what_is_in_the_middle_of_something_told(self, shelf, store):
        resting, going = make_image("a"), make_image("b", number=3).begin_delete(at=9.0)
        for image in (resting, going, make_image("local", number=4)):
            store.save(image)
        assert shelf.load() == [going]
        assert shelf.all() == [BUILT_IN, resting, going]
        assert shelf.is_busy

    def test_one_that_cannot_be_noted_is_not_put(self, shelf, store, tmp_path, monkeypatch, caplog):
        def refuse(image):
            raise errors.LocalCloudError("full")

        monkeypatch.setattr(store, "save", refuse)
        with pytest.raises(errors.LocalCloudError, match="full"):
            shelf.put(make_image())
        assert shelf.all() == [BUILT_IN]
        # What has happened has happened.
        shelf.note(make_image())
        assert shelf.find("demo") == make_image()
        assert "image demo could not be noted" in caplog.text

    def test_a_deleted_one_leaves_its_name(self, shelf, store):
        shelf.put(gone(make_image()))
        assert (shelf.find("demo"), shelf.was_deleted("demo"), shelf.was_deleted("other")) == (None, True, False)
        again = image_shelf.Shelf(store, BUILT_IN)
        again.load()
        assert (again.all(), again.was_deleted("demo")) == ([BUILT_IN], True)

    def test_another_one_of_that_name_is_the_last_in_lists(self, shelf):
        shelf.put(gone(make_image("demo", number=2)))
        shelf.put(make_image("other", number=3))
        assert shelf.next_number == 4
        shelf.put(make_image("demo", number=4))
        assert [image.name for image in shelf.all()] == ["local", "other", "demo"]
        assert not shelf.was_deleted("demo")

    def test_only_the_latest_deleted_names_are_remembered(self, shelf, store, monkeypatch):
        monkeypatch.setattr(image_shelf, "MAX_DELETED", 2)
        for number, name in enumerate(["a", "b", "c"], start=2):
            shelf.put(gone(make_image(name, number=number), at=10.0 - number))
        assert [shelf.was_deleted(name) for name in ("a", "b", "c")] == [True, True, False]
        assert [image.name for image in store.load()] == ["a", "b"]

    def test_builds_are_told(self, shelf):
        image = shelf.put(make_image("a").add_version({}, at=1.0, new_id=lambda: "x"))
        shelf.put(make_image("b", number=3))
        assert (shelf.builds, shelf.is_busy) == ([(image, image.versions[1])], True)


class TestLayers:
    def test_those_of_all_versions_are_in_use(self, shelf):
        image = make_image("a").add_version({}, at=1.0, new_id=lambda: "x")
        shelf.put(image.start_build(2).end_build(2, Outcome(make_built("c", "b")), at=3.0))
        shelf.put(make_image("b", number=3, layers=("d",)))
        assert shelf.layers_in_use() == {"a", "b", "c", "d"}

    def test_those_of_what_goes_are_not(self, shelf):
        image = make_image("a").add_version({}, at=1.0, new_id=lambda: "x")
        image = image.start_build(2).end_build(2, Outcome(make_built("c", "b")), at=3.0)
        shelf.put(image.begin_delete_version(1, at=4.0))
        assert shelf.layers_in_use() == {"b", "c"}
        shelf.put(image.begin_delete(at=4.0))
        assert shelf.layers_in_use() == set()

    def test_those_that_a_microvm_is_about_to_start_on_are(self, shelf):
        image = make_image()
        shelf.put(image)
        for _ in range(2):
            shelf.pin(image, image.versions[0])
        shelf.put(image.begin_delete(at=4.0))
        shelf.unpin(image, image.versions[0])
        assert (shelf.is_pinned(image), shelf.layers_in_use()) == (True, {"a", "b"})
        shelf.unpin(image, image.versions[0])
        assert (shelf.is_pinned(image), shelf.layers_in_use()) == (False, set())
