"""Names for what is not whole yet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from guest.agentd import temporaries


def test_a_new_file_is_made_beside_the_place_that_it_will_take(tmp_path: Path) -> None:
    descriptor, path = temporaries.create(os.fsencode(tmp_path), mode=0o600)
    os.close(descriptor)
    assert os.path.dirname(path) == os.fsencode(tmp_path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_new_file_is_made_below_an_open_directory(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        descriptor, name = temporaries.create(mode=0o600, dir_fd=folder)
        os.close(descriptor)
        assert os.listdir(tmp_path) == [os.fsdecode(name)]
        temporaries.remove(name, dir_fd=folder)
        assert os.listdir(tmp_path) == []
    finally:
        os.close(folder)


def test_what_is_gone_needs_no_removal(tmp_path: Path) -> None:
    temporaries.remove(os.fsencode(tmp_path / "gone"))


def test_a_name_that_is_taken_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An archive can hold any name, so those of others must not be guessed at; only chance is replaced here.
    chances = iter([b"12345678", b"12345678", b"87654321"])
    monkeypatch.setattr(os, "urandom", lambda count: next(chances))
    paths = []
    for _ in range(2):
        descriptor, path = temporaries.create(os.fsencode(tmp_path), mode=0o600)
        os.close(descriptor)
        paths.append(path)
    assert len(set(paths)) == 2


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        temporaries.create(os.fsencode(tmp_path / "none"), mode=0o600)
