"""Messages read from a socket."""

import contextlib
import socket

import pytest

from vmnest.wire import bodies, http1, streams


@pytest.fixture
def line():
    with contextlib.ExitStack() as stack:
        near, far = (stack.enter_context(one) for one in socket.socketpair())
        near.settimeout(10)
        yield streams.Stream(near), far


def test_messages_that_come_in_one_piece_are_read_one_by_one(line):
    stream, peer = line
    peer.sendall(b"POST /1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\n\r\n")
    head = stream.read_head()
    assert head is not None
    framing = http1.request_framing(http1.parse_request(head))
    assert b"".join(stream.body(bodies.BodyDecoder(framing))) == b"abc"
    assert stream.read_head() == b"GET /2 HTTP/1.1"


def test_the_end_before_a_head_is_none(line):
    stream, peer = line
    peer.close()
    assert stream.read_head() is None


def test_the_end_in_a_head_is_an_error(line):
    stream, peer = line
    peer.sendall(b"GET")
    peer.close()
    with pytest.raises(http1.TruncatedError):
        stream.read_head()


def test_the_end_in_a_body_is_an_error(line):
    stream, peer = line
    peer.sendall(b"ab")
    peer.close()
    with pytest.raises(http1.TruncatedError):
        list(stream.body(bodies.BodyDecoder(http1.Framing(http1.LENGTH, 3))))


def test_a_body_may_last_until_the_end(line):
    stream, peer = line
    peer.sendall(b"ab")
    peer.close()
    assert b"".join(stream.body(bodies.BodyDecoder(http1.Framing(http1.UNTIL_CLOSE)))) == b"ab"


def test_an_open_silent_connection_is_not_stale(line):
    stream, _ = line
    assert not stream.is_stale()
    assert stream.socket.gettimeout() == 10


def test_a_closed_connection_is_stale(line):
    stream, peer = line
    peer.close()
    assert stream.is_stale()


def test_bytes_that_nobody_asked_for_make_a_connection_stale(line):
    stream, peer = line
    peer.sendall(b"HTTP/1.1 408")
    assert stream.is_stale()
    assert stream.receive() == b"HTTP/1.1 408"


def test_an_interrupted_read_ends(line):
    stream, _ = line
    stream.interrupt()
    assert stream.receive() == b""
