"""Many connections at once, their bounds, and their end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.support.egress import PUBLIC, Way, World, open_way
from tests.support.machines import scripted_server
from vmnest.local.egress import Gate
from vmnest.local.egress.gate import MAX_CONNECTIONS
from vmnest.wire import egress, streams

PLACE = "a.example:5432"


def echo(stream: streams.Stream) -> None:
    for data in iter(stream.receive, b""):
        stream.send(data)


@contextlib.contextmanager
def way_to_echo(*, max_connections: int = MAX_CONNECTIONS) -> Iterator[Way]:
    with scripted_server(echo) as port:
        world = World({"a.example": [[PUBLIC]]}, {(PUBLIC, 5432): port})
        with open_way(PLACE, world=world, max_connections=max_connections) as way:
            yield way


def test_200_connections_at_once_are_all_carried() -> None:
    with way_to_echo() as way:
        opened = [way.tunnel(PLACE) for _ in range(200)]
        for index, stream in enumerate(opened):
            stream.send(b"%d" % index)
        assert [stream.receive() for stream in opened] == [b"%d" % index for index in range(200)]
        for stream in opened:
            stream.close()


def test_what_exceeds_the_bound_waits_until_there_is_room() -> None:
    with way_to_echo(max_connections=2) as way:
        first, second = way.tunnel(PLACE), way.tunnel(PLACE)
        third = way.dial()
        third.send(f"CONNECT {PLACE} HTTP/1.1\r\nHost: {PLACE}\r\n\r\n".encode())
        third.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            third.read_head()
        third.socket.settimeout(20)
        first.close()
        assert (third.read_head() or b"").startswith(b"HTTP/1.1 200")
        second.close()
        third.close()


def test_a_cut_ends_all_connections_and_lets_new_ones_in() -> None:
    with way_to_echo() as way:
        opened = [way.tunnel(PLACE) for _ in range(5)]
        idle = way.dial()
        idle.send(b"HEAD http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n")
        assert b"403" in (idle.read_head() or b"")
        way.gate.cut()
        for stream in (*opened, idle):
            assert stream.receive() == b""
            stream.close()
        stream = way.tunnel(PLACE)
        stream.send(b"again")
        assert stream.receive() == b"again"
        stream.close()


def test_a_cut_ends_a_connection_that_is_being_made() -> None:
    begun = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        place = full.getsockname()
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(place)

        class Full(World):
            def connect(self, sock: socket.socket, _: tuple[str, int]) -> None:
                begun.set()
                sock.connect(place)

        with open_way(PLACE, world=Full({"a.example": [[PUBLIC]]})) as way:
            stream = way.dial()
            stream.send(f"CONNECT {PLACE} HTTP/1.1\r\nHost: {PLACE}\r\n\r\n".encode())
            assert begun.wait(20)
            began = time.monotonic()
            way.gate.close()
            assert time.monotonic() - began < 4
            stream.close()
        for filler in fillers:
            filler.close()


def test_a_listener_that_is_closed_here_goes_on_elsewhere() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()
    for _ in range(2):
        gate = Gate(egress.parse([]), lambda line: None)
        gate.serve(listener.dup())
        with socket.create_connection(place, timeout=20) as call:
            call.sendall(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
            assert call.recv(12) == b"HTTP/1.1 403"
        gate.close()
        gate.close()
    # What comes while nobody accepts is kept for who will.
    with socket.create_connection(place, timeout=20) as call:
        call.sendall(b"waiting")
        listener.setblocking(True)
        with listener, listener.accept()[0] as accepted:
            assert accepted.recv(10) == b"waiting"


def test_a_gate_that_never_served_can_be_closed() -> None:
    Gate(egress.parse([]), lambda line: None).close()


def test_a_hundred_megabytes_go_through_in_little_memory() -> None:
    size, piece = 100_000_000, bytes(1_000_000)

    def serve(stream: streams.Stream) -> None:
        stream.read_head()
        stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            stream.send(piece)

    with scripted_server(serve) as port:
        world = World({"a.example": [[PUBLIC]]}, {(PUBLIC, 80): port, (PUBLIC, 5432): port})
        with open_way("a.example", PLACE, world=world) as way:
            for tunnelled in (False, True):
                stream = way.tunnel(PLACE) if tunnelled else way.dial()
                stream.send(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
                assert b"200 OK" in (stream.read_head() or b"")
                tracemalloc.start()
                received = 0
                while received < size:
                    received += len(stream.receive())
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                stream.close()
                assert received == size
                assert peak < 8_000_000


def test_a_fault_of_ours_ends_one_connection_only() -> None:
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            raise RuntimeError("a fault")

    listener = socket.create_server(("127.0.0.1", 0))
    place = listener.getsockname()
    gate = Gate(egress.parse([]), log)
    gate.serve(listener)
    answers = []
    for host in ("a", "b"):
        with socket.create_connection(place, timeout=20) as call:
            call.sendall(b"CONNECT %b:443 HTTP/1.1\r\nHost: %b:443\r\n\r\n" % (host.encode(), host.encode()))
            answers.append(call.recv(12))
    gate.close()
    assert answers == [b"", b"HTTP/1.1 403"]
