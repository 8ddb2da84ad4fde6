"""What hosts are told, read by independent parsers."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vmnest.cli import hosts

ODD = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), min_size=1, max_size=30)
STARTS = st.builds(
    lambda path, environ: hosts.Start(f"/{path}", ["mcp"], environ), ODD, st.dictionaries(st.just("A_1"), ODD)
)


def members(client: str, start: hosts.Start) -> dict[str, object]:
    """The server's entry as the host reads it."""
    snippet = hosts.HOSTS[client].render(start)
    if client == "goose":
        found = yaml.safe_load(snippet)["extensions"]
    else:
        found = json.loads(snippet)["servers" if client == "vscode" else "mcpServers"]
    assert list(found) == ["agent-sandbox"]
    entry = found["agent-sandbox"]
    assert isinstance(entry, dict)
    return entry


@pytest.mark.parametrize("client", ["claude-desktop", "cursor", "vscode", "windsurf", "generic"])
@given(start=STARTS)
def test_json_has_the_program_its_arguments_and_variables(client: str, start: hosts.Start) -> None:
    entry = members(client, start)
    assert entry.pop("type", "stdio") == "stdio"
    assert entry == {
        "command": start.command,
        "args": ["mcp"],
        **({"env": start.environ} if start.environ else {}),
    }


@given(start=STARTS)
def test_goose_reads_yaml(start: hosts.Start) -> None:
    entry = members("goose", start)
    assert (entry["cmd"], entry["args"], entry["envs"]) == (start.command, ["mcp"], start.environ)
    assert (entry["type"], entry["enabled"], entry["name"]) == ("stdio", True, "agent-sandbox")


@given(start=STARTS)
def test_claude_gets_a_line_of_shell(start: hosts.Start) -> None:
    line = shlex.split(hosts.HOSTS["claude"].render(start))
    before, after = line[: line.index("--")], line[line.index("--") + 1 :]
    assert after == [start.command, "mcp"]
    assert before[:4] == ["claude", "mcp", "add", "agent-sandbox"]
    assert before[6:] == [word for name, value in start.environ.items() for word in ("--env", f"{name}={value}")]


def test_an_installed_script_is_started_by_the_path_that_it_was_called_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "real"
    script.touch(mode=0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vmnest").symlink_to(script)
    monkeypatch.chdir(tmp_path)
    start = hosts.find_start("bin/vmnest", interpreter="/python", package="vmnest", environ={})
    assert (start.command, start.arguments) == (f"{tmp_path}/bin/vmnest", ["mcp"])


@pytest.mark.parametrize("program", ["/x/vmnest/__main__.py", "", "-c", "/usr/bin/env", "/nowhere/vmnest"])
def test_anything_else_is_started_as_a_module_but_none_of_the_working_directory(program: str) -> None:
    start = hosts.find_start(program, interpreter="/python", package="vmnest", environ={})
    assert start.command == "/python"
    assert start.arguments[-2:] == ["-m", "vmnest.mcp"]
    assert ("-P" in start.arguments) == (sys.version_info >= (3, 11))
