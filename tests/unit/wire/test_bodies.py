"""Bodies of HTTP/1.1 messages: the same payload and the same end however the bytes are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.wire import bodies, http1

CHUNKED = http1.Framing(http1.CHUNKED)
CLOSE = http1.Framing(http1.UNTIL_CLOSE)


def length(count):
    return http1.Framing(http1.LENGTH, count)


def decode(framing, data, *, piece=65536, limit=None):
    decoder = bodies.BodyDecoder(framing, limit=limit)
    payload = b"".join(decoder.feed(data[start : start + piece]) for start in range(0, len(data), piece))
    return decoder, payload


class TestDecoder:
    def test_no_body_is_complete_at_once(self):
        assert bodies.BodyDecoder(http1.NO_BODY).complete
        assert bodies.BodyDecoder(length(0)).complete

    @pytest.mark.parametrize("piece", range(1, 9))
    def test_a_length_ends_the_body(self, piece):
        decoder, payload = decode(length(5), b"helloNEXT", piece=piece)
        assert (payload, decoder.rest, decoder.complete) == (b"hello", b"NEXT", True)

    def test_the_end_of_the_connection_ends_a_body_without_length(self):
        decoder, payload = decode(CLOSE, b"all of it")
        assert not decoder.complete
        decoder.finish()
        assert payload == b"all of it"
        assert decoder.complete

    CHUNKS = b'3;x="y"\r\nabc\r\n0A \r\n0123456789\r\n00\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\nNEXT'

    @pytest.mark.parametrize("piece", range(1, len(CHUNKS)))
    def test_chunks_extensions_and_trailers_are_read_however_they_are_cut(self, piece):
        decoder, payload = decode(CHUNKED, self.CHUNKS, piece=piece)
        assert (payload, decoder.rest, decoder.complete) == (b"abc0123456789", b"NEXT", True)
        assert decoder.trailers == (("X-Sum", "1"), ("x-sum", "2"))

    @given(
        parts=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
        cuts=st.lists(st.integers(0, 400), max_size=8),
        trailers=st.lists(st.tuples(st.just("X-T"), st.just("v")), max_size=2),
    )
    def test_what_is_encoded_is_decoded_alike(self, parts, cuts, trailers):
        data = b"".join(map(bodies.encode_chunk, parts)) + bodies.encode_last_chunk(trailers) + b"GET /"
        decoder, payload = bodies.BodyDecoder(CHUNKED), b""
        edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
        for start, end in itertools.pairwise(edges):
            payload += decoder.feed(data[start:end])
        assert payload == b"".join(parts)
        assert decoder.complete
        assert decoder.rest == b"GET /"
        assert list(decoder.trailers) == trailers

    @pytest.mark.parametrize(
        "data",
        [
            b"3\nabc\r\n",
            b"\r\n",
            b"x\r\n",
            b"-1\r\n",
            b" 3\r\nabc\r\n",
            b"0x3\r\nabc\r\n",
            b"1_0\r\n",
            b"3;\x00\r\n",
            b"1" * 16 + b"\r\n",
            b"3" + b" " * 5000 + b"\r\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n",
            b"3\r\nabc\rxy",
            b"0\r\nbad line\r\n\r\n",
            b"0\r\n folded: 1\r\n\r\n",
            b"0\r\nContent-Length: 3\r\n\r\n",
            b"0\r\nA: " + b"x" * 20000,
        ],
        ids=lambda data: repr(data[:30]),
    )
    @pytest.mark.parametrize("piece", [1, 65536])
    def test_malformed_chunks_are_refused(self, data, piece):
        with pytest.raises(http1.MessageError) as caught:
            decode(CHUNKED, data, piece=piece)
        assert caught.value.status == 400

    def test_a_trailer_section_has_a_limit_as_a_whole(self):
        with pytest.raises(http1.MessageError):
            decode(CHUNKED, b"0\r\n" + b"A: %b\r\n" % (b"x" * 1000) * 20)

    @pytest.mark.parametrize("framing", [length(5), CHUNKED], ids=["length", "chunked"])
    def test_an_early_end_of_the_connection_is_an_error(self, framing):
        decoder, _ = decode(framing, b"3\r\n")
        with pytest.raises(http1.TruncatedError):
            decoder.finish()

    def test_a_length_beyond_the_limit_is_413_before_anything_is_read(self):
        with pytest.raises(http1.MessageError) as caught:
            bodies.BodyDecoder(length(11), limit=10)
        assert caught.value.status == 413

    @pytest.mark.parametrize("framing", [CHUNKED, CLOSE], ids=["chunked", "until close"])
    def test_a_body_that_grows_beyond_the_limit_is_413(self, framing):
        with pytest.raises(http1.MessageError) as caught:
            decode(framing, b"b\r\n0123456789A\r\n", limit=10)
        assert caught.value.status == 413


class TestEncoder:
    def test_an_empty_payload_does_not_end_the_body(self):
        assert bodies.encode_chunk(b"") == b""

    def test_a_chunk_tells_its_size_in_hexadecimal(self):
        assert bodies.encode_chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"

    def test_trailers_stand_behind_the_last_chunk(self):
        assert bodies.encode_last_chunk([("A", "1")]) == b"0\r\nA: 1\r\n\r\n"
