"""The agent's own messages."""

from __future__ import annotations

import io
import sys

import pytest

from guest.agentd import journal


def test_a_message_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    journal.report("two\nlines")
    assert capsys.readouterr().err == "agentd: two\\nlines\n"


def test_an_exception_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("why")
    except ValueError:
        journal.report_exception("it failed")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith("agentd: it failed: Traceback")
    assert "ValueError: why" in line


def test_a_closed_or_absent_standard_error_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        journal.report("nobody reads this")
