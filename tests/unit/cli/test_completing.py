"""What a shell is offered. How it looks in real shells is seen in ``tests/functional/test_completion.py``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.cli import completing, hosts, main, manual, verbs, words
from vmnest.cli.completing import DIRECTORIES, FILES, NOTHING, Offer
from vmnest.wire import names

ODD = (
    "my box",
    "quo'te",
    'we"ird',
    "do$lar",
    "co:lon",
    "back\\slash",
    "sl/ash",
    "#lead",
    "~tilde",
    "b\xe4x",
    "x=y",
    "star*",
)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sandboxes on this machine, one on AWS, and some that no terminal must be shown."""
    path = tmp_path / "state.json"
    local = ("demo", "demo.two", "tab\there", "line\nbreak", "\x1b[31mred", "-dash")
    records = {name: {"target": "local"} for name in local}
    path.write_text(json.dumps({"sandboxes": {**records, "far": {"target": "aws", "region": "eu-west-1"}}}))
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(path))
    return path


def offered(line: str) -> Offer:
    """What is offered at the end of the line."""
    *typed, current = line.split(" ")
    return completing.offer([word for word in typed if word], current=current)


def words_of(line: str) -> list[str]:
    return [word for word, _ in offered(line).candidates]


def test_at_first_there_are_all_verbs_and_groups() -> None:
    expected = {verb.words[0] for verb in verbs.VERBS}
    assert set(words_of("")) == expected
    assert dict(offered("").candidates)["local"] == verbs.GROUPS["local"]
    assert set(words_of("--local --region eu-west-1 ")) == expected


@pytest.mark.parametrize("group", verbs.GROUPS)
def test_in_a_group_there_are_its_verbs(group: str) -> None:
    expected = [(verb.words[1], verb.summary) for verb in verbs.in_group(group)]
    assert offered(f"{group} ").candidates == expected
    assert offered(f"{group} --json ").candidates == expected


@pytest.mark.parametrize(
    "line", ["bogus ", "bogus -", "fs bogus ", "-- ", "-- -", "--region ", "ps demo too-many ", "ls "]
)
def test_where_nothing_can_be_meant_there_is_nothing(recorded: Path, line: str) -> None:
    assert (offered(line).candidates, offered(line).adds) == ([], NOTHING)


def test_options_before_the_verb_are_those_of_the_help() -> None:
    assert set(words_of("-")) == set(words_of("fs --")) >= {"--local", "--region", "-q", "--version", "--help"}
    assert len(words_of("-")) == sum(len(spelled.split(", ")) for spelled, _ in manual.OPTIONS)


@pytest.mark.parametrize("verb", verbs.VERBS, ids=lambda verb: verb.title)
def test_every_verb_offers_its_options_and_nothing_else(recorded: Path, verb: verbs.Verb) -> None:
    parser = verbs.build_parser(verb)
    words.add_globals(parser)
    flags = {flag for row in parser.rows for flag in row.flags}
    assert set(words_of(f"{verb.title} -")) == flags
    assert set(words_of(f"{verb.title} --")) == {flag for flag in flags if flag.startswith("--")}
    assert all(meaning for _, meaning in offered(f"{verb.title} -").candidates)
    offered(f"{verb.title} ")


def test_an_option_is_offered_once_unless_it_may_be_repeated() -> None:
    again = words_of("exec --env A=b -q --timeout 3 demo --")
    assert "--env" in again
    assert {"--quiet", "--timeout"}.isdisjoint(again)
    assert "--local" not in words_of("--local ls --")


def test_an_option_behind_the_name_is_one_and_in_the_command_it_is_not() -> None:
    assert "--timeout" in words_of("exec demo --")
    for line in ("exec demo ls -", "exec demo -- -", "exec demo -- ls --t", "run -- ls ", "run -- ", "exec demo "):
        assert (words_of(line), offered(line).adds) == ([], FILES), line


@pytest.mark.parametrize(
    "line", ["ps ", "exec ", "rm ", "shell -q ", "fs ls ", "--json ps ", "ps -- ", "exec --env -x "]
)
def test_names_of_sandboxes_are_offered_with_their_place(recorded: Path, line: str) -> None:
    expected = [("demo", "on this machine"), ("demo.two", "on this machine"), ("far", "on AWS, eu-west-1")]
    assert (offered(line).candidates, offered(line).adds) == (expected, NOTHING)


@pytest.mark.parametrize(
    "line", ["create ", "infra output ", "fs ls demo ", "fs cp demo ", "attach demo ", "image rm "]
)
def test_what_is_no_name_of_a_sandbox_is_not_offered_one(recorded: Path, line: str) -> None:
    assert words_of(line) == []


def test_on_this_machine_only_its_own_are_offered(recorded: Path) -> None:
    assert words_of("ps --local ") == words_of("--local ps ") == ["demo", "demo.two"]


def test_a_name_that_is_given_is_not_offered_again_where_there_may_be_several(recorded: Path) -> None:
    assert words_of("rm demo ") == ["demo.two", "far"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 99}', '{"sandboxes": 1}'])
def test_records_that_cannot_be_read_are_no_matter_here(
    recorded: Path, content: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    recorded.write_text(content)
    assert main.main([verbs.COMPLETE, "zsh", "ps", ""]) == 0
    assert capfdbinary.readouterr() == (b"nothing\n", b"")


def test_without_records_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.delenv("AGENT_SANDBOX_STATE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main.main([verbs.COMPLETE, "fish", "rm", ""]) == 0
    assert capfdbinary.readouterr() == (b"nothing\n", b"")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_utf8_in_the_records_are_left_out(recorded: Path) -> None:
    recorded.write_text('{"sandboxes": {"\\udcff": {}, "ok": {}}}')
    assert words_of("ps ") == ["ok"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("wait demo --state ", list(names.STATES)),
        ("wait demo --state=", [f"--state={state}" for state in names.STATES]),
        ("ls --state ", [*names.STATES, "LAUNCHING", "GONE", "UNKNOWN"]),
        ("image build --memory=", ["--memory=512", *(f"--memory={mib}" for mib in (1024, 2048, 4096, 8192))]),
        ("create x --ingress ", list(names.INGRESS_CONNECTORS)),
        ("create x --egress-allow ", ["internet"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("mcp ", ["config"]),
        ("mcp config ", list(hosts.HOSTS)),
        ("mcp config goose ", []),
        ("create x --memory ", []),
        ("exec --env A=", []),
        ("exec --env=A=", []),
        ("ls --bogus=", []),
    ],
)
def test_values_are_offered_where_there_are_few(line: str, expected: list[str]) -> None:
    assert (words_of(line), offered(line).adds) == (expected, NOTHING)


def test_signals_limits_and_variables_are_offered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMNEST_TEST_NAME", "secret value")
    assert dict(offered("kill demo 1 -s ").candidates)["TERM"] == "15"
    assert "nofile=" in words_of("exec --ulimit ")
    for line in ("exec -e ", "run --env ", "image build --secret "):
        assert ("VMNEST_TEST_NAME", "") in offered(line).candidates
        assert "secret value" not in str(offered(line).candidates)


def test_every_option_whose_values_are_known_exists() -> None:
    flags = {
        known
        for verb in verbs.VERBS
        for row in verbs.build_parser(verb).rows
        for flag in row.flags
        for known in (flag, f"{verb.title} {flag}")
    }
    assert completing._VALUES.keys() <= flags


@pytest.mark.parametrize("verb", [verb for verb in verbs.VERBS if verb.title in ("wait", "ls", "kill", "image build")])
def test_every_value_that_is_offered_is_taken(verb: verbs.Verb) -> None:
    parser = verbs.build_parser(verb)
    for row in parser.rows:
        for value in words_of(f"{verb.title} {row.flags[-1]} "):
            arguments = ["demo", "1"][: parser.most_names or 0]
            parser.parse(words.split(parser, [row.flags[-1], value, *arguments]))


def test_every_verb_whose_names_are_others_exists() -> None:
    for title, kind in completing._OTHER_NAMES:
        verb = verbs.find(tuple(title.split()))
        assert verb is not None
        assert kind in verbs.build_parser(verb).names


@pytest.mark.parametrize(
    ("line", "adds"),
    [
        ("exec --env-file ", FILES),
        ("infra up --file=", FILES),
        ("image build ", DIRECTORIES),
        ("image build . ", NOTHING),
    ],
)
def test_files_of_this_machine_are_left_to_the_shell(line: str, adds: str) -> None:
    assert (words_of(line), offered(line).adds) == ([], adds)


@pytest.mark.parametrize(
    ("current", "expected", "adds"),
    [
        ("", ["demo:", "demo.two:", "far:"], FILES),
        ("de", ["demo:", "demo.two:", "far:"], FILES),
        ("./de", [], FILES),
        ("~/", [], FILES),
        ("a/b:c", [], FILES),
        (".a:b", [], FILES),
        ("demo:", [], NOTHING),
        ("demo:/etc/p", [], NOTHING),
    ],
)
def test_of_what_is_copied_either_side_is_offered(recorded: Path, current: str, expected: list[str], adds: str) -> None:
    for line in (f"cp {current}", f"cp -r a {current}", f"cp a b {current}"):
        assert (words_of(line), offered(line).adds) == (expected, adds)


def test_a_name_that_could_not_be_copied_from_is_not_offered_for_it(recorded: Path) -> None:
    recorded.write_text(json.dumps({"sandboxes": {name: {} for name in ("co:lon", "sl/ash", "my box")}}))
    assert words_of("cp ") == ["my box:"]


# -- bash --------------------------------------------------------------------------------------------------------------


def for_bash(*typed: str) -> list[str]:
    """The lines for bash, without the first."""
    adds, *candidates = completing._for_bash(typed).splitlines()
    assert adds in (NOTHING, FILES, DIRECTORIES)
    return candidates


@pytest.fixture
def odd(recorded: Path) -> None:
    recorded.write_text(json.dumps({"sandboxes": {name: {} for name in ODD}}))


def as_bash_reads(line: str) -> list[str]:
    """The words of a line."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("mark", ["", "'", '"'])
def test_bash_gets_names_as_they_are_typed(odd: None, mark: str) -> None:
    candidates = for_bash("ps", mark)
    assert as_bash_reads(" ".join(f"{mark}{each}{mark}" for each in candidates)) == [
        name for name in ODD if not mark or mark not in name
    ]


@pytest.mark.parametrize("name", ODD)
def test_bash_gets_what_begins_with_what_is_typed(odd: None, name: str) -> None:
    for count in range(1, len(name) + 1):
        fitting = for_bash("ps", completing._quote(name[:count], ""))
        assert as_bash_reads(" ".join(fitting)) == [each for each in ODD if each.startswith(name[:count])]


def test_bash_gets_nothing_that_its_quotation_mark_could_not_hold(recorded: Path) -> None:
    recorded.write_text(json.dumps({"sandboxes": {"a'b": {}, 'a"b': {}, "a!b": {}}}))
    assert for_bash("ps", "'a") == ['a"b', "a!b"]
    assert for_bash("ps", '"a') == ["a'b"]


def test_what_bash_has_not_unquoted_is_understood(recorded: Path) -> None:
    assert for_bash("'ps'", "-q", "de") == ["demo", "demo.two"]
    assert for_bash("r\\m", '"demo"', '"dem') == ["demo.two"]
    assert for_bash("wait", "demo", "--state=R") == ["--state=RUNNING"]


@given(st.text(st.characters(exclude_characters="\n\0"), min_size=1))
def test_what_is_quoted_for_bash_is_one_word_again(text: str) -> None:
    assert completing._unquote(completing._quote(text, "")) == (text, "")
    for mark in "'\"":
        quoted = completing._quote(text, mark)
        if quoted:
            assert completing._unquote(mark + quoted) == (text, mark)
            assert completing._unquote(mark + quoted + mark) == (text, "")


@given(st.text())
def test_any_beginning_of_a_word_can_be_read(raw: str) -> None:
    text, mark = completing._unquote(raw)
    assert len(text) <= len(raw)
    assert mark in ("", "'", '"')


@given(st.lists(st.text(max_size=8), max_size=5), st.sampled_from(verbs.VERBS), st.text(max_size=8))
def test_any_line_is_answered(typed: list[str], verb: verbs.Verb, current: str) -> None:
    offered = completing.offer([*verb.words, *typed], current=current)
    assert offered.adds in (NOTHING, FILES, DIRECTORIES)


def test_the_answer_is_utf8_whatever_the_locale_is(odd: None, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main.main([verbs.COMPLETE, "bash", "ps", "b\xe4"]) == 0
    assert capfdbinary.readouterr().out == "nothing\nb\xe4x\n".encode()


def test_descriptions_stand_behind_a_tab(recorded: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main.main([verbs.COMPLETE, "zsh", "ps", ""]) == 0
    assert capfdbinary.readouterr().out.splitlines()[:2] == [b"nothing", b"demo\ton this machine"]


@pytest.mark.parametrize("line", [[], ["bash"], ["bash", ""], ["csh", ""], ["", ""]], ids=" ".join)
def test_whatever_a_shell_asks_is_answered(line: list[str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main.main([verbs.COMPLETE, *line]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out.startswith(b"nothing\ncreate")
    assert captured.err == b""


def test_the_word_for_it_is_in_no_help() -> None:
    assert verbs.COMPLETE not in manual.help_text()
    assert words.Parser("x", summary="X").is_known(verbs.COMPLETE) is False
