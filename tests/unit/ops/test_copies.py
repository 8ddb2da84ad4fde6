"""Where a copy goes; that it gets there is a matter of ``tests/functional/test_cli_files.py``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmnest import errors
from vmnest.agent.entries import Skipped, Transfer
from vmnest.ops import copies
from vmnest.ops.copies import DIRECTORY, FILE, OTHER, Place

THERE = {
    "/": DIRECTORY,
    ".": DIRECTORY,
    "dir": DIRECTORY,
    "dir/full": DIRECTORY,
    "dir/name": FILE,
    "file": FILE,
    "fifo": OTHER,
}


def look(place: Place) -> str | None:
    """A small file system."""
    path = place.path.rstrip("/") or "/"
    return THERE.get(os.path.normpath(path))


def target(source: str, destination: str, *, kind: str = FILE) -> str:
    found = copies.resolve_target(Place(None, source), Place("box", destination), kind=kind, look=look)
    assert found.sandbox == "box"
    return found.path


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("a", "new", "new"),
        ("x/a", "/new", "/new"),
        ("x/a", "dir/new", "dir/new"),
        ("x/a", "dir", "dir/a"),
        ("x/a", "dir/", "dir/a"),
        ("x/a", "dir/.", "dir/./a"),
        ("x/a", ".", "./a"),
        ("x/a", "/", "/a"),
        ("x/a", "file", "file"),
        ("x/name", "dir", "dir/name"),
        ("x/name", "dir/name", "dir/name"),
    ],
)
def test_a_file_goes_into_a_directory_or_to_the_very_path(source: str, destination: str, expected: str) -> None:
    assert target(source, destination) == expected


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("a", "new", "new"),
        ("a/", "new/", "new"),
        ("x/a", "dir", "dir/a"),
        ("x/a/", "dir", "dir/a"),
        ("x/a//", "dir//", "dir//a"),
        ("x/full", "dir", "dir/full"),
        ("x/a/.", "dir", "dir"),
        ("x/a/./", "dir/", "dir/"),
        (".", "dir", "dir"),
        ("..", "dir", "dir"),
        ("/", "dir", "dir"),
        ("x/..", "dir", "dir"),
        ("x/a/.", "new", "new"),
        ("x/.a", "dir", "dir/.a"),
        ("x/...", "dir", "dir/..."),
    ],
)
def test_a_directory_goes_into_one_that_is_there_or_becomes_it(source: str, destination: str, expected: str) -> None:
    assert target(source, destination, kind=DIRECTORY) == expected


@pytest.mark.parametrize(
    ("kind", "source", "destination", "message"),
    [
        (FILE, "a", "new/", "there is no directory box:new/"),
        (FILE, "a", "none/new", "there is no directory box:none"),
        (FILE, "a", "/none/new", "there is no directory box:/none"),
        (FILE, "a", "file/", "box:file/ is no directory"),
        (FILE, "a", "file/new", "box:file is no directory"),
        (FILE, "x/full", "dir", "box:dir/full is a directory, and no file takes its place"),
        (FILE, "a", "fifo", "box:fifo is neither a file nor a directory"),
        (DIRECTORY, "a", "none/new", "there is no directory box:none"),
        (DIRECTORY, "a", "file", "box:file is no directory"),
        (DIRECTORY, "a", "fifo", "box:fifo is no directory"),
        (DIRECTORY, "x/name", "dir", "box:dir/name is no directory"),
        (DIRECTORY, "x/a/.", "file", "box:file is no directory"),
    ],
)
def test_what_cannot_be_there_is_refused(kind: str, source: str, destination: str, message: str) -> None:
    with pytest.raises(errors.RemoteFileError) as caught:
        target(source, destination, kind=kind)
    assert caught.value.message == message


def test_on_this_machine_it_is_a_local_error() -> None:
    for destination, kind in (("new/", errors.LocalFileNotFoundError), ("file/", errors.LocalFileError)):
        with pytest.raises(kind):
            copies.resolve_target(Place("box", "a"), Place(None, destination), kind=FILE, look=look)


@pytest.mark.parametrize(
    ("source", "destination", "kind"),
    [
        ("file", "file", FILE),
        ("./file", "file", FILE),
        ("dir/name", "dir", FILE),
        ("dir", "dir/new", DIRECTORY),
        ("dir", "dir/full", DIRECTORY),
        ("dir", "dir", DIRECTORY),
        ("dir/full", "dir", DIRECTORY),
        (".", "new", DIRECTORY),
        ("/", "/new", DIRECTORY),
    ],
)
def test_nothing_is_copied_onto_or_into_itself(source: str, destination: str, kind: str) -> None:
    with pytest.raises(errors.UsageError, match=r"are the same|into itself"):
        copies.resolve_target(Place("box", source), Place("box", destination), kind=kind, look=look)
    if (source, kind) != (".", DIRECTORY):
        copies.resolve_target(Place("other", source), Place("box", destination), kind=kind, look=look)


def test_a_name_that_begins_alike_is_another() -> None:
    assert copies.resolve_target(Place("box", "di"), Place("box", "dir/x"), kind=DIRECTORY, look=look).path == "dir/x"


SOURCES = st.sampled_from(["file", "dir", "dir/", "dir/.", "dir/full", "dir/name", "link", "dir/full/.."])
DESTINATIONS = st.sampled_from(
    ["out", "out/", "out/name", "out/full", "out/new", "out/new/", "out/none/new", "out/name/", "out/link", "out/."]
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=SOURCES, destination=DESTINATIONS)
def test_it_is_where_cp_would_put_it(tmp_path: Path, source: str, destination: str) -> None:
    """Both sides on this machine, which ``Copier`` never has: so cp(1) can be asked."""
    shutil.rmtree(tmp_path)
    for folder in ("dir/full", "full", "out/full"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("file", "dir/name", "dir/full/x", "out/name"):
        (tmp_path / file).write_text(file)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "out" / "link").symlink_to("full")
    here, there = f"{tmp_path}/{source}", f"{tmp_path}/{destination}"
    kind = copies._look_here(Place(None, here))
    assert kind is not None
    found: str | None
    try:
        found = copies.resolve_target(Place("a", here), Place(None, there), kind=kind, look=copies._look_here).path
    except errors.VmnestError:
        found = None
    done = subprocess.run(["cp", "-rH", here, there], capture_output=True, check=False)
    assert (found is None) == (done.returncode != 0), done.stderr
    if found is not None:
        compared = subprocess.run(["diff", "-r", here, found], capture_output=True, check=False)
        assert b"differ" not in compared.stdout
        assert f"Only in {here}".encode() not in compared.stdout


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("none")
    with pytest.raises(errors.LocalFileError, match="leads nowhere"):
        copies._look_here(Place(None, str(tmp_path / "link")))
    assert copies._look_here(Place(None, "/dev/null")) == OTHER
    with pytest.raises(errors.UsageError, match="not a path"):
        copies._look_here(Place(None, "a\0b"))
    with pytest.raises(errors.LocalFileError, match="Not a directory"):
        copies._look_here(Place(None, "/dev/null/x"))


def test_a_copy_is_described_with_what_was_left_out() -> None:
    done = Transfer(files=2, directories=1, links=3, bytes=4, skipped=(Skipped("p", "a named pipe"),))
    described = copies.describe(Place(None, "a"), Place("box", "/b"), done)
    assert described == {
        "source": "a",
        "destination": "box:/b",
        "files": 2,
        "directories": 1,
        "links": 3,
        "bytes": 4,
        "skipped": [{"path": "p", "reason": "a named pipe"}],
    }
    within = copies.describe(Place("box", "a"), Place("box", "b"), None)
    assert (within["files"], within["skipped"]) == (None, [])
    assert copies.left_out([described, within]) == [{"path": "p", "reason": "a named pipe"}]


def test_what_is_left_out_within_a_sandbox_is_told() -> None:
    within = copies.describe(Place("box", "a"), Place("box", "b"), None, skipped=[Skipped("p", "permission denied")])
    assert copies.left_out([within]) == [{"path": "p", "reason": "permission denied"}]


def copied(*skipped: tuple[str, str]) -> dict[str, object]:
    done = Transfer(skipped=tuple(Skipped(*each) for each in skipped))
    return copies.describe(Place(None, "a"), Place("box", "b"), done)


def test_a_copy_without_what_no_copy_has_is_whole() -> None:
    copies.check_whole([copied(("s", "a socket"), ("p", "a named pipe")), copied(("d", "a device"))])
    copies.check_whole([])


@pytest.mark.parametrize(
    ("skipped", "message"),
    [
        ([("p", "a named pipe"), ("f", "permission denied")], "not everything was copied: f: permission denied"),
        ([("f", "gone"), ("g", "gone")], "not everything was copied: f: gone (1 more)"),
        ([("", "and 7 more")], "not everything was copied: and 7 more"),
    ],
)
def test_a_copy_that_lacks_a_file_is_not(skipped: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(errors.IncompleteCopyError) as caught:
        copies.check_whole([copied(), copied(*skipped)])
    assert caught.value.message == message
    assert "--exclude" in (caught.value.hint or "")
    assert "tar -cf - PATH" in (caught.value.hint or "")


def test_the_working_directory_of_a_sandbox_is_shown_as_it_is_typed() -> None:
    assert [str(Place("box", path)) for path in (".", "./a", "/")] == ["box:", "box:./a", "box:/"]
    assert str(Place(None, ".")) == "."


@pytest.mark.parametrize(("path", "shown"), [("/a b", "'/a b'"), ("d", "./d"), ("-x", "./-x")])
def test_how_a_directory_is_written_as_an_archive_can_be_typed(path: str, shown: str) -> None:
    assert copies._archiving(Place("box", path)) == f"vmnest exec box -- tar -cf - {shown}"
