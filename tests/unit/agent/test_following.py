"""Reading to the end: every byte once, whatever is cut; sleep is not disturbed; no end is made up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.agent_client import States
from tests.support.clock import FakeClock
from tests.support.process_peer import HEAD, REFUSED, ProcessPeer
from tests.support.scripted import CUT, SILENT, Answer, Received, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.agent.following import Follower
from vmnest.agent.outputs import Chunk, Exit
from vmnest.deadline import Deadline
from vmnest.transport import Transport

NOT_REACHED = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])
OUTPUT = [("stdout", b"out"), ("stderr", b"err!"), 5, ("stdout", b"more")]
DONE = {"exit_code": 3, "signal": None, "timed_out": False}


def peer(*output: Any, end: dict[str, object] | None = DONE) -> ProcessPeer:
    made = ProcessPeer(*(output or OUTPUT), end=end)
    made.known.add("p")
    return made


def follow(client: AgentClient, *, offset: int = 0) -> Follower:
    return Follower(client, "p", name="x", offset=offset)


def read_all(follower: Follower) -> list[Chunk]:
    chunks = []
    while (chunk := follower.next()) is not None:
        chunks.append(chunk)
    return chunks


def spell(chunks: list[Chunk]) -> list[tuple[str, bytes | int]]:
    """One entry a byte, or a gap: in which pieces it came makes no difference."""
    return [
        (chunk.stream, part) for chunk in chunks for part in ([chunk.missing] if chunk.missing else chunk.data)
    ]  # fmt: skip


WHOLE = spell([Chunk("stdout", b"out", 0), Chunk("stderr", b"err!", 3), Chunk("gap", b"", 7, 5)]) + spell(
    [Chunk("stdout", b"more", 12)]
)


def test_it_reads_output_gaps_and_end(connect_agent: Any) -> None:
    with ScriptedServer(peer(), repeat_last=True) as server:
        follower = follow(connect_agent(server))
        assert spell(read_all(follower)) == WHOLE
    assert follower.exit == Exit(3, None, False)
    assert follower.offset == 16
    assert len(server.requests) == 1


def test_a_cut_at_any_byte_loses_nothing_and_gives_nothing_twice(connect_agent: Any) -> None:
    script = peer()
    length = len(HEAD) + len(script.frames(0)) + 12
    with ScriptedServer(script, repeat_last=True) as server:
        for cut in range(length):
            script.answers = [cut]
            follower = follow(connect_agent(server))
            assert spell(read_all(follower)) == WHOLE, f"cut after {cut} bytes"
            assert follower.exit == Exit(3, None, False)


def test_every_answer_cut_a_little_later_reaches_the_end(connect_agent: Any) -> None:
    script = peer(("stdout", bytes(range(200))), end=None)
    script.answers = [len(HEAD) + len(script.frames(200)) + 20 + at % 5 for at in range(30)]
    script.end = DONE
    with ScriptedServer(script, repeat_last=True) as server:
        follower = follow(connect_agent(server))
        assert b"".join(chunk.data for chunk in read_all(follower)) == bytes(range(200))
    assert script.offsets == sorted(script.offsets)
    assert len(script.offsets) > 10


def test_an_answer_that_ends_is_followed_by_one_from_where_it_ended(connect_agent: Any) -> None:
    script = peer(("stdout", b"abc"), end=None)

    def end_it(received: Received) -> None:
        if len(script.offsets) == 2:
            script.output.append(("stdout", b"def"))
            script.end = DONE

    script.before = end_it
    with ScriptedServer(script, repeat_last=True) as server:
        chunks = read_all(follow(connect_agent(server)))
    assert chunks == [Chunk("stdout", b"abc", 0), Chunk("stdout", b"def", 3)]
    assert script.offsets == [0, 3, 3]


def test_it_begins_where_it_is_told(connect_agent: Any) -> None:
    with ScriptedServer(peer(), repeat_last=True) as server:
        assert spell(read_all(follow(connect_agent(server), offset=5))) == WHOLE[5:]


def test_the_microvm_is_looked_at_before_a_poll_after_a_quiet_one_but_not_after_a_full_one(connect_agent: Any) -> None:
    script = peer(("stdout", b"abc"), end=None)
    states = States("RUNNING")
    seen: list[tuple[int, int]] = []
    script.before = lambda received: seen.append((len(seen), states.looks))

    def end_it(received: Received) -> Answer:
        if len(seen) == 3:
            script.end = DONE
        return script(received)

    with ScriptedServer(end_it, repeat_last=True) as server:
        read_all(follow(connect_agent(server, states=states)))
    # The first answer brought something; the second one was quiet, and a look goes before the third one.
    assert seen[:3] == [(0, 0), (1, 0), (2, 1)]


# -- suspension --------------------------------------------------------------------------------------------------------


def test_after_a_cut_a_suspended_sandbox_is_waited_for_and_not_touched(
    connect_agent: Any, fake_clock: FakeClock
) -> None:
    script = peer()
    script.answers = [len(HEAD) + 200]
    states = States("SUSPENDING", "SUSPENDED", "SUSPENDED", "SUSPENDED", "RUNNING")
    requests_while_asleep: list[int] = []
    with ScriptedServer(script, repeat_last=True) as server:
        states.on_look = lambda state: requests_while_asleep.append(len(server.requests))
        follower = follow(connect_agent(server, states=states))
        told: list[str | None] = []
        follower.recovery.on_pause = told.append
        assert spell(read_all(follower)) == WHOLE
    assert told == ["SUSPENDING", "SUSPENDED", None]
    assert set(requests_while_asleep) == {1}


def test_a_long_sleep_is_no_failure(connect_agent: Any, fake_clock: FakeClock) -> None:
    script = peer()
    script.answers = [3]
    states = States(*["SUSPENDED"] * 2000, "RUNNING")
    with ScriptedServer(script, repeat_last=True) as server:
        assert spell(read_all(follow(connect_agent(server, states=states)))) == WHOLE
    assert fake_clock.monotonic() > 3000


def test_a_poll_that_finds_it_suspended_does_not_wake_it(connect_agent: Any) -> None:
    """It was suspended between the look and the poll, and the proxy does not resume it."""
    script = peer()
    script.answers = [NOT_REACHED]
    states = States("SUSPENDED", "SUSPENDED", "RUNNING")
    with ScriptedServer(script, repeat_last=True) as server:
        client = connect_agent(server, states=states, recover=pytest.fail)
        assert spell(read_all(follow(client))) == WHOLE


def test_who_resumes_it_is_noticed_at_once(agent_transport: Transport) -> None:
    """With the real clock: the next look would come much later."""
    script = peer()
    script.answers = [3]
    states = States("SUSPENDED")
    looked = threading.Event()
    states.on_look = lambda state: looked.set()
    with ScriptedServer(script, repeat_last=True) as server:
        client = AgentClient(server.url, headers=lambda refused: [], transport=agent_transport, port=8080, look=states)
        follower = follow(client)
        chunks: list[Chunk] = []
        reader = threading.Thread(target=lambda: chunks.extend(read_all(follower)))
        reader.start()
        assert looked.wait(10)
        states.left = ["RUNNING"]
        follower.recovery.stir()
        reader.join(10)
        assert not reader.is_alive()
    assert spell(chunks) == WHOLE


def test_a_sandbox_that_has_ended_ends_the_reading_with_its_reason(connect_agent: Any) -> None:
    script = peer()
    script.answers = [len(HEAD) + 200]
    with ScriptedServer(script, repeat_last=True) as server:
        follower = follow(connect_agent(server, states=States("TERMINATED")))
        with pytest.raises(errors.MicroVMEndedError, match="told to"):
            read_all(follower)
    assert follower.exit is None
    assert len(server.requests) == 1


# -- what is lost ------------------------------------------------------------------------------------------------------


def test_after_a_restart_of_the_agent_nobody_knows_the_end(connect_agent: Any) -> None:
    script = peer()
    script.answers = [len(HEAD) + 200]
    with ScriptedServer(script, repeat_last=True) as server:
        follower = follow(connect_agent(server))
        script.before = lambda received: script.known.clear() if len(server.requests) == 2 else None
        with pytest.raises(errors.AgentUnreachableError) as caught:
            read_all(follower)
    assert caught.value.details["outcome"] == "unknown"
    assert caught.value.details["process"] == "p"
    assert follower.exit is None


def test_an_agent_that_does_not_answer_any_more_is_given_up(connect_agent: Any, fake_clock: FakeClock) -> None:
    with ScriptedServer(CUT, repeat_last=True) as server:
        follower = follow(connect_agent(server, grace=20.0, states=States("RUNNING")))
        with pytest.raises(errors.AgentUnreachableError) as caught:
            read_all(follower)
    assert caught.value.details["outcome"] == "unknown"
    assert 20 < fake_clock.monotonic() < 25
    assert follower.exit is None


def test_each_byte_that_comes_renews_the_patience(connect_agent: Any, fake_clock: FakeClock) -> None:
    script = peer(("stdout", b"x" * 50), end=None)
    script.answers = [len(HEAD) + len(script.frames(50)) + 11] * 40  # a byte or so of output each
    script.end = DONE
    script.before = lambda received: fake_clock.advance(15)
    with ScriptedServer(script, repeat_last=True) as server:
        follower = follow(connect_agent(server, grace=20.0))
        assert b"".join(chunk.data for chunk in read_all(follower)) == b"x" * 50


def test_an_answer_that_is_none_of_the_agents_is_an_error_and_no_end(connect_agent: Any) -> None:
    with ScriptedServer(json_answer(200, {"exit_code": 0}), repeat_last=True) as server:
        follower = follow(connect_agent(server))
        with pytest.raises(errors.AgentAnswerError):
            read_all(follower)
    assert follower.exit is None


def test_a_token_that_is_refused_in_the_middle_is_replaced(connect_agent: Any) -> None:
    script = peer()
    script.answers = [len(HEAD) + 200, REFUSED]
    with ScriptedServer(script, repeat_last=True) as server:
        assert spell(read_all(follow(connect_agent(server)))) == WHOLE
    assert [received.headers["x-aws-proxy-auth"] for received in server.requests] == ["token-1", "token-1", "token-2"]


# -- time and interruption ---------------------------------------------------------------------------------------------


def test_a_deadline_ends_the_wait_and_nothing_is_lost(agent_transport: Transport) -> None:
    """The real clock: what ends here is a read of a socket."""
    script = peer(("stdout", b"abc"), end=None)
    stream = HEAD + b"%x\r\n" % len(script.frames(0)) + script.frames(0) + b"\r\n"
    script.answers = [Answer([stream], silent=True)]
    with ScriptedServer(script, repeat_last=True) as server:
        follower = follow(AgentClient(server.url, headers=lambda refused: [], transport=agent_transport, port=8080))
        assert follower.next(Deadline(5)) == Chunk("stdout", b"abc", 0)
        with pytest.raises(errors.WaitTimeoutError):
            follower.next(Deadline(0.05))
        script.output, script.end = [("stdout", b"abcdef")], DONE
        assert follower.next(Deadline(5)) == Chunk("stdout", b"def", 3)
        assert follower.next(Deadline(5)) is None


def test_an_answer_serves_several_calls_with_deadlines_of_their_own(agent_transport: Transport) -> None:
    script = peer(("stdout", b"abc"), ("stderr", b"def"))
    with ScriptedServer(script, repeat_last=True) as server:
        follower = follow(AgentClient(server.url, headers=lambda refused: [], transport=agent_transport, port=8080))
        for _ in range(2):
            assert follower.next(Deadline(5)) is not None
        assert follower.next(Deadline(5)) is None
    assert len(server.requests) == 1


def test_a_silent_answer_is_a_cut_one(agent_transport: Transport) -> None:
    script = peer()
    script.answers = [SILENT]
    with ScriptedServer(script, repeat_last=True) as server:
        client = AgentClient(
            server.url, headers=lambda refused: [], transport=agent_transport, port=8080, quiet=0.05, grace=0.2
        )
        assert spell(read_all(follow(client))) == WHOLE


def test_what_was_in_flight_at_an_interruption_comes_again(connect_agent: Any) -> None:
    script = peer()
    with ScriptedServer(script, repeat_last=True) as server:
        follower = follow(connect_agent(server))
        first = follower.next()
        assert first is not None
        follower.stop()
        assert spell([first, *read_all(follower)]) == WHOLE
    assert script.offsets == [0, 3]


def test_once_it_has_ended_nothing_is_asked(connect_agent: Any) -> None:
    with ScriptedServer(peer(), repeat_last=True) as server:
        follower = follow(connect_agent(server))
        read_all(follower)
        assert follower.next() is None
    assert len(server.requests) == 1
