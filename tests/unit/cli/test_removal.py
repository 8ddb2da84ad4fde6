"""``rm`` and ``prune``: what is made of options and results."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, Recording
from tests.support.terminals import Terminal
from vmnest import registry
from vmnest.cli.main import main
from vmnest.ops import removal


def cells(text: str) -> list[list[str]]:
    return [line.split(maxsplit=2) for line in text.splitlines()]


# -- rm ----------------------------------------------------------------------------------------------------------------


def test_rm_reports_what_became_of_each(fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]) -> None:
    record_as("web")
    record_as("lost")
    fleet.add("microvm-web")
    assert main(["rm", "lost", "web", "lost"]) == 0
    captured = capfd.readouterr()
    assert cells(captured.out) == [
        *(["NAME", "MICROVM", "RESULT"], ["lost", "microvm-lost", "gone already"], ["web", "microvm-web", "ended"]),
    ]
    assert captured.err == ""


def test_rm_goes_through_all_names_and_ends_with_the_first_failure(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str], aws_records: registry.Registry
) -> None:
    record_as("web")
    record_as("far", target="moon")
    fleet.add("microvm-web")
    assert main(["rm", "nobody", "far", "web"]) == 3
    captured = capfd.readouterr()
    assert [row[::2] for row in cells(captured.out)] == [
        *(["NAME", "RESULT"], ["nobody", "not found"], ["far", "failed"], ["web", "ended"]),
    ]
    assert "no sandbox named 'nobody'" in captured.err
    assert "'moon', which this version of vmnest does not know" in captured.err
    assert main(["rm", "nobody", "far", "--json"]) == 3
    captured = capfd.readouterr()
    assert captured.out == ""
    error = json.loads(captured.err)["error"]
    assert (error["code"], error["details"]["removed"]) == ("sandbox_not_found", [])
    assert [each["name"] for each in error["details"]["report"]] == ["nobody", "far"]


def test_rm_says_which_name_a_failure_is_about_and_one_that_all_share_once(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        record_as(name)
        fleet.add(f"microvm-{name}")
    fleet.refused["end"] = 403
    refused = "TerminateMicrovm: not authorized (AccessDeniedException)"
    assert main(["rm", "a", "b", "c"]) == 1
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("vmnest")]
    assert told == [f"vmnest: {refused}"]
    assert main(["rm", "nobody", "b", "c"]) == 3
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("vmnest")]
    assert told == [
        f"vmnest: b: {refused}",
        f"vmnest: c: {refused}",
        "vmnest: no sandbox named 'nobody' is recorded",
    ]


def test_rm_takes_all_with_a_label_and_asks_for_that(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("a", labels={"team": "x"})
    record_as("b")
    fleet.add("microvm-a", "microvm-b")
    assert main(["rm", "--label", "team=x"]) == 2
    assert "this would end 1 sandbox" in capfd.readouterr().err
    assert main(["rm", "--label", "team=x", "b"]) == 2
    assert "--label and names contradict each other" in capfd.readouterr().err
    assert main(["rm", "--label", "team=x", "--yes"]) == 0
    assert [each.name for each in aws_records.all()] == ["b"]
    capfd.readouterr()
    assert main(["rm", "--label", "team=x", "--yes"]) == 0
    assert capfd.readouterr() == ("", "vmnest: no sandbox has this label\n")
    assert main(["rm", "--all", "--yes", "--region", "eu-west-1"]) == 0
    assert capfd.readouterr() == ("", "vmnest: there are no sandboxes in eu-west-1\n")


def test_rm_can_be_told_that_a_missing_name_is_fine(capfd: pytest.CaptureFixture[str], fleet: Fleet) -> None:
    assert main(["rm", "nobody", "--force"]) == 0
    assert cells(capfd.readouterr().out)[1] == ["nobody", "-", "not recorded"]


def test_rm_tells_what_a_launch_may_have_left(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("web", microvm_id=None, created_at=time.time())
    fleet.add("microvm-left", startedAt=time.time())
    assert main(["rm", "web"]) == 0
    assert "the launch of web was cut off; microvm-left may be its MicroVM" in capfd.readouterr().err


def test_rm_of_all_is_for_those_who_mean_it(
    fleet: Fleet, record_as: Recording, aws_records: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("a")
    record_as("b")
    assert main(["rm", "--all"]) == 2
    assert "this would end 2 sandboxes" in capfd.readouterr().err
    assert not fleet.asked
    assert main(["rm", "--all", "--local", "--yes"]) == 0
    assert capfd.readouterr() == ("", "vmnest: there are no sandboxes on this machine\n")
    assert main(["rm", "--all", "--yes", "--json"]) == 0
    assert [each["name"] for each in json.loads(capfd.readouterr().out)["removed"]] == ["a", "b"]
    assert aws_records.all() == []
    assert main(["rm", "--all"]) == 0


def test_rm_of_all_does_not_miss_what_somebody_else_removed_meanwhile(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_as("web")
    fleet.add("microvm-web")
    monkeypatch.setattr(removal, "recorded_names", lambda **_: ["gone", "web"])  # as it was a moment ago
    assert main(["rm", "--all", "--yes"]) == 0
    assert [row[::2] for row in cells(capfd.readouterr().out)[1:]] == [["gone", "not recorded"], ["web", "ended"]]


@pytest.mark.parametrize("line", [["rm"], ["rm", "a", "--all"], ["prune", "--all"], ["prune", "a"]], ids=" ".join)
def test_what_cannot_be_meant_is_refused(line: list[str], fleet: Fleet) -> None:
    assert main(line) == 2
    assert not fleet.asked


def on_terminal(*line: str) -> Terminal:
    return Terminal([sys.executable, "-m", "vmnest", *line], env={**os.environ, "TERM": "dumb", "NO_COLOR": "1"})


def test_on_a_terminal_it_asks(fleet: Fleet, record_as: Recording, aws_records: registry.Registry) -> None:
    record_as("web")
    fleet.add("microvm-web", startedAt=time.time() - 7200)
    with on_terminal("rm", "--all") as terminal:
        terminal.read_until(b"web\r\nEnd these? [y/N] ")
        terminal.type(b"n\n")
        assert terminal.wait() == 1
    with on_terminal("prune", "--older-than", "1h") as terminal:
        assert b"to be ended" in terminal.read_until(b"End these? [y/N] ")
        assert aws_records.get("web") is not None
        terminal.type(b"y\n")
        assert terminal.wait() == 0
        assert b"ended\r\n" in terminal.read_rest()
    assert aws_records.all() == []
    assert fleet.asked["end"] == 1


@pytest.fixture
def nothing_of_aws(monkeypatch: pytest.MonkeyPatch, record_as: Recording) -> None:
    """No region, no credentials, and a sandbox of this machine that has ended."""
    for name in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    record_as("here", target="local")


@pytest.mark.parametrize("region", [None, "us-east-1"], ids=["no region", "no credentials"])
@pytest.mark.usefixtures("nothing_of_aws", "no_daemon")
def test_prune_of_all_leaves_out_aws_where_that_is_not_set_up(
    region: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if region:
        monkeypatch.setenv("AWS_REGION", region)
    line = ["prune", "--older-than", "1h", "--all"]
    assert main([*line, "--dry-run", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["left_out"][0]["target"] == "aws"
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "aws")
    assert main([*line, "--dry-run"]) == 1
    assert " could not be asked: no AWS " in capfd.readouterr().err
    monkeypatch.delenv("AGENT_SANDBOX_TARGET")
    assert main(line) == 0
    captured = capfd.readouterr()
    assert captured.out.splitlines()[1].split()[-1] == "forgotten"
    assert " is not set up here, and was left out: no AWS " in captured.err


# -- prune -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(fleet: Fleet, record_as: Recording) -> Fleet:
    """One that is old, one that has ended, and one that nobody has a name for."""
    record_as("old")
    record_as("over")
    fleet.add("microvm-old", "microvm-nobodys", startedAt=time.time() - 7200)
    fleet.add("microvm-over", state="TERMINATED")
    return fleet


def results(text: str) -> dict[str, str]:
    """The results of the rows by the first and the fourth column."""
    rows = [line.split(maxsplit=4) for line in text.splitlines()[1:]]
    return {row[0] if row[0] != "-" else row[3]: row[4] for row in rows}


def test_prune_forgets_without_asking_and_says_what_it_did(
    mixed: Fleet, aws_records: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["prune", "--dry-run"]) == 0
    captured = capfd.readouterr()
    assert results(captured.out) == {"over": "to be forgotten"}
    assert captured.err == "vmnest: nothing was changed\n"
    assert main(["prune", "--dry-run", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["dry_run"], [each["action"] for each in data["sandboxes"]]) == (True, ["forget"])
    assert len(aws_records.all()) == 2
    assert main(["prune"]) == 0
    captured = capfd.readouterr()
    assert (results(captured.out), captured.err) == ({"over": "forgotten"}, "")
    assert [record.name for record in aws_records.all()] == ["old"]
    assert main(["prune"]) == 0
    assert capfd.readouterr() == ("", "vmnest: there is nothing to prune\n")


def test_prune_ends_nothing_without_a_yes(mixed: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--older-than", "1h"]) == 2
    assert "this would end 1 sandbox\n" in capfd.readouterr().err
    assert main(["prune", "--older-than", "1h", "--all", "--json"]) == 2
    assert "this would end 2 sandboxes" in json.loads(capfd.readouterr().err)["error"]["message"]
    assert mixed.asked["end"] == 0
    assert main(["prune", "--older-than", "1h", "--all", "--yes"]) == 0
    assert results(capfd.readouterr().out) == {"old": "ended", "over": "forgotten", "microvm-nobodys": "ended"}


def test_prune_tells_what_it_kept_and_why(
    mixed: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("lost", created_at=time.time())
    mixed.refused["end"] = 403
    assert main(["prune", "--older-than", "1h", "--yes"]) == 1
    captured = capfd.readouterr()
    assert results(captured.out) == {"over": "forgotten"}
    assert "lost was kept: AWS, us-east-1, does not know its MicroVM" in captured.err
    assert "old: TerminateMicrovm: not authorized" in captured.err


def test_prune_tells_of_many_that_were_kept_for_one_reason_in_one_line(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(9):
        record_as(f"n{number}", created_at=time.time())
    assert main(["prune"]) == 0
    told = [line for line in capfd.readouterr().err.splitlines() if "kept" in line]
    assert told == [
        "vmnest: n0, n1, n2, n3 and 5 more were kept: AWS, us-east-1, does not know their MicroVMs, which may be in "
        "another account; vmnest rm NAME forgets one"
    ]
    fleet.refused["get"] = 400
    assert main(["prune"]) == 1
    told = [line for line in capfd.readouterr().err.splitlines() if "kept" in line]
    assert told == ["vmnest: n0, n1, n2, n3 and 5 more were kept: GetMicrovm: no (ValidationException)"]


def test_prune_does_not_say_that_there_is_nothing_where_nobody_knows(
    fleet: Fleet, record_as: Recording, capfd: pytest.CaptureFixture[str]
) -> None:
    record_as("web")
    fleet.refused.update(get=400, list=400)
    assert main(["prune"]) == 1
    assert capfd.readouterr().err.startswith("vmnest: web was kept: GetMicrovm: no (ValidationException)\n  Check what")
    assert main(["prune", "--all", "--older-than", "1h"]) == 1
    assert "vmnest: AWS, us-east-1, could not be asked: ListMicrovms: no" in capfd.readouterr().err


def test_prune_of_nothing_writes_nothing(
    fleet: Fleet, aws_records: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["prune", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"sandboxes": [], "doubtful": [], "failed": []}
    assert not Path(aws_records.path).exists()
