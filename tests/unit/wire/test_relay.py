"""The byte pump: both ways, half-close, back-pressure."""

import contextlib
import gc
import hashlib
import os
import socket
import threading
import time

import pytest

from tests.support.pairs import tcp_pair
from vmnest.wire import buffers, relay


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
    assert sent < 8 * buffers.BUFFER_BYTES
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


def test_a_peer_that_has_left_does_not_keep_the_pump_of_a_silent_one():
    (near, left), (right, far) = tcp_pair(), tcp_pair()
    with near, left, right, far:
        thread = threading.Thread(target=relay.pump, args=(left, right), kwargs={"probe_seconds": 1})
        thread.start()
        # A closed socket answers for a minute, unless it is told another time.
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 1)
        near.close()
        far.settimeout(10)
        assert far.recv(1) == b""
        thread.join(20)
        assert not thread.is_alive()


def test_a_reset_ends_the_pump_even_while_the_other_peer_does_not_read(monkeypatch):
    monkeypatch.setattr(relay, "LAST_WORDS_SECONDS", 0.1)
    (near, left), (right, far) = tcp_pair(), tcp_pair()
    with near, left, right, far:
        thread = threading.Thread(target=relay.pump, args=(left, right))
        thread.start()
        near.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while True:
                near.send(bytes(65536))
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        near.close()
        thread.join(10)
        assert not thread.is_alive()


def test_what_one_said_before_it_left_still_arrives():
    near, left = socket.socketpair()
    right, far = tcp_pair()
    said = bytes(1_000_000)
    with near, left, right, far:
        thread = threading.Thread(target=relay.pump, args=(left, right))
        thread.start()
        near.sendall(said)  # more than its peer has room for: some of it is in the pump
        near.close()  # of a pair that is not TCP, this shows at once
        assert read_all(far)[0] == len(said)
        far.shutdown(socket.SHUT_WR)
        thread.join(10)
        assert not thread.is_alive()


def test_those_that_wait_hold_no_buffers():
    with contextlib.ExitStack() as stack:
        lines = [[stack.enter_context(one) for _ in range(2) for one in socket.socketpair()] for _ in range(20)]
        threads = [threading.Thread(target=relay.pump, args=(line[1], line[2])) for line in lines]
        for thread, (near, _, _, far) in zip(threads, lines, strict=True):
            thread.start()
            for one, other in ((near, far), (far, near)):
                one.sendall(b"a few words")
                assert other.recv(100) == b"a few words"
        end = time.monotonic() + 10
        while buffers_there_are() > len(lines) and time.monotonic() < end:
            time.sleep(0.01)
        assert buffers_there_are() <= len(lines)  # two each, if each kept its own
        for near, _, _, far in lines:
            near.close()
            far.close()
        for thread in threads:
            thread.join(10)


def buffers_there_are():
    count = 0
    for one in gc.get_objects():
        with contextlib.suppress(ValueError, ReferenceError):  # a view that was released, a proxy of what is gone
            count += isinstance(one, memoryview) and len(one) == buffers.BUFFER_BYTES
    return count


@pytest.mark.parametrize("speaks", [False, True])
def test_a_pump_in_which_nobody_speaks_can_be_let_end(speaks):
    (near, left), (right, far) = socket.socketpair(), socket.socketpair()
    thread = threading.Thread(target=relay.pump, args=(left, right), kwargs={"idle_seconds": 0.3})
    thread.start()
    for _ in range(10 if speaks else 0):
        near.send(b"x")
        assert far.recv(1) == b"x"
        thread.join(0.05)
        assert thread.is_alive()
    thread.join(10)
    assert not thread.is_alive()
    for one in (near, left, right, far):
        one.close()
