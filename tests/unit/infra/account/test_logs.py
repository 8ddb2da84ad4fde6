from __future__ import annotations

from typing import Any

from tests.support.clock import FakeClock
from tests.support.memory_account import MemoryAccount
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra.account.logs import MOST_LINES, Logs


def tail(memory: MemoryAccount, clock: FakeClock) -> tuple[str, ...]:
    logs: Any = memory.service("logs")
    return Logs(logs, clock=clock).tail("/g", since=10.5, deadline=Deadline(60, clock=clock))


def test_the_last_lines_are_read(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    memory.log = [f"line {number}" for number in range(100)]
    assert tail(memory, fake_clock) == tuple(f"line {number}" for number in range(100 - MOST_LINES, 100))


def test_an_event_may_be_several_lines_and_none_steers_a_terminal(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    memory.log = ["one\n\n two\x1b[31m\n", "x" * 5000]
    first, second, third = tail(memory, fake_clock)
    assert (first, second) == ("one", "two [31m")
    assert len(third) <= 300


def test_a_log_that_cannot_be_read_is_none(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    assert tail(memory, fake_clock) == ()

    def deny(service: str, operation: str, is_done: bool) -> None:
        raise errors.AccessDeniedError("no", operation=operation, status=403)

    memory.on_call = deny
    assert tail(memory, fake_clock) == ()
