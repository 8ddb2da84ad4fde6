"""A request and its answer on their way, both driven by one thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.support.pairs import tcp_pair
from vmnest.forward import crossing
from vmnest.forward.crossing import Crossing
from vmnest.forward.flows import BrokenError, Flow
from vmnest.forward.patience import GoneError
from vmnest.wire import http1
from vmnest.wire.pipes import Pipe

HEAD = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FIVE, TWO = http1.Framing(http1.LENGTH, 5), http1.Framing(http1.LENGTH, 2)
SECONDS = 20.0


class Ends(NamedTuple):
    """Two connections: of the client, and of the server."""

    client: socket.socket
    to_client: Pipe
    to_server: Pipe
    server: socket.socket


@pytest.fixture
def ends() -> Iterator[Ends]:
    client, near = tcp_pair()
    far, server = tcp_pair()
    for sock in (client, server):
        sock.settimeout(SECONDS)
    made = Ends(client, Pipe(near), Pipe(far), server)
    yield made
    for each in made:
        each.close()


def begun(ends: Ends, framing: http1.Framing = FIVE) -> Crossing:
    one = Crossing(ends.to_client, framing)
    one.begin(ends.to_server, head=HEAD)
    return one


def download(ends: Ends) -> Flow:
    return Flow(ends.to_server, ends.to_client, TWO, out=TWO)


def receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (piece := sock.recv(count - len(data))):
        data += piece
    return data


def meanwhile(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_request_goes_on_and_its_answer_comes_back(ends: Ends) -> None:
    def serve() -> None:
        assert receive(ends.server, len(HEAD) + 5) == HEAD + b"hello"
        ends.server.sendall(ANSWER)

    one = begun(ends)
    assert (one.is_received, one.is_sent, one.is_heard) == (False, False, False)
    ends.client.sendall(b"hello")
    other = meanwhile(serve)
    assert one.read_head().status == 200
    assert (one.is_received, one.is_sent, one.is_heard) == (True, True, True)
    one.carry(download(ends))
    assert receive(ends.client, 2) == b"ok"
    other.join()


def test_an_answer_does_not_wait_for_the_whole_request(ends: Ends) -> None:
    one = begun(ends)
    ends.client.sendall(b"he")
    ends.server.sendall(ANSWER)
    assert one.read_head().status == 200
    one.carry(download(ends))
    assert receive(ends.client, 2) == b"ok"
    assert not one.is_received
    ends.client.sendall(b"llo")
    one.finish()
    assert receive(ends.server, len(HEAD) + 5) == HEAD + b"hello"


def test_the_next_request_is_kept_while_one_is_answered(ends: Ends) -> None:
    one = begun(ends)
    ends.client.sendall(b"helloGET")

    def serve() -> None:
        receive(ends.server, len(HEAD) + 5)
        ends.server.sendall(ANSWER)

    other = meanwhile(serve)
    one.read_head()
    one.carry(download(ends))
    other.join()
    rest = ends.to_client.ahead or ends.to_client.receive()
    assert rest == b"GET"


def test_a_request_can_be_repeated_on_another_connection(ends: Ends) -> None:
    one = begun(ends)
    ends.client.sendall(b"hello")
    ends.server.close()
    with pytest.raises(BrokenError) as caught:
        one.read_head()
    assert caught.value.pipe is ends.to_server
    assert one.can_repeat
    far, server = tcp_pair()
    with far, server:
        server.settimeout(SECONDS)
        one.begin(Pipe(far), head=HEAD)
        server.sendall(ANSWER)
        assert one.read_head().status == 200
        assert receive(server, len(HEAD) + 5) == HEAD + b"hello"


def test_a_client_that_leaves_ends_it(ends: Ends) -> None:
    one = begun(ends, http1.NO_BODY)
    ends.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other = meanwhile(lambda: (receive(ends.server, len(HEAD)), ends.client.close()))
    with pytest.raises((GoneError, BrokenError)):
        one.read_head()
    other.join()


def test_a_client_that_has_ended_its_side_still_gets_the_answer(ends: Ends) -> None:
    one = begun(ends, http1.NO_BODY)
    ends.client.shutdown(socket.SHUT_WR)

    def serve() -> None:
        receive(ends.server, len(HEAD))
        ends.server.sendall(ANSWER)

    other = meanwhile(serve)
    one.read_head()
    one.carry(download(ends))
    assert receive(ends.client, 2) == b"ok"
    other.join()


def test_for_a_client_that_may_have_left_a_silent_answer_is_given_up(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crossing, "SILENCE_SECONDS", 0.05)
    one = begun(ends, http1.NO_BODY)
    ends.client.shutdown(socket.SHUT_WR)
    with pytest.raises(GoneError):
        one.read_head()


def test_what_is_no_answer_breaks_the_servers_side(ends: Ends) -> None:
    one = begun(ends, http1.NO_BODY)
    ends.server.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")
    with pytest.raises(BrokenError) as caught:
        one.read_head()
    assert caught.value.pipe is ends.to_server
    assert one.is_heard
