"""Readers: an answer that follows the output, and who notices when its client is gone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from guest.agentd import frames, readers, retained, running, wire
from guest.agentd.errors import PeerGoneError, RequestError
from tests.support.processes import Yard, wait_end, wait_size, wait_until

Pair = tuple[socket.socket, socket.socket]
Opener = Callable[..., readers.Reader]


@pytest.fixture
def open_reader(yard: Yard, connection: Pair) -> Iterator[Opener]:
    """Makes a reader of a process; closed with the test."""
    made: list[readers.Reader] = []

    def make(process: running.Process, offset: int = 0) -> readers.Reader:
        for reader in made:
            reader.close()
        made[:] = [readers.Reader(process, offset, loop=yard.loop, connection=connection[0])]
        return made[0]

    yield make
    for reader in made:
        reader.close()


def decode(blocks: Iterable[bytes]) -> list[tuple[int, Any]]:
    """The frames of some blocks, documents parsed."""
    found: list[tuple[int, Any]] = []
    decoder = frames.Decoder()
    for block in blocks:
        for kind, payload in decoder.feed(block):
            found.append((kind, json.loads(payload) if kind in (frames.PROCESS, frames.EXIT) else payload))
    assert decoder.is_between_frames
    return found


def test_an_ended_process_is_told_from_first_to_last(yard: Yard, open_reader: Opener) -> None:
    one = yard.shell("echo hi; exit 3")
    wait_end(one)
    found = decode(open_reader(one).blocks(wait=20))
    assert [kind for kind, _ in found] == [frames.PROCESS, frames.STDOUT, frames.EXIT]
    assert found[0][1] == one.document()
    assert found[1][1] == b"hi\n"
    assert found[2][1] == {"exit_code": 3, "signal": None, "timed_out": False, "offset": 3}
    assert one.is_told


def test_it_begins_at_its_offset(yard: Yard, open_reader: Opener) -> None:
    one = yard.shell("printf abcdef")
    wait_end(one)
    assert decode(open_reader(one, 4).blocks(wait=20))[1] == (frames.STDOUT, b"ef")
    assert decode(open_reader(one, 6).blocks(wait=20))[1][0] == frames.EXIT
    with pytest.raises(RequestError, match="6 bytes so far"):
        open_reader(one, 7)


def test_output_comes_while_the_process_runs(yard: Yard, open_reader: Opener) -> None:
    one = yard.shell("echo one; read line; echo two", stdin=True)
    wait_size(one, 4)
    blocks = open_reader(one).blocks(wait=20)
    assert decode([next(blocks)])[1] == (frames.STDOUT, b"one\n")
    assert one.input is not None
    one.input.end()
    assert decode(blocks)[0] == (frames.STDOUT, b"two\n")


def test_without_a_wait_the_answer_is_what_is_there(yard: Yard, open_reader: Opener) -> None:
    one = yard.start("sleep", "77")
    found = decode(open_reader(one).blocks(wait=0))
    assert [kind for kind, _ in found] == [frames.PROCESS]
    assert not one.is_told


def test_a_quiet_process_ends_the_answer_after_the_wait(yard: Yard, open_reader: Opener) -> None:
    one = yard.start("sleep", "77")
    begin = time.monotonic()
    assert len(decode(open_reader(one).blocks(wait=0.1))) == 1
    assert 0.1 <= time.monotonic() - begin < 10


def test_one_answer_is_bounded_and_the_next_goes_on(
    yard: Yard, open_reader: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_STREAM_BYTES", 300_000)
    one = yard.start("head", "-c", "700000", "/dev/zero")
    wait_end(one)
    offset, rounds = 0, 0
    while True:
        found = decode(open_reader(one, offset).blocks(wait=20))
        offset += sum(len(payload) for kind, payload in found if kind == frames.STDOUT)
        rounds += 1
        if found[-1][0] == frames.EXIT:
            break
        assert offset == 300_000 * rounds
    assert (offset, rounds) == (700_000, 3)


def test_a_client_that_is_slow_holds_little_memory(yard: Yard, open_reader: Opener) -> None:
    one = yard.start("head", "-c", "700000", "/dev/zero")
    wait_end(one)
    assert max(len(block) for block in open_reader(one).blocks(wait=20)) < 70_000


def test_whoever_wants_no_output_yet_is_a_reader_all_the_same(
    yard: Yard, open_reader: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", 100_000)
    monkeypatch.setattr(wire, "READER_GRACE_SECONDS", 0.5)
    one = yard.start("head", "-c", "3000000", "/dev/zero")
    wait_until(lambda: one.is_paused)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert [kind for kind, _ in decode(open_reader(one, 7).blocks(wait=0, limit=0))] == [frames.PROCESS]
        open_reader(one, 7).close()
        time.sleep(0.02)
    assert one.is_paused
    assert one.output.retain == "block"


def test_several_read_at_once_each_at_its_own_place(yard: Yard) -> None:
    one = yard.shell("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.02; done")
    results: dict[int, bytes] = {}

    def follow(offset: int) -> None:
        ours, client = socket.socketpair()
        with ours, client:
            reader = readers.Reader(one, offset, loop=yard.loop, connection=ours)
            found = decode(reader.blocks(wait=20))
            reader.close()
        results[offset] = b"".join(payload for kind, payload in found if kind == frames.STDOUT)

    wait_size(one, 4)
    threads = [threading.Thread(target=follow, args=(offset,)) for offset in (0, 1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    whole = b"1\n2\n3\n4\n5\n6\n7\n8\n"
    assert results == {0: whole, 1: whole[1:], 4: whole[4:]}


def test_a_client_that_goes_away_is_noticed_at_once(yard: Yard, connection: Pair, open_reader: Opener) -> None:
    one = yard.start("sleep", "77")
    blocks = open_reader(one).blocks(wait=20)
    next(blocks)
    threading.Timer(0.05, connection[1].close).start()
    begin = time.monotonic()
    with pytest.raises(PeerGoneError):
        next(blocks)
    assert time.monotonic() - begin < 10


def test_a_client_that_goes_away_frees_a_thread_that_sends(yard: Yard, connection: Pair, open_reader: Opener) -> None:
    ours, client = connection
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    one = yard.start("yes")
    blocks = open_reader(one).blocks(wait=20)
    failed = threading.Event()

    def send() -> None:
        try:
            while True:
                ours.sendall(next(blocks))
        except (OSError, PeerGoneError):
            failed.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert client.recv(1)
    client.shutdown(socket.SHUT_WR)  # a crash looks like this too, as long as nothing was sent to it
    sender.join(20)
    assert failed.is_set()


def test_a_slow_client_has_all_the_time_it_needs(yard: Yard, connection: Pair) -> None:
    ours, _ = connection
    ours.settimeout(5)
    one = yard.start("sleep", "77")
    reader = readers.Reader(one, 0, loop=yard.loop, connection=ours)
    assert ours.gettimeout() is None
    reader.close()
    assert ours.gettimeout() == wire.CONNECTION_IDLE_SECONDS
    assert one.readers == 0


def test_a_stale_event_harms_nobody(yard: Yard, connection: Pair, open_reader: Opener) -> None:
    one = yard.start("sleep", "77")
    reader = open_reader(one)
    reader._on_hangup()
    assert connection[0].fileno() in yard.loop._callbacks
    assert not reader._is_gone


def test_while_it_reads_the_writer_is_waited_for_and_then_paused(
    yard: Yard, open_reader: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", 1 << 20)
    one = yard.start("yes")
    open_reader(one)
    wait_until(lambda: one._is_paused)
    size = one.output.size
    open_reader(one, size)
    wait_until(lambda: one.output.size > size)


def test_a_late_event_of_a_closed_reader_takes_nobodys_descriptor(yard: Yard, connection: Pair) -> None:
    ours, client = connection
    reader = readers.Reader(yard.start("sleep", "77"), 0, loop=yard.loop, connection=ours)
    reader.close()
    yard.loop.watch(ours.fileno(), lambda: None, events=0)  # the number has been given to somebody else
    client.shutdown(socket.SHUT_WR)
    reader._on_hangup()
    assert ours.fileno() in yard.loop._callbacks
    assert ours.send(b"still open") == 10
    yard.loop.unwatch(ours.fileno())


def test_an_answer_ends_when_the_process_waits_for_what_was_read_to_be_confirmed(
    yard: Yard, open_reader: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", 1 << 20)
    one = yard.start("yes")
    begin = time.monotonic()
    assert decode(open_reader(one).blocks(wait=600))[-1][0] == frames.STDOUT
    assert time.monotonic() - begin < 60
