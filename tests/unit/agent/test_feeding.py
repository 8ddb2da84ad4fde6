"""Input arrives once and whole, in pieces that the agent takes; its end is told; nothing sleeps less for it."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.agent_client import States
from tests.support.clock import FakeClock
from tests.support.process_peer import ProcessPeer
from tests.support.scripted import CUT, Received, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest._guest.agentd import wire
from vmnest.agent import feeding
from vmnest.deadline import Deadline


def peer() -> ProcessPeer:
    made = ProcessPeer()
    made.known.add("p")
    return made


def test_input_goes_in_pieces_with_the_count_of_what_went_before(connect_agent: Any) -> None:
    script = peer()
    data = bytes(range(256)) * 10_000
    with ScriptedServer(script, repeat_last=True) as server:
        box = feeding.Input("p", writer="me")
        assert box.send(connect_agent(server), data) == len(data)
        assert box.send(connect_agent(server), b"more", is_end=True) == 4
    assert script.input == data + b"more"
    assert all(len(request.body) <= wire.MAX_STDIN_BYTES for request in server.requests)
    assert server.requests[0].target == "/v1/processes/p/stdin?writer=me&offset=0&wait=25"
    assert server.requests[-1].target == f"/v1/processes/p/stdin?writer=me&offset={len(data)}&wait=25&eof=1"
    assert server.requests[0].headers["content-type"] == "application/octet-stream"


def test_an_answer_that_is_cut_writes_nothing_twice(connect_agent: Any) -> None:
    script = peer()
    with ScriptedServer(script, repeat_last=True) as server:
        box = feeding.Input("p")
        for cut in range(0, 180, 5):
            script.answers = [cut]
            assert box.send(connect_agent(server), b"0123456789") == 10
    assert script.input == b"0123456789" * 36


def test_what_was_not_taken_is_sent_again(connect_agent: Any) -> None:
    taken = iter([3, 3, 8, 10])
    asked: list[tuple[str, bytes]] = []

    def take(received: Received) -> Any:
        asked.append((received.target.partition("?")[2], received.body))
        return json_answer(200, {"offset": next(taken), "closed": False})

    with ScriptedServer(take, repeat_last=True) as server:
        box = feeding.Input("p", writer="me")
        assert box.send(connect_agent(server), b"0123456789", is_end=True) == 10
    assert asked == [
        ("writer=me&offset=0&wait=25&eof=1", b"0123456789"),
        ("writer=me&offset=3&wait=25&eof=1", b"3456789"),
        ("writer=me&offset=3&wait=25&eof=1", b"3456789"),
        ("writer=me&offset=8&wait=25&eof=1", b"89"),
    ]


def test_a_process_that_takes_no_more_ends_the_input(connect_agent: Any) -> None:
    script = peer()
    script.takes = 4
    with ScriptedServer(script, repeat_last=True) as server:
        box = feeding.Input("p")
        assert box.send(connect_agent(server), b"012345") == 4
        assert box.is_closed
        assert box.send(connect_agent(server), b"more") == 0
    assert len(server.requests) == 1


def test_an_end_is_sent_once(connect_agent: Any) -> None:
    with ScriptedServer(peer(), repeat_last=True) as server:
        box = feeding.Input("p")
        assert box.send(connect_agent(server), b"", is_end=True) == 0
        box.send(connect_agent(server), b"", is_end=True)
    assert len(server.requests) == 1


def test_nothing_is_sent_for_nothing(connect_agent: Any) -> None:
    with ScriptedServer() as server:
        assert feeding.Input("p").send(connect_agent(server), b"") == 0


def test_two_who_write_in_turns_lose_nothing(connect_agent: Any) -> None:
    script = peer()
    with ScriptedServer(script, repeat_last=True) as server:
        client, one, other = connect_agent(server), feeding.Input("p"), feeding.Input("p")
        for data in (b"a", b"b c ", b"d"):
            assert one.send(client, data) == len(data)
            assert other.send(client, b"more ") == 5
    assert script.input == b"amore b c more dmore "


@pytest.mark.parametrize("taken", [None, -1, 11, True, "3"])
def test_a_count_that_cannot_be_is_an_error(connect_agent: Any, taken: object) -> None:
    with ScriptedServer(json_answer(200, {"offset": taken})) as server, pytest.raises(errors.AgentAnswerError):
        feeding.Input("p").send(connect_agent(server), b"0123456789")


def test_a_process_without_input_says_so(connect_agent: Any) -> None:
    refusal = json_answer(409, {"detail": "it has none", "code": wire.NO_STDIN})
    with ScriptedServer(refusal) as server, pytest.raises(errors.NoInputError, match="it has none"):
        feeding.Input("p").send(connect_agent(server), b"x")


def test_input_that_nobody_takes_waits_until_the_deadline(connect_agent: Any, fake_clock: FakeClock) -> None:
    def wait(received: Received) -> Any:
        fake_clock.advance(25)
        return json_answer(200, {"offset": 0, "closed": False})

    late = "did not take its input in time"
    with ScriptedServer(wait, repeat_last=True) as server, pytest.raises(errors.WaitTimeoutError, match=late):
        feeding.Input("p").send(connect_agent(server), b"x", deadline=Deadline(60, clock=fake_clock))
    assert len(server.requests) == 3
    assert [request.target.rpartition("=")[2] for request in server.requests] == ["25", "25", "10"]


# -- suspension --------------------------------------------------------------------------------------------------------

NOT_REACHED = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])


def test_what_a_user_types_wakes_the_sandbox(connect_agent: Any) -> None:
    script = peer()
    script.answers = [NOT_REACHED]
    states = States("SUSPENDED")
    with ScriptedServer(script, repeat_last=True) as server:
        feeding.Input("p").send(connect_agent(server, states=states), b"key")
    assert script.input == b"key"
    assert states.left == ["RUNNING"]


def test_what_a_user_types_while_it_falls_asleep_does_not_wait_for_others_to_wake_it(connect_agent: Any) -> None:
    script = peer()
    script.answers = [CUT, NOT_REACHED]
    states = States("SUSPENDED")
    with ScriptedServer(script, repeat_last=True) as server:
        feeding.Input("p").send(connect_agent(server, states=states), b"key")
    assert script.input == b"key"


def test_what_is_fed_through_lets_it_sleep(connect_agent: Any) -> None:
    script = peer()
    script.answers = [NOT_REACHED]
    states = States("SUSPENDED", "SUSPENDED", "SUSPENDED", "RUNNING")
    with ScriptedServer(script, repeat_last=True) as server:
        client = connect_agent(server, states=states, recover=pytest.fail)
        feeding.Input("p").send(client, b"data", wakes=False)
    assert script.input == b"data"


def test_input_that_waits_to_be_taken_lets_it_sleep(connect_agent: Any) -> None:
    taken = iter([0, 1])
    states = States("SUSPENDED", "SUSPENDED", "RUNNING")
    requests: list[int] = []
    with ScriptedServer(
        lambda received: json_answer(200, {"offset": next(taken), "closed": False}), repeat_last=True
    ) as server:
        states.on_look = lambda state: requests.append(len(server.requests))
        feeding.Input("p").send(connect_agent(server, states=states), b"x")
    assert requests == [1, 1, 1]


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        b"abc",
        bytearray(b"abc"),
        memoryview(b"abc"),
        "abc",
        [b"a", b"", b"bc"],
        iter([b"ab", memoryview(b"c")]),
        io.BytesIO(b"abc"),
    ],
    ids=lambda source: type(source).__name__,
)
def test_any_source_is_fed_to_its_end(connect_agent: Any, source: Any) -> None:
    script = peer()
    with ScriptedServer(script, repeat_last=True) as server:
        feed(connect_agent(server), source, until=lambda: "eof=1" in server.requests[-1].target)
    assert script.input == b"abc"


def feed(client: Any, source: Any, *, until: Any) -> None:
    """Feed it in a block that ends when ``until`` says so."""
    finished = threading.Event()
    feeder = feeding.Feeder(client, feeding.Input("p"), source)
    with feeder.running():
        for _ in range(500):
            if finished.wait(0.01) or (not feeder.is_alive()):
                break
    assert until()


def test_a_file_is_read_in_blocks_and_not_in_lines(connect_agent: Any) -> None:
    script = peer()
    data = b"\n" * (wire.MAX_STDIN_BYTES + 5)
    with ScriptedServer(script, repeat_last=True) as server:
        feed(connect_agent(server), io.BytesIO(data), until=lambda: True)
    assert script.input == data
    assert len(server.requests) == 3


def test_a_pipe_is_not_waited_for_until_a_block_is_full(connect_agent: Any) -> None:
    script = peer()
    read_end, write_end = os.pipe()
    arrived = threading.Event()
    script.before = lambda received: arrived.set()
    with (
        ScriptedServer(script, repeat_last=True) as server,
        os.fdopen(read_end, "rb") as source,
        os.fdopen(write_end, "wb", buffering=0) as sink,
        feeding.feed(connect_agent(server), feeding.Input("p"), source, on_failure=pytest.fail),
    ):
        sink.write(b"live")
        assert arrived.wait(10)
        sink.close()


def test_small_pieces_go_together_while_a_request_is_under_way(connect_agent: Any) -> None:
    script = peer()
    all_given, arrived = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"live"
        assert arrived.wait(10)  # it is not held back
        for _ in range(3000):
            yield b"x" * 1000
        all_given.set()

    def before(received: Received) -> None:
        arrived.set()

    script.before = before
    with ScriptedServer(script, repeat_last=True) as server:
        feed(connect_agent(server), pieces(), until=all_given.is_set)
    assert script.input == b"live" + b"x" * 3_000_000
    assert len(server.requests) < 100


def test_a_process_that_takes_no_more_ends_the_feeding_and_not_the_reading(connect_agent: Any) -> None:
    script = peer()
    script.takes = 10
    given = 0

    def endless() -> Iterator[bytes]:
        nonlocal given
        while True:
            given += 1
            yield b"y\n" * 4

    with ScriptedServer(script, repeat_last=True) as server:
        feed(connect_agent(server), endless(), until=lambda: True)
    assert script.input == b"y\ny\ny\ny\ny\n"
    assert given < 4 * wire.MAX_STDIN_BYTES / 8


def test_an_error_of_the_source_reaches_the_caller(connect_agent: Any) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise OSError(5, "the disk is broken")

    with ScriptedServer(peer(), repeat_last=True) as server, pytest.raises(OSError, match="the disk is broken"):
        feed(connect_agent(server), broken(), until=lambda: True)


def test_a_source_that_fails_as_connections_do_is_no_lost_connection(connect_agent: Any) -> None:
    """It may read from another sandbox."""

    def broken() -> Iterator[bytes]:
        raise errors.ConnectionLostError("its own connection")
        yield b""

    told = threading.Event()

    def run(client: Any) -> None:
        with feeding.feed(client, feeding.Input("p"), broken(), on_failure=told.set):
            assert told.wait(10)
            raise errors.WaitTimeoutError("the reading was ended for that")

    with ScriptedServer() as server, pytest.raises(errors.ConnectionLostError, match="its own"):
        run(connect_agent(server))
    assert server.requests == []


def test_pieces_that_are_no_bytes_are_refused(connect_agent: Any) -> None:
    with ScriptedServer(peer(), repeat_last=True) as server, pytest.raises(errors.UsageError, match="str"):
        feed(connect_agent(server), ["text"], until=lambda: True)


def test_a_block_that_ends_does_not_wait_for_a_source_that_does_not(
    connect_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "STOP_SECONDS", 0.05)
    waiting, release = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        waiting.set()
        release.wait(20)
        yield b"late"

    with ScriptedServer() as server:
        feeder = feeding.Feeder(connect_agent(server), feeding.Input("p"), slow())
        with feeder.running():
            assert waiting.wait(10)
        assert feeder.is_alive()
        release.set()
        feeder.join(10)
    assert server.requests == []


def test_without_a_source_nothing_is_fed(connect_agent: Any) -> None:
    with (
        ScriptedServer() as server,
        feeding.feed(connect_agent(server), feeding.Input("p"), None, on_failure=pytest.fail),
    ):
        pass
