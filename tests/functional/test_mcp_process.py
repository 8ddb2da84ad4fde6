"""The MCP server among processes: whatever it is started with, is left alone with, and is ended by."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.mcp_process import PROGRAM, WAIT_SECONDS, open_server, read_line, six_variables
from tests.support.paths import ROOT

SOON_SECONDS = 5.0
PING = b'{"jsonrpc":"2.0","id":0,"method":"ping"}\n'
PONG = b'{"jsonrpc":"2.0","id":0,"result":{}}\n'
TOO_SLOW = (
    "botocore",
    "urllib3",
    "yaml",
    "http.client",
    "ssl",
    "socket",
    "logging",
    "dataclasses",
    "inspect",
    "typing",
)


@pytest.fixture
def environ(mcp_home: Path) -> dict[str, str]:
    """All that a host passes on."""
    return six_variables(mcp_home)


@pytest.mark.parametrize(
    "program",
    [PROGRAM, (sys.executable, "-m", "vmnest", "mcp"), (sys.executable, "-m", "vmnest", "--local", "mcp", "-q")],
    ids=lambda program: " ".join(program[1:]),
)
def test_it_is_started_with_six_variables_in_the_root_directory(program: tuple[str, ...], mcp_home: Path) -> None:
    """Vector 20."""
    with open_server(six_variables(mcp_home), program=program, stderr=subprocess.PIPE) as server:
        server.shake_hands()
        assert server.result("tools/list")["tools"]
        assert server.data("sandbox_list") == {"sandboxes": [], "count": 0}
        assert server.end() == 0
        assert server.process.stderr.read() == b""  # type: ignore[union-attr]


def test_it_greets_before_anything_slow_is_loaded(environ: dict[str, str]) -> None:
    program = (sys.executable, "-X", "importtime", "-m", "vmnest.mcp")
    with open_server(environ, program=program, stderr=subprocess.PIPE) as server:
        server.shake_hands()
        server.result("server/discover")
        server.result("resources/list")
        assert server.end() == 0
        lines = server.process.stderr.read().decode().splitlines()  # type: ignore[union-attr]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert "vmnest.mcp.program" in loaded
    assert not loaded.intersection(TOO_SLOW)


def test_it_lists_its_tools_without_the_aws_library(environ: dict[str, str]) -> None:
    program = (sys.executable, "-X", "importtime", "-m", "vmnest.mcp")
    with open_server(environ, program=program, stderr=subprocess.PIPE) as server:
        server.result("tools/list")
        server.data("sandbox_list")
        assert server.end() == 0
        lines = server.process.stderr.read().decode().splitlines()  # type: ignore[union-attr]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert not loaded.intersection({"botocore", "yaml"})


NOISE = """
import os, sys

class Noise:
    def find_spec(self, name, path=None, target=None):
        if name == "vmnest.mcp.tools.table":
            print("printed", flush=True)
            sys.stdout.write("written\\n")
            sys.stdout.flush()
            os.write(1, b"raw\\n")
            os.system("echo child; cat")

sys.meta_path.insert(0, Noise())
"""


def test_what_others_print_is_on_standard_error_and_no_child_reads_requests(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """Vector 20: a library that prints while a tool is loaded, and a child of it."""
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    with open_server({**environ, "PYTHONPATH": str(tmp_path)}, stderr=subprocess.PIPE) as server:
        server.modern(1, "tools/list")
        server.modern(2, "server/discover")
        assert [server.next()["id"] for _ in range(2)] == [1, 2]
        assert server.end() == 0
        said = server.process.stderr.read()  # type: ignore[union-attr]
    assert said == b"printed\nwritten\nraw\nchild\n"


FAULT = """
import sys

class Fault:
    def find_spec(self, name, path=None, target=None):
        if name == "vmnest.mcp.tools.table":
            sys.meta_path.remove(self)
            raise RuntimeError("a fault")

sys.meta_path.insert(0, Fault())
"""


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", ""])
def test_standard_error_may_be_closed_or_full_when_a_fault_is_to_be_told(
    environ: dict[str, str], redirection: str, tmp_path: Path
) -> None:
    """Vector 20. The fault is answered, is told without what is inside it, and the next call is served."""
    (tmp_path / "sitecustomize.py").write_text(FAULT)
    program = ("sh", "-c", f'exec "$@" {redirection}', "_", *PROGRAM)
    with open_server({**environ, "PYTHONPATH": str(tmp_path)}, program=program, stderr=subprocess.PIPE) as server:
        error = server.ask("tools/call", name="sandbox_list")["error"]
        assert error["code"] == -32603
        assert "a fault" not in error["message"]
        assert server.data("sandbox_list")["count"] == 0
        assert server.end() == 0
        said = server.process.stderr.read()  # type: ignore[union-attr]
    assert said.endswith(b"RuntimeError: a fault\n") if not redirection else said == b""


def test_standard_error_may_be_a_pipe_that_nobody_reads(environ: dict[str, str]) -> None:
    """Vector 20."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    with open_server(environ, stderr=writer) as server:
        server.shake_hands()
        server.send(b"{nope\n")
        assert server.next()["error"]["code"] == -32700
        assert server.data("sandbox_list")["count"] == 0
        assert server.call("sandbox_exec", name="nobody", command="true")["error"]["code"] == "sandbox_not_found"
        assert server.end() == 0
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_without_standard_input_or_output_it_ends(environ: dict[str, str], closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "_", *PROGRAM]
    done = subprocess.run(
        command, env=environ, cwd="/", input=PING, capture_output=True, timeout=WAIT_SECONDS, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_its_input_may_be_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "requests").write_bytes(PING * 3)
    with open(tmp_path / "requests", "rb") as requests:
        done = subprocess.run(
            PROGRAM, env=environ, cwd="/", stdin=requests, capture_output=True, timeout=WAIT_SECONDS, check=True
        )
    assert (done.stdout, done.stderr) == (PONG * 3, b"")


def test_its_output_may_end_before_its_input(environ: dict[str, str]) -> None:
    """As ``| head -1``: without a traceback, and it ends with its input all the same."""
    line = f'"$@" | head -c {len(PONG)}'
    done = subprocess.run(
        ["sh", "-c", line, "_", *PROGRAM],
        env=environ,
        cwd="/",
        input=PING * 10_000,
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert (done.stdout, done.stderr) == (PONG, b"")


def test_two_copies_work_at_once_on_one_registry(environ: dict[str, str]) -> None:
    """Vector 20: some hosts start several, and stop them at will."""
    with open_server(environ) as one, open_server(environ) as other:
        for server in (one, other):
            server.modern(1, "tools/call", name="sandbox_list")
        assert one.next()["result"] == other.next()["result"]
        assert one.end() == 0
        assert other.data("sandbox_list")["count"] == 0
        assert other.end() == 0


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]], ids=str)
def test_a_signal_ends_it_at_once_and_without_a_word(environ: dict[str, str], numbers: list[signal.Signals]) -> None:
    """Vector 19."""
    with open_server(environ, stderr=subprocess.PIPE) as server:
        server.result("tools/list")
        began = time.monotonic()
        for number in numbers:
            server.process.send_signal(number)
        assert server.process.wait(WAIT_SECONDS) == 0
        assert time.monotonic() - began < SOON_SECONDS
        assert server.process.stderr.read() == b""  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_ends_it_while_it_starts(environ: dict[str, str], number: signal.Signals) -> None:
    """Whenever it comes, once Python itself is up: some clients start a copy for a probe, and end it at once."""
    for delay in range(0, 30, 3):
        reader, writer = os.pipe()
        program = f"import os; os.write({writer}, b'.'); import runpy; runpy.run_module('vmnest', alter_sys=True)"
        command = [sys.executable, "-c", f"import sys; sys.argv = ['vmnest', 'mcp']; {START}{program}"]
        with subprocess.Popen(
            command,
            env=environ,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[writer],
        ) as process:
            os.close(writer)
            assert os.read(reader, 1) == b"."
            os.close(reader)
            time.sleep(delay / 1000)
            process.send_signal(number)
            assert process.wait(WAIT_SECONDS) in (0, -number)
            assert process.stdout.read() == b""  # type: ignore[union-attr]
            assert process.stderr.read() == b""  # type: ignore[union-attr]


# What ``python -m vmnest mcp`` cannot do before its first line: be quiet about a Ctrl+C.
START = "import _signal; _signal.signal(2, _signal.SIG_DFL); "


def test_a_client_that_reads_nothing_can_still_end_it(environ: dict[str, str]) -> None:
    """Vector 19: with more answers on the way than a pipe holds."""
    with subprocess.Popen(
        PROGRAM, env=environ, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.set_blocking(process.stdin.fileno(), False)  # type: ignore[union-attr]
        sent, still = 0, time.monotonic()
        while time.monotonic() - still < 0.3:
            try:
                sent += os.write(process.stdin.fileno(), PING * 100)  # type: ignore[union-attr]
                still = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert sent > 100_000
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stderr.read() == b""  # type: ignore[union-attr]


def test_a_slow_client_gets_every_answer(environ: dict[str, str]) -> None:
    with open_server(environ) as server:
        count = 2000
        for number in range(count):
            server.request(number, "ping")
        assert [server.next()["id"] for _ in range(count)] == list(range(count))


def test_a_terminal_is_told_what_this_is(environ: dict[str, str]) -> None:
    mine, its = os.openpty()
    with subprocess.Popen(
        PROGRAM, env=environ, cwd="/", stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(its)
        assert b"mcp config" in process.stderr.readline()  # type: ignore[union-attr]
        os.write(mine, PING)
        assert read_line(process.stdout.readline()) == json.loads('{"id":0,"result":{}}')  # type: ignore[union-attr]
        os.write(mine, b"\x04")
        assert process.wait(WAIT_SECONDS) == 0
    os.close(mine)


@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["--region", "eu-west-1"], 2), (["mcp", "x"], 2)])
def test_arguments_that_it_would_not_heed_are_refused(words: list[str], status: int, environ: dict[str, str]) -> None:
    done = subprocess.run(
        [*PROGRAM, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    told, nothing = (done.stderr, done.stdout) if status else (done.stdout, done.stderr)
    assert "vmnest mcp --help" in told
    assert nothing == ""
