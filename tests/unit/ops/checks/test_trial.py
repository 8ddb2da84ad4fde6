"""The trial, as a process that ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.cloud import living_processes
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.ops.checks import trial

ENVIRON = {"PATH": os.environ["PATH"], "AWS_SECRET_ACCESS_KEY": "s3cr3t"}


def test_it_tells_what_a_sandbox_is_made_of(tmp_path: Path) -> None:
    found = trial.run(str(tmp_path), environ=ENVIRON, deadline=Deadline(60))
    assert found["isolation"] == "namespace"
    assert os.listdir(tmp_path) == []


def test_its_error_comes_back_in_its_class(tmp_path: Path) -> None:
    environ = {**ENVIRON, "AGENT_SANDBOX_LOCAL_ISOLATION": "vm"}
    with pytest.raises(errors.IsolationUnavailableError, match="by vm") as caught:
        trial.run(str(tmp_path), environ=environ, deadline=Deadline(60))
    assert "AGENT_SANDBOX_LOCAL_ISOLATION" in (caught.value.hint or "")


def test_one_that_takes_too_long_comes_to_its_end_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(errors.WaitTimeoutError, match=r"within 0\.05 s"):
        trial.run(str(tmp_path), environ=ENVIRON, deadline=Deadline(0.05))
    assert os.listdir(tmp_path) == []
    assert living_processes(str(tmp_path)) == []


def test_a_python_that_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(errors.LocalDaemonError, match="cannot start") as caught:
        trial.run(str(tmp_path), environ=ENVIRON, deadline=Deadline(60))
    assert "Python" in (caught.value.hint or "")


@pytest.mark.parametrize("told", [b"", b"nonsense", b"[]", b'"text"'])
def test_an_answer_that_makes_no_sense_is_told_with_what_was_said(told: bytes) -> None:
    with pytest.raises(errors.LocalDaemonError, match=r"failed: Traceback .* it fell$"):
        trial._understand(told, b"Traceback \x1b[31m:\n it fell\n")
    with pytest.raises(errors.LocalDaemonError, match="it said nothing"):
        trial._understand(told, b"")
