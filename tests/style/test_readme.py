"""The manual says what the code does: tables, verbs, options, command lines."""

from __future__ import annotations

import importlib
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import docutils.core
import docutils.nodes
import pytest

from tests.support.paths import ROOT
from vmnest._guest.agentd import config
from vmnest.cli import hosts, verbs, words

TEXT = (ROOT / "README.rst").read_text(encoding="utf-8")
STRICT = {"report_level": 1, "halt_level": 2, "raw_enabled": False, "file_insertion_enabled": False}
DOCUMENT = docutils.core.publish_doctree(TEXT, settings_overrides={**STRICT, "halt_level": 5, "report_level": 5})


def literal_blocks() -> Iterator[str]:
    for node in DOCUMENT.findall(docutils.nodes.literal_block):
        yield node.astext()


def command_lines() -> list[str]:
    """The lines of literal blocks that a user would type: ``$ vmnest ...``."""
    lines = (line for block in literal_blocks() for line in block.splitlines())
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ vmnest ")]


def test_it_is_faultless_restructured_text() -> None:
    docutils.core.publish_string(TEXT, writer="html5", settings_overrides=STRICT)


def test_the_changelog_is_faultless_restructured_text_and_starts_with_what_is_unreleased() -> None:
    text = (ROOT / "CHANGELOG").read_text(encoding="utf-8")
    docutils.core.publish_string(text, writer="html5", settings_overrides=STRICT)
    assert re.search(r"^(unreleased|\d+\.\d+\.\d+.*)\n---", text, re.MULTILINE)


def test_its_tables_are_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools" / "readme_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "part",
    ["globals", "tree", "settings", "statuses", "exec-statuses", "errors", "mcp-tools", "mcp-resources"],
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
