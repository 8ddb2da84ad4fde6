"""The registry: what arrives twice runs once, and what has ended is kept within bounds."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from guest.agentd import processes, programs, running, wire
from guest.agentd.errors import RequestError
from tests.support.processes import Yard, read_stdout, wait_end, wait_until


def settle(yard: Yard) -> None:
    """The loop has done what was asked of it before."""
    done = threading.Event()
    yard.loop.post(done.set)
    assert done.wait(20)


def test_an_id_that_is_known_leads_to_its_process(yard: Yard) -> None:
    first = yard.shell("echo once", process_id="x")
    wait_end(first)

    def build() -> processes.Order:
        raise AssertionError("it is not asked what to start")

    assert yard.known.start("x", build) == (first, False)
    assert yard.known.find("x") is first


def test_many_that_start_the_same_id_at_once_start_it_once(yard: Yard, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def start(_: int) -> running.Process:
        return yard.shell(f"echo x >> {log}", process_id="x")

    with ThreadPoolExecutor(20) as pool:
        found = set(pool.map(start, range(20)))
    assert len(found) == 1
    wait_end(found.pop())
    assert log.read_text() == "x\n"


def test_one_that_could_not_be_started_may_be_tried_again(yard: Yard) -> None:
    with pytest.raises(RequestError) as caught:
        yard.start("no-such-program", process_id="x")
    assert caught.value.code == wire.COMMAND_NOT_FOUND
    assert wait_end(yard.shell("exit 5", process_id="x"))["exit_code"] == 5


def test_those_who_wait_for_a_start_that_fails_try_themselves(yard: Yard) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def fail_late() -> processes.Order:
        entered.set()
        assert go_on.wait(20)
        raise RequestError(400, wire.BAD_ARGUMENT, "bad")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(yard.known.start, "x", fail_late)
        assert entered.wait(20)
        second = pool.submit(yard.shell, "exit 6", process_id="x")
        go_on.set()
        with pytest.raises(RequestError, match="bad"):
            first.result(20)
        assert wait_end(second.result(20))["exit_code"] == 6


def test_who_asks_for_one_that_is_about_to_start_waits_for_it(yard: Yard) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def build_late() -> processes.Order:
        entered.set()
        assert go_on.wait(20)
        command = programs.Command([b"true"], cwd=b"/", environment={b"PATH": b"/bin:/usr/bin"})
        return processes.Order(command, output_limit=0, retain=wire.RETAIN_DROP)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(yard.known.start, "x", build_late)
        assert entered.wait(20)
        second = pool.submit(yard.known.find, "x")
        assert not wait([second], timeout=0.05).done
        go_on.set()
        assert second.result(20) is first.result(20)[0]


def test_while_a_suspension_is_near_nothing_starts_but_what_runs_is_found(yard: Yard) -> None:
    one = yard.start("sleep", "77", process_id="x")
    yard.state.suspension.begin()
    assert yard.start("sleep", "77", process_id="x") is one
    with pytest.raises(RequestError) as caught:
        yard.start("true", process_id="y")
    assert (caught.value.status, caught.value.code) == (503, wire.SUSPENDING)
    yard.state.suspension.end()
    wait_end(yard.start("true", process_id="y"))


def test_processes_are_never_drained_before_a_suspension(yard: Yard) -> None:
    yard.start("sleep", "77")
    assert yard.state.activity.wait_idle(0)


def test_they_are_listed_oldest_first(yard: Yard) -> None:
    started = [yard.start("sleep", "77"), yard.start("true"), yard.start("sleep", "77")]
    wait_end(started[1])
    settle(yard)
    assert yard.known.list() == started
    assert [each.has_ended for each in started] == [False, True, False]


def test_what_is_forgotten_is_unknown_and_its_id_stays_used(yard: Yard) -> None:
    one = yard.start("sleep", "77", process_id="x")
    yard.known.forget("x").kill()
    assert wait_end(one)["signal"] == "SIGKILL"
    settle(yard)
    for ask in (yard.known.find, yard.known.forget):
        with pytest.raises(RequestError) as caught:
            ask("x")
        assert (caught.value.status, caught.value.code) == (404, wire.NO_SUCH_PROCESS)
    with pytest.raises(RequestError) as caught:
        yard.start("true", process_id="x")
    assert (caught.value.status, caught.value.code) == (409, wire.ALREADY_STARTED)
    assert yard.known.list() == []


def test_the_output_of_what_is_forgotten_is_given_back(yard: Yard) -> None:
    ended = yard.shell("head -c 1000000 /dev/zero", process_id="ended")
    wait_end(ended)
    going = yard.shell("head -c 1000000 /dev/zero; sleep 77", process_id="going")
    wait_until(lambda: going.output.size == 1_000_000)
    for one in ("ended", "going"):
        yard.known.forget(one).kill()
    wait_end(going)
    wait_until(lambda: len(yard.store.slots) == 0)


def test_only_the_latest_that_ended_are_kept(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_ENDED_PROCESSES", 5)
    running_one = yard.start("sleep", "77")
    started = [yard.shell("echo x") for _ in range(12)]
    for one in started:
        one.is_told = True
        wait_end(one)
    wait_end(yard.shell("true"))
    settle(yard)
    kept = yard.known.list()
    assert kept[0] is running_one
    assert len(kept) == 1 + 5


def test_one_that_is_read_or_whose_end_nobody_heard_is_kept_for_a_while(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_ENDED_PROCESSES", 2)
    read, unheard, old = yard.shell("true"), yard.shell("true"), yard.shell("true")
    read.attach(0)
    read.is_told = True
    for one in (read, unheard, old):
        wait_end(one)
    settle(yard)
    old.ended_clock -= 61
    for _ in range(4):
        last = yard.shell("true")
        last.is_told = True
        wait_end(last)
        settle(yard)
    kept = yard.known.list()
    assert read in kept
    assert unheard in kept
    assert old not in kept
    read.detach()


def test_unheard_ends_do_not_pile_up_for_ever(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_ENDED_PROCESSES", 2)
    monkeypatch.setattr(processes, "_MAX_UNHEARD", 10)
    for _ in range(30):
        wait_end(yard.shell("true"))
        settle(yard)
    assert len(yard.known.list()) <= 11


def test_the_output_of_all_that_ended_fits_a_budget(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ENDED_OUTPUT_BYTES", 1 << 20)
    started = []
    for _ in range(5):
        one = yard.shell("head -c 400000 /dev/zero")
        wait_end(one)
        settle(yard)
        started.append(one)
    assert [one.document()["oldest"] for one in started] == [400_000, 400_000, 400_000, 0, 0]
    assert len(read_stdout(started[-1])) == 400_000


def test_output_that_is_being_read_is_not_taken_away(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ENDED_OUTPUT_BYTES", 1 << 20)
    first = yard.shell("head -c 900000 /dev/zero")
    first.attach(0)
    wait_end(first)
    second = yard.shell("head -c 900000 /dev/zero")
    wait_end(second)
    settle(yard)
    assert first.document()["oldest"] == 0
    first.detach()
