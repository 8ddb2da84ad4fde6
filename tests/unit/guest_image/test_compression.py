"""Pieces that threads have compressed apart are one stream to anybody's inflate, with ISA-L and without."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.guest_image import compression

CODECS = [compression.Codec("zlib", compression._make_zlib), compression.choose()]


def inflate(stream: bytes) -> bytes:
    inflater = zlib.decompressobj(-15)
    data = inflater.decompress(stream) + inflater.flush()
    assert inflater.eof
    assert inflater.unused_data == b""
    return data


def test_isa_l_is_chosen_where_it_is_installed():
    assert compression.choose().name == "isal"


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@given(pieces=st.lists(st.tuples(st.sampled_from("rtz"), st.integers(1, 200_000)), min_size=1, max_size=5))
def test_pieces_make_one_stream(codec, pieces):
    rng = random.Random(1)
    make = {"r": rng.randbytes, "t": lambda size: (b"all work and no play " * size)[:size], "z": bytes}
    datas = [make[kind](size) for kind, size in pieces]
    stream, dictionary = b"", b""
    for count, data in enumerate(datas, 1):
        stream += compression.deflate(codec, data, dictionary=dictionary, is_last=count == len(datas))
        dictionary = data[-compression.DICTIONARY_BYTES :]
    assert inflate(stream) == b"".join(datas)


def test_what_does_not_shrink_is_not_tried_in_whole():
    noise = random.Random(2).randbytes(200_000)
    assert not compression.is_worth_it(noise)
    packed = compression.deflate(CODECS[0], noise)
    assert len(packed) == len(noise) + 5 * 4
    assert inflate(packed) == noise


def test_one_part_that_shrinks_is_reason_enough():
    noise = random.Random(3).randbytes(200_000)
    assert compression.is_worth_it(noise + bytes(100_000))
    assert compression.is_worth_it(bytes(100_000) + noise)
