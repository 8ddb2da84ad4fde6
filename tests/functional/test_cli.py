"""The command line as a process, with no cloud anywhere."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.paths import ROOT
from tests.support.terminals import Terminal
from vmnest import __version__
from vmnest.cli import verbs

HEAVY = {
    "urllib3",
    "botocore",
    "yaml",
    "dataclasses",
    "typing",
    "logging",
    "pathlib",
    "subprocess",
    "http.client",
    "ssl",
}


def imported(cli: Cli, *words: str) -> set[str]:
    done = cli(*words, program=(sys.executable, "-X", "importtime", "-m", "vmnest"))
    assert done.status == 0, done.remarks
    lines = [line.rpartition("|")[2].strip() for line in done.remarks.splitlines() if line.startswith("import time:")]
    return set(lines)


@pytest.mark.parametrize("line", [["--help"], ["--version"], ["version"], ["ls"], ["exec", "--help"]], ids=" ".join)
def test_quick_commands_load_nothing_heavy(cli: Cli, line: list[str]) -> None:
    loaded = imported(cli, *line)
    assert "vmnest.cli.main" in loaded
    assert not loaded & HEAVY
    assert "vmnest.sandbox" not in loaded


def test_help_does_not_even_load_argparse(cli: Cli) -> None:
    assert "argparse" not in imported(cli, "--help")


def test_the_installed_script_is_the_same_program(cli: Cli) -> None:
    script = Path(sysconfig.get_path("scripts"), "vmnest")
    program = (
        (str(script),) if script.exists() else (sys.executable, "-c", "from vmnest.__main__ import console; console()")
    )
    done = cli("--version", program=program)
    assert (done.status, done.text) == (0, f"vmnest {__version__}\n")


def test_the_list_of_nothing_writes_nothing(cli: Cli) -> None:
    done = cli("ls")
    assert (done.status, done.text, done.remarks) == (0, "", "vmnest: there are no sandboxes\n")
    assert cli("ls", "--json").data == {"sandboxes": []}
    assert cli("-q", "ls").remarks == ""
    assert os.listdir(cli.environ["HOME"]) == []


def test_a_name_that_is_not_there_is_not_found(cli: Cli) -> None:
    for verb in ("ps", "rm"):
        assert cli(verb, "nobody").status == 3
        assert cli(verb, "nobody", "--json").error["code"] == "sandbox_not_found"
    assert cli("exec", "nobody", "true").status == 125


def test_a_verb_that_needs_aws_says_what_is_missing(cli: Cli) -> None:
    error = cli("create", "web", "--json").error
    assert error["code"] == "region_not_found"
    assert "--local" in error["hint"]
    error = cli("create", "web", "--json", "--region", "eu-west-1").error
    assert error["code"] == "usage"
    assert "--image" in error["hint"]
    done = cli("run", "--region", "eu-west-1", "-i", "some-image", "--", "true", AWS_SHARED_CREDENTIALS_FILE="/none")
    assert done.status == 125
    assert "credentials" in done.remarks


def test_a_bad_setting_names_the_variable(cli: Cli) -> None:
    done = cli("create", "web", AGENT_SANDBOX_TARGET="docker")
    assert done.status == 2
    assert "AGENT_SANDBOX_TARGET must be one of aws, local: 'docker'" in done.remarks


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["/nonexistent", "/etc/passwd", ""])
def test_a_home_that_is_none_is_a_note(tmp_path: Path, home: str) -> None:
    cli = Cli({**bare_environ(home), "AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local")})
    done = cli("ls")
    assert done.status == 0
    assert str(tmp_path / "local" / "state.json") in done.remarks
    assert cli("ls", "--json").data == {"sandboxes": []}
    assert not (tmp_path / "local").exists()


def test_a_home_that_is_read_only_is_a_note(cli: Cli, tmp_path: Path) -> None:
    mount = 'unshare -rm sh -c \'mount -t tmpfs -o ro none "$HOME" && exec "$@"\' sh '
    if cli.shell(f"{mount} true").status != 0:
        pytest.skip("needs unshare and user namespaces")
    local = tmp_path / "local"
    done = cli.shell(f"export AGENT_SANDBOX_LOCAL_DIR={local}; {mount} $vmnest ls")
    assert (done.status, done.out) == (0, b"")
    assert f"{local}/state.json" in done.remarks
    assert not local.exists()


def write_state(cli: Cli, content: object) -> Path:
    path = Path(cli.environ["HOME"], ".agent_sandbox", "state.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_damaged_state_file_is_refused_and_kept(cli: Cli) -> None:
    path = write_state(cli, "{bad")
    assert cli("ls", "--json").error["code"] == "state_file"
    assert sorted(os.listdir(path.parent)) == ["state.json"]
    assert cli("rm", "web").status == 1
    assert path.read_text() == "{bad"
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o700


OLD = {
    "sandboxes": {"[red]x": {"name": "[red]x", "microvm_id": "m\x1b[31m", "endpoint": "host", "region": "eu-west-1"}}
}


def test_a_record_of_an_older_version_is_listed_and_cannot_steer_the_terminal(cli: Cli) -> None:
    write_state(cli, OLD)
    done = cli("ls", AWS_SHARED_CREDENTIALS_FILE="/none")
    assert done.status == 0
    assert "[red]x  UNKNOWN" in done.text
    assert "m\\x1b[31m" in done.text
    assert "\x1b" not in done.text + done.remarks
    assert "credentials" in done.remarks
    (listed,) = cli("ls", "--json", AWS_SHARED_CREDENTIALS_FILE="/none").data["sandboxes"]
    assert listed["error"]["code"] == "credentials_not_found"


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("line", "status"), [("version", 0), ("ls", 0), ("bogus", 2), ("--help", 0)])
def test_closed_streams_are_no_crash(cli: Cli, closed: str, line: str, status: int) -> None:
    done = cli.shell(f"$vmnest {line} {closed}")
    assert done.status == status
    assert b"Traceback" not in done.err


@pytest.mark.parametrize("line", ["--help", "version", "exec --help", "ls --json"])
def test_a_reader_that_has_gone_is_no_traceback(cli: Cli, line: str) -> None:
    done = cli.shell(f"$vmnest {line} | true; echo ${{PIPESTATUS[0]}}")
    assert done.text.strip() in {"0", "141"}
    assert done.err == b""
    done = cli.shell(f"exec 3> >(exec 0<&-; sleep 0.2); sleep 0.1; $vmnest {line} >&3; echo $?")
    assert done.text.strip() == "141"
    assert done.err == b""


def test_a_full_disk_is_an_error(cli: Cli) -> None:
    done = cli.shell("$vmnest version > /dev/full")
    assert done.status == 1
    assert "No space left" in done.remarks


@pytest.mark.parametrize(
    "environ",
    [
        {"LANG": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LANG": "C.UTF-8"},
    ],
    ids=str,
)
def test_any_locale_can_show_any_name(cli: Cli, environ: dict[str, str]) -> None:
    write_state(cli, {"sandboxes": {"naïve日": {"microvm_id": "m", "region": "eu-west-1"}}})
    done = cli("ls", AWS_SHARED_CREDENTIALS_FILE="/none", **environ)
    assert done.status == 0
    assert b"na" in done.out
    done = cli("rm", "naïve日", "--json", AWS_SHARED_CREDENTIALS_FILE="/none", **environ)
    assert done.error["code"] == "credentials_not_found"  # the name was found, whatever the locale makes of it


def test_bytes_that_are_no_text_are_refused_clearly(cli: Cli) -> None:
    write_state(cli, {"sandboxes": {"web": {"microvm_id": "m", "region": "eu-west-1"}}})
    lines: tuple[tuple[str | bytes, ...], ...] = ((b"a\xff",), ("-e", b"A=\xff", "x"), ("-w", b"\xff", "x"))
    for line in lines:
        done = cli("exec", "web", *line)
        assert done.status == 2
        assert "not UTF-8" in done.remarks
    assert cli("ps", b"\xff").status == 3


def test_nothing_of_a_text_is_wrapped_or_cut_in_a_pipe(cli: Cli) -> None:
    long = "microvm-" + "0" * 300
    write_state(cli, {"sandboxes": {"web": {"microvm_id": long, "region": "eu-west-1"}}})
    done = cli("ls", COLUMNS="40", AWS_SHARED_CREDENTIALS_FILE="/none")
    assert long in done.text
    assert len(done.text.splitlines()) == 2
    assert cli("exec", "--help", COLUMNS="40").text == cli("exec", "--help", COLUMNS="400").text


@pytest.mark.parametrize("columns", [24, 40, 80, 200])
def test_a_table_fits_the_terminal_and_keeps_names_and_states(cli: Cli, columns: int) -> None:
    records = {"web": {"microvm_id": "microvm-" + "0" * 36, "region": "eu-west-1"}, "here": {"target": "local"}}
    write_state(cli, {"sandboxes": records})
    environ = {**cli.environ, "AWS_SHARED_CREDENTIALS_FILE": "/none", "TERM": "dumb"}
    with Terminal(
        ["sh", "-c", 'exec "$0" "$@" 2>/dev/null', *PROGRAM, "ls"], env=environ, size=(columns, 24)
    ) as terminal:
        assert terminal.wait() == 0
        lines = terminal.read_rest().decode().splitlines()
    assert [line.split()[:2] for line in lines] == [["NAME", "STATE"], ["web", "UNKNOWN"], ["here", "LAUNCHING"]]
    assert max(map(len, lines)) <= columns
    assert ("ID" in lines[0].split()) == (columns == 200)


def test_debug_shows_a_traceback_and_nothing_else_does(cli: Cli) -> None:
    assert "Traceback" not in cli("ps", "nobody").remarks
    assert "Traceback" in cli("ps", "nobody", "--debug").remarks
    assert "Traceback" in cli("--debug", "--json", "ps", "nobody").error["traceback"]


# -- independent checks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", verbs.VERBS, ids=lambda verb: verb.title)
def test_every_verb_answers_to_help(cli: Cli, verb: verbs.Verb) -> None:
    done = cli(*verb.words, "--help")
    assert (done.status, done.err) == (0, b"")
    assert done.text.startswith(f"Usage: vmnest {verb.title} [options]")


@pytest.mark.parametrize("version", ["3.10.13", "3.12.1", "3.13.0"])
def test_other_pythons_take_the_same_lines(version: str, tmp_path: Path) -> None:
    python = Path.home() / ".pyenv" / "versions" / version / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs another Python: {version}")
    program = (
        "import sys; sys.dont_write_bytecode = True\n"
        "from vmnest.cli import commands, removal, verbs, words\n"
        "def parse(group, title, *line):\n"
        "    parser = group.build_parser(verbs.find((title,))); words.add_globals(parser)\n"
        "    options = parser.parse(words.split(parser, line)); return options.names, options.words, options\n"
        "assert parse(commands, 'exec', 'n', 'ls', '-la', '--', 'x')[1] == ['ls', '-la', '--', 'x']\n"
        "assert parse(commands, 'exec', '--env', '--', '-e-X', '--', '-n', 'c')[2].env == ['--', '-X']\n"
        "assert parse(removal, 'rm', 'a', '--json', 'b', '--', '-c', '--')[0] == ['a', 'b', '-c', '--']\n"
        "print('same')"
    )
    done = subprocess.run([python, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("same\n", "")


def test_a_signal_that_comes_when_all_is_done_changes_nothing(cli: Cli) -> None:
    late = "import atexit, os, signal; atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))"
    done = cli("version", program=(sys.executable, "-c", f"{late}; from vmnest.cli.main import console; console()"))
    assert (done.status, done.text, done.remarks) == (0, f"vmnest {__version__}\n", "")


LOADED = ["vmnest.cli.main", "vmnest.errors", "vmnest.cli.terminal", "vmnest.cli.words"]


INTERRUPT = "os.kill(os.getpid(), signal.SIGINT)"
WAIT = "\nwhile True: pass"


def interrupted_while_loading(module: str, *, before: str = "", how: str = INTERRUPT) -> tuple[str, ...]:
    """The program, which gets SIGINT when it begins to load that module."""
    code = (
        f"import os, signal, sys; {before}\n"
        "class Interruption:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: {how}\n"
        "sys.meta_path.insert(0, Interruption())\n"
        "from vmnest.__main__ import console; console()"
    )
    return (sys.executable, "-c", code)


@pytest.mark.parametrize("module", LOADED)
def test_an_interruption_while_it_is_loaded_is_no_traceback(cli: Cli, module: str) -> None:
    done = cli("ls", program=interrupted_while_loading(module))
    assert (done.status, done.out) in {(-signal.SIGINT, b""), (130, b"")}
    assert done.remarks in {"", "vmnest: interrupted\n"}


def test_an_interruption_of_code_made_from_text_has_the_same_status(cli: Cli, tmp_path: Path) -> None:
    # As a module: a program that is run as one may end in another way than by its status.
    code = interrupted_while_loading("vmnest.cli.words", how=f"exec({INTERRUPT + WAIT!r})")[-1]
    (tmp_path / "interrupted.py").write_text(code)
    done = cli("ls", program=(sys.executable, "-m", "interrupted"), PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.status, done.out, done.remarks) == (130, b"", "vmnest: interrupted\n")


@pytest.mark.parametrize("module", LOADED)
def test_an_interruption_that_the_caller_ignores_stays_ignored(cli: Cli, module: str) -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    done = cli("ls", "--json", program=interrupted_while_loading(module, before=ignored))
    assert (done.status, done.data) == (0, {"sandboxes": []})
