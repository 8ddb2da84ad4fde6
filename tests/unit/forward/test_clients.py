"""One client connection: which requests are served, which are refused, and when it ends."""

from __future__ import annotations

import contextlib
import threading

import pytest

from tests.support.forward import AGENT_PORT, Forward
from tests.support.odd_servers import echo
from vmnest.forward import clients


def test_requests_are_served_one_after_the_other(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    client = forwarded.client()
    assert [client.get(method="POST", body=text).body for text in (b"one", b"two", b"three")] == [
        b"one",
        b"two",
        b"three",
    ]
    assert len(forwarded.endpoint.connections) == 1


def test_requests_that_come_together_are_answered_in_their_order(forward_plain: Forward) -> None:
    client = forward_plain(echo).client()
    client.send(b"".join(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d" % number for number in range(5)))
    assert [client.read().body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_empty_lines_before_a_request_are_passed_over(forward_plain: Forward) -> None:
    client = forward_plain(echo).client()
    client.send(b"\r\n\r\n")
    assert client.get().status == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * clients.MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_not_safe_is_refused_and_ends_the_connection(forward_plain: Forward, data: bytes, status: int) -> None:
    forwarded = forward_plain(echo)
    client = forwarded.client()
    client.send(data)
    assert client.read().status == status
    assert client.receive_all() == b""
    assert forwarded.endpoint.calls == []
    assert len(forwarded.remarks) == 1


def test_a_head_within_the_limit_passes(forward_plain: Forward) -> None:
    cookie = "a" * (clients.MAX_HEAD_BYTES - 200)
    assert forward_plain(echo).get("/", f"Cookie: {cookie}").status == 200


def test_empty_lines_keep_no_connection_open(forward_plain: Forward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "IDLE_SECONDS", 0.3)
    client = forward_plain(echo).client()
    ended = threading.Event()

    def type_on() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.01):
                client.send(b"\r\n")

    typing = threading.Thread(target=type_on)
    typing.start()
    assert client.receive_all() == b""
    ended.set()
    typing.join()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"http://, not https://"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", b"not HTTP"),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"not HTTP"),
    ],
    ids=["tls", "ssh", "postgres"],
)
def test_what_is_no_http_is_told_so(forward_plain: Forward, data: bytes, words: bytes) -> None:
    forwarded = forward_plain(echo)
    client = forwarded.client()
    client.send(data)
    assert words in client.receive_all()
    assert len(forwarded.remarks) == 1


def test_a_client_that_says_nothing_and_goes_is_no_problem(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    forwarded.client().close()
    half = forwarded.client()
    half.send(b"GET / HT")
    half.end_sending()
    assert half.receive_all() == b""
    assert forwarded.remarks == []


@pytest.mark.parametrize(
    ("limit", "said"),
    [("IDLE_SECONDS", b""), ("HEAD_SECONDS", b"GET / HTTP/1.1\r\nHost: local")],
    ids=["between requests", "in a head"],
)
def test_a_client_that_says_nothing_for_long_is_left(
    forward_plain: Forward, monkeypatch: pytest.MonkeyPatch, limit: str, said: bytes
) -> None:
    monkeypatch.setattr(clients, limit, 0.05)
    forwarded = forward_plain(echo)
    client = forwarded.client()
    if said:
        client.send(said)
    assert client.receive_all() == b""
    assert forwarded.remarks == []


def test_a_head_that_comes_byte_by_byte_is_one(forward_plain: Forward) -> None:
    client = forward_plain(echo).client()
    for byte in b"\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n":
        client.send(bytes([byte]))
    assert client.read().status == 200


def test_pages_of_other_sites_do_not_reach_the_agent(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo, routes=((AGENT_PORT, 0),))
    host = f"localhost:{forwarded.port}"
    assert forwarded.get("/", f"Origin: http://{host}").status == 200
    assert forwarded.get("/", "Origin: http://elsewhere.example").status == 403
    assert forwarded.get("/").status == 200


def test_a_client_of_http_1_0_is_served_too(forward_plain: Forward) -> None:
    client = forward_plain(echo).client()
    client.send(b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nold")
    assert client.receive_all().endswith(b"\r\n\r\nold")
