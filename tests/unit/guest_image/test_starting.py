"""The guest, written out for an image of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest import errors
from vmnest.guest_image import packing, starting


def test_what_is_written_makes_the_image_that_comes_with_vmnest(tmp_path: Path) -> None:
    place = tmp_path / "new" / "guest"
    names = starting.write(str(place))
    assert {".dockerignore", "Dockerfile", "agentd/serve.py", "agentd/__init__.py"} <= set(names)
    assert "__init__.py" not in names
    assert {each.relative_to(place).as_posix() for each in place.rglob("*") if each.is_file()} == set(names)
    with packing.pack(str(place)) as written, packing.pack(str(ROOT / "guest")) as own:
        assert written.names == own.names
        assert written.digest == own.digest
        assert written.has_agent


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert starting.write(str(tmp_path / "empty"))


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for path in (tmp_path, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(errors.GuestImageError, match="is there already") as caught:
            starting.write(str(path))
        assert caught.value.hint
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path, reason in ((tmp_path / "file" / "guest", "Not a directory"), ("nul\0", "null")):
        with pytest.raises(errors.GuestImageError, match=reason):
            starting.write(str(path))
