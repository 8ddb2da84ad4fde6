"""What ``import vmnest`` offers, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
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


def test_control_imports_no_module_of_its_own() -> None:
    """Threads load it and its modules at once: where each holds what the other waits for, Python raises."""
    script = "import sys, vmnest.control; print(*(name for name in sys.modules if name.startswith('vmnest.control.')))"
    assert run_python(script).stdout.split() == []


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


# Names alone, for all: a list of them would be the module once more.
OPEN_MODULES = {"wire.names", "_guest.agentd.wire"}


def library_modules() -> dict[str, tuple[ast.Module, str]]:
    """Each module's dotted name below ``vmnest``: its tree, and the package that its relative imports begin at."""
    found = {}
    for root, prefix in ((ROOT / "vmnest", ""), (ROOT / "guest", "_guest.")):
        for path in sorted(root.rglob("*.py")):
            if "_guest" in path.relative_to(root).parts:
                continue
            name = prefix + ".".join(path.relative_to(root).with_suffix("").parts)
            package = name.rpartition(".")[0]
            found[name.removesuffix(".__init__")] = (ast.parse(path.read_text(encoding="utf-8")), package)
    return found


def taken_names(tree: ast.Module, package: str, modules: Collection[str]) -> Iterator[tuple[str, str]]:
    """The names that a module takes out of others, each with the other's name."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            levels = package.split(".")[: package.count(".") + 2 - node.level] if package else []
            source = ".".join([*levels, *filter(None, [node.module])])
            for alias in node.names:
                module = f"{source}.{alias.name}".lstrip(".")
                if module in modules:
                    known[alias.asname or alias.name] = module
                else:
                    yield source, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            yield known[node.value.id], node.attr


def made_names(tree: ast.Module) -> Iterator[str]:
    """The names that a module makes when it runs, and does not merely import."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def offered_names(tree: ast.Module) -> set[str]:
    """What stands in ``__all__``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return {str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return set()


def test_what_another_room_takes_stands_in_all() -> None:
    modules = library_modules()
    inner = {name: set(made_names(tree)) - offered_names(tree) for name, (tree, _) in modules.items()}
    taken = {
        f"{taken} of {other}, by {name}"
        for name, (tree, package) in modules.items()
        for other, taken in taken_names(tree, package, modules)
        if other.split(".")[0] != name.split(".")[0] and other not in OPEN_MODULES and taken in inner.get(other, ())
    }
    assert sorted(taken) == []
