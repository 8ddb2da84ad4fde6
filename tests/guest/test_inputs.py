"""Standard input: every byte once, in order, and its end."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import termios
import threading
import time
import tty
from collections.abc import Iterator

import pytest

from guest.agentd import inputs, loop, terminals
from guest.agentd.errors import PeerGoneError, RequestError
from tests.support.processes import wait_until

PIPE_BYTES = 65536


class Bench:
    """A pipe, its input, and a client's connection."""

    def __init__(self, hangup: socket.socket, client: socket.socket) -> None:
        self.reader, writer = os.pipe()
        os.set_blocking(writer, False)
        fcntl.fcntl(writer, 1031, PIPE_BYTES)  # F_SETPIPE_SZ
        self.input = inputs.Input(writer, loop=None)
        self.client = client
        self._hangup = hangup

    def feed(
        self,
        body: bytes,
        *,
        offset: int | None = None,
        is_last: bool = False,
        seconds: float = 10,
        writer: str = "",
    ) -> None:
        self.input.feed(
            body,
            offset=self.input.taken(writer) if offset is None else offset,
            is_last=is_last,
            seconds=seconds,
            hangup=self._hangup.fileno(),
            writer=writer,
        )

    def read(self) -> bytes:
        return os.read(self.reader, 1 << 20)


@pytest.fixture
def bench(connection: tuple[socket.socket, socket.socket]) -> Iterator[Bench]:
    made = Bench(*connection)
    yield made
    made.input.end()
    os.close(made.reader)


def test_bytes_arrive_and_are_counted(bench: Bench) -> None:
    bench.feed(b"one")
    bench.feed(b"two")
    assert bench.read() == b"onetwo"
    assert (bench.input.taken(), bench.input.is_closed) == (6, False)


def test_what_was_taken_is_not_written_again(bench: Bench) -> None:
    bench.feed(b"one")
    bench.feed(b"one", offset=0)
    bench.feed(b"one two", offset=0)
    bench.feed(b"e t", offset=2)
    assert bench.read() == b"one two"
    assert bench.input.taken() == 7


def test_bytes_that_do_not_follow_are_refused(bench: Bench) -> None:
    with pytest.raises(RequestError) as caught:
        bench.feed(b"x", offset=1)
    assert (caught.value.status, caught.value.code) == (409, "stdin_gap")
    bench.feed(b"y")
    assert bench.read() == b"y"


def test_writers_who_know_nothing_of_each_other_count_their_own_bytes(bench: Bench) -> None:
    bench.feed(b"one ", writer="a", offset=0)
    bench.feed(b"two ", writer="b", offset=0)
    bench.feed(b"two and ", writer="b", offset=0)
    bench.feed(b"three", writer="a", offset=4)
    assert bench.read() == b"one two and three"
    assert [bench.input.taken(writer) for writer in ("a", "b", "c")] == [9, 8, 0]


def test_no_more_writers_are_counted_than_there_may_be(bench: Bench) -> None:
    for number in range(inputs.MAX_WRITERS + 1):
        bench.feed(b"x", writer=str(number))
        bench.feed(b"y", writer="0")
    assert bench.input.taken("0") == inputs.MAX_WRITERS + 2
    assert bench.input.taken("1") == 0
    with pytest.raises(RequestError, match="have arrived"):
        bench.feed(b"z", writer="1", offset=1)


def test_the_end_comes_after_the_last_byte(bench: Bench) -> None:
    bench.feed(b"all", is_last=True)
    assert bench.input.is_closed
    assert (bench.read(), bench.read()) == (b"all", b"")
    bench.feed(b"all", offset=0, is_last=True)
    bench.feed(b"more", offset=3)
    assert bench.input.taken() == 3


def test_a_reader_that_is_slow_takes_what_it_can_in_time(bench: Bench) -> None:
    begin = time.monotonic()
    bench.feed(b"x" * (PIPE_BYTES + 10), is_last=True, seconds=0.05)
    assert time.monotonic() - begin < 5
    assert (bench.input.taken(), bench.input.is_closed) == (PIPE_BYTES, False)
    assert len(bench.read()) == PIPE_BYTES
    bench.feed(b"x" * 10, is_last=True)
    assert (bench.read(), bench.read()) == (b"x" * 10, b"")


def test_it_waits_for_its_reader(bench: Bench) -> None:
    data = os.urandom(5 * PIPE_BYTES)
    feeder = threading.Thread(target=bench.feed, args=(data,), kwargs={"is_last": True})
    feeder.start()
    got = b""
    while piece := bench.read():
        got += piece
    feeder.join(20)
    assert got == data


def test_two_that_bring_the_same_bytes_write_them_once(bench: Bench) -> None:
    data = os.urandom(3 * PIPE_BYTES)
    feeders = [threading.Thread(target=bench.feed, args=(data,), kwargs={"offset": 0, "is_last": True}) for _ in "ab"]
    for feeder in feeders:
        feeder.start()
    got = b""
    while piece := bench.read():
        got += piece
    for feeder in feeders:
        feeder.join(20)
    assert got == data


def test_one_that_waits_for_its_turn_gives_up_in_time(bench: Bench) -> None:
    first = threading.Thread(target=bench.feed, args=(b"x" * 2 * PIPE_BYTES,))
    first.start()
    wait_until(lambda: bench.input.taken() == PIPE_BYTES)
    bench.feed(b"x" * 2 * PIPE_BYTES, offset=0, seconds=0.02)
    assert first.is_alive()
    got = 0
    while got < 2 * PIPE_BYTES:
        got += len(bench.read())
    first.join(20)
    assert bench.input.taken() == 2 * PIPE_BYTES


def test_a_closed_input_is_told_and_the_rest_dropped(bench: Bench) -> None:
    os.close(bench.reader)
    bench.feed(b"x")
    assert bench.input.is_closed
    bench.feed(b"y", offset=100)
    assert bench.input.taken() == 0
    bench.reader = os.open(os.devnull, os.O_RDONLY)


def test_an_input_that_is_closed_meanwhile_ends_the_wait(bench: Bench) -> None:
    feeder = threading.Thread(target=bench.feed, args=(b"x" * 2 * PIPE_BYTES,))
    feeder.start()
    wait_until(lambda: bench.input.taken() == PIPE_BYTES)
    os.close(bench.reader)
    feeder.join(20)
    assert not feeder.is_alive()
    assert bench.input.is_closed
    bench.reader = os.open(os.devnull, os.O_RDONLY)


def test_the_end_of_the_process_ends_the_wait_although_a_child_holds_the_pipe(bench: Bench) -> None:
    feeder = threading.Thread(target=bench.feed, args=(b"x" * 2 * PIPE_BYTES,))
    feeder.start()
    wait_until(lambda: bench.input.taken() == PIPE_BYTES)
    bench.input.end()
    feeder.join(20)
    assert not feeder.is_alive()
    assert bench.input.is_closed
    assert len(bench.read()) == PIPE_BYTES
    assert bench.read() == b""  # our end was closed by whoever held it


def test_a_client_that_is_gone_is_noticed_and_the_next_goes_on(bench: Bench) -> None:
    caught: list[BaseException] = []

    def feed() -> None:
        try:
            bench.feed(b"x" * 2 * PIPE_BYTES)
        except PeerGoneError as error:
            caught.append(error)

    feeder = threading.Thread(target=feed)
    feeder.start()
    wait_until(lambda: bench.input.taken() == PIPE_BYTES)
    bench.client.close()
    feeder.join(20)
    assert len(caught) == 1
    assert len(bench.read()) == PIPE_BYTES
    assert not bench.input.is_closed


# -- terminals


@pytest.fixture
def terminal(connection: tuple[socket.socket, socket.socket]) -> Iterator[tuple[inputs.Input, int, int]]:
    ours, theirs = terminals.open_pair((80, 24))
    looking = loop.Loop()
    looking.start()
    made = inputs.Input(os.dup(ours), loop=looking)
    yield made, theirs, connection[0].fileno()
    made.end()
    looking.stop()
    os.close(ours)
    os.close(theirs)


def test_the_end_of_a_terminals_input_is_typed_once(terminal: tuple[inputs.Input, int, int]) -> None:
    made, theirs, hangup = terminal
    for _ in range(2):
        made.feed(b"line\nrest", offset=0, is_last=True, seconds=10, hangup=hangup)
    assert (made.taken(), made.is_closed) == (9, False)
    assert [os.read(theirs, 100) for _ in range(3)] == [b"line\n", b"rest", b""]
    made.feed(b"more\n", offset=9, is_last=False, seconds=10, hangup=hangup)
    assert os.read(theirs, 100) == b"more\n"


def test_what_comes_behind_an_end_that_was_not_typed_yet_has_it_typed_before(
    terminal: tuple[inputs.Input, int, int],
) -> None:
    made, theirs, hangup = terminal
    made.feed(b"line\n", offset=0, is_last=True, seconds=10, hangup=hangup)
    made.feed(b"more\n", offset=5, is_last=True, seconds=10, hangup=hangup)
    assert [os.read(theirs, 100) for _ in range(4)] == [b"line\n", b"", b"more\n", b""]


def test_a_reader_that_turns_to_keys_only_later_sees_the_end_all_the_same(
    terminal: tuple[inputs.Input, int, int],
) -> None:
    made, theirs, hangup = terminal
    made.feed(b"", offset=0, is_last=True, seconds=10, hangup=hangup)
    assert select.select([theirs], [], [], 10)[0]  # the end has been typed
    time.sleep(0.2)  # as a program that starts
    tty.setcbreak(theirs, termios.TCSADRAIN)
    read = b""
    while len(read) < 3 and select.select([theirs], [], [], 10)[0]:
        read += os.read(theirs, 100)
    assert read == b"\0\x7f\x04"


def test_a_reader_of_keys_that_comes_after_one_who_took_the_end_gets_none(
    terminal: tuple[inputs.Input, int, int],
) -> None:
    made, theirs, hangup = terminal
    made.feed(b"line\n", offset=0, is_last=True, seconds=10, hangup=hangup)
    assert [os.read(theirs, 100) for _ in range(2)] == [b"line\n", b""]
    tty.setcbreak(theirs, termios.TCSADRAIN)
    assert not select.select([theirs], [], [], 0.5)[0]


def test_an_input_that_is_over_has_no_end_to_type(terminal: tuple[inputs.Input, int, int]) -> None:
    made, theirs, hangup = terminal
    made.feed(b"line\n", offset=0, is_last=True, seconds=10, hangup=hangup)
    made.end()
    assert os.read(theirs, 100) == b"line\n"
    assert not select.select([theirs], [], [], 0.3)[0]
