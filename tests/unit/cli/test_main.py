"""From argv to an exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vmnest import __version__
from vmnest.cli import verbs
from vmnest.cli.main import main


@pytest.mark.parametrize("line", [["--help"], ["-h"], ["--json", "--help"], ["--help", "--local"]], ids=" ".join)
def test_help_lists_everything(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    for verb in verbs.VERBS:
        assert verb.summary in captured.out


@pytest.mark.parametrize("line", [["--version"], ["--json", "--version"]], ids=" ".join)
def test_the_version_is_an_option_too(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 0
    assert capfd.readouterr() == (f"vmnest {__version__}\n", "")


@pytest.mark.parametrize("verb", verbs.VERBS, ids=lambda verb: verb.title)
def test_every_verb_has_help_wherever_it_is_asked_for(verb: verbs.Verb, capfd: pytest.CaptureFixture[str]) -> None:
    for line in ([*verb.words, "--help"], ["-h", *verb.words], [*verb.words, "--bogus", "-h"]):
        assert main(line) == 0
        captured = capfd.readouterr()
        assert captured.err == ""
        assert captured.out.lower().startswith(f"usage: vmnest {verb.title} [options]")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["creat"], "Did you mean vmnest create?"),
        (["locl", "up"], "Did you mean vmnest local?"),
        (["local", "stauts"], "Did you mean vmnest local status?"),
        (["status"], "Did you mean vmnest local status?"),
        (["local", "ls"], "Did you mean vmnest ls?"),
        (["local", "start"], "Did you mean vmnest local up?"),
        (["local", "stop"], "Did you mean vmnest local down?"),
        (["suspend", "x"], "Did you mean vmnest stop?"),
        (["delete", "x"], "Did you mean vmnest rm?"),
        (["ssh", "x"], "Did you mean vmnest shell?"),
        (["pull", "x:a", "a"], "Did you mean vmnest cp?"),
        (["cat", "x", "a"], "Did you mean vmnest fs cat?"),
        (["log", "x"], "Did you mean vmnest logs?"),
        (["top", "x"], "Did you mean vmnest metrics NAME --watch?"),
        (["xyzzy"], "vmnest --help lists the commands"),
        (["rename", "a", "b"], "vmnest --help lists the commands"),
        (["get", "a"], "vmnest --help lists the commands"),
        (["label", "a", "b=1"], "vmnest --help lists the commands"),
        (["help"], "Did you mean vmnest --help?"),
        (["help", "ls"], "Of one command: vmnest COMMAND --help"),
        (["man"], "Did you mean vmnest --man?"),
        (["tree"], "Did you mean vmnest --tree?"),
    ],
)
def test_a_misspelt_command_is_told_the_closest(line: list[str], hint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert hint in capfd.readouterr().err


def test_a_group_has_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "--help"]) == 0
    assert "local up" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("line", "first", "some"),
    [
        ([], "vmnest ...", "  exec            Run a command in a sandbox"),
        (["--"], "vmnest ...", "vmnest --help tells more."),
        (["--", "ls"], "vmnest ...", "Usage: vmnest [options] COMMAND ..."),
        (["local"], "vmnest local ...", "Usage: vmnest local COMMAND [options]"),
        (["image"], "vmnest image ...", "  image ls        List images"),
        (["--local", "image", "-q"], "vmnest image ...", "  image ls        List images"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_without_a_command_those_that_there_are_are_listed(
    line: list[str], first: str, some: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[:2] == [f"vmnest: a command is missing: {first}", ""]
    assert some in captured.err.splitlines()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--json"], "a command is missing"),
        (["--region"], "the value of --region is missing"),
        (["--local", "--region", "ls"], "the value of --region is missing"),
        (["bogus"], "no command 'bogus'"),
        (["bogus", "--help"], "no command 'bogus'"),
        (["local", "bogus"], "no command 'local bogus'"),
        (["--timeout", "3", "exec", "n", "c"], "no option --timeout before the command"),
        (["--version", "--bogus"], "no option --bogus"),
        (["ls", "x"], "what is 'x' for?"),
        (["ls", "--bogus"], "no option --bogus"),
        (["create"], "name is missing"),
        (["create", "../x"], "not a name"),
        (["create", "a" * 64], "not a name"),
        (["create", "n", "--memory", "x"], "--memory"),
        (["create", "n", "--cpus", "0"], "--cpus"),
        (["create", "n", "--wait-timeout", "nan"], "--wait-timeout"),
        (["exec", "n"], "command to run is missing"),
        (["exec", "n", "--timeout", "-1", "c"], "--timeout"),
        (["exec", "n", "-e", "=x", "c"], "NAME"),
        (["exec", "n", "-e", "VMNEST_SURELY_NOT_SET", "c"], "no such variable"),
        (["run", "c"], "command to run is missing; it begins after -- ('c' is taken for the IMAGE)"),
        (["run", "echo", "hi"], "command to run is missing; it begins after -- ('echo' is taken for the IMAGE)"),
        (["run", "-e", "A=1", "--", "c"], "'A=1' is taken for the IMAGE"),
        (["run", "a", "-i", "b", "--", "c"], "two images"),
        (["run", "-it", "--", "bash"], "-it is not here what it is elsewhere"),
        (["run", "--local", "-ti", "ubuntu", "--", "bash"], "-ti is not here what it is elsewhere"),
        (["run", "-i", "--", "cat"], "-i is not here what it is elsewhere"),
        (["rm"], "name is missing"),
        (["ps", "a", "b"], "what is 'b' for?"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_told_with_exit_status_2(
    line: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    if "--json" in line:
        assert message in json.loads(captured.err)["error"]["message"]
        return
    first, second = captured.err.splitlines()
    assert first.startswith("vmnest: ")
    assert message in first
    assert second.startswith("  ")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["exec", "n", "--timeot", "1", "--", "c"], "Did you mean --timeout? Usage: vmnest exec"),
        (["create", "n", "--mem", "1"], "Did you mean --memory? Usage: vmnest create"),
        (["run", "python3", "-c", "1"], "Options of the command to run stand after --. Usage: vmnest run"),
        (["ls", "--bogus"], "Usage: vmnest ls"),
        (["ls", "-x"], "Usage: vmnest ls"),
        (["run", "--rm", "--", "c"], "The sandbox of run is always removed"),
        (["run", "-d", "--", "c"], "For a sandbox that stays: vmnest create NAME"),
        (["run", "--name", "x", "--", "c"], "The sandbox of run has no name."),
        (["run", "-v", "/a:/b", "--", "c"], "Directories are copied, not mounted"),
        (["run", "-p80:80", "--", "c"], "Ports are forwarded: vmnest create NAME, then vmnest forward NAME -r PORT"),
        (["run", "--network=host", "--", "c"], "It reaches what --egress-allow names"),
        (["exec", "-d", "n", "c"], "vmnest exec --background leaves"),
        (["exec", "-u", "root", "n", "c"], "It is --user USER here"),
        (["exec", "-p", "80", "n", "c"], "Ports are forwarded: vmnest forward NAME -r PORT"),
        (["create", "--name", "x"], "The name needs no option"),
        (["create", "-d", "x"], "A sandbox that is made stays"),
        (["create", "n", "--env", "A=1"], "Usage: vmnest create"),
        (["ps"], "vmnest ls lists all sandboxes. Usage: vmnest ps"),
        (["create"], "Usage: vmnest create"),
        (["run", "-e", "A=1", "--", "c"], "Set a variable with --env NAME=VALUE"),
        (["run", "-it", "--", "c"], "-i is --image here; standard input is handed on with --interactive"),
        (
            ["shell", "n", "--", "ls"],
            "vmnest exec -it NAME -- COMMAND runs a command in a terminal. Usage: vmnest shell",
        ),
        (["run", "--background", "--", "c"], "For a sandbox that stays: vmnest create NAME"),
        (["fs", "ls", "n:/etc"], "NAME and PATH are words of their own here: vmnest fs ls n /etc"),
        (["fs", "cat", "n:/etc/passwd"], "NAME and PATH are words of their own here. Usage: vmnest fs cat"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_the_hint_says_what_was_likely_meant(line: list[str], hint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert capfd.readouterr().err.splitlines()[1].startswith(f"  {hint}")


@pytest.mark.parametrize("line", [["bogus"], ["create"], ["ls", "--bogus"], ["exec", "n"], ["local"]], ids=" ".join)
def test_a_usage_error_is_json_on_demand_wherever_that_is_said(
    line: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for asked in (["--json", *line], [*line, "--json"]):
        assert main(asked) == 2
        captured = capfd.readouterr()
        assert captured.out == ""
        error = json.loads(captured.err)["error"]
        assert error["code"] == "usage"
        assert error["hint"]


def test_an_option_of_the_command_in_the_sandbox_is_not_ours(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "nobody", "ls", "--json"]) == 125
    assert capfd.readouterr().err.startswith("vmnest: no sandbox named 'nobody'")


@pytest.mark.parametrize("line", ["ls", "ls --json", "prune", "logs box", "metrics --all", "cost", "rm box"])
def test_a_target_that_is_none_is_an_error_also_where_nothing_is_recorded(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", str(tmp_path / "local"))
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "mars")
    assert main(line.split()) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "AGENT_SANDBOX_TARGET must be one of aws, local: 'mars'" in captured.err
    assert main(["ls", "--local"]) == 0  # an option is stronger
    assert main(["version"]) == 0
    assert main(["local", "down"]) == 0  # it is about this machine in any case
