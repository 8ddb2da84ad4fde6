"""Documents turned into commands."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

from guest.agentd import commands, documents, programs
from guest.agentd.errors import RequestError


@pytest.fixture
def builder(tmp_path: Path) -> commands.Commands:
    return commands.Commands(
        workdir=bytes(tmp_path / "work"), environment={b"PATH": b"/usr/bin:/bin", b"HOME": b"/root"}
    )


def build(builder: commands.Commands, **members: object) -> programs.Command:
    return builder.build_process(documents.parse(json.dumps(members)))


def refuse(builder: commands.Commands, **members: object) -> tuple[str, str]:
    """Code and detail of the refusal."""
    with pytest.raises(RequestError) as caught:
        build(builder, **members)
    return caught.value.code, caught.value.detail


def test_a_plain_command_has_nothing_that_was_not_asked_for(builder: commands.Commands, tmp_path: Path) -> None:
    command = build(builder, command="echo", args=["a", "é"])
    assert command.argv == [b"echo", b"a", "é".encode()]
    assert command.cwd == bytes(tmp_path / "work")
    assert command.environment == {b"PATH": b"/usr/bin:/bin", b"HOME": b"/root"}
    assert (command.timeout, command.stdin, command.pty, command.user, command.rlimits) == (None, False, None, None, {})


def test_all_members_are_taken_over(builder: commands.Commands) -> None:
    command = build(
        builder,
        command="cat",
        cwd="/tmp",
        env={"X": "1", "PATH": "/bin"},
        timeout=2.5,
        stdin="pipe",
        user=getpass.getuser(),
        rlimits={"nofile": [10, 20], "core": 0},
    )
    assert (command.cwd, command.timeout, command.stdin) == (b"/tmp", 2.5, True)
    assert command.environment[b"PATH"] == b"/bin"
    assert command.user is not None
    assert command.environment[b"USER"] == command.user.name
    assert command.rlimits == {"nofile": (10, 20), "core": (0, 0)}


def test_a_terminal_brings_its_variables_unless_they_are_given(builder: commands.Commands) -> None:
    command = build(builder, command="vi", pty={"cols": 100, "rows": 30})
    assert command.pty == (100, 30)
    assert command.environment[b"TERM"] == b"xterm-256color"
    assert command.environment[b"LANG"] == b"C.UTF-8"
    own = build(builder, command="vi", pty={"cols": 1, "rows": 1}, env={"TERM": "vt100", "LANG": "C"})
    assert (own.environment[b"TERM"], own.environment[b"LANG"]) == (b"vt100", b"C")


def test_a_line_runs_in_bash_or_where_there_is_none_in_sh(builder: commands.Commands, tmp_path: Path) -> None:
    assert build(builder, shell="echo 'a b'").argv == [b"bash", b"-lc", b"echo 'a b'"]
    assert build(builder, shell="x", env={"PATH": str(tmp_path)}).argv == [b"sh", b"-lc", b"x"]
    own = tmp_path / "bash"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert build(builder, shell="x", env={"PATH": str(tmp_path)}).argv[0] == b"bash"


def test_a_line_in_a_cwd_that_is_absent_is_refused_for_that(builder: commands.Commands) -> None:
    assert refuse(builder, shell="x", cwd="/no/such")[0] == "cwd_not_found"


@pytest.mark.parametrize(
    ("members", "code", "detail"),
    [
        ({}, "bad_argument", "command: is required"),
        ({"command": "a", "shell": "b"}, "bad_argument", "shell: must not be given beside command"),
        ({"shell": "a\0"}, "bad_argument", "shell: must not contain NUL"),
        ({"command": "a", "stdin": "tty"}, "bad_argument", "stdin: must be none or pipe"),
        ({"command": "a", "pty": {"cols": 0, "rows": 1}}, "bad_argument", "pty.cols: "),
        ({"command": "a", "pty": True}, "bad_argument", "pty: "),
        ({"command": "a", "user": "no-such-user"}, "no_such_user", "no such user"),
        ({"command": "a", "user": 1.5}, "bad_argument", "user: "),
        ({"command": "a", "rlimits": {"files": 1}}, "bad_argument", "rlimits['files']: "),
        ({"command": "a", "env": {"A=B": "x"}}, "bad_argument", "env['A=B']: "),
        ({"command": "a", "timeout": 0}, "bad_argument", "timeout: "),
    ],
    ids=range(11),
)
def test_what_cannot_be_used_is_refused_by_name(
    builder: commands.Commands, members: dict[str, object], code: str, detail: str
) -> None:
    found = refuse(builder, **members)
    assert found[0] == code
    assert found[1].startswith(detail)


@pytest.mark.parametrize("text", ["a", "A-z_9", "x" * 64])
def test_an_id_is_taken_as_it_is(text: str) -> None:
    assert commands.parse_id("id", text) == text


@pytest.mark.parametrize("text", ["", "x" * 65, "a b", "a/b", "é", "a\n", "."])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="id: must be 1 to 64"):
        commands.parse_id("id", text)
