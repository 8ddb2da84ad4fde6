#!/usr/bin/env python3
"""Fails on every import that the table below does not allow: ``python tools/check_layers.py [ROOT]``.

Rules, on the syntax tree alone (nothing is imported), function-level imports included:

- A room of ``vmnest`` imports itself and the rooms that its row names; ``__version__`` of the package anyone may take.
- Imports inside ``vmnest`` are relative, so that it works under another name.
- A third-party package is imported by its home only.
- The guest imports the standard library of its oldest Python and, relatively, itself.
- ``if TYPE_CHECKING:`` is no way out: types that only annotate follow the table too, but for the rows of TYPE_ONLY.
- Modules that every command loads import nothing slow at their top level (FAST, SLOW).

Changing a table here is a design decision and goes in a commit of its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "vmnest"
GUEST_WIRE = tuple(f"_guest.agentd.{name}" for name in ("wire", "frames", "trees", "archives", "patterns"))

# From the lowest level up: a room may import every room of the levels below its own, and none of its own level.
LEVELS = (
    ("errors",),
    ("deadline", "settings", "systems"),
    ("wire",),
    ("rendezvous", "statefile", "transport"),
    ("aws",),
    ("control",),
    ("agent",),
    ("daemon", "forward"),
    ("target", "registry", "guest_image"),
    ("infra",),
    ("sandbox",),
    ("ops",),
    ("cli", "mcp"),
)
# The local cloud stands beside the levels: nothing imports it, and it knows the wire, never the client.
LOCAL = ("errors", "deadline", "settings", "wire", "rendezvous", "aws.signing", "aws.shapes")
# The package itself only names its public classes; ``python -m vmnest`` is the command line, but for ``vmnest mcp``.
FRONT_DOORS = {"": (), "__main__": ("cli", "mcp")}
TYPE_ONLY = {
    "": ("errors", "agent.results", "sandbox"),
    "errors": ("agent.results",),
}
FOREIGN_HOMES = {"urllib3": "transport", "yaml": "infra.config", "botocore": "aws", "isal": "guest_image"}
TYPES_OF_THE_INTERPRETER = "_typeshed"  # exists for type checkers only
GUEST_LACKS = frozenset({"tomllib"})  # in newer standard libraries than the guest's oldest

FAST = (
    *("", "errors", "deadline", "settings", "systems", "statefile", "rendezvous", "daemon"),
    *("registry", "target", "ops", "cli"),
)
SLOW = (
    *("asyncio", "dataclasses", "http.client", "inspect", "logging", "pathlib", "secrets", "subprocess", "tempfile"),
    *("typing", *FOREIGN_HOMES),
)


def allowed_rooms() -> dict[str, tuple[str, ...]]:
    """Room → what it may import beside itself."""
    table: dict[str, tuple[str, ...]] = {**FRONT_DOORS, "local": (*LOCAL, *GUEST_WIRE)}
    below: tuple[str, ...] = ()
    for level in LEVELS:
        for room in level:
            table[room] = (*below, *(GUEST_WIRE if below else ()))
        below += level
    return table


ALLOWED = allowed_rooms()


@dataclass(frozen=True)
class Import:
    """One imported module, as an absolute dotted name. ``names`` are those that ``from`` takes out of it."""

    module: str
    names: tuple[str, ...]
    line: int
    relative: bool
    typing_only: bool
    top_level: bool


@dataclass(frozen=True)
class Module:
    """A source file and its dotted name under its root (``vmnest.aws.signing``, ``agentd.wire``)."""

    name: str
    path: Path
    is_package: bool


def find_modules(folder: Path, prefix: str) -> Iterator[Module]:
    """Every module below ``folder``; symbolic links are not followed (the guest is a root of its own)."""
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if any((folder / Path(*path.relative_to(folder).parts[:depth])).is_symlink() for depth in range(1, len(parts))):
            continue
        is_package = parts[-1] == "__init__"
        yield Module(".".join((prefix, *(parts[:-1] if is_package else parts))), path, is_package)


class ImportFinder(ast.NodeVisitor):
    """Collects the imports of one module."""

    def __init__(self, module: Module) -> None:
        self._package = module.name if module.is_package else module.name.rpartition(".")[0]
        self._typing_only = False
        self._depth = 0
        self.found: list[Import] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, (), node, relative=False)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        names = tuple(alias.name for alias in node.names)
        if not node.level:
            self._add(node.module or "", names, node, relative=False)
            return
        self._add(self._absolute(node.level, node.module or ""), names, node, relative=True)

    def visit_Call(self, node: ast.Call) -> None:
        """``import_module("...")`` with a literal is an import as well."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
            text = str(node.args[0].value)
            level = len(text) - len(text.lstrip("."))
            name = self._absolute(level, text[level:]) if level else text
            self._add(name, (), node, relative=bool(level))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not _is_type_checking(node.test):
            self.generic_visit(node)
            return
        before, self._typing_only = self._typing_only, True
        for child in node.body:
            self.visit(child)
        self._typing_only = before
        for child in node.orelse:
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_body(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_body(node)

    def _visit_body(self, node: ast.AST) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def _absolute(self, level: int, module: str) -> str:
        parts = self._package.split(".")
        kept = parts[: len(parts) - (level - 1)]
        return ".".join([*kept, *([module] if module else [])])

    def _add(self, module: str, names: tuple[str, ...], node: ast.AST, *, relative: bool) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Import(module, names, line, relative, self._typing_only, not self._depth))


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def find_imports(module: Module) -> list[Import]:
    finder = ImportFinder(module)
    finder.visit(ast.parse(module.path.read_text(encoding="utf-8"), filename=str(module.path)))
    return finder.found


def _is_within(name: str, rooms: Iterable[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


class LibraryRules:
    """The rules of ``vmnest``."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._known = {module.name for module in modules}

    def check(self, module: Module) -> Iterator[tuple[int, str]]:
        """Line and reason of every import that is not allowed."""
        place = module.name.removeprefix(PACKAGE).lstrip(".")
        room = place.partition(".")[0]
        for found in find_imports(module):
            top = found.module.partition(".")[0]
            if found.relative:
                yield from self._check_arrows(room, found)
            elif top == PACKAGE:
                yield found.line, f"{found.module}: imports inside {PACKAGE} are relative"
            elif top not in sys.stdlib_module_names and not (found.typing_only and top == TYPES_OF_THE_INTERPRETER):
                yield from self._check_foreign(place, found)
            yield from self._check_speed(room, found)

    def _targets(self, found: Import) -> Iterator[str]:
        """The modules that a relative import reaches, without the package's name."""
        for name in found.names or ("",):
            submodule = f"{found.module}.{name}"
            target = submodule if submodule in self._known or self._is_guest(submodule) else found.module
            if not (target == PACKAGE and name == "__version__"):
                yield target.removeprefix(PACKAGE).lstrip(".")

    @staticmethod
    def _is_guest(name: str) -> bool:
        return name.removeprefix(PACKAGE + ".").startswith("_guest")

    def _check_arrows(self, room: str, found: Import) -> Iterator[tuple[int, str]]:
        if found.module != PACKAGE and not found.module.startswith(PACKAGE + "."):
            yield found.line, f"{found.module or '.'}: leaves the package"
            return
        if room not in ALLOWED:
            yield found.line, f"room {room} is not in the table"
            return
        for target in self._targets(found):
            if target.partition(".")[0] == room and room:
                continue
            if _is_within(target, ALLOWED[room]):
                continue
            if found.typing_only and _is_within(target, TYPE_ONLY.get(room, ())):
                continue
            yield found.line, f"{room or PACKAGE} may not import {target or PACKAGE}"

    @staticmethod
    def _check_foreign(place: str, found: Import) -> Iterator[tuple[int, str]]:
        top = found.module.partition(".")[0]
        home = FOREIGN_HOMES.get(top)
        if home is None:
            yield found.line, f"{top}: not a dependency"
        elif not _is_within(place, (home,)):
            yield found.line, f"{top} may be imported in {home} only"

    @staticmethod
    def _check_speed(room: str, found: Import) -> Iterator[tuple[int, str]]:
        if room in FAST and found.top_level and not found.typing_only and _is_within(found.module, SLOW):
            yield found.line, f"{found.module}: too slow for the top level of a module that every command loads"


class GuestRules:
    """The rules of the guest."""

    def check(self, module: Module) -> Iterator[tuple[int, str]]:
        """Line and reason of every import that is not allowed."""
        root = module.name.partition(".")[0]
        for found in find_imports(module):
            top = found.module.partition(".")[0]
            if found.relative and top != root:
                yield found.line, f"{found.module or '.'}: leaves the guest"
            elif not found.relative and (top not in sys.stdlib_module_names or top in GUEST_LACKS):
                yield found.line, f"{top}: the guest has the standard library only"


def check(root: Path) -> list[str]:
    """One line for each violation under a repository's root."""
    library = list(find_modules(root / PACKAGE, PACKAGE))
    # Inside an image ``agentd`` is a package at the top level: nothing of it may reach above.
    guest = list(find_modules(root / "guest" / "agentd", "agentd"))
    rules = ((library, LibraryRules(library)), (guest, GuestRules()))
    return [
        f"{module.path.relative_to(root)}:{line}: {reason}"
        for modules, rule in rules
        for module in modules
        for line, reason in rule.check(module)
    ]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    if not (root / PACKAGE).is_dir():
        print(f"check_layers.py: {root} has no {PACKAGE}; usage: python tools/check_layers.py [ROOT]", file=sys.stderr)
        return 2
    violations = check(root)
    print("\n".join(violations) or "layers: every import is allowed")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
