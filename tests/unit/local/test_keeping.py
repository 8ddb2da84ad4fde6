"""The account's records on disk."""

import os
import stat

import pytest

from vmnest import errors
from vmnest.local import keeping


def test_what_was_saved_is_loaded(tmp_path):
    path = str(tmp_path / "r.json")
    for synced in (True, False):
        keeping.save(path, {"a": synced}, synced=synced)
        assert keeping.load(path, lambda value: value) == {"a": synced}
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["r.json"]


def test_folders_are_ours_alone(tmp_path):
    keeping.open_folder(str(tmp_path / "a" / "b"))
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_what_is_not_there_is_none(tmp_path):
    assert keeping.load(str(tmp_path / "r.json"), dict) is None
    assert keeping.files(str(tmp_path / "none"), ".json") == []


@pytest.mark.parametrize("data", [b"{", b"\xff", b'{"a": 1}', b"[" * 100_000])
def test_what_is_damaged_is_kept_aside_and_said(tmp_path, caplog, data):
    path = tmp_path / "r.json"
    path.write_bytes(data)

    def parse(value):
        raise ValueError("no sense")

    assert keeping.load(str(path), parse) is None
    assert (tmp_path / "r.json.bad").read_bytes() == data
    assert "r.json is damaged" in caplog.text


def test_a_pipe_in_its_place_does_not_hold_anybody(tmp_path):
    os.mkfifo(tmp_path / "r.json")
    assert keeping.load(str(tmp_path / "r.json"), dict) is None


@pytest.mark.parametrize("synced", [True, False])
def test_a_record_that_cannot_be_written_leaves_the_one_that_was_there(tmp_path, synced):
    target = tmp_path / "r.json"
    target.mkdir()
    (target / "kept").touch()
    with pytest.raises(errors.LocalCloudError, match="cannot write"):
        keeping.save(str(target), {}, synced=synced)
    assert sorted(os.listdir(tmp_path)) == ["r.json"]
    with pytest.raises(errors.LocalCloudError):
        keeping.save(str(tmp_path / "no" / "r.json"), {}, synced=synced)


def test_half_written_files_are_removed_and_others_are_not(tmp_path):
    for name in ("a.json", "b.json", "c.json.1.tmp", "d.bad"):
        (tmp_path / name).touch()
    (tmp_path / "e.json").mkdir()
    assert [os.path.basename(path) for path in keeping.files(str(tmp_path), ".json")] == ["a.json", "b.json"]
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.json", "d.bad", "e.json"]


def test_members_are_what_they_must_be():
    record = {"t": "x", "n": 1.5, "m": {"a": "b"}}
    assert (keeping.text(record, "t"), keeping.number(record, "n"), keeping.texts(record, "m")) == (
        "x",
        1.5,
        {"a": "b"},
    )
    assert keeping.texts(record, "absent") == {}
    for read, bad in ((keeping.text, 1), (keeping.number, "1"), (keeping.number, True), (keeping.texts, {"a": 1})):
        with pytest.raises(ValueError):
            read({"x": bad}, "x")
    with pytest.raises(ValueError):
        keeping.mapping([])
