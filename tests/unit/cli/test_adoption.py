"""``adopt``: what is made of options and results."""

from __future__ import annotations

import json

import pytest

from tests.support.fleet import Fleet
from vmnest import registry
from vmnest.cli.main import main


def test_the_name_is_printed_and_recorded_with_what_was_told(
    fleet: Fleet, aws_records: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet.add("microvm-x")
    assert main(["adopt", "microvm-x", "web", "--label", "a=1", "--agent-port", "81"]) == 0
    assert capfd.readouterr() == ("web\n", "")
    record = aws_records.require("web")
    assert (record.microvm_id, record.labels, record.agent_port) == ("microvm-x", {"a": "1"}, 81)
    assert main(["adopt", "microvm-x", "web", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["name"], data["state"], data["microvm_id"]) == ("web", "RUNNING", "microvm-x")


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        (["microvm-none", "web"], 3, "knows no MicroVM microvm-none"),
        ([], 2, "the ID is missing"),
        (["microvm-x"], 2, "the NAME is missing"),
        (["microvm-x", "web", "more"], 2, "one name too many"),
        (["web", "microvm-x"], 2, "The id comes first"),
        (["microvm-x", "web", "--label", "a=1", "--label", "a=2"], 2, "one value of a label"),
        (["microvm-over", "web"], 1, "has ended: TERMINATED"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_adopted_is_told(
    line: list[str], status: int, said: str, fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet.add("microvm-x")
    fleet.add("microvm-over", state="TERMINATED")
    assert main(["adopt", *line]) == status
    captured = capfd.readouterr()
    assert captured.out == ""
    assert said in captured.err
