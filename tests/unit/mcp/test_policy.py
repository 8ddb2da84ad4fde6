"""Which files of this machine may be copied: links, swaps and odd files lead nowhere."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmnest import errors
from vmnest.mcp import policy
from vmnest.mcp.policy import Policy
from vmnest.ops.copies import DIRECTORY, FILE, OTHER

PATHS = "AGENT_SANDBOX_MCP_HOST_PATHS"


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """An allowed folder. Beside it is what nobody may touch."""
    for name in ("allowed", "outside", "allowed-too"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "f").write_bytes(name.encode())
    return tmp_path / "allowed"


@pytest.fixture
def mine(allowed: Path) -> Policy:
    return Policy((str(allowed),))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def read(mine: Policy, path: object) -> bytes:
    with mine.open(str(path)) as place, open(place.open(os.O_RDONLY), "rb") as file:
        return file.read()


def test_what_is_in_an_allowed_folder_is_found_by_any_way(mine: Policy, allowed: Path) -> None:
    (allowed / "link").symlink_to("sub")
    (allowed.parent / "way-in").symlink_to(allowed)
    before = open_descriptors()
    for way in ("sub/f", "link/f", "sub/../link/./f", "../allowed/sub/f", "../way-in/sub/f"):
        assert read(mine, allowed / way) == b"allowed"
        assert mine.look(str(allowed / way)) == FILE
    assert mine.look(str(allowed)) == DIRECTORY
    assert mine.look(f"{allowed}/none/f") is None
    assert open_descriptors() == before


@pytest.mark.parametrize(
    "path", ["../outside/sub/f", "out/sub/f", "file-out", "../allowed-too/sub/f", "..", "/", "/etc/passwd", "out/none"]
)
def test_what_is_outside_is_refused_whether_it_is_there_or_not(mine: Policy, allowed: Path, path: str) -> None:
    (allowed / "out").symlink_to("../outside")
    (allowed / "file-out").symlink_to(allowed.parent / "outside" / "sub" / "f")
    for use in (mine.look, mine.make_directory, lambda path: read(mine, path)):
        with pytest.raises(errors.HostPathRefusedError) as caught:
            use(os.path.join(allowed, path))
    assert str(allowed) in str(caught.value.hint)
    assert PATHS in str(caught.value.hint)


def test_a_link_that_leads_nowhere_is_judged_by_where_it_would(mine: Policy, allowed: Path) -> None:
    (allowed / "out").symlink_to("../outside/new")
    with pytest.raises(errors.HostPathRefusedError):
        mine.look(str(allowed / "out"))
    (allowed / "in").symlink_to("sub/new")
    assert mine.look(str(allowed / "in")) is None
    (allowed / "loop").symlink_to("loop")
    assert mine.look(str(allowed / "loop")) == OTHER


@pytest.fixture
def swap_after_check(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done between the check of a path and its use."""

    def swap(act: Callable[[], object]) -> None:
        resolve = os.path.realpath

        def resolve_and_swap(path: bytes) -> bytes:
            found = resolve(path)
            monkeypatch.undo()
            act()
            return found

        monkeypatch.setattr(os.path, "realpath", resolve_and_swap)

    return swap


def test_a_folder_that_is_swapped_for_a_link_after_the_check_is_not_followed(
    mine: Policy, allowed: Path, swap_after_check: Callable[[Callable[[], object]], None]
) -> None:
    def swap() -> None:
        (allowed / "sub").rename(allowed / "was")
        (allowed / "sub").symlink_to("../outside/sub")

    swap_after_check(swap)
    with pytest.raises(errors.LocalFileError, match=r"Not a directory: .*sub/f \(on"):
        read(mine, allowed / "sub" / "f")


def test_the_allowed_folder_itself_may_be_swapped(
    mine: Policy, allowed: Path, swap_after_check: Callable[[Callable[[], object]], None]
) -> None:
    def swap() -> None:
        allowed.rename(allowed.parent / "was")
        allowed.symlink_to("outside")

    swap_after_check(swap)
    with pytest.raises(errors.LocalFileError, match="Not a directory"):
        read(mine, allowed / "sub" / "f")


def test_a_file_that_is_swapped_for_a_link_after_the_check_is_not_followed(
    mine: Policy, allowed: Path, swap_after_check: Callable[[Callable[[], object]], None]
) -> None:
    def swap() -> None:
        (allowed / "sub" / "f").unlink()
        (allowed / "sub" / "f").symlink_to("../../outside/sub/f")

    swap_after_check(swap)
    with mine.open(str(allowed / "sub" / "f")) as place, pytest.raises(OSError, match="symbolic links"):
        place.open(os.O_RDONLY)


def test_a_way_that_is_swapped_while_it_is_used_leads_to_the_same(mine: Policy, allowed: Path) -> None:
    with mine.open(str(allowed / "sub" / "f")) as place:
        (allowed / "sub").rename(allowed / "was")
        (allowed / "sub").symlink_to("../outside/sub")
        with open(place.open(os.O_RDONLY), "rb") as file:
            assert file.read() == b"allowed"


def test_what_is_neither_file_nor_directory_is_told_without_being_opened(mine: Policy, allowed: Path) -> None:
    os.mkfifo(allowed / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(allowed / "socket"))
        assert mine.look(str(allowed / "fifo")) == mine.look(str(allowed / "socket")) == OTHER
    assert Policy(None).look("/dev/null") == OTHER


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_what_can_be_no_path_is_refused(mine: Policy, path: str) -> None:
    for use in (mine.look, mine.resolve, mine.make_directory):
        with pytest.raises(errors.UsageError, match="no path"):
            use(path)


def test_who_reads_by_name_gets_it_without_links(mine: Policy, allowed: Path) -> None:
    (allowed / "link").symlink_to("sub")
    (allowed / "out").symlink_to("..")
    os.mkfifo(allowed / "fifo")
    assert mine.resolve(f"{allowed}/link/f") == f"{allowed}/sub/f"
    assert mine.resolve(f"{allowed}/link/none") == f"{allowed}/sub/none"
    with pytest.raises(errors.HostPathRefusedError):
        mine.resolve(f"{allowed}/out/outside")
    with pytest.raises(errors.LocalFileError, match="neither a file nor a directory"):
        mine.resolve(f"{allowed}/fifo")


def test_names_may_be_anything(mine: Policy, allowed: Path) -> None:
    for name in ("a\nb", os.fsdecode(b"\xff"), " ", "-", "~", "\N{RIGHT-TO-LEFT OVERRIDE}"):
        (allowed / name).write_bytes(b"odd")
        assert read(mine, allowed / name) == b"odd"
    with pytest.raises(errors.HostPathRefusedError) as caught:
        mine.look("/out\nside\x1b[31m")
    assert caught.value.message == "this path of this machine may not be used: /out side [31m"
    with pytest.raises(errors.LocalFileError, match="too long"), mine.open(f"{allowed}/{'x' * 300}/f"):
        pass


def test_directories_are_made_in_what_is_allowed(
    mine: Policy, allowed: Path, swap_after_check: Callable[[Callable[[], object]], None]
) -> None:
    mine.make_directory(f"{allowed}/new/deep")
    mine.make_directory(f"{allowed}/new/deep")
    assert (allowed / "new" / "deep").is_dir()
    with pytest.raises(errors.LocalFileError, match="Not a directory"):
        mine.make_directory(f"{allowed}/sub/f/g")
    swap_after_check(lambda: (allowed / "later").symlink_to("../outside"))
    with pytest.raises(errors.LocalFileError):
        mine.make_directory(f"{allowed}/later/in")
    assert os.listdir(allowed.parent / "outside") == ["sub"]


def test_a_file_may_be_all_that_is_allowed(allowed: Path) -> None:
    single = Policy((str(allowed / "sub" / "f"),))
    assert read(single, allowed / "sub" / "f") == b"allowed"
    with pytest.raises(errors.HostPathRefusedError):
        single.look(str(allowed / "sub"))


def test_the_root_is_a_folder_like_others() -> None:
    assert Policy(("/",)).look("/") == DIRECTORY
    assert Policy(("/",)).look("/dev/null") == OTHER
    Policy(("/",)).make_directory("/")


STEPS = st.lists(st.sampled_from(["..", ".", "sub", "f", "in", "out", "up", "allowed", "outside", ""]), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_path_leads_to_the_secret(mine: Policy, allowed: Path, steps: list[str]) -> None:
    for name, target in (("in", "sub"), ("out", "../outside"), ("up", "..")):
        if not (allowed / name).is_symlink():
            (allowed / name).symlink_to(target)
    path = os.path.join(allowed, *steps)
    try:
        content = read(mine, path) if os.path.isfile(path) else b"allowed"
    except errors.HostPathRefusedError:
        assert os.path.commonpath([os.path.realpath(path), allowed]) != str(allowed)
    else:
        assert content == b"allowed"


# -- settings ----------------------------------------------------------------------------------------------------------


def test_by_default_it_is_the_working_directory(allowed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(allowed)
    mine = policy.from_settings(environ={})
    assert mine.describe() == {"policy": "allowlist", "paths": [str(allowed)]}
    assert mine.look("sub/f") == FILE
    with pytest.raises(errors.HostPathRefusedError):
        mine.look("../outside")


@pytest.mark.parametrize("where", ["home", "above", "root"])
def test_no_path_is_allowed_where_nobody_can_mean_it(
    allowed: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("HOME", str(allowed / "sub"))
    monkeypatch.chdir({"home": allowed / "sub", "above": allowed, "root": Path("/")}[where])
    mine = policy.from_settings(environ={})
    assert mine.describe()["paths"] == []
    with pytest.raises(errors.HostPathRefusedError, match="no path of this machine") as caught:
        mine.look(str(allowed / "sub" / "f"))
    assert PATHS in str(caught.value.hint)
    assert os.getcwd() in str(caught.value.hint)
    named = policy.from_settings(environ={PATHS: str(allowed)})
    assert named.look(str(allowed / "sub" / "f")) == FILE


def test_no_path_is_allowed_in_a_working_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    mine = policy.from_settings(environ={})
    with pytest.raises(errors.HostPathRefusedError) as caught:
        mine.look("/etc/passwd")
    assert "is gone" in str(caught.value.hint)
    assert mine.look("f") is None


def test_folders_are_named_in_the_environment(allowed: Path) -> None:
    two = policy.from_settings(environ={PATHS: f"{allowed}/sub:{allowed.parent}/allowed-too"})
    assert two.look(f"{allowed}/sub") == two.look(f"{allowed.parent}/allowed-too") == DIRECTORY
    with pytest.raises(errors.HostPathRefusedError):
        two.look(str(allowed))
    with pytest.raises(errors.HostPathRefusedError, match="no path"):
        policy.from_settings(environ={PATHS: ":"}).look(str(allowed))


def test_everything_is_allowed_to_who_asks_for_that(allowed: Path) -> None:
    free = policy.from_settings(environ={"AGENT_SANDBOX_MCP_HOST_PATH_POLICY": "unrestricted", PATHS: "/none"})
    assert free.describe() == {"policy": "unrestricted", "paths": []}
    assert free.look("/etc/passwd") == FILE
    with pytest.raises(errors.SettingError):
        policy.from_settings(environ={"AGENT_SANDBOX_MCP_HOST_PATH_POLICY": "everything"})
