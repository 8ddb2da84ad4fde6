"""Sockets that never block: plain ones, and TLS on both sides, driven by one thread."""

from __future__ import annotations

import contextlib
import os
import select
import ssl
from collections.abc import Callable, Iterator

import pytest

from tests.support.authority import Authority
from tests.support.pairs import VERSIONS, secured, tcp_pair
from vmnest.wire.pipes import Pipe

Pair = tuple[Pipe, Pipe]


@pytest.fixture(params=["plain", *VERSIONS])
def pair(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Pair]:
    """Two ends of a connection; with TLS the first one is its client."""
    left, right = tcp_pair()
    if request.param != "plain":
        left, right = secured(left, right, authority, VERSIONS[request.param])
    pipes = Pipe(left), Pipe(right)
    yield pipes
    for each in pipes:
        each.close()


def wait(pipe: Pipe, *, reading: bool = False, writing: bool = False) -> None:
    poller = select.poll()
    poller.register(pipe, pipe.interest(reading=reading, writing=writing))
    assert poller.poll(20_000)


def receive(pipe: Pipe) -> bytes:
    while (data := pipe.receive()) is None:
        wait(pipe, reading=True)
    return data


def read_all(pipe: Pipe) -> bytes:
    data = bytearray()
    while piece := receive(pipe):
        data += piece
    return bytes(data)


def test_bytes_go_both_ways_and_nothing_blocks(pair: Pair) -> None:
    left, right = pair
    assert (left.receive(), right.receive()) == (None, None)
    assert left.send(b"ping") == 4
    assert receive(right) == b"ping"
    assert right.send(b"pong") == 4
    assert receive(left) == b"pong"


@pytest.mark.parametrize("read", [lambda pipe: pipe.receive(3), lambda pipe: read_into(pipe, 3)], ids=["new", "into"])
def test_what_was_read_ahead_comes_first(pair: Pair, read: Callable[[Pipe], bytes]) -> None:
    left, right = pair
    left.ahead = b"ahead"
    right.send(b"later")
    assert left.has_pending
    assert (read(left), read(left)) == (b"ahe", b"ad")
    wait(left, reading=True)
    while (data := read(left)) is None:
        wait(left, reading=True)
    assert data == b"lat"


def read_into(pipe: Pipe, size: int) -> bytes | None:
    buffer = memoryview(bytearray(size))
    count = pipe.receive_into(buffer)
    return None if count is None else bytes(buffer[:count])


def test_a_peer_that_does_not_read_takes_no_more_and_later_all(pair: Pair) -> None:
    left, right = pair
    data = bytes(range(256)) * 4096
    sent = bytearray()
    while count := left.send(memoryview(data)):
        sent += data[:count]
    view, received = memoryview(bytearray(262144)), bytearray()
    while len(received) < len(sent):
        if (got := right.receive_into(view)) is None:
            left.send(b"")  # what TLS holds back of a record goes out with the next call
            continue
        received += view[:got]
    assert received == sent


def test_a_large_read_takes_many_records_at_once(pair: Pair) -> None:
    left, right = pair
    data = bytes(100_000)
    assert left.send(data) == len(data)
    view, total, calls = memoryview(bytearray(262144)), 0, 0
    while total < len(data):
        wait(right, reading=True)
        total += right.receive_into(view) or 0
        calls += 1
    assert total == len(data)
    assert calls <= 4


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("size", [5, 5000], ids=["little", "much"])
def test_with_tls_an_end_that_no_poll_shows_is_pending(
    authority: Authority, version: ssl.TLSVersion, size: int
) -> None:
    secure = secured(*tcp_pair(), authority, version)
    left, right = (Pipe(each) for each in secure)
    assert right.send(bytes(size)) == size
    with contextlib.suppress(ssl.SSLWantReadError):
        secure[1].unwrap()  # a close_notify, and no end of the stream below
    assert receive(left) == bytes(size)
    assert left.has_pending or polls(left)
    assert left.receive() == b""
    assert not left.has_pending or left.receive() == b""
    for each in (left, right):
        each.close()


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("size", [5, 5000], ids=["little", "much"])
def test_with_tls_a_failure_that_no_poll_shows_is_pending(
    authority: Authority, version: ssl.TLSVersion, size: int
) -> None:
    secure = secured(*tcp_pair(), authority, version)
    left, right = (Pipe(each) for each in secure)
    assert right.send(bytes(size)) == size
    os.write(right.fileno(), b"no record at all")
    assert receive(left) == bytes(size)
    assert left.has_pending or polls(left)
    with pytest.raises(ssl.SSLError):
        left.receive()
    for each in (left, right):
        each.close()


def polls(pipe: Pipe) -> bool:
    poller = select.poll()
    poller.register(pipe, pipe.interest(reading=True, writing=False))
    return bool(poller.poll(20_000))


def test_little_is_given_at_once_and_what_follows_it_is_announced(pair: Pair) -> None:
    left, right = pair
    for said in (b"one", b"two"):
        assert left.send(said) == 3
    heard = receive(right)
    if heard == b"one":
        assert right.has_pending or polls(right)
        heard += receive(right)
    assert heard == b"onetwo"


def test_one_side_ends_and_still_hears_the_other(pair: Pair) -> None:
    left, right = pair
    left.send(b"question")
    assert receive(right) == b"question"
    while not left.end_sending():
        receive_or_nothing(left)
    assert receive(right) == b""
    answer = bytes(300_000)
    sent = 0
    got = bytearray()
    while sent < len(answer):
        sent += right.send(memoryview(answer)[sent:])
        got += left.receive() or b""
    while not right.end_sending():
        receive_or_nothing(right)
    got += read_all(left)
    assert got == answer
    assert receive(right) == b""


def receive_or_nothing(pipe: Pipe) -> None:
    assert pipe.receive() in (None, b"")


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_with_tls_one_ends_while_much_still_comes_and_hears_all_of_it(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    left, right = (Pipe(each) for each in secured(*tcp_pair(), authority, version))
    data = bytes(range(256)) * 200
    assert right.send(data) == len(data)
    wait(left, reading=True)
    got = left.receive(1000) or b""  # in the middle of a record: the rest of it is decrypted, more waits encrypted
    assert left.end_sending()
    assert receive(right) == b""
    while not right.end_sending():
        wait(right, writing=True)
    assert got + read_all(left) == data
    for each in (left, right):
        each.close()


def test_with_tls_one_does_not_end_before_the_peer_has_room_to_hear_of_it(authority: Authority) -> None:
    left, right = (Pipe(each) for each in secured(*tcp_pair(), authority, VERSIONS["1.3"]))
    block = bytes(16384)
    while left.send(block):
        pass
    assert not left.end_sending()
    while not left.send(block):  # the last record is in the making: TLS wants it again
        right.receive()
    while not left.end_sending():
        right.receive()
    assert set(read_all(right)) <= {0}
    for each in (left, right):
        each.close()


def test_the_peer_is_told_by_a_close_notify(authority: Authority) -> None:
    left, right = secured(*tcp_pair(), authority, VERSIONS["1.3"])
    right.suppress_ragged_eofs = False  # or the end of the TCP stream would look the same
    near, far = Pipe(left), Pipe(right)
    assert near.end_sending()
    assert receive(far) == b""
    for each in (near, far):
        each.close()


def test_the_descriptors_are_as_many_afterwards_as_before(authority: Authority) -> None:
    left, right = secured(*tcp_pair(), authority, VERSIONS["1.3"])
    near = Pipe(left)
    before = set(os.listdir("/proc/self/fd"))
    assert near.end_sending()
    assert set(os.listdir("/proc/self/fd")) == before
    assert not os.get_inheritable(left.fileno())
    near.close()
    right.close()


def test_the_end_of_a_peer_that_is_gone_is_no_error(pair: Pair) -> None:
    left, right = pair
    right.close()
    while not left.end_sending():
        if left.receive() == b"":
            break
    assert left.end_sending()


def test_an_interruption_wakes_who_polls(pair: Pair) -> None:
    left, _ = pair
    left.interrupt()
    wait(left, reading=True)
    with contextlib.suppress(ConnectionResetError):  # TLS of Python 3.13 takes it for one
        assert left.receive() == b""


def test_closing_twice_is_fine(pair: Pair) -> None:
    pair[0].close()
    pair[0].close()
