"""Where a sandbox.yaml is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmnest import errors
from vmnest.infra import places


def test_the_environment_comes_before_sandbox_yaml_and_that_before_setup_yaml(tmp_path: Path) -> None:
    assert places.find_default({}, cwd=str(tmp_path)) is None
    (tmp_path / "setup.yaml").touch()
    assert places.find_default({}, cwd=str(tmp_path)) == "setup.yaml"
    (tmp_path / "sandbox.yaml").touch()
    assert places.find_default({}, cwd=str(tmp_path)) == "sandbox.yaml"
    assert places.find_default({"AGENT_SANDBOX_SETUP": "/x/y.yaml"}, cwd=str(tmp_path)) == "/x/y.yaml"


def test_where_there_is_none_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"no sandbox.yaml in {tmp_path}") as caught:
        places.find(None, environ={}, cwd=str(tmp_path))
    assert "vmnest infra init" in str(caught.value.hint)


def test_of_a_directory_the_yaml_files_are_read_in_order(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.txt", ".hidden.yaml", "d.yaml.bak"):
        (tmp_path / "stacks" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "stacks" / name).touch()
    (tmp_path / "stacks" / "below.yaml").mkdir()
    assert places.find(["stacks"], environ={}, cwd=str(tmp_path)) == ["stacks/a.yml", "stacks/b.yaml"]


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").touch()
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    assert places.find(["a.yaml", ".", "./a.yaml"], environ={}, cwd=str(tmp_path)) == ["a.yaml"]


def test_a_directory_without_any_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.ConfigurationError, match=r"no \.yaml or \.yml file in the directory empty"):
        places.find(["empty"], environ={}, cwd=str(tmp_path))


def test_what_can_be_no_name_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="no name of a file"):
        places.find(["a\0b"], environ={}, cwd=str(tmp_path))
