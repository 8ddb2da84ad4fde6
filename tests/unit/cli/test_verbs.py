"""The table of verbs."""

from __future__ import annotations

from importlib import import_module

import pytest

from vmnest.cli import verbs, words


@pytest.mark.parametrize("verb", verbs.VERBS, ids=lambda verb: verb.title)
def test_every_verb_has_a_parser_and_a_line_of_help(verb: verbs.Verb) -> None:
    group = import_module(f"vmnest.cli.{verb.module}")
    parser = group.build_parser(verb)
    assert isinstance(parser, words.Parser)
    assert callable(group.run)
    assert parser.title == verb.title
    assert verb.summary in parser.help().replace("\n", " ")
    assert not verb.summary.endswith(".")
    assert len(verb.title) + len(verb.summary) < 90


@pytest.mark.parametrize("verb", verbs.VERBS, ids=lambda verb: verb.title)
def test_every_verb_has_the_options_that_all_have(verb: verbs.Verb) -> None:
    parser = import_module(f"vmnest.cli.{verb.module}").build_parser(verb)
    words.add_globals(parser)
    for flag in ("--local", "--region", "--json", "-q", "--quiet", "--debug", "-h", "--help"):
        assert parser.is_known(flag)


def test_a_verb_is_found_by_exactly_its_words() -> None:
    for verb in verbs.VERBS:
        assert verbs.find(verb.words) is verb
    assert verbs.find(("local",)) is None
    assert verbs.find(()) is None
    assert verbs.find(("create", "x")) is None


def test_another_word_for_a_verb_is_none_itself_and_leads_to_one() -> None:
    for other, title in verbs.OTHER_WORDS.items():
        assert verbs.find(tuple(other.split())) is None
        words = tuple(title.split())
        assert any(verbs.find(words[:count]) for count in (1, 2))


def test_every_group_has_verbs_and_every_verb_of_two_words_a_group() -> None:
    assert {verb.words[0] for verb in verbs.VERBS if len(verb.words) > 1} == set(verbs.GROUPS)
    for group in verbs.GROUPS:
        assert all(verb.words[0] == group for verb in verbs.in_group(group))


def test_short_options_mean_what_they_always_meant() -> None:
    for title, flags in {"create": {"-i", "-m", "-e"}, "run": {"-i", "-m", "-e"}, "exec": {"-e", "-w"}}.items():
        verb = verbs.find((title,))
        assert verb is not None
        parser = import_module(f"vmnest.cli.{verb.module}").build_parser(verb)
        assert all(parser.is_known(flag) for flag in flags)
    for title, long in {"create": "--egress", "run": "--egress", "exec": "--env"}.items():
        verb = verbs.find((title,))
        assert verb is not None
        assert import_module(f"vmnest.cli.{verb.module}").build_parser(verb).long("-e") == long


@pytest.mark.parametrize(
    ("line", "title", "before", "words", "rest"),
    [
        (["ls", "x"], "ls", [], ["ls"], ["x"]),
        (["--json", "--region", "ls", "ps", "x"], "ps", ["--json", "--region", "ls"], ["ps"], ["x"]),
        (["fs", "--local", "ls", "x"], "fs ls", ["--local"], ["fs", "ls"], ["x"]),
        (["fs"], None, [], ["fs"], []),
        (["fs", "bogus", "ls"], None, [], ["fs", "bogus"], ["ls"]),
        (["bogus", "ls"], None, [], ["bogus"], ["ls"]),
        (["--", "ls"], None, [], [], ["--", "ls"]),
        (["--region"], None, ["--region"], [], []),
        ([], None, [], [], []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_verb_is_found_behind_options(
    line: list[str], title: str | None, before: list[str], words: list[str], rest: list[str]
) -> None:
    found = verbs.look_for(line)
    assert (found.verb and found.verb.title, found.before, found.words, found.rest) == (title, before, words, rest)
