"""The byte pump: both ways, half-close, back-pressure."""

import contextlib
import hashlib
import os
import socket
import threading

import pytest

from vmnest.wire import relay


@pytest.fixture
def line():
    """Two sockets that a pump connects: what one end sends, the other gets."""
    with contextlib.ExitStack() as stack:
        near, left = (stack.enter_context(one) for one in socket.socketpair())
        right, far = (stack.enter_context(one) for one in socket.socketpair())
        seen = []
        thread = threading.Thread(target=relay.pump, args=(left, right), kwargs={"on_bytes": seen.append})
        thread.start()
        for one in (near, far):
            one.settimeout(10)
        yield near, far, thread, seen
        near.close()
        far.close()
        thread.join(10)
        assert not thread.is_alive()


def read_all(sock):
    digest, count = hashlib.sha256(), 0
    while data := sock.recv(65536):
        digest.update(data)
        count += len(data)
    return count, digest.hexdigest()


def test_bytes_go_both_ways_and_are_counted(line):
    near, far, thread, seen = line
    near.sendall(b"ping")
    assert far.recv(10) == b"ping"
    far.sendall(b"pong!")
    assert near.recv(10) == b"pong!"
    near.close()
    far.close()
    thread.join(10)
    assert sum(seen) == 9


def test_either_side_may_speak_first(line):
    near, far, _, _ = line
    far.sendall(b"hello")
    assert near.recv(10) == b"hello"


def test_the_end_of_one_way_leaves_the_other_open(line):
    near, far, thread, _ = line
    near.sendall(b"request")
    near.shutdown(socket.SHUT_WR)
    assert far.recv(10) == b"request"
    assert far.recv(10) == b""
    assert thread.is_alive()
    far.sendall(b"late answer")
    far.shutdown(socket.SHUT_WR)
    assert near.recv(20) == b"late answer"
    assert near.recv(10) == b""
    thread.join(10)
    assert not thread.is_alive()


def test_a_slow_reader_holds_its_writer_back(line):
    near, far, _, _ = line
    near.setblocking(False)
    sent = 0
    stop = threading.Event()
    while not stop.wait(0.02):
        before = sent
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += near.send(b"x" * 65536)
        if sent == before:
            break
    assert sent < 8 * relay.BUFFER_BYTES
    near.shutdown(socket.SHUT_WR)
    assert read_all(far)[0] == sent


def test_much_data_passes_both_ways_at_once(line):
    near, far, _, _ = line
    data = os.urandom(1 << 20) * 8
    results = {}

    def write(sock):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=write, args=(one,)) for one in (near, far)]
    threads += [threading.Thread(target=lambda one=one: results.update({one: read_all(one)})) for one in (near, far)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    expected = (len(data), hashlib.sha256(data).hexdigest())
    assert results == {near: expected, far: expected}


def test_a_reset_ends_the_pump():
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        near = stack.enter_context(socket.create_connection(listener.getsockname()))
        left = stack.enter_context(listener.accept()[0])
        right, far = (stack.enter_context(one) for one in socket.socketpair())
        thread = threading.Thread(target=relay.pump, args=(left, right))
        thread.start()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        near.close()
        thread.join(10)
        assert not thread.is_alive()
        assert far.fileno() >= 0


def test_shutting_a_socket_down_from_another_thread_ends_the_pump():
    with contextlib.ExitStack() as stack:
        near, left = (stack.enter_context(one) for one in socket.socketpair())
        right, far = (stack.enter_context(one) for one in socket.socketpair())
        thread = threading.Thread(target=relay.pump, args=(left, right))
        thread.start()
        left.shutdown(socket.SHUT_RDWR)
        right.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()
        assert near.recv(1) == far.recv(1) == b""


def test_bytes_read_ahead_go_first():
    with contextlib.ExitStack() as stack:
        near, left = (stack.enter_context(one) for one in socket.socketpair())
        right, far = (stack.enter_context(one) for one in socket.socketpair())
        near.sendall(b"lo")
        near.shutdown(socket.SHUT_WR)
        far.sendall(b"ld")
        far.shutdown(socket.SHUT_WR)
        relay.pump(left, right, from_left=b"hel", from_right=b"wor")
        assert far.recv(10) + far.recv(10) == b"hello"
        assert near.recv(10) + near.recv(10) == b"world"
