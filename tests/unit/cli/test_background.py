"""Commands that go on in the background, each begun by a process of its own."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.lifecycle import eventually
from tests.support.paths import ROOT

PROGRAM = """
import json, os, sys, time
from vmnest import errors
from vmnest.cli import background, signals
{work}
signals.raise_once()
try:
    print(json.dumps(background.start(work, log_name="demo")))
except errors.VmnestError as error:
    print(json.dumps({{"error": error.message}}))
"""


def begin(folder: Path, work: str) -> Any:
    """What a program says that leaves this in the background; it has ended by then."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "AGENT_SANDBOX_STATE": str(folder / "state.json")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work)],
        env=environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=30, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_it_goes_on_without_a_terminal_until_it_is_ended(tmp_path: Path) -> None:
    told = begin(tmp_path, "def work(started):\n started({'x': 1})\n background.log('a remark')\n time.sleep(60)\n")
    assert told["x"] == 1
    pid, log = told["pid"], Path(told["log"])
    try:
        eventually(lambda: log.read_text() == "a remark\n")
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert os.getsid(pid) == pid
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    finally:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not is_alive(pid))
    assert log.exists()  # it holds something


def test_nothing_that_was_inherited_stays_open(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    work = f"os.set_inheritable(os.open({str(tmp_path / 'lock')!r}, os.O_RDONLY), True)\n"
    work += "def work(started):\n started({'open': os.listdir('/proc/self/fd')})\n"
    told = begin(tmp_path, work)
    assert len(told["open"]) <= 6  # the three, the log, the pipe, and the listing itself


def test_an_empty_log_is_taken_away_at_the_end(tmp_path: Path) -> None:
    told = begin(tmp_path, "def work(started):\n started({})\n")
    eventually(lambda: not is_alive(told["pid"]))
    assert not Path(told["log"]).exists()


def test_a_failure_of_its_beginning_is_raised_where_it_was_begun(tmp_path: Path) -> None:
    told = begin(tmp_path, "def work(started):\n raise errors.ListenError('the port is taken')\n")
    assert told == {"error": "the port is taken"}
    assert list(tmp_path.iterdir()) == []


def test_a_later_failure_is_in_the_log(tmp_path: Path) -> None:
    told = begin(tmp_path, "def work(started):\n started({})\n raise errors.VmnestError('the sandbox is gone')\n")
    eventually(lambda: not is_alive(told["pid"]))
    assert Path(told["log"]).read_text() == "ended: the sandbox is gone\n"


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = begin(tmp_path / "file", "def work(started):\n started({})\n")
    assert told["error"].startswith("cannot write the log")


def test_a_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    work = "def work(started):\n started({})\n for _ in range(1000): background.log('x' * 1000)\n"
    told = begin(tmp_path, work)
    eventually(lambda: not is_alive(told["pid"]))
    assert 256 * 1024 <= Path(told["log"]).stat().st_size < 300 * 1024


@pytest.mark.parametrize("work", ["def work(started):\n 1 / 0\n", "def work(started):\n os._exit(3)\n"])
def test_an_end_without_a_word_is_an_error(tmp_path: Path, work: str) -> None:
    assert begin(tmp_path, work) == {"error": "the process in the background ended without a word"}
