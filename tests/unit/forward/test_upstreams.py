"""Connections to the endpoint that are used again: which, for how long, and what becomes of them at the end."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.authority import Authority
from tests.support.clock import FakeClock
from tests.support.pairs import VERSIONS, secured, tcp_pair
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.forward import upstreams
from vmnest.forward.upstreams import Upstream, Upstreams


class Gate:
    """Opens connections whose other ends are ``peers``."""

    def __init__(self, stack: ExitStack, authority: Authority | None = None) -> None:
        self.peers: list[socket.socket] = []
        self.error: errors.VmnestError | None = None
        self._stack = stack
        self._authority = authority

    def open(self, deadline: Deadline) -> socket.socket:
        if self.error is not None:
            raise self.error
        assert not deadline.expired
        own, peer = tcp_pair()
        if self._authority is not None:
            own, peer = secured(own, peer, self._authority, VERSIONS["1.3"])
        self._stack.callback(own.close)
        self._stack.callback(peer.close)
        self.peers.append(peer)
        return own


@pytest.fixture
def gate() -> Iterator[Gate]:
    with ExitStack() as stack:
        yield Gate(stack)


@pytest.fixture
def pool(gate: Gate, fake_clock: FakeClock) -> Iterator[Upstreams]:
    made = Upstreams(gate, clock=fake_clock)  # type: ignore[arg-type]
    yield made
    made.close()


def take(pool: Upstreams) -> Upstream:
    return pool.take(is_repeatable=True)


def wait_for_news(upstream: Upstream) -> None:
    poller = select.poll()
    poller.register(upstream, select.POLLIN)
    assert poller.poll(20_000)


def test_the_connection_that_was_used_last_is_used_again(pool: Upstreams) -> None:
    first, second = take(pool), take(pool)
    assert not first.was_used
    pool.give_back(first)
    pool.give_back(second)
    again = take(pool)
    assert again is second
    assert again.was_used


def test_one_that_may_not_be_used_is_left_where_it_is(pool: Upstreams, gate: Gate) -> None:
    first = take(pool)
    pool.give_back(first)
    assert pool.take(is_repeatable=True, must_be_new=True) is not first
    assert take(pool) is first
    assert len(gate.peers) == 2


@pytest.mark.parametrize(
    ("is_repeatable", "limit"),
    [(True, upstreams.IDLE_LIMIT_SECONDS), (False, upstreams.IDLE_LIMIT_UNREPEATABLE_SECONDS)],
    ids=["repeatable", "not repeatable"],
)
def test_an_idle_one_is_used_for_as_long_as_it_is_fresh(
    pool: Upstreams, fake_clock: FakeClock, is_repeatable: bool, limit: float
) -> None:
    first = take(pool)
    pool.give_back(first)
    fake_clock.advance(limit - 0.1)
    assert pool.take(is_repeatable=is_repeatable) is first
    pool.give_back(first)
    fake_clock.advance(limit + 0.1)
    assert pool.take(is_repeatable=is_repeatable) is not first


def test_what_cannot_be_repeated_leaves_an_older_one_to_others(pool: Upstreams, fake_clock: FakeClock) -> None:
    first = take(pool)
    pool.give_back(first)
    fake_clock.advance(upstreams.IDLE_LIMIT_UNREPEATABLE_SECONDS + 1)
    assert pool.take(is_repeatable=False) is not first
    assert take(pool) is first


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"], ids=["its end", "an answer unasked"])
def test_one_of_which_its_peer_has_said_something_is_not_used_again(pool: Upstreams, gate: Gate, said: bytes) -> None:
    first = take(pool)
    pool.give_back(first)
    if said:
        gate.peers[0].sendall(said)
    else:
        gate.peers[0].close()
    wait_for_news(first)
    assert take(pool) is not first
    assert first.fileno() == -1


def test_a_ticket_of_tls_is_no_news(authority: Authority, fake_clock: FakeClock) -> None:
    with ExitStack() as stack:
        gate = Gate(stack, authority)
        pool = Upstreams(gate, clock=fake_clock)  # type: ignore[arg-type]
        stack.callback(pool.close)
        first = take(pool)
        wait_for_news(first)  # the tickets, which follow the handshake
        pool.give_back(first)
        assert take(pool) is first


def test_one_with_bytes_that_nobody_has_asked_for_is_not_kept(pool: Upstreams) -> None:
    first = take(pool)
    first.ahead = b"HTTP/1.1 200 OK\r\n"
    pool.give_back(first)
    assert first.fileno() == -1


def test_no_more_than_a_few_are_kept(pool: Upstreams) -> None:
    taken = [take(pool) for _ in range(upstreams.MAX_IDLE + 2)]
    for each in taken:
        pool.give_back(each)
    assert [each.fileno() == -1 for each in taken].count(True) == 2


def test_idle_ones_can_be_ended_while_others_go_on(pool: Upstreams) -> None:
    idle, busy = take(pool), take(pool)
    pool.give_back(idle)
    pool.drop_idle()
    assert idle.fileno() == -1
    assert busy.send(b"x") == 1


def test_one_that_was_dropped_is_closed(pool: Upstreams, gate: Gate) -> None:
    pool.drop(take(pool))
    assert gate.peers[0].recv(1) == b""


def test_its_end_wakes_who_waits_on_one_and_closes_the_rest(pool: Upstreams, gate: Gate) -> None:
    idle, busy = take(pool), take(pool)
    pool.give_back(idle)
    pool.close()
    assert idle.fileno() == -1
    wait_for_news(busy)
    assert busy.receive() == b""
    pool.drop(busy)


def test_after_its_end_connections_are_of_no_use(pool: Upstreams) -> None:
    busy = take(pool)
    pool.close()
    pool.give_back(busy)
    assert busy.fileno() == -1
    late = take(pool)
    assert late.receive() == b""
    pool.drop(late)


def test_an_endpoint_that_cannot_be_reached_is_the_gates_error(pool: Upstreams, gate: Gate) -> None:
    gate.error = errors.ConnectError("no connection")
    with pytest.raises(errors.ConnectError):
        take(pool)


def test_the_system_asks_whether_a_silent_peer_is_still_there(pool: Upstreams) -> None:
    assert take(pool).socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_with_tls_one_whose_peer_has_said_more_than_was_read_is_not_used_again(authority: Authority) -> None:
    with ExitStack() as stack:
        gate = Gate(stack, authority)
        pool = Upstreams(gate)  # type: ignore[arg-type]
        stack.callback(pool.close)
        upstream = take(pool)
        gate.peers[0].sendall(b"bodyHTTP/1.1 200 OK\r\n\r\n")  # in one record, so no poll shows what is left of it
        wait_for_news(upstream)
        while (data := upstream.receive(4)) is None:  # what TLS itself had to say came first
            wait_for_news(upstream)
        assert data == b"body"
        pool.give_back(upstream)
        assert take(pool) is not upstream
