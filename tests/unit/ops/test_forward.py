"""Ports of a sandbox as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmnest import errors
from vmnest.ops import forward


class Forwarding:
    """What ``describe`` looks at."""

    def __init__(self) -> None:
        self.urls = {8000: "http://localhost:3000"}
        self.ports = {8000: 3000}


def test_what_is_forwarded_where() -> None:
    forwarding: Any = Forwarding()
    assert forward.describe(forwarding, name="demo") == {
        "name": "demo",
        "forwards": [{"remote": 8000, "local": 3000, "url": "http://localhost:3000"}],
    }


def test_a_sandbox_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    with pytest.raises(errors.SandboxNotFoundError):
        forward.open_forward(name="nobody", ports=[8000])
