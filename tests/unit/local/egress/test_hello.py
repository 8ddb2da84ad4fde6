"""What a TLS client says first: real ones, in any pieces, and ones that lie."""

from __future__ import annotations

import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.egress import hello as real_hello
from vmnest.local.egress import hello

NAMED = real_hello("files.pythonhosted.org")


def read(data: bytes, *, size: int | None = None) -> str | None:
    """The name in a hello that comes in pieces of that size."""
    one = hello.Hello()
    pieces = [data] if size is None else [data[start : start + size] for start in range(0, len(data), size)]
    results = [one.feed(piece) for piece in pieces]
    assert results == [False] * (len(results) - 1) + [True]
    return one.server_name


def in_records(message: bytes, *, size: int) -> bytes:
    """A handshake message in records of at most that size."""
    parts = [message[start : start + size] for start in range(0, len(message), size)]
    return b"".join(struct.pack(">BBBH", 22, 3, 1, len(part)) + part for part in parts)


def build(extensions: bytes | None, *, kind: int = 1) -> bytes:
    """A hello with these extensions, in one record."""
    body = bytes(34) + b"\0" + b"\0\2\x13\x01" + b"\1\0"
    if extensions is not None:
        body += struct.pack(">H", len(extensions)) + extensions
    return in_records(bytes([kind]) + len(body).to_bytes(3, "big") + body, size=16384)


def server_name(*names: bytes, kind: int = 0) -> bytes:
    """The extension that names servers."""
    entries = b"".join(struct.pack(">BH", kind, len(name)) + name for name in names)
    content = struct.pack(">H", len(entries)) + entries
    return struct.pack(">HH", 0, len(content)) + content


def test_the_name_is_found_in_what_real_clients_say() -> None:
    assert read(NAMED) == "files.pythonhosted.org"
    assert read(real_hello(None)) is None
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert read(real_hello("a.example", context=old)) == "a.example"


@given(st.integers(1, 600))
def test_packets_may_be_of_any_size(size: int) -> None:
    assert read(NAMED, size=size) == "files.pythonhosted.org"


@given(st.integers(1, 600), st.integers(1, 50))
def test_a_hello_may_be_spread_over_records(size: int, packet: int) -> None:
    data = in_records(NAMED[5:], size=size)
    if size < 4:
        data = in_records(NAMED[5:], size=4)
    assert read(data, size=packet) == "files.pythonhosted.org"


def test_records_of_a_byte_are_taken_too() -> None:
    assert read(in_records(NAMED[5:], size=1)) == "files.pythonhosted.org"


def test_a_hello_without_extensions_wants_nobody() -> None:
    assert read(build(None)) is None
    assert read(build(b"")) is None
    assert read(build(server_name(b"a.example"))) == "a.example"


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x03\x01", b"\x16\x02\x01", b"\x00"]
)
def test_what_does_not_begin_as_tls_does_is_none(data: bytes) -> None:
    with pytest.raises(hello.NotTlsError):
        hello.Hello().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        build(None, kind=2),  # a server's
        build(server_name(b"a.example", b"b.example")),
        build(server_name(b"a.example") + server_name(b"b.example")),
        build(server_name()),
        build(server_name(b"")),
        build(server_name(b"a example")),
        build(server_name(b"a\0.example")),
        build(server_name("ä".encode())),
        build(server_name(b"a.example", kind=1)),
        build(server_name(b"x" * 256)),
        build(b"\0\0"),
        build(b"\0\0\0\5\0\3\0"),
        build(server_name(b"a.example")[:-1]),
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x40\x01" + bytes(0x4001),
        in_records(NAMED[5:], size=100)[:105] + b"\x17\x03\x03\x00\x01x",
        in_records(b"\1\xff\xff\xff" + bytes(70000), size=16000),
    ],
)
def test_a_hello_that_lies_is_refused(data: bytes) -> None:
    with pytest.raises(hello.HelloError):
        hello.Hello().feed(data)


@given(st.binary(max_size=200))
def test_whatever_comes_behind_the_beginning_is_judged(data: bytes) -> None:
    one = hello.Hello()
    try:
        one.feed(b"\x16\x03\x01" + data)
    except hello.HelloError:
        assert one.server_name is None
