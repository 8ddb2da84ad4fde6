"""How a command line is taken apart."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.cli import words
from vmnest.cli.words import Parser, Split, add_globals, split


class ExecOptions(words.Options):
    env: list[str] | None
    timeout: float | None
    shell: bool


def exec_parser(command: str = "after names") -> Parser:
    parser = Parser(
        "exec", summary="Run", names="NAME" if command == "after names" else "[IMAGE]", command=command,
        options=ExecOptions,
    )  # fmt: skip
    parser.option("-e", "--env", metavar="X", help="x", repeat=True)
    parser.option("--timeout", metavar="X", help="x", kind=float)
    parser.switch("--shell", help="x")
    add_globals(parser)
    return parser


def rm_parser() -> Parser:
    parser = Parser("rm", summary="Remove", names="NAME...")
    add_globals(parser)
    return parser


def parse(line: list[str], parser: Parser | None = None) -> ExecOptions:
    parser = parser or exec_parser()
    options = parser.parse(split(parser, line))
    assert isinstance(options, ExecOptions)
    return options


@pytest.mark.parametrize(
    ("names", "line", "message"),
    [
        ("NAME...", [""], "the name is empty"),
        ("NAME...", ["a", "", "b"], "the name is empty"),
        ("[IMAGE]", [""], "the IMAGE is empty"),
        ("NAME PATH...", ["", "a"], "the name is empty"),
        ("NAME PATH...", ["box", "a", "", "b"], "the PATH is empty"),
        ("SRC... DST", ["a", ""], "the SRC is empty"),
    ],
)
def test_a_name_that_is_empty_is_no_name(names: str, line: list[str], message: str) -> None:
    parser = Parser("verb", summary="Do", names=names)
    with pytest.raises(errors.UsageError, match=message):
        parser.parse(split(parser, line))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["n", "--", "ls", "--help"], ["ls", "--help"]),
        (["n", "ls", "-la"], ["ls", "-la"]),
        (["n", "ls", "--json"], ["ls", "--json"]),
        (["n", "sh", "-c", "x", "--", "y"], ["sh", "-c", "x", "--", "y"]),
        (["n", "--", "--", "x"], ["--", "x"]),
        (["n", "--", "-x"], ["-x"]),
        (["n", "-"], ["-"]),
        (["n", "", "a"], ["", "a"]),
        (["--", "n", "ls"], ["ls"]),
        (["--", "n", "--", "ls"], ["ls"]),
        (["n", "--", "ls", ""], ["ls", ""]),
    ],
    ids=" ".join,
)
def test_the_command_is_left_as_it_is(line: list[str], expected: list[str]) -> None:
    options = parse(line)
    assert options.names == ["n"]
    assert options.words == expected
    assert not options.json


def test_a_name_that_begins_with_a_dash_can_be_meant() -> None:
    assert parse(["--", "-odd", "ls"]).names == ["-odd"]
    assert split(rm_parser(), ["--json", "--", "-odd", "--json"]).names == ["-odd", "--json"]


@pytest.mark.parametrize(
    "line",
    [
        ["--json", "-e", "A=1", "--env=B=2", "n", "cmd"],
        ["n", "--env", "A=1", "-eB=2", "--json", "cmd"],
        ["n", "--json", "-e", "A=1", "--env", "B=2", "--", "cmd"],
    ],
)
def test_options_stand_anywhere_before_the_command(line: list[str]) -> None:
    options = parse(line)
    assert (options.env, options.json, options.words) == (["A=1", "B=2"], True, ["cmd"])


@pytest.mark.parametrize("line", [["-e", "-X=1"], ["-e-X=1"], ["--env", "-X=1"], ["--env=-X=1"]])
def test_a_value_may_begin_with_a_dash(line: list[str]) -> None:
    assert parse([*line, "n", "c"]).env == ["-X=1"]


@pytest.mark.parametrize("value", ["=x", "", "a=b=c", "--", "-q", "@file", "%s"])
def test_any_text_is_a_value(value: str) -> None:
    assert parse(["--env", value, "n", "c"]).env == [value]


def test_short_switches_stand_together_and_before_a_value() -> None:
    options = parse(["-qe", "A=1", "n", "c"])
    assert (options.quiet, options.env) == (True, ["A=1"])
    assert parse(["-qeA=1", "n", "c"]).env == ["A=1"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["n", "--bogus", "--", "c"], "no option --bogus"),
        (["n", "--js", "--", "c"], "no option --js"),
        (["n", "-x", "c"], "no option -x"),
        (["n", "-qx", "c"], "no option -x"),
        (["n", "--json=1", "c"], "--json takes no value"),
        (["n", "--env"], "value of --env is missing"),
        (["n", "-e"], "value of -e is missing"),
        (["n", "--timeout", "x", "c"], "--timeout"),
        ([], "name is missing"),
        (["--json"], "name is missing"),
        (["n"], "command to run is missing"),
        (["n", "--"], "command to run is missing"),
        (["--", "n"], "command to run is missing"),
    ],
    ids=" ".join,
)
def test_a_line_that_cannot_be_meant_is_refused_with_the_usage(line: list[str], message: str) -> None:
    with pytest.raises(errors.UsageError, match=message) as caught:
        parse(line)
    assert (caught.value.hint or "").endswith("Usage: vmnest exec [options] NAME -- COMMAND...")


def test_a_mistake_does_not_hide_a_later_option() -> None:
    parts = split(exec_parser(), ["--bogus", "n", "--json", "c", "--debug"])
    assert parts.has("--json")
    assert not parts.has("--debug")


def test_where_the_command_needs_dashes_a_second_name_is_refused() -> None:
    parser = exec_parser("after--")
    options = parse(["image", "--", "ls", "-l"], parser)
    assert (options.names, options.words) == (["image"], ["ls", "-l"])
    assert parse(["--", "ls", "--", "x"], parser).words == ["ls", "--", "x"]
    with pytest.raises(errors.UsageError, match="'b' for"):
        parse(["a", "b", "--", "ls"], parser)
    with pytest.raises(errors.UsageError, match="command to run is missing"):
        parse(["ls"], parser)


def test_too_many_names_are_refused() -> None:
    parser = Parser("ps", summary="Show", names="NAME")
    with pytest.raises(errors.UsageError, match="'b' for"):
        parser.parse(split(parser, ["a", "b"]))
    assert rm_parser().parse(split(rm_parser(), ["a", "b", "c"])).names == ["a", "b", "c"]


def test_help_names_every_option() -> None:
    text = exec_parser().help()
    for flag in ("-e", "--env", "--timeout", "--shell", "--local", "--region", "--json", "--quiet", "--debug"):
        assert flag in text


@given(st.lists(st.text(max_size=6)), st.lists(st.text(max_size=6), min_size=1))
def test_whatever_stands_before_the_dashes_the_command_is_what_stands_behind(
    before: list[str], command: list[str]
) -> None:
    parser = exec_parser("after--")
    own = [word for word in before if not word.startswith("-")]
    parts = split(parser, [*own, "--", *command])
    assert (parts.names, parts.words, parts.wrong) == (own, command, None)


@given(st.lists(st.text(alphabet="-=eqxn\0ä ", max_size=5), max_size=8))
def test_any_line_is_taken_apart_without_a_crash(line: list[str]) -> None:
    parts = split(exec_parser(), line)
    assert isinstance(parts, Split)
    with contextlib.suppress(errors.UsageError):
        exec_parser().parse(parts)


@pytest.mark.parametrize("notes", ["", "More."])
def test_help_says_once_how_a_duration_is_written(notes: str) -> None:
    parser = Parser("wait", summary="Wait", notes=notes)
    assert "90s" not in parser.help()
    parser.option("--timeout", metavar="SECONDS", help="x")
    parser.option("--other", metavar="SECONDS", help="x")
    assert parser.help().endswith(f"{notes}\nSECONDS is a number, or one with a unit: 90s, 15m, 2h.\n")
    assert parser.help().count("90s") == 1


def test_the_last_of_many_names_has_a_place_of_its_own() -> None:
    parser = Parser("cp", summary="Copy", names="SRC... DST")
    add_globals(parser)
    assert parser.parse(split(parser, ["a", "b"])).names == ["a", "b"]
    assert parser.parse(split(parser, ["a", "b", "c"])).names == ["a", "b", "c"]
    with pytest.raises(errors.UsageError, match="the DST is missing"):
        parser.parse(split(parser, ["a"]))
    with pytest.raises(errors.UsageError, match="the SRC is missing"):
        parser.parse(split(parser, []))


def test_a_parser_tells_its_options() -> None:
    parser = exec_parser()
    rows = [(row.flags, row.metavar, row.is_repeatable) for row in parser.rows]
    assert rows[:3] == [(("-e", "--env"), "X", True), (("--timeout",), "X", False), (("--shell",), "", False)]
    assert {flag for row in parser.rows for flag in row.flags} >= {"-q", "--quiet", "--region"}
    assert all(row.help for row in parser.rows)


def test_a_parser_tells_its_notes_and_how_times_are_written() -> None:
    parser = Parser("x", summary="X", notes="A note.")
    assert parser.notes == "A note."
    assert exec_parser().notes == ""
    parser.option("--timeout", metavar="SECONDS", help="x")
    assert parser.notes.startswith("A note.\nSECONDS is a number")
