"""Connections of the control plane."""

import contextlib
import socket
import threading

import pytest

from vmnest.local import httpd
from vmnest.wire import bodies, http1, streams


@pytest.fixture
def line():
    """A connection that is served by an echo of request line and body; the body limit is 100 bytes."""

    def answer(request, body):
        seen.append(request)
        return httpd.Reply(200, [("X", "y")], f"{request.method} {request.target} ".encode() + body)

    seen = []
    with contextlib.ExitStack() as stack:
        near, far = (stack.enter_context(one) for one in socket.socketpair())

        def serve():
            with far:
                httpd.serve(far, httpd.with_body(answer, limit=100))

        thread = threading.Thread(target=serve)
        thread.start()
        near.settimeout(10)
        yield streams.Stream(near), seen
        near.close()
        thread.join(10)
        assert not thread.is_alive()


def read(stream, *, method="GET"):
    head = stream.read_head()
    assert head is not None
    response = http1.parse_response(head)
    framing = http1.response_framing(response, method=method)
    return response, b"".join(stream.body(bodies.BodyDecoder(framing)))


def test_requests_are_answered_one_after_the_other(line):
    stream, _ = line
    stream.send(
        b"GET //a HTTP/1.1\r\n\r\n" + b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    )
    assert read(stream)[1] == b"GET //a "
    assert read(stream)[1] == b"POST /b x"


def test_the_connection_ends_when_the_client_wants_it(line):
    stream, _ = line
    stream.send(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    response, _ = read(stream)
    assert http1.first(response.fields, "connection") == "close"
    assert stream.receive() == b""


def test_the_answer_to_head_has_no_body(line):
    stream, _ = line
    stream.send(b"HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    response, body = read(stream, method="HEAD")
    assert (http1.first(response.fields, "content-length"), body) == ("7", b"")
    assert read(stream)[1] == b"GET / "


def test_a_client_that_expects_is_told_to_go_on(line):
    stream, _ = line
    stream.send(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
    assert stream.read_head() == b"HTTP/1.1 100 Continue"
    stream.send(b"z")
    assert read(stream)[1] == b"PUT / z"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\n\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * http1.MAX_HEAD_BYTES, 431),
        (b"POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + b"x" * 255 + b"\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ],
    ids=["garbage", "bare LF", "version", "large head", "large body", "growing body", "smuggling"],
)
def test_what_is_not_understood_is_answered_and_ends_the_connection(line, data, status):
    stream, seen = line
    stream.send(data)
    assert read(stream)[0].status == status
    assert stream.receive() == b""
    assert not seen


def test_a_client_that_leaves_in_the_middle_gets_no_answer(line):
    stream, seen = line
    stream.send(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab")
    stream.socket.shutdown(socket.SHUT_WR)
    assert stream.receive() == b""
    assert not seen


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_content_has_no_length(status):
    data = httpd.Reply(status, []).serialize(close=False)
    assert data.startswith(b"HTTP/1.1 %d " % status)
    assert b"Content-Length" not in data


def test_what_comes_after_the_answer_comes_after_it():
    with contextlib.ExitStack() as stack:
        near, far = (stack.enter_context(one) for one in socket.socketpair())
        near.sendall(b"POST / HTTP/1.1\r\nConnection: close\r\n\r\n")
        seen = []
        reply = httpd.Reply(200, [], b"bye", then=lambda: seen.append(near.recv(1000)))
        httpd.serve(far, lambda request, incoming: reply)
    assert seen[0].endswith(b"bye")


def served(respond):
    """A connection whose requests ``respond`` answers, and the thread that does it."""
    near, far = socket.socketpair()
    near.settimeout(10)

    def serve():
        with far:
            httpd.serve(far, respond)

    thread = threading.Thread(target=serve)
    thread.start()
    return streams.Stream(near), thread


def test_who_answers_before_the_body_ends_the_connection():
    stream, thread = served(lambda request, incoming: httpd.Reply(403, []))
    stream.send(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
    response, _ = read(stream)
    assert response.status == 403
    assert http1.first(response.fields, "connection") == "close"
    assert stream.receive() == b""
    stream.close()
    thread.join(10)


def test_a_body_can_be_read_in_pieces():
    sizes = []

    def respond(request, incoming):
        sizes.extend(len(piece) for piece in incoming.pieces(limit=1 << 30))
        return httpd.Reply(200, [])

    stream, thread = served(respond)
    stream.send(b"PUT / HTTP/1.1\r\nContent-Length: 3000000\r\nConnection: close\r\n\r\n" + b"x" * 3_000_000)
    assert read(stream)[0].status == 200
    thread.join(10)
    assert sum(sizes) == 3_000_000
    assert max(sizes) <= streams.RECEIVE_BYTES
    stream.close()


@pytest.mark.parametrize(("method", "expected"), [("GET", b"cde"), ("HEAD", b"")])
def test_a_piece_of_a_file_is_sent_and_the_file_closed(tmp_path, method, expected):
    (tmp_path / "f").write_bytes(b"abcdefg")
    file = (tmp_path / "f").open("rb")
    stream, thread = served(lambda request, incoming: httpd.Reply(206, [], piece=httpd.Piece(file, 2, 3)))
    stream.send(f"{method} / HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    response, body = read(stream, method=method)
    assert (http1.first(response.fields, "content-length"), body) == ("3", expected)
    thread.join(10)
    assert file.closed
    stream.close()


def test_a_peer_that_drips_after_our_last_words_is_left(monkeypatch):
    monkeypatch.setattr(httpd, "_LINGER_SECONDS", 0.05)
    left = threading.Event()

    def drip():
        with contextlib.suppress(ConnectionError):
            while not left.wait(0.01):
                near.sendall(b"x")

    near, far = socket.socketpair()
    with near, far:
        thread = threading.Thread(target=drip)
        thread.start()
        httpd.linger(streams.Stream(far))
        left.set()
        thread.join()
