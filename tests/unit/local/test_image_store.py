"""Images on disk."""

import json
import os

import pytest

from tests.support.image_stage import SETTINGS, make_built
from vmnest import errors
from vmnest.local import image_store
from vmnest.local.image_records import Image, Outcome


def make_image(name="demo", *, number=2, outcome=None):
    ids = iter(range(100))
    image = Image(name, "id", number, created_at=1.5, updated_at=1.5)
    image = image.add_version(SETTINGS, at=1.5, new_id=lambda: str(next(ids)))
    image = image.start_build(1)
    return image if outcome is None else image.end_build(1, outcome, at=2.5)


@pytest.fixture
def store(tmp_path):
    return image_store.Store(str(tmp_path))


class TestImages:
    @pytest.mark.parametrize(
        "image",
        [
            make_image(),
            make_image(outcome=Outcome(make_built("a", "b", exposed=("80/tcp",)))),
            make_image(outcome=Outcome(reason="why")),
            make_image(outcome=Outcome(make_built())).begin_delete(at=3.0),
            make_image(outcome=Outcome(make_built())).begin_delete(at=3.0).end_delete(at=4.0),
        ],
        ids=["begun", "built", "failed", "going", "gone"],
    )
    def test_they_come_back_as_they_were(self, store, tmp_path, image):
        store.save(image)
        assert image_store.Store(str(tmp_path)).load() == [image]

    def test_they_come_in_the_order_in_which_they_were_made(self, store):
        for name, number in [("b", 4), ("c", 2), ("a", 3)]:
            store.save(make_image(name, number=number))
        assert [image.name for image in store.load()] == ["c", "a", "b"]

    def test_the_file_is_ours_alone(self, store, tmp_path):
        store.save(make_image())
        assert os.stat(tmp_path / "images" / "demo.json").st_mode & 0o777 == 0o600
        assert os.stat(tmp_path / "images").st_mode & 0o777 == 0o700

    def test_one_that_is_forgotten_is_gone(self, store):
        store.save(make_image())
        store.forget(make_image())
        store.forget(make_image())
        assert store.load() == []

    def test_one_that_cannot_be_written_stays_as_it_was(self, store, tmp_path):
        store.save(make_image())
        os.rename(tmp_path / "images", tmp_path / "elsewhere")
        with pytest.raises(errors.LocalCloudError, match="cannot write"):
            store.save(make_image(outcome=Outcome(reason="why")))
        os.rename(tmp_path / "elsewhere", tmp_path / "images")
        assert store.load() == [make_image()]


def change(**members):
    def change_note(note):
        note.update(members)

    return change_note


def change_version(**members):
    def change_note(note):
        note["versions"][0].update(members)

    return change_note


class TestDamage:
    @pytest.mark.parametrize(
        "damage",
        [
            change(schema=2),
            change(name="other"),
            change(name=7),
            change(number=-1),
            change(number=1.5),
            change(created_at=None),
            change(state="GONE"),
            change(state="CREATED"),
            change(last_number=0),
            change(versions=None),
            change(versions=[1]),
            change(versions=[]),
            change_version(number=True),
            change_version(settings=[]),
            change_version(state="DELETED"),
            change_version(state="SUCCESSFUL"),
            change_version(status="MAYBE"),
            change_version(reason=1),
            change_version(built={}),
            change_version(builds=[{}]),
        ],
    )
    def test_what_makes_no_sense_is_kept_aside(self, store, tmp_path, damage):
        store.save(make_image())
        path = tmp_path / "images" / "demo.json"
        note = json.loads(path.read_text())
        damage(note)
        path.write_text(json.dumps(note))
        assert store.load() == []
        if note["name"] != "other":
            assert json.loads((tmp_path / "images" / "demo.json.bad").read_text()) == note

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
    def test_what_is_no_json_is_kept_aside(self, store, tmp_path, data):
        (tmp_path / "images" / "demo.json").write_bytes(data)
        store.save(make_image("fine"))
        assert [image.name for image in store.load()] == ["fine"]
        assert (tmp_path / "images" / "demo.json.bad").read_bytes() == data

    def test_what_a_killed_daemon_was_writing_is_removed(self, store, tmp_path):
        (tmp_path / "images" / "demo.json.1.abcd.tmp").write_bytes(b"{")
        os.mkfifo(tmp_path / "images" / "pipe.json")
        assert store.load() == []
        assert sorted(os.listdir(tmp_path / "images")) == ["pipe.json", "tokens"]


class TestAnswers:
    def test_an_answer_is_kept_for_ever_for_its_operation_and_token(self, store, tmp_path):
        store.keep_answer("CreateMicrovmImage", "t/../1", fingerprint="f", answer={"a": [1.5, None]})
        again = image_store.Store(str(tmp_path))
        assert again.answer("CreateMicrovmImage", "t/../1") == ("f", {"a": [1.5, None]})
        assert again.answer("UpdateMicrovmImage", "t/../1") is None
        assert again.answer("CreateMicrovmImage", "t") is None
        assert again.load() == []

    def test_a_damaged_one_is_as_if_it_had_not_been(self, store, tmp_path):
        store.keep_answer("CreateMicrovmImage", "t", fingerprint="f", answer={})
        (path,) = (tmp_path / "images" / "tokens").iterdir()
        path.write_text("{}")
        assert store.answer("CreateMicrovmImage", "t") is None
        assert path.with_name(path.name + ".bad").read_text() == "{}"
