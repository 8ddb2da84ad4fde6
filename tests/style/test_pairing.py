"""Each module has its own test module, and each test module its module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.paths import ROOT

# Modules without behaviour of their own: door plates, lists of names and the two-line entry points.
EXEMPT = {"__init__", "__main__"}


def modules(folder: str) -> list[str]:
    root = ROOT / folder
    paths = (path.relative_to(root) for path in sorted(root.rglob("*.py")) if "_guest" not in path.parts)
    return [str(path.with_suffix("")) for path in paths if path.stem not in EXEMPT]


def test_path(folder: str, module: str) -> Path:
    place = Path(module)
    return ROOT / "tests" / folder / place.with_name(f"test_{place.name}.py")


test_path.__test__ = False  # type: ignore[attr-defined] # a helper, whatever pytest makes of its name


@pytest.mark.parametrize("module", modules("vmnest"))
def test_a_module_of_the_library_has_its_tests(module: str) -> None:
    assert test_path("unit", module).is_file()


@pytest.mark.parametrize("module", modules("guest/agentd"))
def test_a_module_of_the_guest_has_its_tests(module: str) -> None:
    assert test_path("guest", module).is_file()
