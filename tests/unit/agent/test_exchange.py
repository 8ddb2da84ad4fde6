"""One request and its patience: how long an answer may take, and what a lost one means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tests.support.scripted import Answer, ScriptedServer, answer
from vmnest import errors
from vmnest.agent import exchange, refusals
from vmnest.agent.results import ExecResult
from vmnest.deadline import NEVER, Deadline
from vmnest.transport import Transport


def waiting(clock: FakeClock, patience: float | None, *, outer: float | None = None) -> exchange.AnswerDeadline:
    return exchange.AnswerDeadline(patience, outer=Deadline(outer, clock=clock), clock=clock)


def request(command: str | None = None) -> exchange.Request:
    return exchange.Request("POST", "/v1/exec", asked="exec", deadline=NEVER, command=command)


def test_each_byte_of_an_answer_buys_a_little_time(fake_clock: FakeClock) -> None:
    bound = waiting(fake_clock, 10)
    fake_clock.advance(9)
    assert bound.remaining() == 1
    bound.moved = 2048
    assert bound.remaining() == 3
    fake_clock.advance(4)
    assert bound.remaining() == 0


def test_the_callers_deadline_holds_whatever_arrives(fake_clock: FakeClock) -> None:
    bound = waiting(fake_clock, None, outer=5)
    bound.moved = 10**9
    fake_clock.advance(4)
    assert bound.remaining() == 1
    assert waiting(fake_clock, None).remaining() is None


def test_time_in_which_we_did_not_read_does_not_count(fake_clock: FakeClock) -> None:
    bound = waiting(fake_clock, 10)
    fake_clock.advance(4)
    with bound.paused():
        fake_clock.advance(3600)
    assert bound.remaining() == 6


@pytest.mark.parametrize(("patience", "left"), [(None, 60), (30, 20), (500, 60)])
def test_patience_can_be_cut_and_never_grows(fake_clock: FakeClock, patience: float | None, left: float) -> None:
    bound = waiting(fake_clock, patience)
    fake_clock.advance(10)
    bound.end_within(60)
    assert bound.remaining() == left


def test_a_budget_counts_while_somebody_waits(fake_clock: FakeClock) -> None:
    budget = exchange.Budget(10, outer=NEVER, clock=fake_clock)
    fake_clock.advance(1)
    for left in (7, 5):
        with budget.counting():
            fake_clock.advance(2)
        fake_clock.advance(100)
        with budget.counting():
            assert budget.remaining() == left


def test_a_budget_is_whole_after_a_sleep_of_any_length(fake_clock: FakeClock) -> None:
    budget = exchange.Budget(10, outer=Deadline(5000, clock=fake_clock), clock=fake_clock)
    fake_clock.advance(11)
    assert budget.expired
    budget.note_sleep("SUSPENDED")
    fake_clock.advance(1000)
    assert budget.remaining() == 5000 - 1011
    budget.note_sleep(None)
    assert budget.remaining() == 10


def test_only_commands_have_ids_and_no_two_have_the_same() -> None:
    assert request().exec_id is None
    ids = {request("x").exec_id for _ in range(10)}
    assert len(ids) == 10
    assert None not in ids


@pytest.mark.parametrize(
    "failure",
    [
        errors.ConnectionLostError("cut"),
        errors.ReadTimeoutError("silent"),
        errors.TransportError("the answer is not HTTP"),
    ],
    ids=lambda failure: failure.code,
)
def test_a_lost_answer_leaves_the_outcome_of_a_command_unknown(failure: errors.TransportError) -> None:
    with pytest.raises(errors.AgentUnreachableError) as caught, exchange.lost_answers(request("ls")):
        raise failure
    assert caught.value.details == {"outcome": "unknown"}
    assert caught.value.message == f"no answer about 'ls': {failure}"
    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("failure", [errors.ConnectError("x"), errors.TlsError("x"), errors.ProxyError("x")])
def test_of_a_command_that_was_not_sent_there_is_no_doubt(failure: errors.TransportError) -> None:
    with pytest.raises(type(failure)), exchange.lost_answers(request("ls")):
        raise failure


def test_of_a_long_command_an_error_shows_the_beginning() -> None:
    assert len(exchange.lost(request("x" * 10_000), "why").message) < 300


def test_the_lost_answer_of_anything_else_is_what_it_is() -> None:
    with pytest.raises(errors.ConnectionLostError), exchange.lost_answers(request()):
        raise errors.ConnectionLostError("cut")


def doubt(error: errors.VmnestError, *, may_have_run: bool) -> bool:
    one = request("ls")
    one.may_have_run = may_have_run
    exchange.judge(one, error)
    return refusals.is_in_doubt(error)


RESULT = ExecResult(124, b"", b"", timed_out=True)
SAID_BY_THE_AGENT = {"agent_code": "overloaded"}


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        # Whether the command may have run: by this error alone, and after an attempt that may have run it.
        (errors.EndpointUnavailableError("x"), False, True),
        (errors.ConnectError("x"), False, True),
        (errors.MicroVMEndedError("x"), False, True),
        (errors.WaitTimeoutError("x"), False, True),
        (errors.EndpointThrottledError("x", details=SAID_BY_THE_AGENT), False, False),
        (errors.CommandNotFoundError("x"), False, False),
        (errors.CommandTimedOutError("x", result=RESULT), False, False),
        (errors.AgentAnswerError("x"), True, True),
    ],
    ids=lambda value: value.code if isinstance(value, errors.VmnestError) else str(value),
)
def test_only_the_agent_can_take_a_doubt_away(error: errors.VmnestError, before: bool, after: bool) -> None:
    assert doubt(error, may_have_run=False) is before
    assert doubt(error, may_have_run=True) is after


@pytest.fixture(scope="module")
def transport() -> Iterator[Transport]:
    made = Transport(environ={})
    yield made
    made.close()


def begin(transport: Transport, step: Answer) -> bytes:
    with ScriptedServer(step) as server, transport.send("GET", server.url, deadline=Deadline(10)) as response:
        return exchange.beginning(response)


def test_of_an_errors_body_the_beginning_is_read(transport: Transport) -> None:
    assert begin(transport, answer(500, "why")) == b"why"
    assert begin(transport, answer(500, "x" * 100_000)) == b"x" * 65536


def test_an_errors_body_that_breaks_off_counts_as_far_as_it_came(transport: Transport) -> None:
    head = b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n"
    assert begin(transport, Answer([head + b"wh"], cut=True)) == b"wh"


@given(st.floats(0, 1e5), st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6)), max_size=20))
def test_what_is_left_is_never_below_nothing(patience: float, steps: list[tuple[float, int]]) -> None:
    clock = FakeClock()
    bound = waiting(clock, patience)
    for seconds, count in steps:
        clock.advance(seconds)
        bound.moved += count
        left = bound.remaining()
        assert left is not None
        assert left >= 0


# -- bodies in pieces, doubts ------------------------------------------------------------------------------------------


def test_pieces_that_go_out_buy_time_and_waiting_for_them_costs_none(fake_clock: FakeClock) -> None:
    def slow() -> Iterator[bytes]:
        for _ in range(3):
            fake_clock.advance(100)
            yield b"x" * 2048

    one = exchange.Request("PUT", "/v1/files", asked="file", body=slow)
    one.bound = waiting(fake_clock, 10)
    pieces = one.outgoing()
    assert callable(pieces)
    assert [len(piece) for piece in pieces()] == [2048] * 3
    assert one.bound.remaining() == 10 + 6


def test_a_body_of_bytes_goes_out_as_it_is() -> None:
    assert exchange.Request("PUT", "/v1/files", asked="file", body=b"abc").outgoing() == b"abc"
    assert exchange.Request("GET", "/v1/files", asked="file").outgoing() is None


def test_an_answer_that_has_begun_may_last(fake_clock: FakeClock) -> None:
    bound = waiting(fake_clock, 10, outer=1000)
    bound.lift()
    fake_clock.advance(500)
    assert bound.remaining() == 500


@pytest.mark.parametrize(
    ("failure", "repeatable", "doubt"),
    [
        (errors.ConnectionLostError("cut"), False, True),
        (errors.ReadTimeoutError("late"), False, True),
        (errors.ConnectError("refused"), False, False),
        (errors.ConnectionLostError("cut"), True, False),
        (errors.AgentAnswerError("junk"), False, False),
    ],
    ids=repr,
)
def test_only_what_was_sent_and_must_not_be_repeated_is_in_doubt(
    failure: errors.VmnestError, repeatable: bool, doubt: bool
) -> None:
    one = exchange.Request("POST", "/v1/processes", asked="process", repeatable=repeatable)
    with pytest.raises(type(failure)), exchange.noting_doubt(one):
        raise failure
    assert one.may_have_run is doubt


def test_a_request_is_repeatable_unless_it_runs_something() -> None:
    assert exchange.Request("GET", "/healthz", asked="health").is_repeatable
    assert not request("ls").is_repeatable
    assert not exchange.Request("POST", "/x", asked="process", repeatable=False).is_repeatable
