"""S3's checksums."""

import base64
import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import s3_checksums

CHECK = b"123456789"  # what the catalogues of CRCs give their value for


def compute(algorithm, *pieces):
    digest = s3_checksums.ALGORITHMS[algorithm]()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [("crc32", "cbf43926"), ("crc32c", "e3069283"), ("crc64nvme", "ae8b14860a799888")],
)
def test_the_value_of_the_catalogues(algorithm, value):
    assert compute(algorithm, CHECK).hex() == value


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512", "md5"])
def test_hashes_are_the_librarys(algorithm):
    assert compute(algorithm, CHECK) == hashlib.new(algorithm, CHECK).digest()


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_pieces_do_not_matter(pieces):
    for algorithm in s3_checksums.ALGORITHMS:
        assert compute(algorithm, *pieces) == compute(algorithm, b"".join(pieces))
    assert compute("crc32", *pieces) == zlib.crc32(b"".join(pieces)).to_bytes(4, "big")


def test_what_would_take_too_long_is_not_computed(monkeypatch):
    monkeypatch.setattr(s3_checksums, "SLOW_BYTES", 8)
    assert compute("crc32c", b"12345678") is not None
    assert compute("crc32c", b"1234567", b"89") is None
    assert compute("crc32", CHECK) is not None


def test_what_travels_is_base64_of_so_many_bytes():
    assert s3_checksums.decode(s3_checksums.encode(b"abcd"), size=4) == b"abcd"
    for text in ("AAAA", "é", "A", "AA*A====", "AAAAAAA"):
        assert s3_checksums.decode(text, size=4) is None


def test_the_checksum_and_the_etag_of_parts():
    parts = [s3_checksums.encode(compute("crc32", part)) for part in (b"a", b"b")]
    joined = compute("crc32", b"a") + compute("crc32", b"b")
    assert s3_checksums.of_parts("crc32", parts) == base64.b64encode(compute("crc32", joined)).decode() + "-2"
    assert s3_checksums.of_parts("crc32", [*parts, "?"]) is None
    etags = [hashlib.md5(part).hexdigest() for part in (b"a", b"b")]
    assert s3_checksums.etag_of_parts(etags) == hashlib.md5(bytes.fromhex("".join(etags))).hexdigest() + "-2"
