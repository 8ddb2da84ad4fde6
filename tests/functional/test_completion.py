"""TAB in real shells, at a terminal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.cli import bare_environ
from tests.support.paths import ROOT
from tests.support.terminals import Terminal

NAMES = ("demo.two", "build-1", "my box", "quo'te", "do$lar", "co:lon", "at@home", "b\xe4x")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with records, with vmnest in its PATH, and with files in the folder ``work``."""
    program = tmp_path / "bin" / "vmnest"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m vmnest "$@"\n')
    program.chmod(0o755)
    (tmp_path / "state.json").write_text(
        json.dumps({"sandboxes": {name: {"target": "local"} for name in NAMES}}, ensure_ascii=False), encoding="utf-8"
    )
    work = tmp_path / "work"
    (work / "directory").mkdir(parents=True)
    (work / "some file").touch()
    return tmp_path


@pytest.fixture
def environ(home: Path) -> Mapping[str, str]:
    return {
        **bare_environ(home),
        "PATH": f"{home}/bin:{os.environ['PATH']}",
        "AGENT_SANDBOX_STATE": f"{home}/state.json",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm",
        "PS1": "> ",
    }


# What is typed up to the TAB -> what stands there then.
LINES = {
    "vmnest insp": "vmnest inspect ",
    "vmnest image vers": "vmnest image versions ",
    "vmnest ps build-1 --js": "vmnest ps build-1 --json ",
    "vmnest wait build-1 --state=RUNN": "vmnest wait build-1 --state=RUNNING ",
    "vmnest ps demo.": "vmnest ps demo.two ",
    "vmnest ps my": "vmnest ps my\\ box ",
    "vmnest ps 'my": "vmnest ps 'my box' ",
    "vmnest ps quo": "vmnest ps quo\\'te ",
    "vmnest ps do": "vmnest ps do\\$lar ",
    "vmnest ps co:": "vmnest ps co:lon ",
    "vmnest ps at@": "vmnest ps at@home ",
    "vmnest ps b\xe4": "vmnest ps b\xe4x ",
    "vmnest rm build-1 b": "vmnest rm build-1 b\xe4x ",
    "vmnest exec build-1 -- cat so": "vmnest exec build-1 -- cat some\\ file ",
    "vmnest exec --env-file=so": "vmnest exec --env-file=some\\ file ",
    "vmnest image build dir": "vmnest image build directory/",
    "vmnest cp bui": "vmnest cp build-1:",
    "vmnest cp so": "vmnest cp some\\ file ",
    "vmnest cp ./so": "vmnest cp ./some\\ file ",
    "~/bin/vmnest ps bui": "~/bin/vmnest ps build-1 ",
}
LEFT_ALONE = ("vmnest create ", "vmnest cp build-1:/etc/pass", "vmnest bogus ", "vmnest ps nobody")
# A key of our own takes the line as it is and prints it: what the shell draws on the way need not be understood.
SHOW = b"\x07"
BASH = """bind 'set bell-style none'; eval "$(vmnest completion bash)"
show() { printf '\\n[%s]\\n' "$READLINE_LINE"; READLINE_LINE=; READLINE_POINT=0; }
bind -x '"\\C-g": show'; echo rea''dy
"""
ZSH = """PS1='> '; unsetopt beep; eval "$(vmnest completion zsh)"
show() { print -r; print -r -- "[$BUFFER]"; BUFFER=; zle redisplay; }
zle -N show; bindkey '^G' show; echo rea''dy
"""


def start(shell: str, *arguments: str, script: str, environ: Mapping[str, str], home: Path) -> Terminal:
    """A shell at a terminal, which has read the script."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    terminal = Terminal([shell, *arguments], env=environ, cwd=home / "work", size=(120, 40))
    (home / "begin").write_text(script)
    terminal.type(b". ~/begin\r")
    terminal.read_until(b"ready")
    return terminal


SCRIPTS = {
    "bash": BASH,
    "bash-completion": f". /usr/share/bash-completion/bash_completion\n{BASH}",
    "bash with other habits": f"set -u; shopt -s nullglob; IFS=:; COMP_WORDBREAKS=' '\n{BASH}",
    "zsh": ZSH,
}


@pytest.fixture(params=SCRIPTS)
def terminal(request: pytest.FixtureRequest, environ: Mapping[str, str], home: Path) -> Iterator[Terminal]:
    script = SCRIPTS[request.param]
    if request.param == "bash-completion" and not Path(script.split()[1]).exists():
        pytest.skip("needs bash-completion")
    program = ["zsh", "-f", "-i"] if request.param == "zsh" else ["bash", "--norc", "--noprofile", "-i"]
    started = start(*program, script=script, environ=environ, home=home)
    with started as shell:
        yield shell


def test_tab_completes_the_line(terminal: Terminal) -> None:
    for typed, expected in {**LINES, **dict(zip(LEFT_ALONE, LEFT_ALONE, strict=True))}.items():
        terminal.type(typed.encode() + b"\t" + SHOW)
        shown = terminal.read_until(b"]\r\n").decode()
        assert shown.rpartition("\n[")[2].rpartition("]")[0] == expected, shown


def test_tab_lists_what_there_is(terminal: Terminal) -> None:
    terminal.type(b"vmnest local \t\t")
    for verb in (b"down", b"env", b"status", b"up"):
        assert verb in terminal.read_until(verb)


FISH_LINES = {
    "vmnest insp": ["inspect"],
    "vmnest image vers": ["versions"],
    "vmnest ps build-1 --js": ["--json"],
    "vmnest wait build-1 --state=RUNN": ["--state=RUNNING"],
    "vmnest ps demo.": ["demo.two"],
    "vmnest ps my": ["my box"],
    "vmnest ps 'my": ["my box"],
    "vmnest ps do\\$": ["do$lar"],
    "vmnest ps co:": ["co:lon"],
    "vmnest ps b\xe4": ["b\xe4x"],
    "vmnest rm b\xe4x b": ["build-1"],
    "vmnest exec build-1 -- cat so": ["some file"],
    "vmnest exec --env-file=so": ["--env-file=some file"],
    "vmnest image build dir": ["directory/"],
    "vmnest cp bui": ["build-1:"],
    "vmnest cp ./so": ["./some file"],
    "vmnest cp build-1:/etc/pass": [],
    "vmnest create ": [],
    "vmnest bogus ": [],
    "~/bin/vmnest ps bui": ["build-1"],
}


def test_fish_finds_the_same(environ: Mapping[str, str], home: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("needs fish")
    # Fish looks for what has the text in its middle if nothing begins with it: here something does.
    program = "vmnest completion fish | source; for line in $argv; complete -C $line; echo end; end"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program, *FISH_LINES],
        env=dict(environ), cwd=home / "work", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    answers = [[line.partition("\t")[0] for line in each.splitlines()] for each in done.stdout.split("end\n")]
    assert dict(zip(FISH_LINES, answers, strict=False)) == FISH_LINES
    assert "build-1:\ton this machine" in done.stdout
