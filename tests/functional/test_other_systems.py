"""vmnest on AWS from systems that are not Linux, as far as this one can play them: ``tests/support/elsewhere.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.aws_double import AwsDouble, open_double
from tests.support.cli import Cli, Done, bare_environ
from tests.support.mcp_process import open_server
from tests.support.paths import ROOT
from tests.support.terminals import Terminal

ELSEWHERE = (sys.executable, str(ROOT / "tests" / "support" / "elsewhere.py"))
# What a Python may lack on a system that is as POSIX has it otherwise.
LEANER = (
    "import sys; sys.modules.update(dict.fromkeys(('fcntl', 'pty', 'resource', 'termios')))\n"
    "from vmnest import __main__\n"
    "__main__.console()"
)
IMAGE = "arn:aws:lambda:us-east-1:123456789012:microvm-image:local"


@pytest.fixture(scope="module")
def double() -> Iterator[AwsDouble]:
    with open_double() as double:
        yield double


class Elsewhere:
    """The command line on another system."""

    def __init__(self, cli: Cli, program: tuple[str, ...]) -> None:
        self.cli = cli
        self.program = program

    def __call__(self, *words: str) -> Done:
        return self.cli(*words, program=self.program)

    def run(self, *words: str) -> str:
        """What a command prints that does what it shall."""
        done = self(*words)
        assert done.status == 0, done.remarks
        return done.text

    def refusal(self, *words: str) -> str:
        """What a command says that is refused."""
        done = self(*words)
        assert done.status in (1, 125), done.remarks
        assert "Traceback" not in done.remarks
        return done.remarks


@pytest.fixture(params=[ELSEWHERE, (sys.executable, "-c", LEANER)], ids=["elsewhere", "leaner"])
def elsewhere(request: pytest.FixtureRequest, double: AwsDouble, tmp_path: Path) -> Iterator[Elsewhere]:
    (tmp_path / "home").mkdir()
    environ = {
        **bare_environ(tmp_path / "home"),
        **double.environ,
        "PYTHONPATH": str(ROOT),
        "AGENT_SANDBOX_IMAGE_ARN": IMAGE,
    }
    system = Elsewhere(Cli(environ, cwd=tmp_path), request.param)
    yield system
    system.run("rm", "--all", "--yes")


def test_everything_but_the_local_cloud_can_be_imported() -> None:
    done = subprocess.run(ELSEWHERE, env={"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}, check=False)
    assert done.returncode == 0


def test_a_sandbox_is_made_used_and_removed(elsewhere: Elsewhere, tmp_path: Path) -> None:
    assert elsewhere.run("create", "demo") == "demo\n"
    done = elsewhere("exec", "demo", "--", "sh", "-c", "echo hello; exit 3")
    assert (done.status, done.text) == (3, "hello\n")
    (tmp_path / "lines").write_bytes(b"a\r\nb\n\x1a")
    elsewhere.run("cp", "lines", "demo:/work/lines")
    (tmp_path / "back").write_bytes(b"replaced")
    elsewhere.run("cp", "demo:/work/lines", "back")
    assert (tmp_path / "back").read_bytes() == b"a\r\nb\n\x1a"
    assert elsewhere.run("fs", "ls", "demo", "/work") == "lines\n"
    for verb in ("stop", "start", "metrics", "logs", "jobs") if elsewhere.program == ELSEWHERE else ():
        elsewhere.run(verb, "demo")
    assert "demo" in elsewhere.run("ls")
    assert "ended" in elsewhere.run("rm", "demo")
    state = tmp_path / "home" / ".agent_sandbox"
    assert {entry.name for entry in state.iterdir()} <= {"state.json", "state.json.lock"}


@pytest.mark.parametrize("elsewhere", [ELSEWHERE], indirect=True, ids=["elsewhere"])
def test_an_image_is_built_from_the_guest_of_the_package(elsewhere: Elsewhere) -> None:
    elsewhere.run("infra", "init")
    assert "1 to create" not in elsewhere.run("infra", "preview")
    assert "image" in elsewhere.run("infra", "up")
    assert elsewhere.run("infra", "destroy", "--yes")


def test_the_mcp_server_serves(elsewhere: Elsewhere, tmp_path: Path) -> None:
    environ = dict(elsewhere.cli.environ)
    with open_server(environ, program=[*elsewhere.program, "mcp"], cwd=tmp_path) as server:
        assert server.data("sandbox_list")["sandboxes"] == []
        assert server.end() == 0
    with open_server(environ, program=[*elsewhere.program, "mcp", "--region", "us-west-2"], cwd=tmp_path) as server:
        assert server.data("infra_outputs")["region"] == "us-west-2"
        assert server.end() == 0


def test_what_a_system_cannot_do_is_refused_before_anything_is_begun(elsewhere: Elsewhere, tmp_path: Path) -> None:
    assert "local sandboxes need" in elsewhere.refusal("--local", "create", "other")
    assert "local sandboxes need" in elsewhere.refusal("local", "up")
    if elsewhere.program != ELSEWHERE:
        return
    elsewhere.run("create", "demo")
    (tmp_path / "folder").mkdir()
    assert "cannot hand standard input on" in elsewhere.refusal("exec", "demo", "-i", "--", "cat")
    assert "cannot hand standard input on" in elsewhere.refusal("shell", "demo")
    assert elsewhere.run("jobs", "demo", "--all", "-q").count("\n") <= 1
    assert "directories of this machine cannot be copied" in elsewhere.refusal("cp", "-r", "folder", "demo:/work/f")
    assert "ports cannot be forwarded" in elsewhere.refusal("forward", "demo", "-r", "8000")
    assert "nothing runs in the background" in elsewhere.refusal("forward", "demo", "-r", "8000", "--background")


def test_a_terminal_without_modes_is_refused_for_keys(double: AwsDouble, tmp_path: Path) -> None:
    environ = {**bare_environ(tmp_path), **double.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-c", LEANER, "exec", "-it", "demo", "--", "sh"]
    with Terminal(command, env=environ, cwd=tmp_path, size=(200, 24)) as screen:
        screen.read_until(b"lacks the module termios")


@pytest.mark.parametrize("elsewhere", [ELSEWHERE], indirect=True, ids=["elsewhere"])
def test_who_is_interrupted_elsewhere_ends_by_it(elsewhere: Elsewhere) -> None:
    elsewhere.run("create", "demo")
    process = subprocess.Popen(
        [*elsewhere.program, "exec", "demo", "--", "sh", "-c", "trap 'exit 7' INT; echo ready; sleep 60 & wait"],
        env=dict(elsewhere.cli.environ),
        cwd=elsewhere.cli.cwd,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, 2)
        assert process.wait(60) == 7
