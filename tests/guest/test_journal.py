"""The agent's own messages."""

from __future__ import annotations

import fcntl
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import journal
from tests.support.agent import GUEST, Agent
from tests.support.clock import FakeClock
from vmnest._guest.agentd import __version__

NOW = 1_796_038_745.123


def test_a_message_is_one_dated_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    journal.report("two\nlines")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z agentd: two\\nlines\n", capsys.readouterr().err)
    assert journal.render_line("x", now=NOW) == "2026-11-30T11:39:05.123Z agentd: x\n"


@given(st.text(max_size=3000), st.floats(0, 4e9))
def test_whatever_a_message_holds_its_line_is_short_and_plain(message: str, now: float) -> None:
    line = journal.render_line(message, now=now)
    assert len(line.encode("ascii")) <= journal.MAX_LINE_BYTES
    assert re.fullmatch(r"[\x20-\x7e]+\n", line)


def describe(error: BaseException, capsys: pytest.CaptureFixture[str]) -> str:
    """The line about that error, without its date."""
    try:
        raise error
    except BaseException:
        journal.report_exception("it failed")
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told.partition("agentd: ")[2]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("why"), "RuntimeError: why"),
        (OSError(28, "No space left on device", "/work/secret"), "OSError: No space left on device"),
        (OSError("the disk is gone"), "OSError: the disk is gone"),
        (ValueError("secret"), "ValueError"),
        (KeyError("secret"), "KeyError"),
        (subprocess.TimeoutExpired(["secret"], 1), "TimeoutExpired"),
    ],
    ids=["what went wrong", "of the system", "without a number", "a value", "a key", "a command line"],
)
def test_an_exception_is_told_with_its_place_and_without_what_it_quotes(
    error: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = describe(error, capsys)
    assert re.fullmatch(rf"it failed: {re.escape(words)} < test_journal\.py:\d+ describe\n", line)
    assert "secret" not in line


def test_a_closed_or_absent_standard_error_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        journal.report("nobody reads this")


class Told:
    """Events, and what they told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clock = FakeClock()
        self.events = journal.Events(write=self.lines.append, monotonic=self.clock.monotonic)

    def messages(self) -> list[str]:
        return [line.partition("agentd: ")[2].rstrip("\n") for line in self.lines]


def test_starts_and_ends_are_told() -> None:
    told = Told()
    told.events.tell_start("build-1", pid=7)
    how = journal.describe_end(3, None, timed_out=False)
    told.events.tell_end("build-1", pid=7, how=how, seconds=1.23456)
    how = journal.describe_end(143, "SIGTERM", timed_out=True)
    told.events.tell_end("", pid=8, how=how, seconds=2)
    assert told.messages() == [
        "process build-1 started: pid 7",
        "process build-1 ended: pid 7, exit status 3 after 1.235 s",
        "process - ended: pid 8, SIGTERM, timed out, after 2.000 s",
    ]


def test_of_a_flood_of_processes_so_many_are_told_and_the_rest_is_counted() -> None:
    told = Told()
    for _ in range(journal.MAX_FREQUENT + 5):
        told.events.tell_start("p", pid=7)
    assert len(told.lines) == journal.MAX_FREQUENT
    told.events.tell("hook suspend: 200 after 0.001 s")
    told.events.tell_start("q", pid=8)
    assert told.messages()[journal.MAX_FREQUENT :] == [
        "5 events of processes were left out",
        "hook suspend: 200 after 0.001 s",
    ]
    told.clock.advance(journal.WINDOW_SECONDS)
    told.events.tell_start("r", pid=9)
    assert told.messages()[-2:] == ["1 events of processes were left out", "process r started: pid 9"]


def test_where_events_are_not_wanted_none_is_told() -> None:
    lines: list[str] = []
    events = journal.Events(is_wanted=False, write=lines.append)
    events.tell("hook run: 200 after 0.001 s")
    events.tell_start("p", pid=7)
    assert lines == []


def test_an_event_does_not_wait_for_a_log_that_nobody_reads() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    program = "from agentd import journal; e = journal.Events(); [e.tell('x' * 900) for _ in range(50)]"
    with open(reader, "rb") as log:
        try:
            done = subprocess.run(
                [sys.executable, "-c", program], cwd=GUEST, stderr=writer, timeout=30, check=False
            )  # it would hang here
        finally:
            os.close(writer)
        assert done.returncode == 0
        lines = log.readlines()
    assert 1 <= len(lines) < 50
    assert all(line.endswith(b"x\n") for line in lines)


def test_an_agent_tells_its_life_and_nothing_of_what_it_was_given(
    start_agent: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start_agent(environ={"AGENTD_LOG": "events", "TOKEN": "secret-1"})
    agent.hook("run", b'{"microvmId": "microvm-1", "runHookPayload": "secret-2"}')
    agent.hook("run", b"\xff secret-3")
    assert agent.shell("echo secret-4; exit 3", env={"A": "secret-5"}).exit_code == 3
    agent.post("/v1/fs/write", {"path": "secret-6", "content": "c2VjcmV0LTc="})
    agent.post("/v1/fs/read", {"path": "secret-8"})
    agent.post("/v1/processes?wait=20", {"id": "job-1", "command": "sh", "args": ["-c", "kill -9 $$ # secret-9"]})
    agent.hook("terminate")
    agent.process.terminate()
    assert agent.process.wait(10) == 0
    lines = agent.log().splitlines()
    messages = [re.sub(r"\d+\.\d{3} s|pid \d+", "#", line.partition("Z agentd: ")[2]) for line in lines]
    assert messages == [
        f"{__version__} listens on 127.0.0.1, port {agent.port}, hooks {agent.hook_port}",
        "hook run: 200 after #",
        "the run hook was called again; nothing was changed",
        "hook run: 200 after #",
        "process - started: #",
        "process - ended: #, exit status 3 after #",
        "process job-1 started: #",
        "process job-1 ended: #, SIGKILL after #",
        "hook terminate: 200 after #",
        "ending: SIGTERM",
    ]
    assert "secret" not in agent.log()
