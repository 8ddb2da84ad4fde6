"""``doctor``: what is made of the results."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.terminals import Terminal
from vmnest.cli import doctor, render
from vmnest.cli.main import main

PROGRAM = "import sys; from vmnest.cli.main import console; sys.argv[0] = 'vmnest'; console()"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, and no settings."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def make_check(area: str, verdict: str, detail: str, remedy: str | None = None) -> dict[str, object]:
    """A check as ``diagnose`` returns it."""
    return {"area": area, "verdict": verdict, "title": "thing", "detail": detail, "remedy": remedy}


CHECKS = [
    make_check("host", "ok", "all is well here, and there is much that could be said of it"),
    make_check("aws", "failed", "nothing\x1b[2J is well", "Do this:\nmake --it well --with many words and a long path"),
    make_check("aws", "skipped", "/a/path/that/has/no/blank/and/is/longer/than/any/narrow/window/could/ever/be"),
]
DATA = {"target": "aws", "targets": {"aws": {"ready": False}, "local": {"ready": True}}, "checks": CHECKS}


def fits(line: str, columns: int) -> bool:
    """It is no wider than the window, unless by a single word."""
    words = re.sub(r"^ +((ok|warning|failed|skipped|no|yes|-) +|-> )?", "", line)
    return render.width(line) <= columns or " " not in words


def test_where_nobody_watches_each_thing_is_one_line() -> None:
    assert list(doctor._Sheet(None, colour=False).lines(DATA)) == [
        "This machine",
        "  ok       thing: all is well here, and there is much that could be said of it",
        "",
        "AWS",
        "  failed   thing: nothing\\x1b[2J is well",
        "           -> Do this:",
        "           -> make --it well --with many words and a long path",
        "  skipped  thing: /a/path/that/has/no/blank/and/is/longer/than/any/narrow/window/could/ever/be",
        "",
        "Ready for sandboxes",
        "  no       on AWS (the target in use)",
        "  yes      on this machine",
    ]


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_lines_fit_the_terminal_and_nothing_is_lost(columns: int) -> None:
    lines = list(doctor._Sheet(columns, colour=False).lines(DATA))
    whole = list(doctor._Sheet(None, colour=False).lines(DATA))
    assert " ".join(lines).replace("-> ", "").split() == " ".join(whole).replace("-> ", "").split()
    assert all(fits(line, columns) for line in lines)


def test_a_word_that_is_too_long_stays_whole_on_a_line_of_its_own() -> None:
    lines = list(doctor._Sheet(40, colour=False).lines(DATA))
    assert "           /a/path/that/has/no/blank/and/is/longer/than/any/narrow/window/could/ever/be" in lines


def test_colour_is_around_the_verdict_alone() -> None:
    coloured = list(doctor._Sheet(None, colour=True).lines(DATA))
    assert coloured[1].startswith("  \x1b[32mok       \x1b[0mthing: all")
    assert coloured[4].startswith("  \x1b[31mfailed   \x1b[0mthing: nothing\\x1b[2J is well")
    assert coloured[-2].startswith("  \x1b[31mno       \x1b[0m")
    plain = [re.sub(r"\x1b\[\d+m", "", line) for line in coloured]
    assert plain == list(doctor._Sheet(None, colour=False).lines(DATA))


def test_a_target_that_was_not_looked_at_is_neither_ready_nor_not() -> None:
    data = {"target": "local", "targets": {"aws": {"ready": None}, "local": {"ready": True}}, "checks": []}
    assert list(doctor._Sheet(None, colour=False).lines(data)) == [
        "Ready for sandboxes",
        "  -        on AWS",
        "  yes      on this machine (the target in use)",
    ]


def test_a_machine_that_is_ready_makes_the_status_0(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--local"]) == 0
    told = capfd.readouterr()
    assert told.err == ""
    assert [line for line in told.out.splitlines() if line and not line.startswith(" ")] == [
        "This machine",
        "State files",
        "Local cloud",
        "Ready for sandboxes",
    ]
    assert told.out.endswith("  -        on AWS\n  yes      on this machine (the target in use)\n")


def test_a_machine_that_is_not_makes_it_1_and_the_remedy_has_its_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_ISOLATION", "vm")
    assert main(["doctor", "--local"]) == 1
    lines = capfd.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  failed   isolation: "))
    assert lines[at + 1].startswith("           -> Set AGENT_SANDBOX_LOCAL_ISOLATION to namespace")


def test_json_is_one_object_also_where_not_all_is_well(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_ISOLATION", "vm")
    assert main(["doctor", "--local", "--json"]) == 1
    told = capfd.readouterr()
    assert told.err == ""
    data = json.loads(told.out)
    assert (data["ready"], set(data)) == (False, {"ready", "target", "targets", "checks"})
    assert set(data["checks"][0]) == {"id", "area", "title", "verdict", "detail", "remedy", "data"}


@pytest.mark.parametrize(("term", "has_colour"), [("xterm", True), ("dumb", False)])
def test_on_a_narrow_terminal_it_is_folded(home: Path, term: str, has_colour: bool) -> None:
    environ = {"HOME": str(home), "PATH": "/usr/bin:/bin", "TERM": term, "PYTHONPATH": ":".join(filter(None, sys.path))}
    with Terminal([sys.executable, "-c", PROGRAM, "doctor", "--local"], env=environ, size=(40, 50)) as terminal:
        shown = terminal.read_until(b"(the target\r\n           in use)\r\n").decode()
        assert terminal.wait() == 0
    assert ("\x1b[32m" in shown) == has_colour
    lines = re.sub(r"\x1b\[\d+m", "", shown).splitlines()
    assert len(lines) > 30
    assert all(fits(line, 40) for line in lines)
