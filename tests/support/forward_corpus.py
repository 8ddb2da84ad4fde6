"""Awkward requests: byte strings, and what each must be understood as; and a strategy that makes more of them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

HOST = b"Host: localhost\r\n"


class Understood(NamedTuple):
    """A request that passes."""

    method: str
    target: str
    body: bytes = b""


class Case(NamedTuple):
    """Bytes of a client that then ends its side.

    ``passes`` are the requests that reach the server; ``then`` is the status with which the forwarder itself refuses
    what follows them: 0 if nothing does, None if the connection just ends (the client broke off).
    """

    name: str
    sent: bytes
    passes: tuple[Understood, ...] = ()
    then: int | None = 0


def _get(*lines: bytes, target: bytes = b"/a", host: bytes = HOST) -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def _post(*lines: bytes, body: bytes = b"") -> bytes:
    return b"POST /a HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def _chunked(body: bytes, *lines: bytes) -> bytes:
    return _post(b"Transfer-Encoding: chunked", *lines, body=body)


A = Understood("GET", "/a")
EMPTY = Understood("POST", "/a")
HELLO = Understood("POST", "/a", b"hello")
# What a server that misunderstands the first request takes for a second one.
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"

PASSES = [
    Case("a plain request", _get(), (A,)),
    Case("two requests at once", _get() + _get(target=b"/b"), (A, Understood("GET", "/b"))),
    Case("an empty line before", b"\r\n" + _get(), (A,)),
    Case("a body, then a request", _post(b"Content-Length: 5", body=b"hello") + _get(), (HELLO, A)),
    Case("chunks, then a request", _chunked(b"5\r\nhello\r\n0\r\n\r\n") + _get(), (HELLO, A)),
    Case("an empty line behind a body", _post(b"Content-Length: 5", body=b"hello\r\n") + _get(), (HELLO, A)),
    Case("chunks with extensions", _chunked(b'2;a=b\r\nhe\r\n3 ;x="y"\r\nllo\r\n0;z\r\n\r\n'), (HELLO,)),
    Case("chunk sizes with zeros and capitals", _chunked(b"0005\r\nhello\r\n000\r\n\r\n"), (HELLO,)),
    Case("a chunk of hexadecimal size", _chunked(b"A\r\n0123456789\r\n0\r\n\r\n"),
         (Understood("POST", "/a", b"0123456789"),)),
    Case("a trailer", _chunked(b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", b"Trailer: X-Sum"), (HELLO,)),
    Case("capitals in the coding", _post(b"TRANSFER-ENCODING: Chunked", body=b"0\r\n\r\n"), (EMPTY,)),
    Case("a body of a GET", b"GET /a HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello",
         (Understood("GET", "/a", b"hello"),)),
    Case("a request inside a body", _post(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN),
         (Understood("POST", "/a", HIDDEN),)),
    Case("zeros before a length", _post(b"Content-Length: 005", body=b"hello"), (HELLO,)),
    Case("spaces around a length", _post(b"Content-Length: \t 5 \t", body=b"hello"), (HELLO,)),
    Case("HTTP/1.0 without a host", b"GET /a HTTP/1.0\r\n\r\n", (A,)),
    Case("a body in HTTP/1.0", b"POST /a HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", (HELLO,)),
    Case("slashes and escapes", _get(target=b"/a//b/../c/./%2F%2e%2e/?x=%20&y=[1]|{2}"),
         (Understood("GET", "/a//b/../c/./%2F%2e%2e/?x=%20&y=[1]|{2}"),)),
    Case("an odd method", b"PROPFIND /a HTTP/1.1\r\n" + HOST + b"\r\n", (Understood("PROPFIND", "/a"),)),
    Case("OPTIONS of the whole server", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", (Understood("OPTIONS", "*"),)),
    Case("Connection names the length", _post(b"Connection: content-length", b"Content-Length: 5", body=b"hello"),
         (HELLO,)),
    Case("Connection names the coding", _post(b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked",
                                              body=b"5\r\nhello\r\n0\r\n\r\n"), (HELLO,)),
    Case("Connection names the host", _get(b"Connection: host, x-aws-proxy-auth, x-aws-proxy-port"), (A,)),
    Case("the platform's fields", _get(b"X-Aws-Proxy-Auth: mine", b"x-aws-proxy-PORT: 9000", b"X-AWS-PROXY-other: 1",
                                       b"vmnest-relay-port: 9000", b"Vmnest-Relay-Port: 22"), (A,)),
    Case("a tab and odd bytes in a value", _get(b"X-Odd: a\tb \xff\xe9;,\"'()"), (A,)),
    Case("an empty value", _get(b"X-Empty:"), (A,)),
    Case("16 KiB of cookies", _get(b"Cookie: " + b"c" * 16384), (A,)),
    Case("64 KiB of fields", _get(*(b"X-%d: " % n + b"v" * 4096 for n in range(15))), (A,)),
    Case("an upgrade that nobody wants", _get(b"Upgrade: h2c", b"Connection: Upgrade, HTTP2-Settings",
                                              b"HTTP2-Settings: AAMAAABkAAQAAP__"), (A,)),
    Case("the last of several requests closes", _get(b"Connection: close") + HIDDEN, (A,)),
]  # fmt: skip

REFUSED = [
    Case("length beside chunked", _post(b"Content-Length: 5", b"Transfer-Encoding: chunked",
                                        body=b"0\r\n\r\n" + HIDDEN), then=400),
    Case("chunked beside length", _post(b"Transfer-Encoding: chunked", b"Content-Length: 5",
                                        body=b"0\r\n\r\n" + HIDDEN), then=400),
    Case("two lengths", _post(b"Content-Length: 5", b"Content-Length: 0", body=b"hello" + HIDDEN), then=400),
    Case("two lengths in a line", _post(b"Content-Length: 5, 0", body=b"hello" + HIDDEN), then=400),
    Case("a signed length", _post(b"Content-Length: +5", body=b"hello" + HIDDEN), then=400),
    Case("a negative length", _post(b"Content-Length: -5", body=b"hello" + HIDDEN), then=400),
    Case("a length with an underscore", _post(b"Content-Length: 1_0", body=b"0123456789" + HIDDEN), then=400),
    Case("a hexadecimal length", _post(b"Content-Length: 0x5", body=b"hello" + HIDDEN), then=400),
    Case("a length with a space", _post(b"Content-Length: 5 0", body=b"hello" + HIDDEN), then=400),
    Case("an empty length", _post(b"Content-Length:", body=b"hello" + HIDDEN), then=400),
    Case("a length in other digits", _post(b"Content-Length: \xb2", body=b"hi" + HIDDEN), then=400),
    Case("an absurd length", _post(b"Content-Length: " + b"9" * 30, body=b"hello"), then=400),
    Case("chunked twice", _post(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n" + HIDDEN), then=501),
    Case("two codings in two lines", _post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity",
                                           body=b"0\r\n\r\n" + HIDDEN), then=501),
    Case("gzip and chunked", _post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n" + HIDDEN), then=501),
    Case("a coding with a parameter", _post(b"Transfer-Encoding: chunked;q=1", body=b"0\r\n\r\n" + HIDDEN), then=501),
    Case("a coding in quotes", _post(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n" + HIDDEN), then=501),
    Case("almost chunked", _post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + HIDDEN), then=501),
    Case("an empty coding", _post(b"Transfer-Encoding:", body=b"0\r\n\r\n" + HIDDEN), then=501),
    Case("a coding behind a vertical tab", _post(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n" + HIDDEN),
         then=400),
    Case("chunked in HTTP/1.0", b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, then=400),
    Case("a space before the colon", _post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n" + HIDDEN), then=400),
    Case("a folded field", _get(b"X-Folded: a", b" b"), then=400),
    Case("a folded coding", _post(b"Transfer-Encoding:", b" chunked", body=b"0\r\n\r\n" + HIDDEN), then=400),
    Case("a first field with a space", b"GET /a HTTP/1.1\r\n Host: localhost\r\n\r\n", then=400),
    Case("a bare LF in the head", b"GET /a HTTP/1.1\nHost: localhost\n\n", then=400),
    Case("a bare LF between fields", b"GET /a HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", then=400),
    Case("a bare CR in a value", _get(b"X-A: b\rTransfer-Encoding: chunked"), then=400),
    Case("a NUL in a value", _get(b"X-A: b\x00c"), then=400),
    Case("a NUL in a name", _get(b"X-\x00A: b"), then=400),
    Case("no colon", _get(b"what is this"), then=400),
    Case("no name", _get(b": value"), then=400),
    Case("a space in a name", _get(b"X A: b"), then=400),
    Case("a name of other letters", _get(b"X-\xe9: b"), then=400),
    Case("no host", b"GET /a HTTP/1.1\r\n\r\n", then=400),
    Case("two hosts", _get(b"Host: localhost"), then=400),
    Case("two different hosts", _get(b"Host: 127.0.0.1"), then=400),
    Case("a host with a user", _get(host=b"Host: me@localhost\r\n"), then=403),
    Case("a foreign host", _get(host=b"Host: rebound.example\r\n"), then=403),
    Case("two spaces in the first line", b"GET  /a HTTP/1.1\r\n" + HOST + b"\r\n", then=400),
    Case("tabs in the first line", b"GET\t/a\tHTTP/1.1\r\n" + HOST + b"\r\n", then=400),
    Case("a space in the target", b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", then=400),
    Case("a control character in the target", b"GET /a\x01b HTTP/1.1\r\n" + HOST + b"\r\n", then=400),
    Case("no version", b"GET /a\r\n" + HOST + b"\r\n", then=400),
    Case("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", then=505),
    Case("HTTP/1.2", b"GET /a HTTP/1.2\r\n" + HOST + b"\r\n", then=505),
    Case("a small version", b"GET /a http/1.1\r\n" + HOST + b"\r\n", then=400),
    Case("a space behind the version", b"GET /a HTTP/1.1 \r\n" + HOST + b"\r\n", then=400),
    Case("a method that is none", b"G(T /a HTTP/1.1\r\n" + HOST + b"\r\n", then=400),
    Case("a target that is too long", _get(target=b"/" + b"a" * 140000), then=414),
    Case("fields that are too long", _get(*(b"X-%d: " % n + b"v" * 8000 for n in range(20))), then=431),
    Case("too many fields", _get(*(b"X-%d: v" % n for n in range(600))), then=431),
    Case("a refused one behind a good one", _get() + _get(b"X A: b") + HIDDEN, (A,), then=400),
]  # fmt: skip

# The head is through when the body turns out to be none: no whole request reaches the server.
BROKEN = [
    Case("a body that breaks off", _post(b"Content-Length: 10", body=b"hello"), then=None),
    Case("chunks that break off", _chunked(b"5\r\nhel"), then=None),
    Case("chunks without an end", _chunked(b"5\r\nhello\r\n"), then=None),
    Case("a trailer that breaks off", _chunked(b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n"), then=None),
    Case("a signed chunk size", _chunked(b"+5\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("a chunk size with 0x", _chunked(b"0x5\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("a chunk size with an underscore", _chunked(b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("a chunk size behind a space", _chunked(b" 5\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("an empty chunk size", _chunked(b"\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("a negative chunk size", _chunked(b"-5\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("an absurd chunk size", _chunked(b"f" * 20 + b"\r\nhello\r\n0\r\n\r\n"), then=None),
    Case("a chunk longer than its size", _chunked(b"4\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("a chunk shorter than its size", _chunked(b"6\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("a chunk's line with LF alone", _chunked(b"5\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("a chunk's end with LF alone", _chunked(b"5\r\nhello\n0\r\n\r\n" + HIDDEN), then=None),
    Case("an extension with a bare CR", _chunked(b"5;a\rb\r\nhello\r\n0\r\n\r\n" + HIDDEN), then=None),
    Case("an extension without end", _chunked(b"5;" + b"a" * 20000 + b"\r\nhello\r\n0\r\n\r\n"), then=None),
    Case("a length in a trailer", _chunked(b"0\r\nContent-Length: 50\r\n\r\n" + HIDDEN), then=None),
    Case("a folded trailer", _chunked(b"0\r\nX-A: b\r\n c\r\n\r\n" + HIDDEN), then=None),
    Case("a trailer with LF alone", _chunked(b"0\r\nX-A: b\n\r\n" + HIDDEN), then=None),
]  # fmt: skip

# What may pass in its own or in a normal form, or be refused: but nobody may see another request in it.
EITHER = [
    Case("the same length twice", _post(b"Content-Length: 5", b"Content-Length: 5", body=b"hello" + HIDDEN)),
    Case("an absolute target", _get(target=b"http://localhost/a")),
    Case("an absolute target of another host", _get(target=b"http://rebound.example/a")),
    Case("a target of other bytes", _get(target=b"/\xc3\xa9")),
    Case("a target with a fragment", _get(target=b"/a#b")),
    Case("a target without a slash", _get(target=b"a")),
    Case("a target with a backslash", _get(target=b"/a\\b<>\"`")),
    Case("CONNECT", b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN),
    Case("TRACE", b"TRACE /a HTTP/1.1\r\n" + HOST + b"\r\n"),
    Case("an upgrade with a body", _post(b"Upgrade: websocket", b"Connection: Upgrade", b"Content-Length: 5",
                                         body=b"hello") + HIDDEN),
    Case("another expectation", _post(b"Expect: the-unexpected", b"Content-Length: 5", body=b"hello") + HIDDEN),
    Case("keep-alive in HTTP/1.0", b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + HIDDEN),
    Case("an underscore for a dash", _post(b"Content_Length: 5", b"Transfer_Encoding: chunked") + HIDDEN),
    Case("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)),
    Case("a greeting of SSH", b"SSH-2.0-OpenSSH_9.2\r\n"),
    Case("nothing", b""),
    Case("only line ends", b"\r\n\r\n\r\n"),
    Case("half a head", b"GET /a HTTP/1.1\r\nHost: loc"),
]  # fmt: skip


# -- made ones ---------------------------------------------------------------------------------------------------------

_LINES = st.sampled_from(
    [
        b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 37", b"content-length:5", b"Content-Length : 5",
        b"Content-Length: +5", b"Content-Length: 5,5", b"Content-Length: 0x5", b"Content-Length: 5\x0b",
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"transfer-encoding:chunked",
        b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: \x00chunked",
        b"Transfer-Encoding : chunked", b"X: y\rTransfer-Encoding: chunked", b"X: y\nTransfer-Encoding: chunked",
        b" chunked", b"\tchunked", b"Connection: close", b"Connection: keep-alive", b"Connection: content-length",
        b"Connection: transfer-encoding", b"Connection: close, x-a", b"Connection: upgrade", b"Upgrade: websocket",
        b"Expect: 100-continue", b"TE: trailers", b"Trailer: X-A", b"X-A: b", b"X-A:", b"Host: localhost", b"Host: a b",
        b"Cookie: a=1; b=2", b"X-Forwarded-For: 10.0.0.1", b"x-aws-proxy-port: 9000", b"vmnest-relay-port: 9000", b":",
    ]
)  # fmt: skip
_STARTS = st.sampled_from(
    [b"GET /a HTTP/1.1", b"POST /a HTTP/1.1", b"PUT /a?b=c HTTP/1.1", b"DELETE /a HTTP/1.1", b"POST /a HTTP/1.0"] * 3
    + [b"GET /a", b"GET  /a HTTP/1.1", b"POST /a HTTP/1.1 ", b"post /a HTTP/1.1", b"GET http://localhost/a HTTP/1.1"]
)  # fmt: skip
_BODIES = st.sampled_from(
    [
        b"", b"hello", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\nX-A: b\r\n\r\n", HIDDEN,
        b"0\r\n\r\n" + HIDDEN, b"5\r\nhello\r\n0\r\n\r\n" + HIDDEN, b"hello" + HIDDEN, b"5\nhello\n0\n\n" + HIDDEN,
        b"00\r\nContent-Length: 9\r\n\r\n" + HIDDEN, b"5\r\nhello\r\n", b"-1\r\n", b"1f\r\n" + HIDDEN, b"\r\n" + HIDDEN,
    ]
)  # fmt: skip


@st.composite
def _request(draw: st.DrawFn) -> bytes:
    lines = [draw(_STARTS), *([HOST[:-2]] if draw(st.integers(0, 9)) else []), *draw(st.lists(_LINES, max_size=4))]
    end = b"\r\n" if draw(st.integers(0, 14)) else b"\n"
    return end.join(lines) + end + end + draw(_BODIES)


@st.composite
def odd_requests(draw: st.DrawFn) -> bytes:
    """One to three requests that may be none, perhaps with a byte that is another."""
    sent = b"".join(draw(st.lists(_request(), min_size=1, max_size=3)))
    if not draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(sent) - 1))
        sent = (
            sent[:at] + draw(st.sampled_from([b"", b" ", b"\r", b"\n", b"\x00", b":", b"0", b"\xff"])) + sent[at + 1 :]
        )
    return sent
