"""What ended a command early, told to the user."""

from __future__ import annotations

import json
import os

import pytest

from tests.support.screens import on_terminal, read_until
from vmnest import errors
from vmnest.cli import terminal
from vmnest.cli.failure import Ended, report


@pytest.mark.parametrize(
    ("error", "status", "exec_status"),
    [
        (errors.VmnestError("x"), 1, 125),
        (errors.UsageError("x"), 2, 2),
        (errors.SandboxNotFoundError("x"), 3, 125),
        (errors.CwdNotFoundError("x"), 1, 125),
        (errors.NotExecutableError("x"), 1, 126),
        (errors.CommandNotFoundError("x"), 1, 127),
        (errors.AgentUnreachableError("x"), 1, 125),
        (KeyboardInterrupt(), 130, 130),
        (Ended(15), 143, 143),
        (Ended(1), 129, 129),
        (BrokenPipeError(), 141, 141),
        (RuntimeError("x"), 1, 125),
    ],
    ids=repr,
)
def test_each_error_has_its_exit_status(
    error: BaseException, status: int, exec_status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert report(error) == status
    assert report(error, is_exec=True) == exec_status
    assert capfd.readouterr().out == ""


def test_text_is_a_line_and_a_hint(capfd: pytest.CaptureFixture[str]) -> None:
    report(errors.VmnestError("no \x1b[31msuch thing\n", hint="Do\tthis."))
    assert capfd.readouterr().err == "vmnest: no \\x1b[31msuch thing\\n\n  Do\\tthis.\n"


def test_a_hint_of_several_lines_is_indented(capfd: pytest.CaptureFixture[str]) -> None:
    report(errors.VmnestError("x", hint="It said:\n\x1b[31mno\n\n and ended"))
    assert capfd.readouterr().err == "vmnest: x\n  It said:\n  \\x1b[31mno\n   and ended\n"


def test_json_is_one_object(capfd: pytest.CaptureFixture[str]) -> None:
    report(errors.ThrottledError("slow", operation="Run", status=429, hint="wait"), json=True)
    error = json.loads(capfd.readouterr().err)
    assert error == {
        "error": {
            "code": "throttled",
            "message": "slow",
            "hint": "wait",
            "retryable": True,
            "details": {"operation": "Run", "status": 429},
        }
    }


def test_an_interruption_is_an_error_too(capfd: pytest.CaptureFixture[str]) -> None:
    report(KeyboardInterrupt(), json=True)
    assert json.loads(capfd.readouterr().err)["error"]["code"] == "interrupted"


def test_a_fault_of_our_own_says_so_and_tells_no_secret(capfd: pytest.CaptureFixture[str]) -> None:
    report(RuntimeError("X-aws-proxy-auth: abcdef"))
    text = capfd.readouterr().err
    assert "RuntimeError" in text
    assert "--debug" in text
    assert "abcdef" not in text
    assert "Traceback" not in text


def test_a_library_that_is_missing_is_no_fault_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    assert report(ModuleNotFoundError("No module named 'urllib3'", name="urllib3")) == 1
    told = capfd.readouterr().err
    assert told.startswith("vmnest: urllib3 is not installed, which this needs\n  Install it: ")
    assert "fault" not in told


@pytest.mark.parametrize("json_", [False, True])
def test_debug_shows_where_it_was(json_: bool, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise errors.VmnestError("secret_access_key=abcdef")
    except errors.VmnestError as error:
        report(error, json=json_, debug=True)
    text = capfd.readouterr().err
    trace = json.loads(text)["error"]["traceback"] if json_ else text
    assert "Traceback" in trace
    assert "test_failure.py" in trace
    assert "abcdef" not in trace


def test_nobody_to_tell_is_no_further_failure(capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    kept = os.dup(2)
    os.dup2(writer, 2)
    try:
        assert report(errors.UsageError("x")) == 2
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(writer)


def test_on_a_terminal_lines_break_between_words_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "size", lambda: (30, 24))
    monkeypatch.setenv("TERM", "dumb")
    error = errors.VmnestError("there is no such thing to be had", hint="Look for it in another place, and then\nask.")
    report(error)
    assert len(capfd.readouterr().err.splitlines()) == 3
    with on_terminal(terminal.STDERR) as screen:
        report(error)
        lines = read_until(screen, b"ask.\n").decode().splitlines()
    assert lines == [
        "vmnest: there is no such thing",
        "        to be had",
        "  Look for it in another",
        "  place, and then",
        "  ask.",
    ]
