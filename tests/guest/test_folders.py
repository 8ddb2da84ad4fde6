"""Operations on names: looked at, listed, made, removed, copied, renamed, and never through a link that was planted."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest.agentd import descents, folders
from guest.agentd.errors import RequestError
from tests.support import trees


def encode(path: Path | str | bytes) -> bytes:
    return os.fsencode(path)


def describe(path: Path | str | bytes, **options: bool) -> dict[str, object]:
    return folders.describe(encode(path), shown=encode(path), **options)


def scan(path: Path, *, depth: int = 1) -> list[dict[str, object]]:
    return list(folders.scan(encode(path), shown=b"shown", depth=depth))


def refusal(call: Callable[..., object], *paths: Path | str, **options: object) -> tuple[int, str]:
    """The status and code with which an operation on these paths is refused."""
    with pytest.raises(RequestError) as caught:
        call(*map(encode, paths), **options)
    return caught.value.status, caught.value.code


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """A folder from which a rename does not reach ``tmp_path``."""
    places = [place for place in ("/dev/shm", "/run", "/tmp") if os.access(place, os.W_OK)]
    place = next(place for place in places if os.stat(place).st_dev != tmp_path.stat().st_dev)
    with tempfile.TemporaryDirectory(prefix="vmnest-test-", dir=place) as folder:
        yield Path(folder)


# -- looking


def test_an_entry_tells_all(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"content")
    path.chmod(0o640)
    os.utime(path, (1, 1.5))
    entry = describe(path, sha256=True)
    assert entry == {
        "name": "f",
        "path": str(path),
        "type": "file",
        "size": 7,
        "mode": 0o640,
        "mtime": 1.5,
        "uid": os.getuid(),
        "gid": path.stat().st_gid,
        "sha256": hashlib.sha256(b"content").hexdigest(),
    }


def test_types_are_named_and_nothing_is_opened(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("directory", "fifo", "socket"):
            assert describe(tmp_path / name, sha256=True)["type"] == name
    assert describe("/dev/null")["type"] == "device"
    assert describe(tmp_path / "link", follow=False)["type"] == "link"
    assert describe(tmp_path / "link", follow=False)["target"] == "fifo"
    assert describe(tmp_path / "link")["type"] == "fifo"
    assert "target" not in describe(tmp_path / "link")


def test_names_that_are_no_utf_8_travel_as_surrogates(tmp_path: Path) -> None:
    path = encode(tmp_path) + b"/\xff\n"
    os.symlink(b"\xfe", path)
    entry = folders.describe(path, shown=b"\xff\n", follow=False)
    assert (entry["name"], entry["path"], entry["target"]) == ("\udcff\n", "\udcff\n", "\udcfe")


@pytest.mark.parametrize(("shown", "name"), [(b"/", "/"), (b".", "."), (b"a/b/", "b"), (b"a", "a")])
def test_the_name_is_the_last_part_of_the_path(shown: bytes, name: str) -> None:
    assert folders.describe(b"/", shown=shown)["name"] == name


def test_looking_at_what_is_not_there_is_a_404(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert refusal(describe, tmp_path / "none") == (404, "file_not_found")
    assert refusal(describe, tmp_path / "dangling") == (404, "file_not_found")
    assert refusal(describe, tmp_path / "f" / "x") == (400, "not_a_directory")
    assert describe(tmp_path / "dangling", follow=False)["type"] == "link"


def test_existence_is_that_of_the_name(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    found = {name: folders.exists(encode(tmp_path / name)) for name in ("f", "dangling", "loop", ".")}
    missing = {name: folders.exists(encode(tmp_path / name)) for name in ("none", "f/x", "loop/x", "y" * 300, "a/b")}
    assert all(found.values()), found
    assert not any(missing.values()), missing


def test_existence_that_cannot_be_known_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    os.chdir(tmp_path)  # so that nobody has to come through the folders above
    try:
        with trees.without_rights():
            assert refusal(folders.exists, "closed/x") == (400, "permission_denied")
    finally:
        os.chdir("/")
        (tmp_path / "closed").chmod(0o700)


def test_a_list_is_in_order_to_the_depth_that_is_asked_for(tmp_path: Path) -> None:
    for path in ("b/2/x", "b/1", "a-b", "a/y", ".hidden"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    paths = {depth: [entry["path"] for entry in scan(tmp_path, depth=depth)] for depth in (1, 2, 9)}
    assert paths[1] == ["shown/.hidden", "shown/a", "shown/a-b", "shown/b"]
    assert paths[2] == ["shown/.hidden", "shown/a", "shown/a/y", "shown/a-b", "shown/b", "shown/b/1", "shown/b/2"]
    assert paths[9] == [*paths[2], "shown/b/2/x"]


def test_links_are_listed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "up").symlink_to(".")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "etc").symlink_to("/etc")
    entries = scan(tmp_path, depth=5)
    assert [(entry["name"], entry["target"]) for entry in entries] == [
        ("dangling", "nowhere"),
        ("etc", "/etc"),
        ("up", "."),
    ]


def test_a_link_that_takes_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside" / "b").mkdir(parents=True)
    (tmp_path / "outside" / "b" / "secret").touch()
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    entries = iter(folders.scan(encode(tmp_path / "root"), shown=b"x", depth=9))
    assert next(entries)["name"] == "a"
    (tmp_path / "root" / "a").rename(tmp_path / "moved")
    (tmp_path / "root" / "a").symlink_to(tmp_path / "outside")
    assert [entry["name"] for entry in entries] == ["b"]


def test_a_list_goes_deeper_than_a_path_can(tmp_path: Path) -> None:
    with descents.Descent(encode(tmp_path)) as place:
        for _ in range(30):
            os.mkdir(b"x" * 200, dir_fd=place.descriptor)
            place.enter(b"x" * 200)
    entries = scan(tmp_path, depth=100)
    assert [entry.get("error") for entry in entries] == [None] * 30
    folders.remove(encode(tmp_path / ("x" * 200)), recursive=True)


def test_a_list_that_is_given_up_gives_everything_back(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = os.listdir("/proc/self/fd")
    entries = folders.scan(encode(tmp_path), shown=b"x", depth=9)
    assert next(iter(entries))["name"] == "a"
    entries.close()
    assert os.listdir("/proc/self/fd") == before


def test_odd_names_are_listed_as_they_are(tmp_path: Path) -> None:
    for name in trees.ODD_NAMES:
        (tmp_path / os.fsdecode(name)).touch()
    listed = [str(entry["name"]).encode("utf-8", "surrogateescape") for entry in scan(tmp_path)]
    assert listed == sorted(trees.ODD_NAMES)


def test_what_cannot_be_listed_says_so_and_the_rest_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o000)
    (tmp_path / "b").mkdir(mode=0o444)  # names can be seen, nothing else
    (tmp_path / "b" / "x").touch()
    (tmp_path / "c").touch()
    tmp_path.chmod(0o755)
    os.chdir(tmp_path)
    try:
        with trees.without_rights():
            entries = list(folders.scan(b".", shown=b".", depth=2))
    finally:
        os.chdir("/")
        (tmp_path / "a").chmod(0o700)
        (tmp_path / "b").chmod(0o700)
    assert [(entry["path"], entry.get("type"), entry.get("error")) for entry in entries] == [
        ("./a", "directory", "permission denied"),
        ("./b", "directory", None),
        ("./b/x", None, "permission denied"),
        ("./c", "file", None),
    ]


def test_listing_what_is_no_directory_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "f").touch()

    assert refusal(folders.scan, tmp_path / "f", shown=b"x", depth=1) == (400, "not_a_directory")
    assert refusal(folders.scan, tmp_path / "none", shown=b"x", depth=1) == (404, "file_not_found")


def test_what_vanishes_while_it_is_listed_says_so(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    entries = iter(folders.scan(encode(tmp_path), shown=b"x", depth=1))
    assert next(entries)["name"] == "a"
    (tmp_path / "b").unlink()
    assert [(entry["name"], entry.get("error")) for entry in entries] == [
        ("b", "no such file or directory"),
        ("c", None),
    ]


# -- making


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    folders.make(encode(tmp_path / "a" / "b"))
    folders.make(encode(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()


def test_the_mode_is_exact_and_only_that_of_a_new_directory(tmp_path: Path) -> None:
    folders.make(encode(tmp_path / "a" / "b"), mode=0o1777)
    folders.make(encode(tmp_path / "a" / "b"), mode=0o700)
    assert mode_of(tmp_path / "a" / "b") == 0o1777
    assert mode_of(tmp_path / "a") != 0o1777


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert refusal(folders.make, tmp_path / "a" / "b", parents=False) == (404, "file_not_found")
    assert refusal(folders.make, tmp_path, exist_ok=False) == (409, "file_exists")
    assert refusal(folders.make, tmp_path / "f") == (409, "file_exists")
    assert refusal(folders.make, tmp_path / "dangling") == (409, "file_exists")
    assert refusal(folders.make, tmp_path / "f" / "x") == (400, "not_a_directory")
    assert refusal(folders.make, tmp_path / "f" / "x" / "y") == (400, "not_a_directory")


# -- removing


@pytest.mark.parametrize("recursive", [False, True])
def test_a_file_a_link_a_pipe_and_an_empty_directory_are_removed(tmp_path: Path, recursive: bool) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "slash").symlink_to("kept")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("file", "link", "slash/", "empty/", "fifo"):
        folders.remove(encode(f"{tmp_path}/{name}"), recursive=recursive)
    assert os.listdir(tmp_path) == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["f"]


def test_a_tree_is_removed_and_nothing_that_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").touch()
    trees.build(tmp_path / "tree")
    (tmp_path / "tree" / "link").symlink_to("../kept")
    folders.remove(encode(tmp_path / "tree"), recursive=True)
    assert os.listdir(tmp_path) == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["f"]


def test_a_directory_that_is_not_empty_stays_unless_its_content_is_meant_too(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    assert refusal(folders.remove, tmp_path / "d") == (409, "directory_not_empty")
    assert (tmp_path / "d" / "e").is_dir()


def test_removing_what_is_not_there_is_a_404_or_done(tmp_path: Path) -> None:
    assert refusal(folders.remove, tmp_path / "none") == (404, "file_not_found")
    folders.remove(encode(tmp_path / "none"), missing_ok=True)


@pytest.mark.parametrize("path", ["/", "//", "/.", "{0}/.", "{0}/..", "{0}/../", "/proc/../"])
def test_the_root_and_nameless_paths_are_not_removed(tmp_path: Path, path: str) -> None:
    # Without "recursive": if this check failed, nothing would be lost.
    status, code = refusal(folders.remove, path.format(tmp_path))
    assert (status, code) in {(400, "bad_argument"), (400, "file_error"), (409, "directory_not_empty")}
    if path.rstrip("/"):
        assert code == "bad_argument"


def test_removing_a_tree_of_any_depth(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for name in [b"top", *[b"deep"] * 1000]:
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    folders.remove(encode(tmp_path / "top"), recursive=True)
    assert os.listdir(tmp_path) == []


def test_two_who_remove_the_same_tree_both_succeed(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / "tree" / f"{number % 20}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / f"{number % 20}" / f"{number}").touch()
    errors: list[RequestError] = []

    def remove() -> None:
        try:
            folders.remove(encode(tmp_path / "tree"), recursive=True, missing_ok=True)
        except RequestError as error:
            errors.append(error)

    threads = [threading.Thread(target=remove) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert os.listdir(tmp_path) == []


def test_a_removal_is_not_led_out_by_links_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine").touch()
    done = threading.Event()

    def swap() -> None:
        """Make a directory of it, then a link, then a directory: as long as the removal goes on."""
        place = tmp_path / "tree" / "d"
        while not done.is_set():
            for change in (lambda: place.mkdir(), place.rmdir, lambda: place.symlink_to("../outside"), place.unlink):
                try:
                    change()
                except OSError:
                    continue

    codes: set[str] = set()
    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(300):
            (tmp_path / "tree").mkdir(exist_ok=True)
            try:
                folders.remove(encode(tmp_path / "tree"), recursive=True, missing_ok=True)
            except RequestError as error:
                codes.add(error.code)
    finally:
        done.set()
        swapper.join()
    assert os.listdir(tmp_path / "outside") == ["mine"]
    assert codes <= {"directory_not_empty", "not_a_directory", "not_a_file"}


def test_what_may_not_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "tree" / "closed").mkdir(parents=True)
    (tmp_path / "tree" / "closed" / "f").touch()
    (tmp_path / "tree" / "closed").chmod(0o555)
    (tmp_path / "tree").chmod(0o777)
    tmp_path.chmod(0o777)
    os.chdir(tmp_path)
    try:
        with trees.without_rights(), pytest.raises(RequestError) as caught:
            folders.remove(b"./tree", recursive=True)
    finally:
        os.chdir("/")
        (tmp_path / "tree" / "closed").chmod(0o700)
    assert (caught.value.code, caught.value.detail) == ("permission_denied", "permission denied: ./tree/closed")


# -- permissions


def test_a_mode_is_set_and_a_link_stands_for_its_target(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "l").symlink_to("f")
    folders.change_mode(encode(tmp_path / "l"), 0o2751)
    assert mode_of(tmp_path / "f") == 0o2751


def test_a_mode_is_set_for_a_whole_tree_but_not_beyond_its_links(tmp_path: Path) -> None:
    (tmp_path / "outside").touch(mode=0o600)
    (tmp_path / "tree" / "d" / "e").mkdir(parents=True)
    (tmp_path / "tree" / "d" / "f").touch(mode=0o600)
    os.mkfifo(tmp_path / "tree" / "fifo", 0o600)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "tree" / "s"))
    (tmp_path / "tree" / "l").symlink_to("../outside")
    folders.change_mode(encode(tmp_path / "tree"), 0o711, recursive=True)
    for path in (".", "d", "d/e", "d/f", "fifo", "s"):
        assert mode_of(tmp_path / "tree" / path) == 0o711, path
    assert mode_of(tmp_path / "outside") == 0o600


def test_a_mode_is_not_led_out_by_a_link_that_was_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap() -> None:
        (tmp_path / "tree" / "f").unlink()
        (tmp_path / "tree" / "f").symlink_to("../outside")

    (tmp_path / "outside").touch(mode=0o600)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "f").touch(mode=0o600)
    (tmp_path / "tree" / "g").touch(mode=0o600)
    trees.before_opening(monkeypatch, b"f", swap)
    folders.change_mode(encode(tmp_path / "tree"), 0o711, recursive=True)
    assert (mode_of(tmp_path / "outside"), mode_of(tmp_path / "tree" / "g")) == (0o600, 0o711)


def test_a_mode_that_opens_directories_reaches_what_is_in_them(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "closed" / "too"
    inner.mkdir(parents=True)
    (inner / "f").touch(mode=0o600)
    paths = [inner / "f", inner, inner.parent, inner.parent.parent]
    for path in paths:
        os.chown(path, trees.NOBODY, trees.NOBODY)
        path.chmod(0)
    tmp_path.chmod(0o755)
    os.chdir(tmp_path)
    try:
        with trees.without_rights():
            folders.change_mode(b"./tree", 0o750, recursive=True)
    finally:
        os.chdir("/")
    assert [mode_of(path) for path in paths] == [0o750] * 4


def test_what_no_mode_opens_is_named(tmp_path: Path) -> None:
    (tmp_path / "tree" / "closed").mkdir(parents=True)
    os.chown(tmp_path / "tree", trees.NOBODY, trees.NOBODY)
    (tmp_path / "tree" / "closed").chmod(0)
    tmp_path.chmod(0o755)
    os.chdir(tmp_path)
    try:
        with trees.without_rights(), pytest.raises(RequestError) as caught:
            folders.change_mode(b"./tree", 0o750, recursive=True)
    finally:
        os.chdir("/")
    assert (caught.value.code, caught.value.detail) == ("permission_denied", "operation not permitted: ./tree/closed")


def test_a_mode_that_closes_directories_reaches_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "tree" / "d" / "e").mkdir(parents=True)
    folders.change_mode(encode(tmp_path / "tree"), 0o000, recursive=True)
    modes = []
    for path in ("tree", "tree/d", "tree/d/e"):
        modes.append(mode_of(tmp_path / path))
        (tmp_path / path).chmod(0o700)
    assert modes == [0, 0, 0]


def test_a_mode_of_one_file_may_be_set_recursively(tmp_path: Path) -> None:
    (tmp_path / "f").touch(mode=0o600)
    folders.change_mode(encode(tmp_path / "f"), 0o640, recursive=True)
    assert mode_of(tmp_path / "f") == 0o640


def test_a_mode_of_what_is_not_there_is_a_404(tmp_path: Path) -> None:
    for recursive in (False, True):
        assert refusal(folders.change_mode, tmp_path / "none", mode=0o600, recursive=recursive) == (
            404,
            "file_not_found",
        )


# -- copies


def test_a_file_is_copied_to_exactly_that_path(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 3_000_000)
    (tmp_path / "f").chmod(0o751)
    os.utime(tmp_path / "f", ns=(1, 5_000_000_001))
    (tmp_path / "l").symlink_to("f")
    assert folders.copy(encode(tmp_path / "l"), encode(tmp_path / "new" / "g")) == []
    copy = tmp_path / "new" / "g"
    assert copy.read_bytes() == b"x" * 3_000_000
    assert (mode_of(copy), copy.stat().st_mtime_ns) == (0o751, 5_000_000_001)


def test_a_copy_replaces_a_file_unless_told_not_to(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("new")
    (tmp_path / "g").write_text("old")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("g", "dangling"):
        assert refusal(folders.copy, tmp_path / "f", tmp_path / name, overwrite=False) == (409, "file_exists")
    assert (tmp_path / "g").read_text() == "old"
    folders.copy(encode(tmp_path / "f"), encode(tmp_path / "g"))
    folders.copy(encode(tmp_path / "f"), encode(tmp_path / "h"), overwrite=False)
    assert (tmp_path / "g").read_text() == (tmp_path / "h").read_text() == "new"


def test_a_tree_is_copied_with_all_its_links(tmp_path: Path) -> None:
    trees.build(tmp_path / "source")
    (tmp_path / "source" / "out").symlink_to("/etc/hostname")
    assert folders.copy(encode(tmp_path / "source"), encode(tmp_path / "copy"), recursive=True) == []
    assert trees.look(tmp_path / "copy") == trees.look(tmp_path / "source")


def test_a_tree_is_added_to_a_directory_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "source" / "d").mkdir(parents=True)
    (tmp_path / "source" / "d" / "f").write_text("new")
    (tmp_path / "copy" / "d").mkdir(parents=True)
    (tmp_path / "copy" / "d" / "g").write_text("old")
    paths = tmp_path / "source", tmp_path / "copy"
    assert refusal(folders.copy, *paths, recursive=True, overwrite=False) == (409, "file_exists")
    folders.copy(encode(tmp_path / "source"), encode(tmp_path / "copy"), recursive=True)
    assert sorted(os.listdir(tmp_path / "copy" / "d")) == ["f", "g"]


def test_what_cannot_be_copied_of_a_tree_is_told(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "fifo")
    skipped = folders.copy(encode(tmp_path / "source"), encode(tmp_path / "copy"), recursive=True)
    assert skipped == [(b"fifo", "a named pipe")]


@pytest.mark.parametrize(
    ("source", "destination", "recursive", "expected"),
    [
        ("d", "x", False, (400, "not_a_file")),
        ("f", "d", False, (400, "not_a_file")),
        ("f", "d", True, (400, "not_a_file")),
        ("d", "f", True, (400, "not_a_directory")),
        ("fifo", "x", True, (400, "not_a_file")),
        ("none", "x", False, (404, "file_not_found")),
        ("f", "f", False, (400, "bad_argument")),
        ("f", "hard", False, (400, "bad_argument")),
        ("d", "d", True, (400, "bad_argument")),
        ("d", "d/e/f", True, (400, "bad_argument")),
        ("d", "link/x", True, (400, "bad_argument")),
        ("f", "f/x", False, (400, "not_a_directory")),
    ],
)
def test_a_copy_that_makes_no_sense_is_refused(
    tmp_path: Path, source: str, destination: str, recursive: bool, expected: tuple[int, str]
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_text("mine")
    os.link(tmp_path / "f", tmp_path / "hard")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("d")
    assert refusal(folders.copy, tmp_path / source, tmp_path / destination, recursive=recursive) == expected
    assert (tmp_path / "f").read_text() == "mine"
    assert os.listdir(tmp_path / "d") == []


# -- renames


def test_a_file_and_a_directory_get_another_name(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "l").symlink_to("nowhere")
    for overwrite in (True, False):
        for name in ("f", "d", "l"):
            folders.rename(encode(tmp_path / name), encode(tmp_path / f"{name}2"), overwrite=overwrite)
            folders.rename(encode(tmp_path / f"{name}2"), encode(tmp_path / name), overwrite=overwrite)
    assert sorted(os.listdir(tmp_path)) == ["d", "f", "l"]
    assert (tmp_path / "l").is_symlink()


def test_a_rename_replaces_a_file_unless_told_not_to(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("new")
    (tmp_path / "g").write_text("old")
    assert refusal(folders.rename, tmp_path / "f", tmp_path / "g", overwrite=False) == (409, "file_exists")
    assert (tmp_path / "g").read_text() == "old"
    folders.rename(encode(tmp_path / "f"), encode(tmp_path / "g"))
    assert (tmp_path / "g").read_text() == "new"
    assert os.listdir(tmp_path) == ["g"]


@pytest.mark.parametrize(
    ("source", "destination", "overwrite", "expected"),
    [
        ("none", "x", True, (404, "file_not_found")),
        ("f", "none/x", True, (404, "file_not_found")),
        ("f", "f/x", True, (400, "not_a_directory")),
        ("f", "d", True, (400, "not_a_file")),
        ("d", "f", True, (400, "not_a_directory")),
        ("d", "full", True, (409, "directory_not_empty")),
        ("d", "full", False, (409, "file_exists")),
        ("d", "empty", False, (409, "file_exists")),
        ("d", "d/x", True, (400, "bad_argument")),
        ("d", "d/x", False, (400, "bad_argument")),
        ("d/.", "x", True, (400, "bad_argument")),
        ("d", "x/..", True, (400, "bad_argument")),
    ],
)
def test_a_rename_that_cannot_be_is_refused(
    tmp_path: Path, source: str, destination: str, overwrite: bool, expected: tuple[int, str]
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "full" / "x").mkdir(parents=True)
    (tmp_path / "f").write_text("mine")
    before = trees.look(tmp_path, times=False)
    paths = [f"{tmp_path}/{path}" for path in (source, destination)]
    assert refusal(folders.rename, *paths, overwrite=overwrite) == expected
    assert trees.look(tmp_path, times=False) == before


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_rename_reaches_another_file_system(tmp_path: Path, other_file_system: Path, overwrite: bool) -> None:
    trees.build(tmp_path / "tree")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("/etc")
    before = trees.look(tmp_path)
    for name in ("tree", "file", "link"):
        folders.rename(encode(tmp_path / name), encode(other_file_system / name), overwrite=overwrite)
    assert os.listdir(tmp_path) == []
    after = trees.look(other_file_system)
    assert after.pop(b"link")[2] == before.pop(b"link")[2] == b"/etc"
    assert after == before


def test_a_tree_that_cannot_be_moved_whole_stays(tmp_path: Path, other_file_system: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "fifo")
    with pytest.raises(RequestError, match="fifo: a named pipe"):
        folders.rename(encode(tmp_path / "tree"), encode(other_file_system / "tree"))
    assert os.listdir(other_file_system) == []
    assert os.listdir(tmp_path / "tree") == ["fifo"]


def test_a_move_to_another_file_system_does_not_replace_when_told_not_to(
    tmp_path: Path, other_file_system: Path
) -> None:
    (tmp_path / "f").write_text("new")
    (other_file_system / "f").write_text("old")
    assert refusal(folders.rename, tmp_path / "f", other_file_system / "f", overwrite=False) == (409, "file_exists")
    assert (other_file_system / "f").read_text() == "old"
    assert (tmp_path / "f").read_text() == "new"
    assert os.listdir(other_file_system) == ["f"]
