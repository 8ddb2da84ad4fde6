"""Signals: what ends us, and Ctrl+C that is for a command in a sandbox. They are real ones, sent to ourselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.paths import ROOT
from vmnest import errors
from vmnest.cli import failure, signals

WAIT_SECONDS = 10.0


class Command:
    """A command that does with signals what the test says, and tells which came."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.sent: list[object] = []
        self.came = threading.Condition()
        self._refuses = refuses

    def signal(self, sig: str | int) -> bool:
        return self._take(sig)

    def kill(self) -> bool:
        return self._take("KILL")

    def _take(self, sig: str | int) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        with self.came:
            self.sent.append(sig)
            self.came.notify_all()
        if self._refuses:
            raise errors.ConnectionLostError("nobody hears")
        return True

    def await_signals(self, count: int) -> list[object]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.sent) >= count, WAIT_SECONDS)
            return list(self.sent)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Whatever a test does, pytest gets its handlers back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def wait_for_ever() -> None:
    threading.Event().wait(WAIT_SECONDS)
    raise AssertionError("nothing ended the wait")


# -- what ends us ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_raised_and_later_ones_are_not_heard(number: signal.Signals) -> None:
    signals.raise_once()
    with pytest.raises(failure.Ended) as caught:
        os.kill(os.getpid(), number)
    assert caught.value.number == number
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), each)


def test_two_that_come_at_once_are_one_end() -> None:
    signals.raise_once()
    both = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    for number in both:
        signal.pthread_kill(threading.get_ident(), number)  # one for the process could go to a thread that blocks none
    with pytest.raises(failure.Ended):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)


def test_from_the_first_signal_on_it_is_known_that_we_end() -> None:
    signals.raise_once()
    assert not signals.is_ending()
    with pytest.raises(failure.Ended):
        os.kill(os.getpid(), signal.SIGHUP)
    assert signals.is_ending()


def test_what_the_caller_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals.raise_once()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_one_can_be_made_deaf_without_a_signal() -> None:
    signals.raise_once()()
    interrupt()


# -- Ctrl+C for a command ----------------------------------------------------------------------------------------------


def test_once_is_sigint_twice_is_sigkill() -> None:
    command = Command()
    with signals.Interrupts(command, remark=print) as interrupts:
        interrupt()
        assert command.await_signals(1) == ["INT"]
        assert not interrupts.was_killed
        interrupt()
        assert command.await_signals(2) == ["INT", "KILL"]
        assert interrupts.was_killed


def test_a_third_one_is_ours() -> None:
    def attend() -> None:
        command = Command()
        with signals.Interrupts(command, remark=print):
            interrupt()
            interrupt()
            command.await_signals(2)
            interrupt()

    signals.raise_once()
    with pytest.raises(failure.Ended):
        attend()


def test_a_command_that_takes_its_time_to_end_makes_us_say_how_to_kill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "PATIENCE_SECONDS", 0.01)
    said: list[str] = []
    heard = threading.Event()

    def remark(text: str) -> None:
        said.append(text)
        heard.set()

    command = Command()
    with signals.Interrupts(command, remark=remark) as interrupts:
        interrupt()
        assert heard.wait(WAIT_SECONDS)
        interrupt()
        assert command.await_signals(2) == ["INT", "KILL"]
    assert interrupts.was_killed
    assert said == ["the command was sent SIGINT; a second Ctrl+C kills it"]


def test_where_nobody_sits_nobody_is_told_how_to_kill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "PATIENCE_SECONDS", 0.0)
    said: list[str] = []
    command = Command()
    with signals.Interrupts(command, remark=said.append, advises=False):
        interrupt()
        command.await_signals(1)
        interrupt()
        assert command.await_signals(2) == ["INT", "KILL"]
    assert said == []


def test_a_kill_that_nothing_comes_of_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "KILL_SECONDS", 0.01)
    command = Command()

    def attend() -> None:
        with signals.Interrupts(command, remark=print):
            interrupt()
            interrupt()
            wait_for_ever()

    signals.raise_once()
    with pytest.raises(failure.Ended):
        attend()
    assert command.sent == ["INT", "KILL"]


def test_a_command_that_cannot_be_reached_is_said_and_ends_the_wait() -> None:
    said: list[str] = []

    def attend() -> None:
        with signals.Interrupts(Command(refuses=True), remark=said.append):
            interrupt()
            wait_for_ever()

    signals.raise_once()
    with pytest.raises(failure.Ended):
        attend()
    assert said == ["the command cannot be sent the signal: nobody hears"]


def test_a_suspended_sandbox_is_not_woken_to_be_interrupted() -> None:
    command = Command()

    def attend() -> None:
        with signals.Interrupts(command, remark=print) as interrupts:
            interrupts.is_paused = True
            interrupt()

    signals.raise_once()
    with pytest.raises(failure.Ended):
        attend()
    assert command.sent == []


def test_afterwards_a_signal_is_ours_again() -> None:
    command = Command()
    signals.raise_once()
    with signals.Interrupts(command, remark=print):
        interrupt()
        command.await_signals(1)
    with pytest.raises(failure.Ended):
        interrupt()


def test_who_has_become_deaf_within_stays_deaf() -> None:
    become_deaf = signals.raise_once()
    with signals.Interrupts(Command(), remark=print):
        become_deaf()
    interrupt()


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    command = Command()
    with signals.Interrupts(command, remark=print):
        interrupt()
    assert command.sent == []


def in_a_thread(action: Callable[[], None]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def test_another_thread_than_the_main_one_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)

    def attend() -> None:
        with signals.Interrupts(Command(), remark=print):
            assert signal.getsignal(signal.SIGINT) == before

    in_a_thread(attend)


READ_WITHOUT_END = """
import os, signal, threading
from vmnest import errors
from vmnest.cli import failure, signals

class Command:
    def signal(self, sig): raise errors.ConnectionLostError("nobody hears")

reading, writing = os.pipe()
for count in range(60):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signals.raise_once()
    try:
        with signals.Interrupts(Command(), remark=str):
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
            os.read(reading, 1)
    except failure.Ended:
        print("ended")
"""


def test_a_read_that_does_not_return_is_ended_however_early_the_command_is_lost() -> None:
    """In a process of its own, many times: what ends the wait may come while the handler of Ctrl+C still runs."""
    done = subprocess.run(
        [sys.executable, "-c", READ_WITHOUT_END], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("ended\n" * 60, "")
