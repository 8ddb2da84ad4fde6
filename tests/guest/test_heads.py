"""Request heads: what is taken, and what is refused because it could be read in two ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import heads


def parse(text: str) -> heads.Head:
    return heads.parse(text.encode("latin-1").split(b"\n"))


def test_a_head_is_taken_apart() -> None:
    head = parse("POST /v1/exec?x=1 HTTP/1.1\nHost: a\nContent-Length: 12\nX-Twice: 1\nx-twice:2 ")
    assert (head.method, head.target, head.version) == ("POST", "/v1/exec?x=1", (1, 1))
    assert head.path == "/v1/exec"
    assert head.headers["x-twice"] == ["1", "2"]
    assert (head.length, head.chunked) == (12, False)
    assert head.value("host") == "a"
    assert head.value("absent") == ""


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a//b/%2F", "/a//b/%2F"),
        ("//a", "//a"),
        ("http://host:1/healthz?q", "/healthz"),
        ("HTTPS://host", "/"),
        ("*", "*"),
        ("?", "/"),
    ],
)
def test_a_path_is_what_was_sent(target: str, path: str) -> None:
    assert parse(f"GET {target} HTTP/1.1").path == path


def test_a_query_keeps_order_repetition_and_bytes() -> None:
    head = parse("GET /f?path=%2Fa+b%00%FF&x=1&x=2&&flag&=y&path=\xe9 HTTP/1.1")
    assert head.query == {"path": [b"/a+b\0\xff", b"\xe9"], "x": [b"1", b"2"], "flag": [b""], "": [b"y"]}
    assert parse("GET / HTTP/1.1").query == {}


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_bytes_pass_in_a_query(values: list[bytes]) -> None:
    text = "&".join("p=" + "".join(f"%{byte:02X}" for byte in value) for value in values)
    assert parse(f"GET /?{text} HTTP/1.1").query.get("p", []) == values


@pytest.mark.parametrize("query", ["%", "a=%4", "%zz=1", "a=%u1234"])
def test_a_malformed_escape_is_an_error_only_for_who_asks(query: str) -> None:
    head = parse(f"GET /x?{query} HTTP/1.1")
    assert head.path == "/x"
    with pytest.raises(heads.HeadError):
        _ = head.query


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("1.1", "", True),
        ("1.1", "Connection: close", False),
        ("1.1", "Connection: upgrade, Close", False),
        ("1.0", "", False),
        ("1.0", "Connection: Keep-Alive", True),
        ("1.0", "Connection: keep-alive, close", False),
    ],
)
def test_the_connection_lasts_as_the_client_wishes(version: str, connection: str, keeps: bool) -> None:
    lines = [f"GET / HTTP/{version}", *([connection] if connection else [])]
    assert parse("\n".join(lines)).keeps_alive is keeps


def test_only_an_http_1_1_client_is_invited_to_send_its_body() -> None:
    assert parse("POST / HTTP/1.1\nExpect: 100-Continue\nContent-Length: 1").expects_continue
    assert not parse("POST / HTTP/1.0\nExpect: 100-continue\nContent-Length: 1").expects_continue


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 400),
        ("GET", 400),
        ("GET /", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /a b HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET / http/1.1", 400),
        ("GET / HTTP/11", 400),
        ("G@T / HTTP/1.1", 400),
        ("GET /\x00 HTTP/1.1", 400),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/0.9", 505),
        ("GET / HTTP/1.1\nno colon", 400),
        ("GET / HTTP/1.1\n: empty", 400),
        ("GET / HTTP/1.1\nName : value", 400),
        ("GET / HTTP/1.1\nName: value\n folded", 400),
        ("GET / HTTP/1.1\nName: va\rlue", 400),
        ("GET / HTTP/1.1\nName: va\x00lue", 400),
        ("GET / HTTP/1.1\nNäme: value", 400),
        ("POST / HTTP/1.1\nContent-Length: +5", 400),
        ("POST / HTTP/1.1\nContent-Length: 1_0", 400),
        ("POST / HTTP/1.1\nContent-Length: -1", 400),
        ("POST / HTTP/1.1\nContent-Length: \xb2", 400),
        ("POST / HTTP/1.1\nContent-Length:", 400),
        ("POST / HTTP/1.1\nContent-Length: 5, 5", 400),
        ("POST / HTTP/1.1\nContent-Length: 5\nContent-Length: 6", 400),
        ("POST / HTTP/1.1\nContent-Length: " + "9" * 19, 400),
        ("POST / HTTP/1.1\nContent-Length: 5\nTransfer-Encoding: chunked", 400),
        ("POST / HTTP/1.1\nTransfer-Encoding: gzip, chunked", 501),
        ("POST / HTTP/1.1\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked", 501),
    ],
)
def test_a_malformed_or_ambiguous_head_is_refused(text: str, status: int) -> None:
    with pytest.raises(heads.HeadError) as caught:
        parse(text)
    assert caught.value.status == status


def test_the_same_length_twice_is_one_length() -> None:
    assert parse("POST / HTTP/1.1\nContent-Length: 5\nContent-Length: 5").length == 5


def test_a_chunked_body_has_no_length() -> None:
    head = parse("POST / HTTP/1.1\nTransfer-Encoding: Chunked")
    assert (head.length, head.chunked) == (0, True)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_no_bytes_raise_anything_but_a_head_error(lines: list[bytes]) -> None:
    try:
        head = heads.parse(lines)
    except heads.HeadError:
        return
    assert head.path
    assert head.length >= 0


@pytest.mark.parametrize(("line", "size"), [(b"0", 0), (b"a", 10), (b"FF", 255), (b"10;name=value", 16), (b"1 ; x", 1)])
def test_a_chunk_size_is_hexadecimal_and_its_extensions_are_ignored(line: bytes, size: int) -> None:
    assert heads.parse_chunk_size(line) == size


@pytest.mark.parametrize("line", [b"", b"-1", b"+1", b"0x1", b"1_0", b"g", b" 1", b"1" * 16, b"1\r", b"1;\x00"])
def test_anything_else_is_no_chunk_size(line: bytes) -> None:
    with pytest.raises(heads.HeadError):
        heads.parse_chunk_size(line)


# -- fields, and heads of answers


def test_fields_keep_order_case_and_repetition() -> None:
    head = parse("GET / HTTP/1.1\nB: 1\nA:  2\t\nb: 3")
    assert head.fields == [("B", "1"), ("A", "2"), ("b", "3")]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Connection: Upgrade\nUpgrade: websocket", True),
        ("Connection: keep-alive, upgrade\nUpgrade: x", True),
        ("Connection: keep-alive\nConnection: Upgrade\nUpgrade: x", True),
        ("Upgrade: websocket", False),
        ("Connection: Upgrade", False),
    ],
)
def test_an_upgrade_is_asked_for_by_two_fields(text: str, asks: bool) -> None:
    assert parse(f"GET / HTTP/1.1\n{text}").asks_upgrade is asks


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("HTTP/1.1 200 OK", True),
        ("HTTP/1.1 200 OK\nConnection: x, Close", False),
        ("HTTP/1.0 200 OK", False),
        ("HTTP/1.0 200 OK\nConnection: Keep-Alive", True),
    ],
)
def test_a_server_says_whether_its_connection_lasts(text: str, keeps: bool) -> None:
    assert heads.parse_response(text.encode().split(b"\n")).keeps_alive is keeps


def test_the_head_of_an_answer_keeps_its_lines_as_they_came() -> None:
    lines = [b"HTTP/1.1 404 \xe9 x", b"Set-Cookie: a", b"set-cookie:b", b"X:  1 "]
    head = heads.parse_response(lines)
    assert (head.status, head.version, head.lines) == (404, (1, 1), lines)
    assert head.headers == {"set-cookie": ["a", "b"], "x": ["1"]}


@pytest.mark.parametrize("line", ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 999 ?"])
def test_a_reason_may_be_missing(line: str) -> None:
    assert heads.parse_response([line.encode()]).status in {200, 999}


@pytest.mark.parametrize(
    "line",
    ["", "HTTP/1.1", "HTTP/2 200 OK", "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 099 OK", "HTTP/1.1  200 OK"],
)
def test_anything_else_is_no_answer(line: str) -> None:
    with pytest.raises(heads.HeadError):
        heads.parse_response([line.encode()])


@pytest.mark.parametrize("field", ["no colon", " folded: 1", "name : 1", "x: a\rb", "x: \0", ": empty"])
def test_a_malformed_field_is_no_answer(field: str) -> None:
    with pytest.raises(heads.HeadError):
        heads.parse_response([b"HTTP/1.1 200 OK", field.encode()])
