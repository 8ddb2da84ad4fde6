"""``ls``: what is made of options and results."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from tests.support.fleet import Fleet, Recording
from tests.support.terminals import Terminal
from vmnest import registry
from vmnest.cli.main import main

ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"
LONG_ID = "microvm-0123abcd-0123-0123-0123-0123456789ab"
WIRE_POLICY = {"maxIdleDurationSeconds": 900, "suspendedDurationSeconds": 0, "autoResumeEnabled": True}


def rows(capfd: pytest.CaptureFixture[str], *line: str) -> list[list[str]]:
    """The cells of the table that a line prints."""
    assert main(["ls", *line]) == 0
    return [text.split() for text in capfd.readouterr().out.splitlines()]


def test_the_table(fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]) -> None:
    record_as("web")
    fleet.add("microvm-web", startedAt=time.time() - 3700, idlePolicy=WIRE_POLICY, imageArn=ARN)
    heads, row = rows(capfd)
    assert heads == ["NAME", "STATE", "AGE", "IMAGE", "IDLE/EXPIRES", "ID", "ENDPOINT"]
    assert row == [
        *("web", "RUNNING", "1h", "demo", "15m/6h58m", "microvm-web", "https://0000.lambda-microvm.us-east-1.on.aws"),
    ]


def test_a_region_leaves_out_what_is_not_in_it(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("here", target="local")
    record_as("far", region="eu-west-1")
    record_as("web")
    fleet.add("microvm-web", "microvm-far", "microvm-left")
    assert [row[0] for row in rows(capfd, "--region", "us-east-1", "--all")] == ["NAME", "web", "-"]
    assert [row[0] for row in rows(capfd, "--region", "eu-west-1")] == ["NAME", "far"]
    assert main(["ls", "--region", "eu-west-3"]) == 0
    assert capfd.readouterr() == ("", "vmnest: there are no sandboxes in eu-west-3\n")


def test_names_alone_are_for_other_programs_and_take_no_service(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("web", labels={"a": "1"})
    record_as("old name")
    fleet.add("microvm-web", "microvm-left")
    assert rows(capfd, "-q") == [["web"], ["old", "name"]]
    assert rows(capfd, "-q", "--label", "a=1") == [["web"]]
    assert not fleet.asked
    assert rows(capfd, "-q", "--state", "RUNNING") == [["web"]]
    assert rows(capfd, "-qa") == [["web"], ["old", "name"], ["microvm-left"]]


@pytest.mark.parametrize(("columns", "name"), [(80, f"({LONG_ID})"), (200, "-")])
def test_what_has_no_name_is_called_by_its_id_where_there_is_no_column_of_ids(
    columns: int, name: str, fleet: Fleet, record_as: Recording
) -> None:
    record_as("web")
    fleet.add("microvm-web", LONG_ID)
    argv = [sys.executable, "-m", "vmnest", "ls", "--all"]
    with Terminal(argv, env={**os.environ, "TERM": "dumb"}, size=(columns, 24)) as terminal:
        assert terminal.wait() == 0
        lines = terminal.read_rest().decode().splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "web", name]
    assert ("ID" in lines[0].split()) == (columns == 200)


def test_target_and_region_are_told_where_they_differ(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("here", microvm_id=None, target="local")
    record_as("there", microvm_id=None)
    assert rows(capfd)[0][:3] == ["NAME", "STATE", "TARGET"]
    assert [row[:3] for row in rows(capfd)[1:]] == [["here", "LAUNCHING", "local"], ["there", "LAUNCHING", "aws"]]
    record_as("far", microvm_id=None, region="eu-west-1")
    assert [row[2:4] for row in rows(capfd)] == [
        *(["TARGET", "REGION"], ["local", "-"], ["aws", "us-east-1"], ["aws", "eu-west-1"]),
    ]


def test_wide_shows_all_there_is(fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]) -> None:
    record_as("web", labels={"b": "2", "a": "1"})
    fleet.add("microvm-web")
    heads, row = rows(capfd, "--wide")
    shown = dict(zip(heads[:11], row, strict=False))
    assert (shown["TARGET"], shown["REGION"], shown["VERSION"], shown["LABELS"]) == ("aws", "us-east-1", "1.0", "b=2,")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"state": "TERMINATED"}, "-"),
        ({"state": "HIBERNATED\x1b[2J", "idlePolicy": None, "startedAt": 1e9}, "-/0s"),
        ({"state": "RUNNING", "idlePolicy": WIRE_POLICY, "maximumDurationInSeconds": 10**12}, "15m/-"),
    ],
    ids=["ended", "late, by a state that nobody knows", "no end"],
)
def test_what_is_not_known_of_an_end_is_a_dash(
    said: dict[str, object],
    shown: str,
    fleet: Fleet,
    record_as: Recording,
    capfd: pytest.CaptureFixture[str],
) -> None:
    record_as("web")
    fleet.add("microvm-web", **said)
    heads, row = rows(capfd)
    assert row[heads.index("IDLE/EXPIRES")] == shown
    assert row[1] == str(said["state"]).replace("\x1b", "\\x1b")


@pytest.fixture
def without_aws(aws_records: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region, and no credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("without_aws")
def test_one_reason_that_many_states_are_unknown_is_told_once(
    record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("a")
    record_as("b")
    assert main(["ls"]) == 0
    captured = capfd.readouterr()
    assert captured.out.count("UNKNOWN") == 2
    reason, advice = captured.err.splitlines()
    assert "aws configure" in advice
    assert reason.startswith("vmnest: no AWS credentials")
    assert main(["-q", "ls"]) == 0
    assert capfd.readouterr().err == ""


def test_it_can_be_limited(fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]) -> None:
    record_as("a", labels={"team": "x", "tier": "1"})
    record_as("b", labels={"team": "x"})
    record_as("c")
    fleet.add("microvm-a", "microvm-b", imageArn=ARN)
    fleet.add("microvm-c", state="SUSPENDED", imageArn=f"{ARN}-2")
    for line, names in {
        ("--label", "team=x"): ["a", "b"],
        ("--label", "team=x", "--label", "tier=1"): ["a"],
        ("--label", "team=y"): [],
        ("--state", "suspended"): ["c"],
        ("--state", "RUNNING", "--state", "SUSPENDED"): ["a", "b", "c"],
        ("--image", "demo"): ["a", "b"],
        ("--image", f"{ARN}-2"): ["c"],
        ("--image", "demo", "--state", "SUSPENDED"): [],
        (): ["a", "b", "c"],
    }.items():
        assert main(["ls", "--json", *line]) == 0
        assert [each["name"] for each in json.loads(capfd.readouterr().out)["sandboxes"]] == names
    assert main(["ls", "--label", "team=x", "--label", "team=y"]) == 2
    assert main(["ls", "--state", "ASLEEP"]) == 2
    assert "must be one of PENDING" in capfd.readouterr().err


def test_all_shows_what_has_no_name_and_says_who_could_not_be_asked(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("web")
    fleet.add("microvm-web", "microvm-left")
    assert [row[0] for row in rows(capfd, "--all")] == ["NAME", "web", "-"]
    fleet.refused["list"] = 403
    assert main(["ls", "--all"]) == 1
    captured = capfd.readouterr()
    assert [row.split()[0] for row in captured.out.splitlines()] == ["NAME", "web"]
    reason, advice = captured.err.splitlines()
    assert reason.startswith("vmnest: AWS, us-east-1, could not be asked: ListMicrovms: not authorized")
    assert "Allow the named action" in advice


def test_all_does_not_say_that_there_are_none_where_nobody_knows(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("web")
    fleet.add("microvm-web")
    fleet.refused["list"] = 403
    assert main(["ls", "--all", "--state", "SUSPENDED"]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vmnest: AWS, us-east-1, could not be asked: ")


@pytest.mark.usefixtures("no_daemon", "without_aws")
def test_all_leaves_out_aws_where_that_is_not_set_up_unless_it_was_chosen(
    record_as: Recording, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("here", target="local", microvm_id=None)
    line = ["ls", "--all", "--state", "RUNNING"]
    assert main(line) == 0
    none, reason = capfd.readouterr().err.splitlines()
    assert none == "vmnest: there are no such sandboxes on this machine"
    assert reason.startswith("vmnest: AWS, us-east-1, is not set up here, and was left out: no AWS credentials")
    assert main([*line, "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert ([*data], data["left_out"][0]["target"]) == (["sandboxes", "left_out"], "aws")
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "aws")
    assert main(line) == 1
    assert capfd.readouterr().err.startswith("vmnest: AWS, us-east-1, could not be asked: no AWS credentials")
    assert main([*line, "--json"]) == 1
    assert [*json.loads(capfd.readouterr().out)] == ["sandboxes", "failed"]


def test_what_is_so_for_a_place_is_not_told_for_each_sandbox_in_it_too(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("web")
    fleet.refused["list"] = 400
    assert main(["ls", "--all"]) == 1
    assert capfd.readouterr().err.splitlines()[:1] == [
        "vmnest: AWS, us-east-1, could not be asked: ListMicrovms: no (ValidationException)"
    ]


def test_a_target_of_a_later_version_is_called_by_its_name(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("far", target="moon")
    assert main(["ls", "--all"]) == 1
    assert capfd.readouterr().err.startswith("vmnest: moon could not be asked: sandbox far is on the target 'moon'")


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        (["ls"], "there are no sandboxes"),
        (["--local", "ls"], "there are no sandboxes on this machine"),
        (["ls", "--label", "a=1"], "no sandbox has this label"),
        (["ls", "--local", "--label", "a=1", "--label", "b=1"], "no sandbox on this machine has all these labels"),
        (["ls", "--label", "a=1", "--state", "GONE"], "there are no such sandboxes"),
    ],
    ids=" ".join,
)
def test_an_empty_list_says_what_there_is_none_of(
    line: list[str], remark: str, aws_records: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 0
    assert capfd.readouterr() == ("", f"vmnest: {remark}\n")
