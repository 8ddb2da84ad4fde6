"""An agent that many tests share, and that each must leave as it was: serving, with nothing kept or left behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.agent import Agent
from tests.support.process_client import run

SECONDS = 30.0


def wait_for(condition: Callable[[], bool], text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def count_files(agent: Agent) -> int:
    return len(os.listdir(f"/proc/{agent.process.pid}/fd"))


def resident_bytes(agent: Agent) -> int:
    pages = Path(f"/proc/{agent.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def children(agent: Agent) -> list[str]:
    """The states of the agent's children: Z for one that nobody reaped."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
                if fields[1] == str(agent.process.pid):
                    found.append(fields[0])
    return found


def check_health(agent: Agent) -> float:
    """How long /healthz takes."""
    begin = time.perf_counter()
    assert agent.request("GET", "/healthz").status == 200
    return time.perf_counter() - begin


@pytest.fixture(scope="module")
def warm_agent(shared_agent: Agent) -> Agent:
    """The shared agent, after all that is opened once and kept has been opened."""
    assert run(shared_agent, "sh", "-c", "sleep 2 & seq 100000").exit_code == 0
    assert shared_agent.shell("sleep 2 & seq 300000").exit_code == 0
    return shared_agent


@pytest.fixture
def sound_agent(warm_agent: Agent) -> Iterator[Agent]:
    """An agent that, after the test, serves, has given back what it used, and has nothing to complain of."""
    wait_for(lambda: children(warm_agent) == [], "children from before")
    files = count_files(warm_agent)
    yield warm_agent
    check_health(warm_agent)
    wait_for(lambda: children(warm_agent) == [], "children stay")
    wait_for(lambda: count_files(warm_agent) <= files, "files stay open")
    assert ".py" not in warm_agent.log()
