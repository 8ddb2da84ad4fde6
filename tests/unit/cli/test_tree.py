"""All commands at a glance, and for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vmnest import __version__
from vmnest.cli import manual, tree, verbs, words
from vmnest.cli.main import main


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return json.loads(json.dumps(tree.describe()))


def command(described: dict[str, Any], title: str) -> Any:
    (found,) = (each for each in described["commands"] if each["command"] == title)
    return found


def test_every_verb_is_a_leaf_with_its_line() -> None:
    first, *lines = tree.render_tree().splitlines()
    assert first == "vmnest"
    path: list[str] = []
    leaves = {}
    for line in lines:
        depth = line.index("── ") // 4
        name, _, summary = line[4 * depth + 4 :].partition(" ")
        path[depth:] = [name]
        leaves[" ".join(path)] = summary.strip()
    assert leaves == {**{verb.title: verb.summary for verb in verbs.VERBS}, **verbs.GROUPS}


def test_the_last_branch_of_each_is_drawn_as_such() -> None:
    lines = tree.render_tree(lines=("|-- ", "`-- ", "|   ")).splitlines()
    assert [line[:4] for line in lines[1:-1] if line[0] == "`"] == []
    assert lines[-1].startswith("`-- ")
    assert sum(line.startswith("|   `-- ") for line in lines) == len(verbs.GROUPS)
    assert "".join(lines).isascii()


def test_a_narrow_window_cuts_the_summaries() -> None:
    lines = tree.render_tree(room=40).splitlines()
    assert max(len(line) for line in lines) == 40
    assert any(line.endswith("…") for line in lines)
    assert any("versions" in line for line in lines)
    assert tree.render_tree(room=None).count("…") == 0


@pytest.mark.parametrize("line", [["--tree"], ["--local", "--tree"]], ids=" ".join)
def test_it_is_an_option_in_the_place_of_a_command(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("vmnest\n")


@pytest.mark.parametrize("line", [["--tree", "--json"], ["--json", "--tree"]], ids=" ".join)
def test_for_programs_it_is_one_json_object(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    assert json.loads(captured.out)["version"] == __version__


def test_it_is_no_option_of_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--tree"]) == 2
    assert main(["image", "--tree"]) == 2
    assert capfd.readouterr().out == ""


def test_programs_are_told_every_command_with_all_its_options(described: dict[str, Any]) -> None:
    assert [each["command"] for each in described["commands"]] == [verb.title for verb in verbs.VERBS]
    for verb in verbs.VERBS:
        told = command(described, verb.title)
        parser = verbs.build_parser(verb)
        assert (told["summary"], told["usage"]) == (verb.summary, parser.usage)
        assert [tuple(option["flags"]) for option in told["options"]] == [row.flags for row in parser.rows]
        assert told["group"] in (None, *verbs.GROUPS)


def test_programs_are_told_what_an_option_takes(described: dict[str, Any]) -> None:
    options = {option["flags"][-1]: option for option in command(described, "exec")["options"]}
    assert options["--env"] == {
        "flags": ["-e", "--env"],
        "metavar": "NAME[=VALUE]",
        "switch": False,
        "repeatable": True,
        "help": "set a variable for the command; without a value, to the one here (repeatable)",
    }
    assert (options["--tty"]["switch"], options["--tty"]["metavar"]) == (True, None)


def test_programs_are_told_the_names_and_the_command(described: dict[str, Any]) -> None:
    names = command(described, "fs ls")["names"]
    assert names == [
        {"name": "NAME", "required": True, "repeatable": False},
        {"name": "PATH", "required": False, "repeatable": True},
    ]
    kinds = {title: command(described, title) for title in ("exec", "shell", "ls")}
    assert {title: (told["takes_command"], told["status_is_of_command"]) for title, told in kinds.items()} == {
        "exec": (True, True),
        "shell": (False, True),
        "ls": (False, False),
    }


def test_programs_are_told_the_options_of_all_commands(described: dict[str, Any]) -> None:
    common = words.Parser("", summary="")
    words.add_globals(common)
    told = {option["flags"][-1]: option for option in described["options"]}
    assert {flag for flag, option in told.items() if option["with_every_command"]} == {
        row.flags[-1] for row in common.rows
    }
    for row in common.rows:
        option = told[row.flags[-1]]
        assert (tuple(option["flags"]), option["metavar"] or "") == (row.flags, row.metavar)
    assert {"--version", "--man", "--tree"} <= told.keys()


def test_programs_are_told_the_exit_statuses(described: dict[str, Any]) -> None:
    assert described["exit_statuses"] == dict(manual.EXIT_STATUSES)
    assert described["exit_statuses_of_commands_run"]["124"]
