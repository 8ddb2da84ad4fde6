"""Reading answers: whole, cut, too large, in pieces, with interim answers before them."""

import contextlib
import threading
import time

import pytest

from tests.support.authority import Authority
from tests.support.peers import Answer, Raw, Serve
from vmnest import errors, transport
from vmnest.deadline import Deadline
from vmnest.transport import Headers

SECONDS = 10.0
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def send(serve: Serve):
    sender = transport.Transport(environ={})

    def ask(*pieces: bytes, pause: float = 0.0, then_close: bool = True, method: str = "GET", **options):
        peer = serve(Raw(pieces, pause=pause, then_close=then_close), Answer(200, b"next"))
        options.setdefault("deadline", Deadline(SECONDS))
        ask.again = lambda: (sender.send("GET", peer.url, deadline=Deadline(SECONDS)).read(10), peer.connections)
        return sender.send(method, peer.url, **options)

    yield ask
    sender.close()


def test_headers_are_a_list_and_compare_without_case():
    headers = Headers([("Set-Cookie", "a"), ("X", "folded\r\n\t here"), ("set-cookie", "b")])
    assert headers.get("SET-COOKIE") == "a"
    assert headers.get_all("set-cookie") == ["a", "b"]
    assert headers.get("x") == "folded here"
    assert headers.get("y") is None
    assert headers.get("y", "z") == "z"
    assert "x" in headers
    assert 5 not in headers
    assert headers.items()[2] == ("set-cookie", "b")
    assert "folded" not in repr(headers)


def test_header_fields_arrive_in_order_and_repeated(send):
    response = send(OK + b"B: 1\r\na: 2\r\nB: 3\r\nL: \xe9\r\nContent-Length: 0\r\n\r\n")
    assert response.headers.items()[:4] == [("B", "1"), ("a", "2"), ("B", "3"), ("L", "\xe9")]
    response.close()


@pytest.mark.parametrize(
    "wire",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\nTrailer: x\r\n\r\n",
        OK + b"transfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
        + OK
        + b"Content-Length: 5\r\n\r\nhello",
    ],
)
@pytest.mark.parametrize("pause", [0.0, 0.001])
def test_a_whole_answer_is_read_whole(send, wire, pause):
    pieces = [wire] if not pause else [wire[at : at + 7] for at in range(0, len(wire), 7)]
    assert send(*pieces, pause=pause).read(5) == b"hello"


@pytest.mark.parametrize("lengths", [("5", "50"), ("-5",), ("5, 5",), ("x",), ("+5",), ("",), ("9" * 5000,)], ids=str)
def test_an_answer_whose_end_is_anybodys_guess_is_refused(send, lengths):
    fields = b"".join(b"Content-Length: " + length.encode() + b"\r\n" for length in lengths)
    with pytest.raises(errors.TransportError, match="not HTTP: malformed content-length"):
        send(OK + fields + b"\r\nhello")


def test_a_length_that_is_said_twice_is_a_length(send):
    assert send(OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello").read(5) == b"hello"


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 2",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        OK + b"Content-Length: 5\r\n\r\n",
        OK + b"Content-Length: 5\r\n\r\nhell",
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
    ],
)
def test_an_answer_that_is_cut_is_no_answer(send, wire):
    with pytest.raises(errors.TransportError) as caught:
        send(wire).read(100)
    assert isinstance(caught.value, errors.ConnectionLostError)
    assert caught.value.sent is True


WHOLE = OK + b"Content-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize("at", [0, 10, 20, len(WHOLE) - 3])
def test_each_silence_is_told_and_the_wait_goes_on(serve: Serve, at: int):
    silences = threading.Semaphore(0)
    with contextlib.closing(transport.Transport(environ={})) as sender:

        def gate():  # the rest of the answer comes after the second silence
            yield WHOLE[:at]
            for _ in range(2):
                assert silences.acquire(timeout=SECONDS)
            yield WHOLE[at:]

        peer = serve(Raw(gate()))
        response = sender.send(
            "GET", peer.url, deadline=Deadline(SECONDS), read_timeout=0.02, on_silence=silences.release
        )
        assert response.read(5) == b"hello"


def test_under_tls_as_well(serve: Serve, authority: Authority):
    silences = threading.Semaphore(0)

    def gate():
        yield WHOLE[:30]
        assert silences.acquire(timeout=SECONDS)
        yield WHOLE[30:]

    peer = serve(Raw(gate()), tls=authority.context("127.0.0.1"))
    with contextlib.closing(transport.Transport(verify=str(authority.bundle), environ={})) as sender:
        response = sender.send(
            "GET", peer.url, deadline=Deadline(SECONDS), read_timeout=0.02, on_silence=silences.release
        )
        assert response.read(5) == b"hello"


class EnoughError(Exception):
    """Whoever listens has had enough."""


@pytest.mark.parametrize("at", [0, 10, len(WHOLE) - 3])
def test_whoever_is_told_of_a_silence_can_end_the_wait(serve: Serve, at: int):
    def enough():
        raise EnoughError

    peer = serve(Raw((WHOLE[:at],), then_close=False, pause=SECONDS), Answer(200, b"next"))
    with contextlib.closing(transport.Transport(environ={})) as sender:
        with (
            pytest.raises(EnoughError),
            sender.send("GET", peer.url, deadline=Deadline(SECONDS), read_timeout=0.02, on_silence=enough) as response,
        ):
            response.read(5)
        assert sender.send("GET", peer.url, deadline=Deadline(SECONDS)).read(5) == b"next"
    assert peer.connections == 2


def test_a_silence_does_not_outlast_the_deadline(serve: Serve):
    told = []
    peer = serve(Raw((b"",), then_close=False, pause=SECONDS))
    with contextlib.closing(transport.Transport(environ={})) as sender, pytest.raises(errors.ReadTimeoutError):
        sender.send("GET", peer.url, deadline=Deadline(0.2), read_timeout=0.02, on_silence=lambda: told.append(1))
    assert len(told) > 2


@pytest.mark.parametrize(
    "wire",
    [
        b"hello\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 " + b"9" * 70_000,
        OK + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
        OK + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50,
    ],
)
def test_an_answer_that_is_not_http_is_told(send, wire):
    with pytest.raises(errors.TransportError, match="not HTTP"):
        send(wire)


@pytest.mark.parametrize("size", ["zz", "-1", "fffffffffffffffffff", ""])
def test_a_chunk_of_no_size_ends_the_answer(send, size):
    with pytest.raises(errors.TransportError):
        send(OK + b"Transfer-Encoding: chunked\r\n\r\n" + size.encode() + b"\r\nhello\r\n0\r\n\r\n").read(100)


@pytest.mark.parametrize(
    "wire",
    [
        OK + b"Content-Length: 6\r\n\r\nhello!",
        OK + b"Transfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n",
        OK + b"\r\nhello!",
        OK + b"Content-Length: 99999999999\r\n\r\nhello!",
    ],
)
def test_more_than_the_limit_is_not_taken(send, wire):
    with pytest.raises(errors.AnswerTooLargeError, match="larger than 5 bytes") as caught:
        send(wire).read(5)
    assert caught.value.retryable is False


def test_an_endless_answer_costs_no_more_than_the_limit(send):
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    began = time.monotonic()
    with pytest.raises(errors.AnswerTooLargeError):
        send(OK + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 64).read(2**20)
    assert time.monotonic() - began < 5


def test_chunks_are_handed_on_as_they_come(send):
    response = send(OK + b"Content-Length: 6\r\n\r\none", b"two", pause=0.3, then_close=False)
    began = time.monotonic()
    chunks = response.chunks()
    assert next(chunks) == b"one"
    assert time.monotonic() - began < 0.25
    assert list(chunks) == [b"two"]


def test_no_chunk_is_larger_than_asked_for(send):
    sizes = [len(chunk) for chunk in send(OK + b"Content-Length: 10000\r\n\r\n" + b"x" * 10000).chunks(300)]
    assert max(sizes) <= 300
    assert sum(sizes) == 10000


def test_what_was_read_to_its_end_gives_the_connection_back(send):
    response = send(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", then_close=False)
    assert list(response.chunks()) == [b"hello"]
    response.close()
    assert send.again() == (b"next", 1)


def test_what_was_not_read_to_its_end_does_not(send):
    response = send(OK + b"Content-Length: 10\r\n\r\nhello", then_close=False)
    assert next(response.chunks()) == b"hello"
    response.close()
    response.close()
    with pytest.raises(errors.ConnectionLostError, match="closed before its end"):
        response.read(10)
    assert send.again() == (b"next", 2)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_answers_without_a_body_leave_the_connection_usable(send, method, status):
    response = send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n", then_close=False, method=method)
    assert response.read(0) == b""
    assert send.again() == (b"next", 1)


def test_a_silence_in_the_middle_ends_at_the_read_timeout(send):
    response = send(OK + b"Content-Length: 10\r\n\r\nhello", then_close=False, read_timeout=0.2)
    with pytest.raises(errors.ReadTimeoutError, match=r"the rest of its answer did not come within 0\.2 s"):
        response.read(10)


def test_a_stream_that_drips_ends_at_the_deadline(send):
    response = send(OK + b"\r\n", *[b"x"] * 100, pause=0.05, deadline=Deadline(0.4))
    began = time.monotonic()
    with pytest.raises(errors.ReadTimeoutError):
        response.read(1000)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("head", [b"\r\n", b"Content-Length: 100\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n"])
def test_another_thread_can_end_a_read(send, head):
    response = send(OK + head + b"hello", then_close=False)
    chunks = response.chunks()
    assert next(chunks) == b"hello"
    closer = threading.Timer(0.1, response.close)
    closer.start()
    began = time.monotonic()
    with pytest.raises(errors.ConnectionLostError, match="closed before its end"):
        next(chunks)
    assert time.monotonic() - began < 5
    closer.join()
