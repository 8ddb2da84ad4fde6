"""Heads of HTTP/1.1 messages: what is kept, what is refused."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.wire import http1

TOKEN = st.text("!#$%&'*+-.^_`|~0123456789ABCxyz", min_size=1, max_size=12)
VALUE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20).map(
    str.strip
)
FIELDS = st.lists(st.tuples(TOKEN, VALUE.filter(lambda v: v == v.strip(" \t"))), max_size=6).map(tuple)


def head_of(data, **options):
    head = http1.HeadBuffer(**options).feed(data)
    assert head is not None
    return head


def request_of(text):
    return http1.parse_request(head_of(text))


class TestHeadBuffer:
    DATA = b"GET / HTTP/1.1\r\nA: 1\r\n\r\nrest"

    def test_a_head_ends_at_its_empty_line(self):
        buffer = http1.HeadBuffer()
        assert buffer.feed(self.DATA) == b"GET / HTTP/1.1\r\nA: 1"
        assert buffer.rest == b"rest"

    @pytest.mark.parametrize("at", range(1, len(DATA)))
    def test_a_head_may_come_in_two_pieces(self, at):
        buffer = http1.HeadBuffer()
        head = buffer.feed(self.DATA[:at])
        rest = self.DATA[at:] if head is None else b""
        if head is None:
            head = buffer.feed(self.DATA[at:])
            rest = buffer.rest
        assert head == b"GET / HTTP/1.1\r\nA: 1"
        assert b"rest".endswith(rest)

    def test_a_head_may_come_byte_by_byte(self):
        buffer = http1.HeadBuffer(skip_empty_lines=True)
        heads = [buffer.feed(bytes([byte])) for byte in b"\r\n\r\n" + self.DATA[:-4]]
        assert heads[:-1] == [None] * (len(heads) - 1)
        assert heads[-1] == b"GET / HTTP/1.1\r\nA: 1"

    def test_empty_lines_before_a_request_are_skipped_if_asked(self):
        assert head_of(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", skip_empty_lines=True) == b"GET / HTTP/1.1"

    @pytest.mark.parametrize("data", [b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r\nA: 1\n\r\n", b"\n"], ids=repr)
    @pytest.mark.parametrize("piece", [1, 100])
    def test_a_bare_lf_is_refused_at_once(self, data, piece):
        buffer = http1.HeadBuffer()
        with pytest.raises(http1.MessageError) as caught:
            any(buffer.feed(data[start : start + piece]) for start in range(0, len(data), piece))
        assert caught.value.status == 400

    def test_too_large_a_head_is_431(self):
        with pytest.raises(http1.MessageError) as caught:
            http1.HeadBuffer(limit=100).feed(b"GET / HTTP/1.1\r\nA: " + b"x" * 100)
        assert caught.value.status == 431

    def test_too_long_a_request_line_is_414(self):
        with pytest.raises(http1.MessageError) as caught:
            http1.HeadBuffer(limit=100).feed(b"GET /" + b"x" * 100)
        assert caught.value.status == 414

    def test_a_head_within_the_limit_passes_with_a_large_body_behind_it(self):
        buffer = http1.HeadBuffer(limit=100)
        assert buffer.feed(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 1000) == b"GET / HTTP/1.1"
        assert len(buffer.rest) == 1000

    def test_16_kib_of_cookies_pass(self):
        assert len(head_of(b"GET / HTTP/1.1\r\nCookie: " + b"c" * 16384 + b"\r\n\r\n")) > 16384


class TestParseRequest:
    def test_the_raw_target_is_kept(self):
        assert request_of(b"GET //a//b%2F/../?q=%20&&x HTTP/1.1\r\n\r\n").target == "//a//b%2F/../?q=%20&&x"

    def test_fields_keep_order_case_and_repetitions(self):
        request = request_of(b"GET / HTTP/1.1\r\nB: 1\r\na:2\r\nB:\t 3 \r\nE:\r\n\r\n")
        assert request.fields == (("B", "1"), ("a", "2"), ("B", "3"), ("E", ""))

    def test_bytes_above_ascii_survive(self):
        data = b"GET /\xc3\xa4 HTTP/1.1\r\nA: \xff\r\n\r\n"
        assert http1.serialize_request(request_of(data)) == data

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"GET",
            b"GET /",
            b"GET  / HTTP/1.1",
            b" GET / HTTP/1.1",
            b"GET / HTTP/1.1 ",
            b"G(T / HTTP/1.1",
            b"GET /\x00 HTTP/1.1",
            b"GET /\t HTTP/1.1",
            b"GET / http/1.1",
            b"GET / HTTP/1.10",
            b"GET / HTTP/x.1",
            b"\x16\x03\x01",
        ],
        ids=repr,
    )
    def test_a_malformed_request_line_is_400(self, line):
        with pytest.raises(http1.MessageError) as caught:
            http1.parse_request(line)
        assert caught.value.status == 400

    @pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2"], ids=repr)
    def test_another_version_is_505(self, version):
        with pytest.raises(http1.MessageError) as caught:
            http1.parse_request(b"PRI * " + version)
        assert caught.value.status == 505

    @pytest.mark.parametrize(
        "line",
        [b"A : 1", b" A: 1", b"\tfolded", b": 1", b"A", b"A: \x00", b"A: x\rB: y", b"A: \x7f", b"\xe4: 1", b"A B: 1"],
        ids=repr,
    )
    def test_a_malformed_field_is_400(self, line):
        with pytest.raises(http1.MessageError) as caught:
            http1.parse_request(b"GET / HTTP/1.1\r\nHost: x\r\n" + line)
        assert caught.value.status == 400

    def test_too_many_fields_are_431(self):
        with pytest.raises(http1.MessageError) as caught:
            http1.parse_request(b"GET / HTTP/1.1" + b"\r\nA: 1" * 513)
        assert caught.value.status == 431

    @given(method=TOKEN, fields=FIELDS, minor=st.integers(0, 1), pieces=st.lists(st.integers(0, 300), max_size=5))
    def test_what_is_serialized_is_parsed_alike_however_it_is_cut(self, method, fields, minor, pieces):
        request = http1.Request(method, "/a%2Fb?c", fields, minor)
        data, buffer, head = http1.serialize_request(request), http1.HeadBuffer(), None
        cuts = sorted({0, len(data), *(piece for piece in pieces if piece < len(data))})
        for start, end in itertools.pairwise(cuts):
            head = buffer.feed(data[start:end])
        assert head is not None
        assert http1.parse_request(head) == request

    @given(st.binary(max_size=200))
    def test_any_bytes_are_a_request_or_a_message_error(self, data):
        try:
            head = http1.HeadBuffer().feed(data + b"\r\n\r\n")
            assert head is not None
            request = http1.parse_request(head)
            http1.request_framing(request)
        except http1.MessageError as error:
            assert error.status in {400, 414, 431, 501, 505}  # noqa: PT017


class TestParseResponse:
    def test_status_reason_and_fields_are_kept(self):
        response = http1.parse_response(b"HTTP/1.0 299 Odd Thing\r\nSet-Cookie: a\r\nSet-Cookie: b")
        assert response == http1.Response(299, "Odd Thing", (("Set-Cookie", "a"), ("Set-Cookie", "b")), 0)

    @pytest.mark.parametrize("line", [b"HTTP/1.1 200", b"HTTP/1.1 200 "], ids=repr)
    def test_the_reason_may_be_absent(self, line):
        assert http1.parse_response(line).reason == ""

    @pytest.mark.parametrize(
        "line", [b"HTTP/1.1 20", b"HTTP/2 200 OK", b"HTTP/1.1 2000 OK", b"ICY 200 OK", b""], ids=repr
    )
    def test_a_malformed_status_line_is_refused(self, line):
        with pytest.raises(http1.MessageError):
            http1.parse_response(line)

    def test_it_is_serialized_as_it_was(self):
        data = b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"
        assert http1.serialize_response(http1.parse_response(head_of(data))) == data


class TestSerialize:
    @pytest.mark.parametrize("field", [("A", "x\r\nB: y"), ("A\n", "x"), ("A", "x\0")], ids=repr)
    def test_a_line_break_does_not_get_into_a_field(self, field):
        with pytest.raises(http1.MessageError):
            http1.serialize_fields([field])

    def test_a_line_break_does_not_get_into_the_first_line(self):
        with pytest.raises(http1.MessageError):
            http1.serialize_request(http1.Request("GET", "/\r\nA: 1", ()))


class TestLooking:
    FIELDS = (("A", "1"), ("Connection", "x, Close"), ("a", "2, ,3"))

    def test_the_first_value_and_all_of_them(self):
        assert http1.first(self.FIELDS, "a") == "1"
        assert http1.first(self.FIELDS, "b") is None
        assert http1.values(self.FIELDS, "a") == ["1", "2, ,3"]
        assert http1.elements(self.FIELDS, "a") == ["1", "2", "3"]

    def test_fields_are_left_out_by_name(self):
        assert http1.without(self.FIELDS, ["a"]) == [("Connection", "x, Close")]

    @pytest.mark.parametrize(
        ("minor", "connection", "keeps"),
        [(1, "", True), (1, "close", False), (1, "x, Close", False), (0, "", False), (0, "Keep-Alive", True)],
    )
    def test_keeping_alive_depends_on_version_and_connection(self, minor, connection, keeps):
        assert http1.keeps_alive(http1.Request("GET", "/", (("Connection", connection),), minor)) is keeps

    def test_an_upgrade_needs_both_fields(self):
        both = (("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket"))
        assert http1.asks_upgrade(http1.Request("GET", "/", both))
        assert not http1.asks_upgrade(http1.Request("GET", "/", both[:1]))
        assert not http1.asks_upgrade(http1.Request("GET", "/", both[1:]))

    def test_expect_counts_in_http_1_1_only(self):
        fields = (("Expect", "100-Continue"),)
        assert http1.expects_continue(http1.Request("PUT", "/", fields))
        assert not http1.expects_continue(http1.Request("PUT", "/", fields, 0))


class TestFraming:
    def request(self, *fields, minor=1):
        return http1.request_framing(http1.Request("POST", "/", fields, minor))

    def response(self, status, *fields, method="GET"):
        return http1.response_framing(http1.Response(status, "", fields), method=method)

    def test_a_request_without_fields_has_no_body(self):
        assert self.request() == http1.NO_BODY

    def test_a_length_and_chunks_are_told_by_their_fields(self):
        assert self.request(("content-length", "5")) == http1.Framing(http1.LENGTH, 5)
        assert self.request(("content-length", "5"), ("Content-Length", "5")) == http1.Framing(http1.LENGTH, 5)
        assert self.request(("Transfer-Encoding", "Chunked")) == http1.Framing(http1.CHUNKED)

    @pytest.mark.parametrize(
        "fields",
        [
            [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
            [("Content-Length", "5"), ("Content-Length", "6")],
            *[[("Content-Length", text)] for text in ("", "+5", "-1", "5, 5", "0x5", "5 5", "٣", "9" * 19)],
        ],
        ids=repr,
    )
    def test_contradictions_are_400(self, fields):
        with pytest.raises(http1.MessageError) as caught:
            self.request(*fields)
        assert caught.value.status == 400

    @pytest.mark.parametrize("coding", ["gzip, chunked", "identity", "chunked, chunked", "xchunked", "chunked;q"])
    def test_another_coding_is_501(self, coding):
        with pytest.raises(http1.MessageError) as caught:
            self.request(("Transfer-Encoding", coding))
        assert caught.value.status == 501

    def test_chunks_in_http_1_0_are_refused(self):
        with pytest.raises(http1.MessageError):
            self.request(("Transfer-Encoding", "chunked"), minor=0)

    @pytest.mark.parametrize(
        ("status", "method"), [(200, "HEAD"), (100, "GET"), (101, "GET"), (204, "GET"), (304, "GET")]
    )
    def test_some_responses_have_no_body_whatever_they_say(self, status, method):
        assert self.response(status, ("Content-Length", "5"), method=method) == http1.NO_BODY

    def test_a_response_without_fields_lasts_until_the_connection_closes(self):
        assert self.response(200) == http1.Framing(http1.UNTIL_CLOSE)

    @pytest.mark.parametrize(
        ("kind", "minor", "passed"),
        [
            (http1.UNTIL_CLOSE, 1, http1.CHUNKED),
            (http1.UNTIL_CLOSE, 0, http1.UNTIL_CLOSE),
            (http1.CHUNKED, 1, http1.CHUNKED),
            (http1.CHUNKED, 0, http1.UNTIL_CLOSE),
            (http1.NONE, 0, http1.NONE),
        ],
    )
    def test_a_body_is_passed_on_in_chunks_to_those_who_know_chunks(self, kind, minor, passed):
        assert http1.passed_framing(http1.Framing(kind), minor=minor) == http1.Framing(passed)

    def test_a_length_that_is_known_is_passed_on(self):
        assert http1.passed_framing(http1.Framing(http1.LENGTH, 5), minor=1) == http1.Framing(http1.LENGTH, 5)

    def test_fields_tell_the_framing_once_at_the_place_where_it_stood(self):
        fields = [("A", "1"), ("content-length", "5"), ("B", "2"), ("Content-Length", "5")]
        expected = [("A", "1"), ("Content-Length", "5"), ("B", "2")]
        assert http1.framed_fields(fields, http1.Framing(http1.LENGTH, 5)) == expected
        assert http1.framed_fields([], http1.Framing(http1.CHUNKED)) == [("Transfer-Encoding", "chunked")]
        assert http1.framed_fields(fields, http1.NO_BODY) == [("A", "1"), ("B", "2")]
