"""What runs here."""

from __future__ import annotations

import sys
from pathlib import Path

from vmnest import __version__
from vmnest.ops import runtime


def test_the_version_and_its_place() -> None:
    facts = runtime.version()
    assert facts["version"] == __version__
    assert facts["platform"] == sys.platform
    assert Path(str(facts["path"]), "ops", "runtime.py").exists()
