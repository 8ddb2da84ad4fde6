"""Arguments that no program can get are refused before they travel, by the field's name."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from vmnest import errors
from vmnest.agent import arguments


def build(command: Any = "c", args: Any = None, *, cwd: Any = None, env: Any = None, timeout: Any = None) -> Any:
    wish = arguments.Command(command, args, cwd=cwd, env=env, timeout=timeout)
    return json.loads(arguments.build_exec(wish))


def test_only_what_is_given_travels() -> None:
    assert build("ls") == {"command": "ls", "args": []}
    assert build("ls", ("-l", ""), cwd="/tmp", env={}, timeout=60.0) == {
        "command": "ls",
        "args": ["-l", ""],
        "cwd": "/tmp",
        "env": {},
        "timeout": 60.0,
    }


@pytest.mark.parametrize("value", ['a"b\nc=d $HOME', "é日😀", "", " ", "--", "\x01\x7f"])
def test_odd_values_travel_as_they_are(value: str) -> None:
    request = build("c", [value], env={"X": value})
    assert request["args"] == [value]
    assert request["env"] == {"X": value}


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ({"command": ["echo", "a\0b"]}, "command"),
        ({"command": b"ls"}, "command"),
        ({"command": ""}, "command"),
        ({"command": "l\0s"}, "command"),
        ({"command": "l\ud800s"}, "command"),
        ({"args": "-l"}, "args"),
        ({"args": b"-l"}, "args"),
        ({"args": {"a": 1}}, "args"),
        ({"args": 1}, "args"),
        ({"args": ["ok", "a\0b"]}, "args[1]"),
        ({"args": ["ok", 7]}, "args[1]"),
        ({"args": [None]}, "args[0]"),
        ({"args": ["\udfff"]}, "args[0]"),
        ({"cwd": ""}, "cwd"),
        ({"cwd": "/a\0"}, "cwd"),
        ({"cwd": 1}, "cwd"),
        ({"env": [("A", "b")]}, "env"),
        ({"env": {"A=B": "x"}}, "env['A=B']"),
        ({"env": {"": "x"}}, "a name in env"),
        ({"env": {1: "x"}}, "a name in env"),
        ({"env": {"A\0": "x"}}, "a name in env"),
        ({"env": {"A": "x\0"}}, "env['A']"),
        ({"env": {"A": 1}}, "env['A']"),
        ({"env": {"A": None}}, "env['A']"),
        ({"env": {"A": "\ud83d"}}, "env['A']"),
    ],
    ids=str,
)
def test_what_no_program_can_get_is_refused_by_name(call: Mapping[str, Any], field: str) -> None:
    with pytest.raises(errors.BadArgumentError) as caught:
        build(**call)
    assert caught.value.details == {"field": field}
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout: object) -> None:
    with pytest.raises(errors.UsageError, match="timeout must be a number of seconds, above 0 and up to 1000000: "):
        build(timeout=timeout)


@pytest.mark.parametrize("data", [b"", bytes(range(256)), bytearray(b"ab"), memoryview(b"abc")])
def test_a_file_travels_as_base64(data: bytes) -> None:
    request = json.loads(arguments.build_write("/a b/+%é", data))
    assert request.pop("content") == base64.b64encode(data).decode()
    assert request == {"path": "/a b/+%é", "encoding": "base64"}


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", 1, b"/a", None])
def test_a_path_that_no_file_can_have_is_refused(path: Any) -> None:
    with pytest.raises(errors.BadArgumentError, match="path"):
        arguments.build_read(path)
    with pytest.raises(errors.BadArgumentError, match="path"):
        arguments.build_write(path, b"")


def test_text_is_no_file_content() -> None:
    with pytest.raises(errors.BadArgumentError, match="data must be bytes"):
        arguments.build_write("/a", "text")  # type: ignore[arg-type]


# -- processes ---------------------------------------------------------------------------------------------------------


def process(**members: Any) -> Any:
    body = json.loads(arguments.build_process(arguments.Command("ls", **members), process_id="p"))
    assert body.pop("id") == "p"
    return body


def test_of_a_process_only_what_is_given_travels() -> None:
    assert process() == {"command": "ls", "args": []}
    assert process(
        user=0, rlimits={"nofile": 64, "cpu": (1, -1)}, has_stdin=True, pty=(80, 24), retain="drop", output_limit=0
    ) == {
        "command": "ls", "args": [], "user": 0, "rlimits": {"nofile": 64, "cpu": [1, -1]}, "stdin": "pipe",
        "pty": {"cols": 80, "rows": 24}, "retain": "drop", "output_limit": 0,
    }  # fmt: skip
    assert process(is_shell=True) == {"shell": "ls"}


@pytest.mark.parametrize(
    "members",
    [
        {"user": ""}, {"user": -1}, {"user": 2**32}, {"user": True}, {"user": 1.0}, {"user": "a\0"},
        {"rlimits": []}, {"rlimits": {"NOFILE": 1}}, {"rlimits": {"": 1}}, {"rlimits": {"cpu": -2}},
        {"rlimits": {"cpu": True}}, {"rlimits": {"cpu": ()}}, {"rlimits": {"cpu": (1, 2, 3)}},
        {"rlimits": {"cpu": "1"}}, {"env": {"A=B": "x"}}, {"cwd": ""},
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_process_can_get_is_refused(members: Any) -> None:
    with pytest.raises(errors.BadArgumentError):
        process(**members)


@pytest.mark.parametrize(
    "members",
    [
        {"pty": (0, 24)}, {"pty": (80,)}, {"pty": (80, 65536)}, {"pty": "80x24"}, {"pty": (80.0, 24)}, {"pty": True},
        {"retain": "keep"}, {"output_limit": -1}, {"output_limit": 2**40}, {"output_limit": True}, {"timeout": 0},
        {"is_shell": True, "args": ["x"]},
    ],
    ids=repr,
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(members: Any) -> None:
    with pytest.raises(errors.UsageError):
        process(**members)
