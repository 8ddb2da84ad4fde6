"""``forward``: options, refusals, and what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmnest.cli import forwarding, verbs, words
from vmnest.cli.main import main


@pytest.fixture(autouse=True)
def _no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))


def parse(*line: str) -> Any:
    verb = verbs.find(("forward",))
    assert verb is not None
    parser = forwarding.build_parser(verb)
    words.add_globals(parser)
    return parser.parse(words.split(parser, line))


def test_options() -> None:
    one = parse("demo", "--remote-port", "8000", "--local-port", "3000", "--poll-interval", "2", "--no-verify-tls")
    assert (one.names, one.remote_port, one.local_port, one.poll_interval) == (["demo"], ["8000"], 3000, 2.0)
    assert one.no_verify_tls
    many = parse("demo", "-r", "8000:0", "-r", "9000-9005", "--direct", "--bind", "::", "--allow-host", "a.test")
    assert (many.remote_port, many.bind, many.allow_host) == (["8000:0", "9000-9005"], "::", ["a.test"])
    assert many.direct
    assert not many.background


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["forward", "demo"], "vmnest forward NAME -r 8000"),
        (["forward", "-r", "8000"], "NAME"),
        (["forward", "demo", "8000"], "Name the port with -r"),
        (["forward", "demo", "-r", "8000", "-l", "70000"], "must be a port, 0 to 65535"),
        (["forward", "demo", "-r", "8000", "-l", "-1"], "must be a port, 0 to 65535"),
        (["forward", "demo", "-r", "8000", "--poll-interval", "0"], "must be a number of seconds"),
        (["forward", "demo", "-r", "8000", "--bind", ""], "--bind must not be empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(line: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert message in capfd.readouterr().err


def test_a_sandbox_that_nobody_knows_is_not_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["forward", "nobody", "-r", "8000"]) == 3
    assert "no sandbox named 'nobody'" in capfd.readouterr().err


def test_each_port_has_a_line() -> None:
    forwards = [{"url": "http://localhost:1", "remote": 8000}, {"url": "http://localhost:2", "remote": 9001}]
    text = forwarding._render({"name": "demo", "forwards": forwards})
    assert text == "http://localhost:1 -> demo:8000\nhttp://localhost:2 -> demo:9001\n"
