"""The working directory that a setting of this machine gives all sandboxes."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.sandbox.workdir import Workdir

SET = {"AGENT_SANDBOX_WORKDIR": "/srv/app"}


class Sandboxed:
    """What is made in a sandbox."""

    def __init__(self, failure: errors.VmnestError | None = None) -> None:
        self.made: list[str] = []
        self._failure = failure

    def make(self, path: str, deadline: Deadline) -> None:
        self.made.append(path)
        if self._failure is not None:
            raise self._failure


def test_unset_the_agent_decides() -> None:
    inside = Sandboxed()
    workdir = Workdir({}, make=inside.make)
    assert (workdir.find(), workdir.join("a"), workdir.join("."), workdir.join("/b")) == (None, "a", ".", "/b")
    assert inside.made == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a", "/srv/app/a"),
        ("./a/../b", "/srv/app/./a/../b"),
        (".", "/srv/app"),
        ("..", "/srv/app/.."),
        ("/a", "/a"),
        ("", ""),
        ("\udcff", "/srv/app/\udcff"),
    ],
)
def test_a_relative_path_begins_there(path: str, found: str) -> None:
    assert Workdir(SET, make=Sandboxed().make).join(path) == found


@pytest.mark.parametrize("wrong", [5, b"a", ["a"], PurePosixPath("a")])
def test_what_is_no_text_is_for_whoever_names_the_argument(wrong: Any) -> None:
    assert Workdir(SET, make=Sandboxed().make).join(wrong) is wrong


def test_it_is_made_once_and_only_if_it_is_needed() -> None:
    inside = Sandboxed()
    workdir = Workdir(SET, make=inside.make)
    workdir.join("/absolute")
    assert inside.made == []
    assert [workdir.find(), workdir.join("a"), workdir.find()] == ["/srv/app", "/srv/app/a", "/srv/app"]
    assert inside.made == ["/srv/app"]


def test_what_cannot_be_made_names_the_setting_every_time() -> None:
    workdir = Workdir(SET, make=Sandboxed(errors.RemoteFileError("permission denied: /srv")).make)
    for _ in range(2):
        with pytest.raises(errors.RemoteFileError, match="permission denied") as caught:
            workdir.find()
    assert "AGENT_SANDBOX_WORKDIR" in str(caught.value.hint)


def test_a_sandbox_that_can_make_no_directories_may_have_it() -> None:
    assert Workdir(SET, make=Sandboxed(errors.UnsupportedError("no mkdir")).make).find() == "/srv/app"
