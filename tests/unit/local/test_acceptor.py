"""Listeners and their connections."""

import contextlib
import socket
import threading

import pytest

from vmnest.local import acceptor


@pytest.fixture
def running():
    one = acceptor.Acceptor(max_connections=3)
    one.start()
    yield one
    one.close()


def echo(sock):
    while data := sock.recv(100):
        sock.sendall(data)


def connect(listener):
    return contextlib.closing(socket.create_connection(listener.getsockname(), timeout=10))


def test_each_listener_has_its_own_service(running):
    one, two = acceptor.bind(), acceptor.bind()
    running.listen(one, echo, name="echo")
    running.listen(two, lambda sock: sock.sendall(b"two"), name="two")
    with connect(one) as sock:
        sock.sendall(b"hello")
        assert sock.recv(10) == b"hello"
    with connect(two) as sock:
        assert sock.recv(10) == b"two"
        assert sock.recv(10) == b""


def test_a_forgotten_listener_is_closed_and_its_connections_go_on(running):
    listener = acceptor.bind()
    address = listener.getsockname()
    running.listen(listener, echo, name="echo")
    with connect(listener) as sock:
        sock.sendall(b"1")
        assert sock.recv(10) == b"1"
        running.forget(listener)
        sock.sendall(b"2")
        assert sock.recv(10) == b"2"
        # The acceptor's next turn closes it.
        for _ in range(1000):
            try:
                socket.create_connection(address, timeout=10).close()
            except ConnectionRefusedError:
                break
            except ConnectionResetError:  # it was closed in that very moment
                continue
        else:
            pytest.fail("the listener is still open")


def test_a_connection_beyond_the_limit_is_closed(running):
    listener = acceptor.bind()
    running.listen(listener, echo, name="echo")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            sock = stack.enter_context(connect(listener))
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
        assert stack.enter_context(connect(listener)).recv(1) == b""


def test_a_flooded_listener_does_not_close_another_one(running):
    flooded, other = acceptor.bind(), acceptor.bind()
    for listener in (flooded, other):
        running.listen(listener, echo, name="echo")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connect(flooded)).sendall(b"x")
        sock = stack.enter_context(connect(other))
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"


def test_a_thread_that_does_not_start_costs_one_connection_only(running, monkeypatch):
    def fail(thread):
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    listener = acceptor.bind()
    running.listen(listener, echo, name="echo")
    monkeypatch.setattr(threading.Thread, "start", fail)
    with connect(listener) as sock:
        assert sock.recv(1) == b""
    with connect(listener) as sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"


def test_a_service_that_fails_is_logged_and_its_connection_closed(running, caplog):
    listener = acceptor.bind()
    running.listen(listener, lambda sock: 1 / 0, name="broken")
    with connect(listener) as sock:
        assert sock.recv(1) == b""
    assert "ZeroDivisionError" in caplog.text


def test_closing_ends_connections_and_threads():
    one = acceptor.Acceptor()
    one.start()
    listener = acceptor.bind()
    one.listen(listener, echo, name="echo-to-be-closed")
    with connect(listener) as sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        one.close()
        one.close()
        assert sock.recv(1) == b""
    assert "echo-to-be-closed" not in {thread.name for thread in threading.enumerate()}


def test_a_listener_that_comes_too_late_is_closed():
    one = acceptor.Acceptor()
    one.start()
    one.close()
    listener = acceptor.bind()
    one.listen(listener, echo, name="late")
    assert listener.fileno() == -1


def test_a_taken_port_is_an_error():
    with contextlib.closing(acceptor.bind()) as listener, pytest.raises(OSError, match="in use"):
        acceptor.bind(listener.getsockname()[1])
