"""An image is made of the folder that was named, else ./guest, else the packaged guest, and never of a guess."""

from pathlib import Path

import pytest

from vmnest import errors
from vmnest.guest_image import source


def make(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("FROM scratch\n")
    return folder


def test_a_directory_that_is_given_is_taken(tmp_path: Path):
    make(tmp_path / "mine", "Dockerfile")
    assert source.find("mine", folder=str(tmp_path)) == (str(tmp_path / "mine"), False, None)


def test_without_one_it_is_the_folder_guest(tmp_path: Path):
    make(tmp_path / "guest", "Dockerfile")
    assert source.find(folder=str(tmp_path)).path == str(tmp_path / "guest")


@pytest.mark.parametrize("given", [None, "guest", "./guest"])
def test_without_that_folder_it_is_the_guest_of_the_package(tmp_path: Path, given):
    found = source.find(given, folder=str(tmp_path))
    assert found.is_packaged
    assert Path(found.path, "agentd", "serve.py").is_file()
    assert "guest does not exist" in str(found.remark)


@pytest.mark.parametrize("given", ["other", "guest/inner"])
def test_another_directory_that_is_missing_is_an_error(tmp_path: Path, given):
    with pytest.raises(errors.GuestImageError, match="does not exist"):
        source.find(given, folder=str(tmp_path))


def test_a_file_is_no_directory(tmp_path: Path):
    make(tmp_path, "Dockerfile")
    with pytest.raises(errors.GuestImageError, match="is no directory"):
        source.find("Dockerfile", folder=str(tmp_path))


def test_a_dockerfile_of_another_spelling_is_named(tmp_path: Path):
    make(tmp_path / "guest", "dockerfile")
    with pytest.raises(errors.GuestImageError, match="no file Dockerfile") as caught:
        source.find(folder=str(tmp_path))
    assert "Rename dockerfile" in str(caught.value.hint)


def test_a_dockerfile_that_is_no_file_is_not_to_be_renamed(tmp_path: Path):
    (tmp_path / "guest" / "Dockerfile").mkdir(parents=True)
    with pytest.raises(errors.GuestImageError, match="no file Dockerfile") as caught:
        source.find(folder=str(tmp_path))
    assert "a regular file" in str(caught.value.hint)


def test_a_dangling_guest_is_not_replaced_silently(tmp_path: Path):
    (tmp_path / "guest").symlink_to("nowhere")
    with pytest.raises(errors.GuestImageError, match="does not exist"):
        source.find(folder=str(tmp_path))
