"""A few bytes to a peer or from it: slow ones, silent ones, and such as are gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.pairs import tcp_pair
from vmnest.forward import patience
from vmnest.forward.patience import GoneError
from vmnest.wire.pipes import Pipe

Pair = tuple[Pipe, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = tcp_pair()
    pipe = Pipe(left)
    right.settimeout(20)
    yield pipe, right
    pipe.close()
    right.close()


def test_what_a_slow_peer_does_not_take_at_once_is_sent_all_the_same(pair: Pair) -> None:
    pipe, peer = pair
    sender = threading.Thread(target=patience.send, args=(pipe, b"x" * (32 << 20)))
    sender.start()
    count = 0
    while count < 32 << 20:
        count += len(peer.recv(1 << 20))
    sender.join()
    assert count == 32 << 20


def test_a_peer_that_takes_nothing_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SEND_SECONDS", 0.05)
    with pytest.raises(GoneError):
        patience.send(pair[0], b"x" * (64 << 20))


def test_a_peer_that_is_gone_is_told_as_such(pair: Pair) -> None:
    pipe, peer = pair
    reset(peer)
    with pytest.raises(GoneError):
        patience.receive(pipe, seconds=20)
    with pytest.raises(GoneError):
        patience.send(pipe, b"x")


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.close()


def test_bytes_that_come_late_are_waited_for(pair: Pair) -> None:
    pipe, peer = pair
    timer = threading.Timer(0.05, peer.sendall, [b"late"])
    timer.start()
    assert patience.receive(pipe, seconds=20) == b"late"
    timer.join()


def test_bytes_that_do_not_come_are_not_waited_for_for_ever(pair: Pair) -> None:
    with pytest.raises(GoneError):
        patience.receive(pair[0], seconds=0.01)


def test_the_end_of_a_connection_is_no_bytes(pair: Pair) -> None:
    pair[1].close()
    assert patience.receive(pair[0], seconds=20) == b""


def test_after_the_last_answer_what_a_client_still_sends_is_read(pair: Pair) -> None:
    pipe, peer = pair
    peer.sendall(b"x" * 100_000)
    lingering = threading.Thread(target=patience.linger, args=(pipe,))
    lingering.start()
    assert peer.recv(1) == b""  # our side has ended
    peer.sendall(b"x" * 100_000)  # no reset yet
    peer.close()
    lingering.join(20)
    assert not lingering.is_alive()


def test_nobody_lingers_for_long(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LINGER_SECONDS", 0.02)
    patience.linger(pair[0])
    assert pair[1].recv(1) == b""


def test_an_aborted_connection_ends_with_a_reset(pair: Pair) -> None:
    pipe, peer = pair
    patience.abort(pipe)
    pipe.close()
    with pytest.raises(ConnectionResetError):
        peer.recv(1)
