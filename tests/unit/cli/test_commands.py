"""``exec`` and ``run``: what is made of options and results."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from vmnest import errors
from vmnest.cli import attending, commands, verbs, words
from vmnest.cli.main import main


@pytest.fixture
def here(shared_cloud: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """This process works with a local cloud of the tests' own."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    return shared_cloud


def test_output_and_status_of_a_command_are_ours(here: LocalCloud, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    line = ["--local", "run", "--env", "A=1", "--shell", "--", "printf '\\377'; echo $A >&2; exit 9"]
    assert main(line) == 9
    assert capfdbinary.readouterr() == (b"\xff", b"1\n")


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ([], []),
        (["--egress-connector", "INTERNET_EGRESS"], []),
        (["--egress-allow", "pypi.org"], []),
        (["--role", "arn:aws:iam::111122223333:role/r", "--log-group", "g"], ["--role"]),
    ],
    ids=str,
)
def test_what_has_no_effect_on_this_machine_is_told(
    here: LocalCloud, options: list[str], flags: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--local", "run", *options, "--", "true"]) == 0
    said = capfd.readouterr().err.splitlines()
    assert [line.split(" has no effect: a local sandbox")[0] for line in said] == [f"vmnest: {flag}" for flag in flags]


def test_that_this_machine_has_fewer_cpus_is_told(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    there = len(os.sched_getaffinity(0))
    for cpus, said in (("0.5", ""), ("1000", f"vmnest: --cpus 1000 is more than this machine has: it gets {there}\n")):
        assert main(["run", "--local", "--cpus", cpus, "--", "true"]) == 0
        assert capfd.readouterr() == ("", said)


def test_that_this_machine_has_less_memory_is_told(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    assert main(["run", "--local", "--memory", "1TiB", "--", "true"]) == 0
    said = f"vmnest: --memory 1048576 MiB is more than this machine has: {mib} MiB, which all share\n"
    assert capfd.readouterr() == ("", said)


def test_an_end_by_timeout_is_status_124_and_a_remark(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["run", "--local", "--timeout", "0.5", "--", "sh", "-c", "echo a; sleep 9"]
    assert main(line) == 124
    assert capfd.readouterr() == ("a\n", "vmnest: the command was ended after 0.5 s\n")
    assert main(["-q", *line]) == 124
    assert capfd.readouterr() == ("a\n", "")


@pytest.mark.parametrize("demand", ["kernel", "vm"])
def test_a_demand_for_stronger_isolation_holds_for_a_cloud_that_runs_already(
    here: LocalCloud, demand: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_ISOLATION", demand)
    assert main(["run", "--local", "--json", "--", "true"]) == 125
    error = json.loads(capfd.readouterr().err)["error"]
    assert error["code"] == "isolation_unavailable"
    assert demand in error["message"]


@pytest.mark.parametrize("line", [["exec", "nobody", "x"], ["run", "--", "x"]], ids=" ".join)
def test_what_fails_before_the_command_is_status_125(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AGENT_SANDBOX_REGION", "AGENT_SANDBOX_TARGET"):
        monkeypatch.delenv(name, raising=False)
    assert main(line) == 125
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vmnest: no ")


def test_an_error_names_the_option_that_was_given(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--local", "run", "-w", "/nowhere", "--", "true"]) == 125
    assert capfd.readouterr().err == "vmnest: --workdir: no such directory: /nowhere\n"


@pytest.mark.parametrize("line", [["run"], ["exec", "nobody"], ["shell", "nobody"]], ids=" ".join)
@pytest.mark.parametrize("option", ["--workdir", "--user"])
def test_an_option_that_names_nothing_is_refused_before_anything_is_made(
    line: list[str], option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [] if line[0] == "shell" else ["--", "true"]
    assert main([*line, option, "", *command]) == 2
    assert capfd.readouterr().err == f"vmnest: {option} must not be empty\n"


def test_an_error_about_a_limit_names_the_option_too() -> None:
    with pytest.raises(errors.BadArgumentError) as caught, commands.naming_options():
        raise errors.BadArgumentError("rlimits.core: a hard limit cannot be raised")
    assert caught.value.message == "--ulimit core: a hard limit cannot be raised"


def finish(data: dict[str, object], *, was_killed: bool = False, **given: object) -> int:
    options = commands._ExecOptions(**{"timeout": None, "quiet": False, "json": False, **given})
    front = attending.Front(options, name="box", reads=False)
    front.was_killed = was_killed
    return commands.finish(
        {"timed_out": False, "truncated": False, "signal": None, **data}, options=options, front=front
    )


@pytest.mark.parametrize(("status", "ours"), [(0, 0), (9, 9), (255, 255), (256, 255), (2**31, 255)])
def test_a_status_beyond_a_byte_never_becomes_success(status: int, ours: int) -> None:
    assert finish({"exit_code": status}) == ours


def test_an_agent_may_have_a_timeout_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert finish({"exit_code": 143, "timed_out": True}) == 124
    assert capfd.readouterr().err == "vmnest: the command was ended at its timeout\n"


def test_output_that_is_not_whole_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert finish({"exit_code": 0, "truncated": True}) == 0
    assert capfd.readouterr().err == "vmnest: the output is not whole: it is larger than what is kept of it\n"


def test_a_command_that_two_ctrl_c_killed_is_an_interruption_and_its_end_is_told_as_it_was(
    capfd: pytest.CaptureFixture[str],
) -> None:
    data: dict[str, object] = {"exit_code": 137, "signal": "SIGKILL"}
    assert finish(data, was_killed=True) == 130
    assert finish(data) == 137
    assert finish(data, was_killed=True, json=True) == 130
    assert json.loads(capfd.readouterr().out)["exit_code"] == 137


def test_a_command_that_was_left_running_has_no_status_yet() -> None:
    assert finish({"job": "job-1"}) == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["exec", "box", "-t", "--json", "--", "x"], "--tty and --json do not go together"),
        (["exec", "box", "-t", "--json", "--", "x"], "leave one of them out"),
        (["exec", "box", "--background", "--stream", "--", "x"], "--background shows no output"),
        (["exec", "box", "--output-limit", "1k", "--", "x"], "--output-limit is for --json alone"),
        (
            ["exec", "box", "--json", "--stream", "--output-limit", "1k", "--", "x"],
            "--output-limit is for --json alone",
        ),
        (["exec", "box", "--output-limit", "-1", "--", "x"], "must be a number of bytes"),
        (["exec", "box", "--ulimit", "nofile", "--", "x"], "must be NAME=LIMIT"),
        (["exec", "box", "--ulimit", "files=1", "--", "x"], "--ulimit: there is no limit 'files'"),
        (["run", "--background", "--", "x"], "no option --background"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(line: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert message in capfd.readouterr().err


def parse(*line: str) -> commands._ExecOptions:
    verb = verbs.find((line[0],))
    assert verb is not None
    parser = commands.build_parser(verb)
    options = parser.parse(words.split(parser, line[1:]))
    assert isinstance(options, commands._ExecOptions)
    return options


def test_what_is_asked_for_is_what_is_run() -> None:
    line = ("--user", "nobody", "--ulimit", "nofile=9:99", "--ulimit", "core=0", "-w", "/tmp", "--timeout", "2m", "-i")
    command = commands._command(parse("exec", *line, "-e", "A=1", "box", "ls", "-l"))
    assert (command.words, command.user, command.cwd, command.timeout) == (["ls", "-l"], "nobody", "/tmp", 120.0)
    assert (command.rlimits, command.env) == ({"nofile": (9, 99), "core": (0, 0)}, {"A": "1"})
    assert (command.takes_input, command.terminal) == (True, None)


def test_a_terminal_is_for_those_who_ask_and_no_tty_is_stronger() -> None:
    assert commands._command(parse("exec", "-it", "box", "x")).terminal is not None
    assert commands._command(parse("exec", "-it", "--no-tty", "box", "x")).terminal is None
    assert commands._command(parse("exec", "box", "x")).terminal is None
    assert commands._command(parse("run", "-t", "--interactive", "-i", "image", "--", "x")).terminal is not None


def test_a_plain_command_asks_for_nothing_that_an_old_agent_lacks() -> None:
    assert commands._command(parse("exec", "box", "x")).is_plain
    assert not commands._command(parse("exec", "-i", "box", "x")).is_plain


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ([], attending.Front),
        (["--stream"], attending.Front),
        (["--json"], attending.CollectingFront),
        (["--json", "--stream"], attending.LinesFront),
    ],
    ids=str,
)
def test_each_way_of_showing_output_has_its_front(line: list[str], kind: type) -> None:
    parser = commands.build_parser(verbs.VERBS[2])
    words.add_globals(parser)
    options = parser.parse(words.split(parser, [*line, "box", "x"]))
    assert isinstance(options, commands.OutputOptions)
    assert type(commands.build_front(options, name="box")) is kind
