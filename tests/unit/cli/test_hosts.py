"""What hosts are told, read by independent parsers."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import ROOT
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


@pytest.mark.parametrize("client", ["claude-desktop", "cursor", "vscode", "windsurf", "gemini", "kiro", "generic"])
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
def test_opencode_reads_the_program_and_its_arguments_as_one_list(start: hosts.Start) -> None:
    (server,) = json.loads(hosts.HOSTS["opencode"].render(start))["mcp"].items()
    assert server[0] == "agent-sandbox"
    assert server[1].pop("environment", {}) == start.environ
    assert server[1] == {"type": "local", "command": [start.command, "mcp"], "enabled": True, "timeout": 300_000}


@given(start=STARTS, value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_codex_reads_toml(start: hosts.Start, value: str) -> None:
    tomllib = pytest.importorskip("tomllib", reason="needs another Python: 3.11")
    start.environ["B.2"] = value
    entry = tomllib.loads(hosts.HOSTS["codex"].render(start))["mcp_servers"]["agent-sandbox"]
    assert entry == {"command": start.command, "args": ["mcp"], "env": start.environ, "tool_timeout_sec": 300}


@given(start=STARTS)
def test_claude_gets_a_line_of_shell(start: hosts.Start) -> None:
    line = shlex.split(hosts.HOSTS["claude"].render(start))
    before, after = line[: line.index("--")], line[line.index("--") + 1 :]
    assert after == [start.command, "mcp"]
    assert before[:4] == ["claude", "mcp", "add", "agent-sandbox"]
    assert before[6:] == [word for name, value in start.environ.items() for word in ("--env", f"{name}={value}")]


def here(program: str, **changes: object) -> hosts.Here:
    found = hosts.Here({})
    for name, value in {"program": program, "interpreter": "/python", "path": [found.root], **changes}.items():
        setattr(found, name, value)
    return found


def test_an_installed_script_is_started_by_the_path_that_it_was_called_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "real"
    script.touch(mode=0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vmnest").symlink_to(script)
    monkeypatch.chdir(tmp_path)
    start = hosts.find_start(here("bin/vmnest"), environ={})
    assert (start.command, start.arguments) == (f"{tmp_path}/bin/vmnest", ["mcp"])


@pytest.mark.parametrize("program", ["/x/vmnest/__main__.py", "", "-c", "/usr/bin/env", "/nowhere/vmnest"])
def test_anything_else_is_started_as_a_module_but_none_of_the_working_directory(program: str) -> None:
    start = hosts.find_start(here(program), environ={"A": "1"})
    assert start.command == "/python"
    assert start.arguments[-2:] == ["-m", "vmnest.mcp"]
    assert ("-P" in start.arguments) == (sys.version_info >= (3, 11))
    assert start.environ == {"A": "1"}


def test_an_archive_is_started_by_the_python_that_runs_it(tmp_path: Path) -> None:
    archive = tmp_path / "vmnest.pyz"
    archive.touch(mode=0o755)
    start = hosts.find_start(here(str(archive), root=str(archive), path=[], pythonpath=["/libraries"]), environ={})
    assert (start.command, start.arguments) == ("/python", [str(archive), "mcp"])
    assert start.environ == {"PYTHONPATH": "/libraries"}


@pytest.mark.parametrize(
    ("path", "pythonpath", "given"),
    [
        ([], [], "/project"),
        ([], ["/libraries"], f"/project{os.pathsep}/libraries"),
        ([], ["/libraries", "/project"], f"/libraries{os.pathsep}/project"),
        (["/project"], ["/libraries"], "/libraries"),
    ],
)
def test_a_copy_in_a_project_is_found_from_anywhere(path: list[str], pythonpath: list[str], given: str) -> None:
    copy = here("-m", root="/project", package="app.boxes", path=path, pythonpath=pythonpath)
    start = hosts.find_start(copy, environ={})
    assert start.arguments[-2:] == ["-m", "app.boxes.mcp"]
    assert start.environ == {"PYTHONPATH": given}
    assert hosts.find_start(copy, environ={"PYTHONPATH": "/mine"}).environ == {"PYTHONPATH": "/mine"}


def test_it_sees_how_this_process_runs_it() -> None:
    found = hosts.Here({"PYTHONPATH": f"/a{os.pathsep}{os.pathsep}/b"})
    assert (found.package, found.root, found.pythonpath) == ("vmnest", str(ROOT), ["/a", "/b"])
