"""What ``import vmnest`` offers, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vmnest
from tests.support.paths import ROOT

# Imports every module of the library and names those of its files that read the environment meanwhile.
WATCH_ENVIRONMENT = """
import importlib, os, pkgutil, sys

readers = set()

class Watched(dict):
    def _note(self):
        caller = sys._getframe(2)
        while caller.f_globals.get("__name__") in ("os", "collections.abc", "_collections_abc"):
            caller = caller.f_back
        if "vmnest" in caller.f_code.co_filename.split(os.sep):
            readers.add(caller.f_code.co_filename)

    def __getitem__(self, key):
        self._note()
        return dict.__getitem__(self, key)

    def get(self, key, default=None):
        self._note()
        return dict.get(self, key, default)

    def __contains__(self, key):
        self._note()
        return dict.__contains__(self, key)

os.environ = Watched(os.environ)
import vmnest
for module in pkgutil.walk_packages(vmnest.__path__, "vmnest."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("\\n".join(sorted(readers)))
"""


def run_python(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)


def test_the_public_names_are_these() -> None:
    assert set(vmnest.__all__) == {
        *("Sandbox", "IdlePolicy", "ExecResult", "VmnestError", "__version__"),
        *("Forwarding", "Process"),
        *("Entry", "Progress", "Skipped", "Transfer"),  # of files
    }


def test_every_public_name_is_there() -> None:
    for name in vmnest.__all__:
        assert getattr(vmnest, name) is not None
    assert dir(vmnest) == sorted(vmnest.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sandcastle'"):
        vmnest.Sandcastle  # noqa: B018 - the access is what is tested


def test_import_vmnest_loads_nothing_else() -> None:
    before = set(run_python("import sys; print(*sys.modules)").stdout.split())
    after = set(run_python("import sys, vmnest; print(*sys.modules)").stdout.split())
    assert after - before <= {"vmnest", "__future__"}


def test_no_module_reads_the_environment_at_import() -> None:
    assert run_python(WATCH_ENVIRONMENT).stdout.split() == []


@pytest.mark.parametrize(
    "path",
    [path for path in sorted((ROOT / "vmnest").rglob("*.py")) if "_guest" not in path.parts],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_only_settings_knows_the_processes_environment(path: Path) -> None:
    if path.name == "settings.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            assert node.attr not in {"environ", "environb", "getenv"}, f"line {node.lineno}"
