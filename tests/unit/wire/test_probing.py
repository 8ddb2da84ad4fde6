"""Peers that have only ended their side, and those that have left."""

from __future__ import annotations

import select
import socket

from tests.support.pairs import tcp_pair
from vmnest.wire.probing import probe


def test_a_peer_that_has_closed_its_socket_is_told_from_one_that_has_only_ended_its_side() -> None:
    # A closed socket answers for a minute, unless it is told another time.
    near, far = tcp_pair()
    near.shutdown(socket.SHUT_WR)
    poller = select.poll()
    poller.register(far, 0)
    probe(far, seconds=1)
    assert poller.poll(1500) == []  # longer than a probe takes
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
    near.close()
    ((_, events),) = poller.poll(20_000)
    assert events & select.POLLERR
    far.close()


def test_sockets_that_are_not_tcp_need_no_probes() -> None:
    left, right = socket.socketpair()
    with left, right:
        probe(left)
