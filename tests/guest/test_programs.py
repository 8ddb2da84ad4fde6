"""Finding a program as a shell does, and saying why there is none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from guest.agentd import programs, users
from guest.agentd.errors import RequestError


def make(folder: Path, name: str, *, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def command(name: str, *, cwd: str | Path = "/", path: str | None = None) -> programs.Command:
    environment = {} if path is None else {b"PATH": os.fsencode(path)}
    return programs.Command([os.fsencode(name)], cwd=os.fsencode(cwd), environment=environment)


def refusal(wanted: programs.Command) -> RequestError:
    with pytest.raises(RequestError) as caught:
        programs.resolve(wanted)
    assert caught.value.status == 400
    return caught.value


def test_a_bare_name_is_looked_up_on_the_commands_own_path(tmp_path: Path) -> None:
    tool = make(tmp_path, "b/tool")
    (tmp_path / "a").mkdir()
    found = programs.resolve(command("tool", path=f"{tmp_path}/absent:{tmp_path}/a:{tmp_path}/b:/bin"))
    assert found == os.fsencode(tool)


def test_without_a_path_the_systems_default_holds() -> None:
    assert programs.resolve(command("sh")).endswith(b"/sh")


def test_a_name_with_a_slash_is_taken_from_the_cwd_and_kept_as_it_is(tmp_path: Path) -> None:
    make(tmp_path, "bin/tool")
    assert programs.resolve(command("bin/tool", cwd=tmp_path, path="/bin")) == b"bin/tool"
    assert programs.resolve(command("./bin/tool", cwd=tmp_path)) == b"./bin/tool"


def test_an_empty_entry_of_the_path_is_the_cwd(tmp_path: Path) -> None:
    make(tmp_path, "tool")
    assert programs.resolve(command("tool", cwd=tmp_path, path=":/bin")) == b"./tool"


def test_what_cannot_be_executed_is_passed_over_for_a_later_match(tmp_path: Path) -> None:
    make(tmp_path, "a/tool", mode=0o644)
    (tmp_path / "b" / "tool").mkdir(parents=True)
    tool = make(tmp_path, "c/tool")
    path = ":".join(str(tmp_path / name) for name in "abc")
    assert programs.resolve(command("tool", path=path)) == os.fsencode(tool)


@pytest.mark.parametrize("name", ["no-such-program", "", "./absent", "/bin/sh/deeper", "x" * 5000])
def test_a_program_that_is_nowhere_is_not_found(name: str) -> None:
    error = refusal(command(name, path="/bin"))
    assert error.code == "command_not_found"
    assert name in error.detail


@pytest.mark.parametrize(("kind", "reason"), [("plain", "permission denied"), ("folder", "is a directory")])
def test_a_program_that_is_there_but_is_none_is_not_executable(tmp_path: Path, kind: str, reason: str) -> None:
    make(tmp_path, "plain", mode=0o644)
    (tmp_path / "folder").mkdir()
    for wanted in (command(f"./{kind}", cwd=tmp_path), command(kind, path=str(tmp_path))):
        error = refusal(wanted)
        assert error.code == "not_executable"
        assert reason in error.detail


@pytest.mark.parametrize(("cwd", "reason"), [("absent", "no such directory"), ("file", "not a directory")])
def test_a_cwd_that_is_none_is_told_from_a_missing_program(tmp_path: Path, cwd: str, reason: str) -> None:
    make(tmp_path, "file")
    error = refusal(command("no-such-program", cwd=tmp_path / cwd))
    assert error.code == "cwd_not_found"
    assert reason in error.detail


@pytest.mark.parametrize(
    ("number", "filename", "status", "code"),
    [
        (errno.E2BIG, b"tool", 400, "argument_too_long"),
        (errno.ENOENT, b"tool", 400, "not_executable"),
        (errno.ENOEXEC, b"tool", 400, "not_executable"),
        (errno.EACCES, b"tool", 400, "not_executable"),
        (errno.ETXTBSY, b"tool", 400, "not_executable"),
        (errno.ENOENT, b"/cwd", 400, "cwd_not_found"),
        (errno.EACCES, b"/cwd", 400, "cwd_not_found"),
        (errno.EAGAIN, None, 503, "overloaded"),
        (errno.EMFILE, None, 503, "overloaded"),
    ],
)
def test_the_systems_refusals_have_codes(number: int, filename: bytes | None, status: int, code: str) -> None:
    wanted = command("tool", cwd="/cwd")
    error = programs.explain(OSError(number, os.strerror(number), filename), wanted)
    assert (error.status, error.code) == (status, code)


def test_too_long_an_argument_is_named_by_its_error() -> None:
    assert "E2BIG" in programs.explain(OSError(errno.E2BIG, "Argument list too long"), command("tool")).detail


USER = users.User(b"ann", uid=7, gid=8, groups=(8,), home=b"/home/ann", shell=b"/bin/zsh")


def test_a_commands_own_variables_win_over_its_users_and_those_over_the_common_ones() -> None:
    common = {b"HOME": b"/root", b"PATH": b"/bin", b"SHELL": b"/bin/sh", b"X": b"common"}
    found = programs.build_environment(common, own={b"SHELL": b"/bin/fish", b"X": b"own"}, user=USER)
    assert found == {
        b"HOME": b"/home/ann",
        b"USER": b"ann",
        b"LOGNAME": b"ann",
        b"SHELL": b"/bin/fish",
        b"PATH": b"/bin",
        b"X": b"own",
    }
    assert common[b"X"] == b"common"


def on_terminal(common: dict[bytes, bytes], own: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    return programs.build_environment(common, own=own or {}, is_terminal=True)


def test_without_a_terminal_nothing_is_said_about_one() -> None:
    assert programs.build_environment({b"COLUMNS": b"9"}, own={}) == {b"COLUMNS": b"9"}


def test_the_terminal_of_a_command_is_not_the_agents() -> None:
    found = on_terminal({b"TERM": b"dumb", b"COLUMNS": b"9", b"LINES": b"9", b"LANG": b"C.UTF-8"})
    assert found == {b"TERM": b"xterm-256color", b"LANG": b"C.UTF-8"}
    assert on_terminal({}, {b"TERM": b"vt100", b"LINES": b"5"})[b"TERM"] == b"vt100"
    assert on_terminal({}, {b"LINES": b"5"})[b"LINES"] == b"5"


@pytest.mark.parametrize(
    ("common", "locale"),
    [
        ({}, {b"LANG": b"C.UTF-8"}),
        ({b"LANG": b""}, {b"LANG": b"C.UTF-8"}),
        ({b"LANG": b"C"}, {b"LANG": b"C.UTF-8"}),
        ({b"LANG": b"de_DE.UTF-8"}, {b"LANG": b"de_DE.UTF-8"}),
        ({b"LANG": b"en_US.utf8"}, {b"LANG": b"en_US.utf8"}),
        ({b"LANG": b"C", b"LC_CTYPE": b"C.UTF-8"}, {b"LANG": b"C", b"LC_CTYPE": b"C.UTF-8"}),
        ({b"LANG": b"C.UTF-8", b"LC_ALL": b"POSIX"}, {b"LANG": b"C.UTF-8", b"LC_ALL": b"C.UTF-8"}),
        ({b"LC_ALL": b"C.UTF-8"}, {b"LC_ALL": b"C.UTF-8"}),
    ],
)
def test_a_terminal_has_a_locale_in_utf_8(common: dict[bytes, bytes], locale: dict[bytes, bytes]) -> None:
    assert on_terminal(common) == {b"TERM": b"xterm-256color", **locale}


@pytest.mark.parametrize("name", [b"LANG", b"LC_ALL", b"LC_CTYPE"])
def test_a_locale_that_a_command_brings_is_its_own_affair(name: bytes) -> None:
    found = on_terminal({b"LANG": b"C"}, {name: b"POSIX"})
    assert found == {b"TERM": b"xterm-256color", b"LANG": b"C", name: b"POSIX"}


def test_the_default_working_directory_is_made(tmp_path: Path) -> None:
    programs.ensure_workdir(os.fsencode(tmp_path / "a" / "b"))
    programs.ensure_workdir(os.fsencode(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()


def test_a_working_directory_that_cannot_be_made_names_its_variable(tmp_path: Path) -> None:
    make(tmp_path, "file")
    with pytest.raises(RequestError, match="AGENT_SANDBOX_WORKDIR") as caught:
        programs.ensure_workdir(os.fsencode(tmp_path / "file" / "work"))
    assert caught.value.code == "cwd_not_found"
