"""What the parts of an agent share: what is in flight, what was started, what is about to come, ending what runs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from guest.agentd import state, wire


@contextmanager
def start_group(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that leads its own group; its first line of output says that it is set up."""
    with subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield child
        finally:
            child.kill()


def test_an_idle_agent_is_idle_at_once() -> None:
    assert state.Activity().wait_idle(0)


def test_waiting_ends_when_the_last_command_does() -> None:
    activity = state.Activity()
    activity.__enter__()
    activity.__enter__()
    assert not activity.wait_idle(0.01)
    done = threading.Event()

    def wait() -> None:
        assert activity.wait_idle(30)
        done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    activity.__exit__(None, None, None)
    assert not done.wait(0.02)
    activity.__exit__(None, None, None)
    assert done.wait(10)
    waiter.join()


class Monotonic:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_suspension_is_near_from_the_call_of_the_hook_to_the_resume() -> None:
    clock = Monotonic()
    suspension = state.Suspension(clock)
    assert not suspension.is_near
    suspension.begin()
    clock.now += 3600  # however long the drain takes
    assert suspension.is_near
    suspension.answered()
    clock.now += wire.SUSPEND_NOTICE_SECONDS - 0.1
    assert suspension.is_near
    suspension.end()
    assert not suspension.is_near


def test_a_notice_that_no_suspension_follows_runs_out() -> None:
    clock = Monotonic()
    suspension = state.Suspension(clock)
    suspension.begin()
    suspension.answered()
    clock.now += wire.SUSPEND_NOTICE_SECONDS
    assert not suspension.is_near


def test_an_id_is_claimed_once_until_it_is_forgotten() -> None:
    started = state.Started()
    assert [started.claim("a"), started.claim("a"), started.claim("b")] == [True, False, True]
    started.forget("a")
    started.forget("never seen")
    assert started.claim("a")


def test_only_the_latest_ids_are_remembered() -> None:
    started = state.Started(limit=2)
    for exec_id in ("a", "b", "c"):
        assert started.claim(exec_id)
    assert [started.claim("b"), started.claim("c"), started.claim("a")] == [False, False, True]


def test_one_of_many_who_claim_an_id_at_once_gets_it() -> None:
    started = state.Started()
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(started.claim, ["a"] * 100)) == 1


def test_all_groups_get_a_term_and_those_that_ignore_it_a_kill() -> None:
    groups = state.Groups()
    with start_group("echo; exec sleep 100") as meek, start_group("trap '' TERM; echo; sleep 100") as stubborn:
        groups.add(meek.pid)
        groups.add(stubborn.pid)
        groups.end_all(grace=0.05)
        assert meek.wait(10) == -signal.SIGTERM
        assert stubborn.wait(10) == -signal.SIGKILL


def test_the_end_does_not_wait_for_the_grace_once_nothing_runs() -> None:
    groups = state.Groups()
    with start_group("echo; exec sleep 100") as child:
        groups.add(child.pid)

        def reap() -> None:
            child.wait()
            groups.discard(child.pid)

        reaper = threading.Thread(target=reap)
        reaper.start()
        begin = time.monotonic()
        groups.end_all(grace=30)
        assert time.monotonic() - begin < 20
        reaper.join()


def test_a_command_that_starts_while_the_agent_ends_is_killed() -> None:
    groups = state.Groups()
    groups.end_all(grace=0)
    with start_group("echo; exec sleep 100") as child:
        groups.add(child.pid)
        assert child.wait(10) == -signal.SIGKILL


def test_a_stopped_group_acts_on_term() -> None:
    with start_group("echo; exec sleep 100") as child:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        state.send_signal(child.pid, signal.SIGTERM)
        assert child.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_group_that_is_gone_is_no_error(number: int) -> None:
    with start_group("echo") as child:
        child.communicate()
    state.send_signal(child.pid, number)
