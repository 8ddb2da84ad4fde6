"""The manual says what the code does: tables, verbs, options, command lines."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from xml.etree import ElementTree

import docutils.core
import docutils.nodes
import pytest

from tests.support.paths import ROOT
from vmnest._guest.agentd import config
from vmnest.cli import hosts, verbs, words

TEXT = (ROOT / "README.rst").read_text(encoding="utf-8")
OTHER_PAGES = ("CHANGELOG", "CONTRIBUTING.rst")
PICTURE = "tools/architecture.svg"
STRICT = {"report_level": 1, "halt_level": 2, "raw_enabled": False, "file_insertion_enabled": False}
DOCUMENT = docutils.core.publish_doctree(TEXT, settings_overrides={**STRICT, "halt_level": 5, "report_level": 5})


def literal_blocks() -> Iterator[str]:
    for node in DOCUMENT.findall(docutils.nodes.literal_block):
        yield node.astext()


def command_lines() -> list[str]:
    """The lines of literal blocks that a user would type: ``$ vmnest ...``; those for PowerShell have no ``$``."""
    typed = []
    for node in DOCUMENT.findall(docutils.nodes.literal_block):
        prompt = "" if "powershell" in node["classes"] else "$ "
        lines = (line for line in node.astext().splitlines() if line.startswith(f"{prompt}vmnest "))
        typed += [line.removeprefix(prompt) for line in lines]
    return typed


def sections(title: str) -> docutils.nodes.section:
    """The part of the manual that has this heading."""
    (found,) = (node for node in DOCUMENT.findall(docutils.nodes.section) if node[0].astext() == title)
    return found


def messages() -> Iterator[str]:
    """Each text in the code of the library and the guest, "…" for what is put in."""
    for path in (*(ROOT / "vmnest").rglob("*.py"), *(ROOT / "guest").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)


def symptoms() -> list[str]:
    """What is said, by the table of it: the literals of its first column, but for what others than vmnest say."""
    table = next(iter(sections("Troubleshooting").findall(docutils.nodes.tbody)))
    cells = [row[0] for row in table.findall(docutils.nodes.row) if "(from a program" not in row[0].astext()]
    return [literal.astext() for cell in cells for literal in cell.findall(docutils.nodes.literal)]


def test_it_is_faultless_restructured_text() -> None:
    docutils.core.publish_string(TEXT, writer="html5", settings_overrides=STRICT)


@pytest.mark.parametrize("name", OTHER_PAGES)
def test_so_are_the_other_pages(name: str) -> None:
    docutils.core.publish_string((ROOT / name).read_text(encoding="utf-8"), writer="html5", settings_overrides=STRICT)


def test_the_changelog_starts_with_what_is_unreleased() -> None:
    text = (ROOT / "CHANGELOG").read_text(encoding="utf-8")
    assert re.search(r"^(unreleased|\d+\.\d+\.\d+.*)\n---", text, re.MULTILINE)


def test_its_tables_are_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools" / "readme_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "part",
    [
        "globals",
        "tree",
        "settings",
        "statuses",
        "exec-statuses",
        "errors",
        "limits",
        "quotas",
        "mcp-tools",
        "mcp-resources",
    ],
)
def test_it_has_the_table(part: str) -> None:
    assert f"\n.. generated: {part}\n" in TEXT


@pytest.mark.parametrize("verb", verbs.VERBS, ids=lambda verb: verb.title)
def test_every_verb_is_in_it_with_its_options(verb: verbs.Verb) -> None:
    assert f"\n.. generated: options {verb.title}\n" in TEXT


@pytest.mark.parametrize("client", hosts.HOSTS)
def test_every_host_of_the_mcp_server_is_in_it(client: str) -> None:
    assert re.search(rf"^\.\. generated: mcp-config (?:\S+ )*{client}\b(?!-)", TEXT, re.MULTILINE)


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_in_it_can_be_meant(line: str) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    before = list(itertools.takewhile(lambda word: word.startswith("-"), arguments))
    arguments = arguments[len(before) :]
    if not arguments:
        assert before == ["--version"]
        return
    count = 2 if arguments[0] in verbs.GROUPS else 1
    verb = verbs.find(tuple(arguments[:count]))
    assert verb is not None
    parser = importlib.import_module(f"vmnest.cli.{verb.module}").build_parser(verb)
    words.add_globals(parser)
    parser.parse(words.split(parser, [*before, *arguments[count:]]))


def test_every_python_example_compiles() -> None:
    examples = [block for block in literal_blocks() if re.search(r"^(from|import) vmnest", block, re.MULTILINE)]
    assert examples
    for example in examples:
        compile(example, "README.rst", "exec")


def test_the_two_commands_stand_at_its_top() -> None:
    head = TEXT[:2500]
    assert "tools/try" in head
    assert "tools/test" in head


def test_it_has_the_settings_of_the_guest() -> None:
    own = {variable for _, variable, _, _ in config.SETTINGS} - {"AGENTD_READY_FD"}  # between driver and agent only
    assert set(re.findall(r"``(AGENTD_[A-Z_]+)``\n     - ``", TEXT)) == own - {"AGENT_SANDBOX_WORKDIR"}


def test_a_newcomer_finds_the_first_sandbox_and_all_commands_in_its_first_300_lines() -> None:
    head = "\n".join(TEXT.splitlines()[:300])
    for heading in (
        "Install\n===",
        "On this machine\n---",
        "On AWS\n---",
        "All commands at a glance\n===",
        "Networking\n===",
    ):
        assert f"\n{heading}" in head


def test_what_it_says_of_messages_is_what_is_said() -> None:
    said = {message for message in messages() if len(message.replace("…", "")) >= 10}
    patterns = [re.compile(".+".join(map(re.escape, message.split("…")))) for message in said if "…" in message]
    assert len(symptoms()) > 15
    for symptom in symptoms():
        is_part = any(symptom in message for message in said)
        assert is_part or any(pattern.fullmatch(symptom) for pattern in patterns), symptom


@pytest.mark.parametrize("name", ["README.rst", *OTHER_PAGES])
def test_files_that_the_pages_name_are_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"``(?:\$ )?((?:tools|tests|guest|vmnest)/[\w./-]+)", text) + re.findall(
        r"\$ (?:python3 )?(tools/\S+)", text
    )
    assert named or name == "CHANGELOG"
    for each in named:
        assert (ROOT / each).exists(), each


def test_its_picture_is_a_drawing_that_needs_nothing_else_and_says_what_it_shows() -> None:
    assert f"\n.. image:: {PICTURE}\n   :alt: " in TEXT
    drawing = ElementTree.parse(ROOT / PICTURE).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert drawing.tag == f"{space}svg"
    assert drawing.find(f"{space}title") is not None
    assert drawing.find(f"{space}desc") is not None
    text = (ROOT / PICTURE).read_text(encoding="utf-8")
    assert not re.search(r"<script|<image|<foreignObject|href|@import|url\((?!#)| on\w+=", text)
