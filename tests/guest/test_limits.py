"""Resource limits: those of requests, and the agent's own limit of open files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import limits
from guest.agentd.errors import RequestError
from tests.support.paths import ROOT


def refusal(value: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        limits.parse(value)
    assert (caught.value.status, caught.value.code) == (400, "bad_argument")
    return caught.value


def test_one_number_is_both_limits_and_two_are_soft_and_hard() -> None:
    assert limits.parse({"nofile": 100, "core": 0, "as": [5, 7], "cpu": [5, -1], "stack": -1}) == {
        "nofile": (100, 100),
        "core": (0, 0),
        "as": (5, 7),
        "cpu": (5, -1),
        "stack": (-1, -1),
    }


@pytest.mark.parametrize("value", [None, {}])
def test_no_limits_are_none(value: object) -> None:
    assert limits.parse(value) == {}


@pytest.mark.parametrize(
    "value",
    [[], "nofile=1", 3, {"nofiles": 1}, {"NOFILE": 1}, {"ofile": 1}, {"": 1}, {"nofile": None}, {"nofile": True},
     {"nofile": "1"}, {"nofile": 1.5}, {"nofile": -2}, {"nofile": 2**63}, {"nofile": []}, {"nofile": [1]},
     {"nofile": [1, 2, 3]}, {"nofile": [2, 1]}, {"nofile": [-1, 1]}, {"nofile": [1, None]}, {"nofile": {"soft": 1}}],
    ids=str,
)  # fmt: skip
def test_what_is_no_limit_is_refused(value: object) -> None:
    assert "rlimits" in refusal(value).detail


def test_a_name_that_is_none_is_told_the_names_that_are() -> None:
    assert all(name in refusal({"files": 1}).detail for name in ("nofile", "nproc", "as", "core"))


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@given(st.dictionaries(st.sampled_from(sorted(limits.NUMBERS)) | st.text(), JSON))
def test_any_document_gives_limits_that_the_system_takes_or_a_refusal(value: dict[str, object]) -> None:
    try:
        found = limits.parse(value)
    except RequestError:
        return
    for name, (soft, hard) in found.items():
        assert -1 <= soft <= limits._MAX
        assert hard == -1 or (soft != -1 and soft <= hard)
        assert name in value


PROGRAM = """
import os, resource, subprocess, sys
from guest.agentd import limits

files = limits.OwnFiles()
print(files.limits)
files.raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE), files.limits)
with files.lowered():
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
opened = [os.dup(0) for _ in range(500)]
with files.lowered():
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
for number in opened:
    os.close(number)
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
files.lower(child.pid)
print(resource.prlimit(child.pid, resource.RLIMIT_NOFILE))
child.communicate()
files.lower(child.pid)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def run_limited(soft: int, hard: int) -> list[str]:
    """What the program says that was started with these limits."""
    command = ["prlimit", f"--nofile={soft}:{hard}", sys.executable, "-c", PROGRAM]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True, timeout=30)
    return done.stdout.splitlines()


def test_the_agents_limit_is_raised_and_lowered_for_commands() -> None:
    assert run_limited(400, 2000) == [
        "{}",
        "(2000, 2000) {'nofile': (400, 2000)}",
        "(400, 2000)",
        "(2000, 2000)",
        "(400, 2000)",
        "(2000, 2000)",
    ]


def test_a_limit_that_is_as_high_as_it_may_be_is_left_alone() -> None:
    assert run_limited(2000, 2000) == [
        "{}",
        "(2000, 2000) {}",
        "(2000, 2000)",
        "(2000, 2000)",
        "(2000, 2000)",
        "(2000, 2000)",
    ]


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> Iterator[limits.OwnFiles]:
    """This process's own limit, raised by a little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(soft, 4096) - 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    monkeypatch.setattr(limits, "_OWN_FILES", low + 50)
    try:
        files = limits.OwnFiles()
        files.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low + 50, hard)
        yield files
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_stays_low_until_the_last_spawn_is_over(raised: limits.OwnFiles) -> None:
    inside, leave = threading.Event(), threading.Event()

    def spawn() -> None:
        with raised.lowered():
            inside.set()
            leave.wait(20)

    other = threading.Thread(target=spawn)
    with raised.lowered():
        other.start()
        assert inside.wait(20)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == raised.original
    leave.set()
    other.join()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised.original[0] + 50


def test_a_slow_spawn_does_not_keep_files_from_others(raised: limits.OwnFiles) -> None:
    low = raised.original[0]
    opened = [os.open(os.devnull, os.O_RDONLY)]
    with raised.lowered():  # a slow one, which has begun while few files were open
        try:
            while opened[-1] < low // 2:
                opened.append(os.dup(opened[0]))
            with raised.lowered():
                while opened[-1] < low + 10:
                    opened.append(os.dup(opened[0]))
        finally:
            for number in opened:
                os.close(number)


def test_a_spawn_that_fails_leaves_the_limit_raised(raised: limits.OwnFiles) -> None:
    with pytest.raises(FileNotFoundError), raised.lowered():
        os.stat("/no/such/file")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised.original[0] + 50


def test_a_child_that_has_a_limit_of_its_own_keeps_it(raised: limits.OwnFiles) -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    own = (100, 200)
    resource.prlimit(child.pid, resource.RLIMIT_NOFILE, own)
    raised.lower(child.pid)
    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == own
    child.communicate()
