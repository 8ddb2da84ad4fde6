"""``version``."""

from __future__ import annotations

import json

import pytest

from vmnest import __version__
from vmnest.cli.main import main


def test_it_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capfd.readouterr() == (f"vmnest {__version__}\n", "")


def test_json_tells_the_python_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["version"] == __version__
    assert set(data) == {"version", "python", "platform", "path"}
