"""Limits that keep the code readable (where one is met, split by concept), and what a module opens with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FUNCTION_LINES = 60
MODULE_LINES = 600
POSITIONAL_PARAMETERS = 4
TABLE_ROWS = {"Setting"}  # a row of a table is read in columns
OPEN_ENDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if "_guest" not in path.parts]


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", sources("vmnest", "guest", "tools"), ids=by_name)
def test_functions_and_modules_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES
    for node in functions(path):
        assert (node.end_lineno or node.lineno) - node.lineno < FUNCTION_LINES, f"{node.name} in line {node.lineno}"


@pytest.mark.parametrize("path", sources("vmnest", "guest"), ids=by_name)
def test_parameters_are_keyword_only_beyond_the_first_few(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    rows = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name in TABLE_ROWS)
    lines_of_rows = {line for row in rows for line in range(row.lineno, row.end_lineno or row.lineno)}
    for node in functions(path):
        if node.lineno in lines_of_rows:
            continue
        names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        is_dunder = node.name.startswith("__") and node.name != "__init__"
        assert is_dunder or count <= POSITIONAL_PARAMETERS, f"{node.name} in line {node.lineno}"


@pytest.mark.parametrize("path", sources("vmnest", "guest"), ids=by_name)
def test_only_the_command_line_prints(path: Path) -> None:
    if "cli" in path.relative_to(ROOT).parts:
        return
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    assert [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"] == []


@pytest.mark.parametrize("path", sources("vmnest", "guest", "tools", "tests"), ids=by_name)
def test_open_ends_are_issues_not_comments(path: Path) -> None:
    assert OPEN_ENDS.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sources("vmnest", "guest", "tools", "tests"), ids=by_name)
def test_a_module_opens_with_what_it_is_for(path: Path) -> None:
    opening = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert opening.splitlines()[:1], "the module has no docstring"
    assert opening.split("\n\n")[0].rstrip().endswith((".", ":", "?")), "its first sentence has no end"
