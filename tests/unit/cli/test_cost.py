"""``cost``: what is made of options and results."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.costs import Account, microvm
from tests.support.screens import on_terminal, read_until
from vmnest import registry
from vmnest.cli import cost, terminal
from vmnest.cli.main import main
from vmnest.registry import Record


def put(account: Account, name: str, **members: object) -> None:
    """A sandbox with a MicroVM."""
    account.microvms[f"microvm-{name}"] = microvm(f"microvm-{name}", **members)
    registry.open_default().put(Record(name, microvm_id=f"microvm-{name}", region="us-east-1"))


def test_the_tables_and_below_them_what_they_are_made_on(priced: Account, capfd: pytest.CaptureFixture[str]) -> None:
    put(priced, "web")
    put(priced, "idle", state="SUSPENDED")
    assert main(["cost"]) == 0
    captured = capfd.readouterr()
    sandboxes, images, made_on = captured.out.split("\n\n")
    heads, web, idle, total = sandboxes.splitlines()
    assert re.split("  +", heads) == ["NAME", "STATE", "MEMORY", "PER HOUR", "SO FAR", "TO EXPIRY"]
    assert web.split()[:5] == ["web", "RUNNING", "2048", "MiB", "$0.1261"]
    assert "up to $0.0018" in idle
    assert total.split()[:4] == ["TOTAL", "$0.1261", "to", "$0.1279"]
    image = re.split("  +", images.splitlines()[1])
    assert image == ["demo", "1.0", "2048 MiB", "512.0 MiB to 1.5 GiB", "$0.0400 to $0.1166"]
    assert made_on.startswith("An estimate:\n- Prices are those of us-east-1 as of 2026-09")
    assert captured.err == ""


def test_one_sandbox_has_no_total(priced: Account, capfd: pytest.CaptureFixture[str]) -> None:
    put(priced, "web")
    put(priced, "elsewhere")
    assert main(["cost", "web"]) == 0
    out = capfd.readouterr().out
    assert "TOTAL" not in out
    assert "elsewhere" not in out


def test_what_is_not_known_is_a_dash_with_its_reason(priced: Account, capfd: pytest.CaptureFixture[str]) -> None:
    put(priced, "web")
    put(priced, "gone")
    del priced.microvms["microvm-gone"]
    priced.snapshots.clear()
    assert main(["cost"]) == 0
    captured = capfd.readouterr()
    (gone,) = [line for line in captured.out.splitlines() if line.startswith("gone")]
    assert gone.split() == ["gone", "GONE", "-", "-", "-", "-"]
    assert captured.err.splitlines() == [
        "vmnest: the total leaves out what is not known of 1 of them",
        "vmnest: gone: its state is GONE",
        "vmnest: what keeping demo 1.0 costs, and starting from it, is left out: the service does not tell how large "
        "the snapshots of its image are",
    ]


def test_without_sandboxes_that_is_said(priced: Account, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cost"]) == 0
    assert main(["--local", "cost"]) == 0
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "vmnest: there are no sandboxes",
        "vmnest: there are no sandboxes on this machine",
    ]


def test_of_sandboxes_on_this_machine_it_is_said_that_they_cost_nothing(
    priced: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    registry.open_default().put(Record("here", target="local"))
    assert main(["cost"]) == 0
    table, below = capfd.readouterr().out.split("\n\n")
    assert table.splitlines()[1].split() == ["here", "LAUNCHING", "-", "$0", "$0", "$0"]
    assert below == "Sandboxes on this machine cost nothing.\n"


def test_all_shows_what_has_no_name_by_its_id_and_what_cannot_be_asked(
    priced: Account, capfd: pytest.CaptureFixture[str]
) -> None:
    priced.microvms["microvm-lost"] = microvm("microvm-lost")
    priced.refused.append("/microvm-images$")
    assert main(["cost", "--all"]) == 0
    captured = capfd.readouterr()
    assert "(microvm-lost)  RUNNING" in captured.out
    assert "vmnest: AWS, us-east-1, is left out: " in captured.err


def test_in_a_narrow_window_lines_break_between_words(priced: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    put(priced, "web")
    monkeypatch.setattr(terminal, "size", lambda: (40, 24))
    with on_terminal(terminal.STDOUT) as screen:
        assert main(["cost"]) == 0
        lines = read_until(screen, b"INACTIVE.\n").decode().splitlines()
    assert max(map(len, lines[lines.index("An estimate:") :])) <= 40
    assert "- A sandbox that runs is taken to keep" in lines
    assert "  to its baseline; what it uses beyond" in lines


def test_json_is_the_same_data(priced: Account, capfd: pytest.CaptureFixture[str]) -> None:
    put(priced, "web")
    assert main(["cost", "--json"]) == 0
    captured = capfd.readouterr()
    data = json.loads(captured.out)
    assert data["sandboxes"][0]["per_hour"] == {"low": 0.12610008, "high": 0.12610008}
    assert captured.err == ""


def test_a_name_and_all_contradict_each_other(priced: Account, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "web", "--all"]) == 2
    assert "contradict" in capfd.readouterr().err
    assert main(["cost", "none"]) == 3


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0, 0.0, "$0"),
        (0.12610008, 0.12610008, "$0.1261"),
        (0.0315, 1.0088, "$0.0315 to $1.01"),
        (0.0, 0.0018, "up to $0.0018"),
        (0.0, 0.00001, "up to <$0.0001"),
        (0.00001, 0.00002, "<$0.0001"),
        (0.126101, 0.126103, "$0.1261"),
        (1234.5, 1234.5, "$1,234.50"),
    ],
)
def test_amounts_are_as_exact_as_they_are_worth(low: float, high: float, text: str) -> None:
    assert cost.render_amount({"low": low, "high": high}) == text


def test_no_amount_is_no_text() -> None:
    assert cost.render_amount(None) is None


def test_what_a_size_would_cost_takes_no_account(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    assert main(["cost", "--memory", "512", "--hours", "100"]) == 0
    sheet, told = capfd.readouterr().out.split("\n\n")
    heads, row = (re.split("  +", line.strip()) for line in sheet.splitlines())
    assert heads == ["MEMORY", "CPUS", "RUNNING, 1 H", "SUSPENDED, 1 H", "RUNNING, 100 H"]
    assert row == ["512 MiB", "0.25", "$0.0315", "up to $0.0011", "$3.15"]
    assert told.startswith("An estimate:\n- Prices are those of us-east-1 as of 2026-09")
    assert main(["cost", "--memory", "1GiB", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["hours"] == 8


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--hours", "3"], "--hours is for --memory alone"),
        (["--memory", "512", "web"], "--memory is of no sandbox"),
        (["--memory", "512", "--all"], "--memory is of no sandbox"),
        (["--memory", "513"], "no memory of a MicroVM on AWS: 513 MiB"),
        (["--memory", "512", "--hours", "-1"], "must be a number of hours"),
        (["--memory", "512", "--hours", "1_0"], "must be a number of hours"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(line: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", *line]) == 2
    assert said in capfd.readouterr().err
