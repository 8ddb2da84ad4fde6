"""Sandboxes of this user (root, mostly) and of a plain one are held to their size and frozen, by what each may use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.cells import Host, make_host

MAIN = ("{python}", "-I", "-S", "-c")


@pytest.fixture(scope="module", params=["this user", "plain user"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """A user on whose behalf a driver runs."""
    with contextlib.closing(make_host(request.param)) as hosts:
        yield next(hosts)


def test_a_sandbox_that_uses_up_its_memory_is_ended(host: Host) -> None:
    outcome = host.run(*MAIN, "import time; kept = [b'x' * 2**20 for _ in range(700)]; time.sleep(1000)")
    assert outcome["ended"] == [None, 9, "memory"]
    assert outcome["facts"]["enforced"] in {"cgroup", "watch"}
    assert outcome["left"] == ["console.log", "ended.json", "supervisor.log"]


def test_a_frozen_sandbox_does_nothing_until_it_is_thawed(host: Host) -> None:
    program = "import time\nfor number in range(150): print(number, flush=True); time.sleep(0.01)"
    outcome = host.run(*MAIN, program, freeze=True)
    assert outcome["grown"] == 0
    assert outcome["ended"] == [0, None, "exited"]
    assert outcome["console"].split() == [str(number) for number in range(150)]
