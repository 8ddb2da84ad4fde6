"""``exec`` and ``run``: what is made of options and results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from vmnest.cli import commands
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
        (["--egress-connector", "INTERNET_EGRESS"], ["--egress-connector"]),
        (["--role", "arn:aws:iam::111122223333:role/r", "--log-group", "g"], ["--role", "--log-group"]),
    ],
    ids=str,
)
def test_what_has_no_effect_on_this_machine_is_told(
    here: LocalCloud, options: list[str], flags: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--local", "run", *options, "--", "true"]) == 0
    said = capfd.readouterr().err.splitlines()
    assert [line.split(" has no effect: a local sandbox")[0] for line in said] == [f"vmnest: {flag}" for flag in flags]


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


@pytest.mark.parametrize(("status", "ours"), [(0, 0), (9, 9), (255, 255), (256, 255), (2**31, 255)])
def test_a_status_beyond_a_byte_never_becomes_success(status: int, ours: int) -> None:
    options = commands._ExecOptions(timeout=None, quiet=False, json=False)
    assert commands.finish({"exit_code": status, "timed_out": False, "truncated": False}, options=options) == ours


def test_an_agent_may_have_a_timeout_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    options = commands._ExecOptions(timeout=None, quiet=False, json=False)
    assert commands.finish({"exit_code": 143, "timed_out": True, "truncated": False}, options=options) == 124
    assert capfd.readouterr().err == "vmnest: the command was ended at a timeout of the agent\n"


def test_output_that_is_not_whole_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    options = commands._ExecOptions(timeout=None, quiet=False, json=False)
    assert commands.finish({"exit_code": 0, "timed_out": False, "truncated": True}, options=options) == 0
    assert capfd.readouterr().err == "vmnest: the output is not whole: it is larger than what is kept of it\n"
