"""The server as a process: how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

WAIT_SECONDS = 30.0
PROGRAM = """
import sys
from vmnest.mcp import stdio
wire = stdio.Wire(stdio.take_standard_output())
from vmnest.mcp import program
from vmnest.mcp.server import Server
from tests.support.mcp_server import IDENTITY, Gate, Offer

gate = Gate()
def wait(arguments, call):
    call.on_cancel(lambda: print("ended", file=sys.stderr, flush=True))
    print("began", file=sys.stderr, flush=True)
    return gate(arguments, call)

program.serve(Server(Offer(wait=wait), identity=IDENTITY, instructions="", write=wire.write))
"""
HELLO = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
WAIT = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}\n'


# The kernel gives a signal to any thread, and the first one does not wake up then.
OTHER_THREAD = """
import signal, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
"""
NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"


@contextlib.contextmanager
def server(program: str = PROGRAM) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            process.stdin.write(HELLO)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == 0
            yield process
        finally:
            process.kill()


def begin_call(process: subprocess.Popen[bytes]) -> None:
    process.stdin.write(WAIT)
    process.stdin.flush()
    assert process.stderr.readline() == b"began\n"


@pytest.mark.parametrize("is_busy", [False, True])
def test_it_ends_with_standard_input(is_busy):
    with server() as process:
        if is_busy:
            begin_call(process)
        process.stdin.close()
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stderr.read() == (b"ended\n" if is_busy else b"")
        assert process.stdout.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_busy", [False, True])
def test_it_ends_at_a_signal_without_a_word(number, is_busy):
    with server() as process:
        if is_busy:
            begin_call(process)
        process.send_signal(number)
        process.send_signal(signal.SIGTERM)  # some hosts send a second one
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stderr.read() == (b"ended\n" if is_busy else b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_a_signal_that_another_thread_gets(number):
    with server(OTHER_THREAD + PROGRAM) as process:
        while state_of(process.pid) != b"S":  # it does not wait for the next message yet
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stderr.read() == b""


def test_one_that_was_started_to_outlive_its_terminal_does():
    with server(NOHUP + PROGRAM) as process:
        process.send_signal(signal.SIGHUP)
        process.stdin.write(HELLO)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 0
        process.stdin.close()
        assert process.wait(WAIT_SECONDS) == 0


def test_it_ends_when_whoever_started_it_is_gone_though_its_input_stays_open():
    read, write = os.pipe()
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stderr=2)\n"
            "print(child.pid, file=sys.stderr, flush=True); time.sleep(600)",
            PROGRAM,
        ],
        cwd=ROOT,
        stdin=read,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with parent:
        pid = int(parent.stderr.readline())
        os.write(write, HELLO)
        assert json.loads(parent.stdout.readline())["id"] == 0
        parent.kill()
        parent.wait()
        end = time.monotonic() + WAIT_SECONDS
        while is_running(pid):
            assert time.monotonic() < end
            time.sleep(0.01)
    os.close(read)
    os.close(write)


def state_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"


def is_running(pid: int) -> bool:
    return state_of(pid) not in (b"Z", b"X")


def test_what_is_sent_before_the_end_of_a_file_is_answered():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        input=HELLO + b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"no end',
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    assert done.stderr == b""
