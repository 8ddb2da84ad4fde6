"""``shell``: what is made of its options. How it feels is seen at real terminals, in the functional tests."""

from __future__ import annotations

from typing import Any

import pytest

from vmnest.cli import shell, verbs, words
from vmnest.cli.main import main


def parse(*line: str) -> Any:
    verb = verbs.find(("shell",))
    assert verb is not None
    parser = shell.build_parser(verb)
    words.add_globals(parser)
    return parser.parse(words.split(parser, line))


def test_its_options() -> None:
    options = parse("box", "--user", "web", "-w", "/srv", "-e", "A=b", "--env=C", "--secret", "S", "--no-resume")
    assert (options.names, options.user, options.workdir, options.native) == (["box"], "web", "/srv", False)
    assert (options.env, options.secret, options.no_resume) == (["A=b", "C"], ["S"], True)
    assert parse("--native", "box").native is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["shell"], "the name is missing"),
        (["shell", "box", "ls"], "one name too many"),
        (["shell", "box", "--json"], "no JSON"),
        (["shell", "box", "-w", "/\udcff"], "--workdir is not UTF-8"),
        (["shell", "box", "--user", "\udcff"], "--user is not UTF-8"),
        (["shell", "box", "-e", "=x"], "not NAME or NAME=VALUE"),
        (["shell", "box", "--native"], "needs a terminal"),
        (["shell", "box", "--native", "--user", "web"], "--user does not go with --native"),
        (["shell", "box", "--native", "-w", "/srv"], "--workdir does not go with --native"),
        (["shell", "box", "--native", "--secret", "S"], "--secret does not go with --native"),
    ],
    ids=lambda value: ascii(" ".join(value)) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(line: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert message in capfd.readouterr().err


def test_what_other_programs_call_it_leads_here(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ssh", "box"]) == 2
    assert "vmnest shell" in capfd.readouterr().err


def test_a_sandbox_that_is_not_there_is_no_status_of_a_shell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    assert main(["shell", "nobody"]) == 125
    assert "no sandbox named 'nobody'" in capfd.readouterr().err
