"""Bodies of requests: lengths, chunks, limits, the invitation to send."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import bodies, heads
from guest.agentd.errors import PeerGoneError, RequestError


class Invitation:
    """Counts how often the client was invited."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def make_body(data: bytes, *fields: str, invite: Invitation | None = None) -> tuple[bodies.Body, io.BytesIO]:
    head = heads.parse([b"POST / HTTP/1.1", *(field.encode() for field in fields)])
    stream = io.BytesIO(data)
    return bodies.Body(stream, head, invite=invite or Invitation()), stream


def test_a_body_with_a_length_ends_there() -> None:
    body, stream = make_body(b"hello GET /", "Content-Length: 5")
    assert not body.is_consumed
    assert body.read(10) == b"hello"
    assert body.is_consumed
    assert stream.read() == b" GET /"


def test_a_request_without_a_body_is_consumed_from_the_start() -> None:
    body, _ = make_body(b"next")
    assert body.is_consumed
    assert body.read(0) == b""


@given(st.binary(max_size=2000), st.lists(st.integers(1, 300), max_size=20))
def test_chunks_are_joined_whatever_their_sizes(data: bytes, sizes: list[int]) -> None:
    coded, start = b"", 0
    for size in [*sizes, len(data)]:
        piece = data[start : start + size]
        start += size
        coded += b"%x;ext\r\n%b\r\n" % (len(piece), piece) if piece else b""
    body, stream = make_body(coded + b"0\r\nTrailer: x\r\n\r\nrest", "Transfer-Encoding: chunked")
    assert body.read(2000) == data
    assert body.is_consumed
    assert stream.read() == b"rest"


@pytest.mark.parametrize("fields", [("Content-Length: 11",), ("Transfer-Encoding: chunked",)])
def test_a_body_above_the_limit_is_a_413(fields: tuple[str, ...]) -> None:
    body, _ = make_body(b"b\r\nhello world\r\n0\r\n\r\n", *fields)
    with pytest.raises(RequestError) as caught:
        body.read(10)
    assert (caught.value.status, caught.value.code) == (413, "too_large")
    assert not body.is_consumed


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (b"hel", ("Content-Length: 5",)),
        (b"5\r\nhel", ("Transfer-Encoding: chunked",)),
        (b"5\r\nhello\r\n", ("Transfer-Encoding: chunked",)),
        (b"5", ("Transfer-Encoding: chunked",)),
    ],
)
def test_a_body_that_stops_in_the_middle_means_that_the_client_is_gone(data: bytes, fields: tuple[str, ...]) -> None:
    body, _ = make_body(data, *fields)
    with pytest.raises(PeerGoneError):
        body.read(100)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"zz\r\n", 400),
        (b"1\r\nab\r\n", 400),
        (b"1\r\r\na\r\n0\r\n\r\n", 400),
        (b"1\r\na\r\r\n0\r\n\r\n", 400),
        (b"1" + b"0" * 5000 + b"\r\n", 400),
        (b"0\r\n" + b"a: b\r\n" * 100, 431),
    ],
)
def test_malformed_chunks_are_refused(data: bytes, status: int) -> None:
    body, _ = make_body(data, "Transfer-Encoding: chunked")
    with pytest.raises(RequestError) as caught:
        body.read(100)
    assert caught.value.status == status


def test_the_client_is_invited_once_and_only_when_it_waits() -> None:
    invitation = Invitation()
    body, _ = make_body(b"hello", "Content-Length: 5", "Expect: 100-continue", invite=invitation)
    assert body.read(10) == b"hello"
    assert body.read(10) == b""
    assert invitation.count == 1


def test_a_client_that_waits_with_too_large_a_body_is_not_invited() -> None:
    invitation = Invitation()
    body, _ = make_body(b"", "Content-Length: 50", "Expect: 100-continue", invite=invitation)
    with pytest.raises(RequestError):
        body.read(10)
    assert invitation.count == 0
