"""Calls that are made again after a cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.clock import FakeClock
from tests.support.cutting import open_client
from vmnest import errors
from vmnest.agent import cuts
from vmnest.agent.client import AgentClient
from vmnest.deadline import NEVER, Deadline
from vmnest.wire import names

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def client() -> Iterator[AgentClient]:
    with open_client(NOWHERE) as client:
        yield client


class Script:
    """A call whose attempts raise these errors, one after the other, and then return."""

    def __init__(self, *failures: errors.VmnestError) -> None:
        self.failures = list(failures)
        self.wakes: list[bool] = []

    def __call__(self, wakes: bool) -> str:
        self.wakes.append(wakes)
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def cut() -> errors.VmnestError:
    return errors.ConnectionLostError("cut")


def repeated(client: AgentClient, script: Script, *, may: bool = True, deadline: Deadline = NEVER) -> str:
    return cuts.repeated(client, script, may_repeat=lambda: may, deadline=deadline)


def test_a_call_that_succeeds_is_made_once(client: AgentClient) -> None:
    script = Script()
    assert repeated(client, script, may=False) == "done"
    assert script.wakes == [True]


def test_after_a_cut_it_is_made_again_and_wakes_nobody(client: AgentClient) -> None:
    script = Script(cut(), cut())
    assert repeated(client, script) == "done"
    assert script.wakes == [True, False, False]


@pytest.mark.parametrize("failure", [errors.ConnectError("x"), errors.EndpointUnavailableError("x")], ids=repr)
def test_what_never_reached_anybody_was_tried_enough_by_the_client(
    client: AgentClient, failure: errors.VmnestError
) -> None:
    script = Script(failure)
    with pytest.raises(type(failure)):
        repeated(client, script)
    assert script.wakes == [True]


def test_after_a_cut_an_agent_that_is_away_for_a_moment_is_waited_for(client: AgentClient) -> None:
    script = Script(cut(), errors.ConnectError("x"), errors.EndpointUnavailableError("x"))
    assert repeated(client, script) == "done"


def test_an_error_of_the_agent_is_the_outcome(client: AgentClient) -> None:
    with pytest.raises(errors.RemoteFileNotFoundError):
        repeated(client, Script(cut(), errors.RemoteFileNotFoundError("x")))


def test_what_may_not_be_made_twice_has_an_unknown_outcome(client: AgentClient) -> None:
    script = Script(cut())
    with pytest.raises(errors.ConnectionLostError) as caught:
        repeated(client, script, may=False)
    assert caught.value.details["outcome"] == "unknown"
    assert not caught.value.retryable
    assert "may have been done" in (caught.value.hint or "")
    assert script.wakes == [True]


def test_an_agent_that_cuts_everything_is_given_up(client: AgentClient) -> None:
    script = Script(*(cut() for _ in range(10_000)))
    with pytest.raises(errors.ConnectionLostError):
        repeated(client, script)
    assert 5 < len(script.wakes) < 1000


def test_the_deadline_ends_the_attempts() -> None:
    clock = FakeClock()
    with open_client(NOWHERE, clock=clock) as client, pytest.raises(errors.WaitTimeoutError, match="in time"):
        repeated(client, Script(*(cut() for _ in range(10_000))), deadline=Deadline(3, clock=clock))
    assert clock.monotonic() <= 3.1


def states(*told: str) -> Callable[[], str]:
    rest = list(told)
    return lambda: rest.pop(0) if len(rest) > 1 else rest[0]


def test_while_the_microvm_is_suspended_nothing_is_sent_and_a_line_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    script = Script(cut())
    look = states(names.SUSPENDING, *[names.SUSPENDED] * 100, names.RUNNING)
    with open_client(NOWHERE, clock=clock, look=look) as client:
        assert repeated(client, script) == "done"
    assert script.wakes == [True, False]
    assert clock.monotonic() > 100
    assert caplog.messages == ["the sandbox is suspended; waiting until it is resumed"]


def test_a_microvm_that_has_ended_is_an_error_at_once() -> None:
    with open_client(NOWHERE, look=states(names.TERMINATED)) as client, pytest.raises(errors.MicroVMEndedError):
        repeated(client, Script(cut()))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.ConnectionLostError("x"), True),
        (errors.ReadTimeoutError("x"), True),
        (errors.ConnectError("x"), False),
        (errors.RemoteFileError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_cut_comes_after_something_was_sent(error: errors.VmnestError, expected: bool) -> None:
    assert cuts.is_cut(error) is expected
