"""What is left to do until sandboxes can be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmnest.ops import doctor, provision


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder of the test's own."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_step_says_why_and_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_ISOLATION", "vm")
    told: Any = provision.list_steps(local=True)
    assert (told["ready"], told["target"]) == (False, "local")
    (step,) = [each for each in told["steps"] if each["check"] == "local.isolation"]
    assert (step["required"], step["title"]) == (True, "isolation")
    assert step["detail"]
    assert step["do"]
    assert [each["required"] for each in told["steps"]] == sorted(
        (each["required"] for each in told["steps"]), reverse=True
    )


def test_what_the_other_target_lacks_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_ISOLATION", "vm")
    monkeypatch.setattr(doctor, "_aws_tables", list)
    told: Any = provision.list_steps(local=False)
    assert told["ready"] is True
    assert told["targets"]["local"] == {"ready": False}
    assert not [each for each in told["steps"] if each["check"].startswith("local.")]
